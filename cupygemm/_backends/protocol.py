"""`Backend`: what computes products on one device, and the records that backends and plans share.

A backend is an object with the attributes and the first four methods of `Backend`. It is asked in
the order of its methods: does it support a request, by which configurations, what do their kernels
compile to, and how are they launched. The other methods are optional; their defaults are those of
`NoExtras`.

A device has a list of backends (`cupygemm._backends.registry`), and a request goes to the first one
that supports it. docs/developer/add_a_backend.rst builds a backend step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from cupygemm._records.dtypes import DType
from cupygemm._records.formats import Precision
from cupygemm._records.problem import GemmProblem
from cupygemm._request.request import Request

Runner = Callable[..., Any]
"""Computes a request: ``run(x1, x2, out)`` returns the result, a new array if ``out`` is None.

A request with an epilogue has one more argument, the `EpilogueArguments` of the call.
"""


class Places(NamedTuple):
    """The addresses of the matrices of a group, by number."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    out: tuple[int, ...]


@dataclass(frozen=True)
class DeviceProperties:
    """A device as factories see it.

    Attributes
    ----------
    index : int
        CuPy's number of the device.
    name : str
        What messages call it, e.g. ``"gfx942 (emulated)"``.
    is_hip : bool
        CuPy is built for ROCm.
    is_emulated : bool
    values : dict
        All that ``cupy.cuda.runtime.getDeviceProperties`` tells.
    """

    index: int
    name: str
    is_hip: bool
    is_emulated: bool
    values: dict[str, Any]


@dataclass(frozen=True)
class Support:
    """Whether a backend computes a request.

    Attributes
    ----------
    reason : str or None
        Why not, as a clause without a full stop; None if it does.
    """

    reason: str | None = None

    def __bool__(self) -> bool:
        return self.reason is None


SUPPORTED = Support()


class Config(Protocol):
    """A backend's own record of how a kernel computes a product: a frozen dataclass.

    Its fields are numbers, strings and booleans, so that the database of tuned configurations can
    store it.
    """

    @property
    def brief(self) -> str:
        """Return the tile and what else fits a cell of a table."""

    @property
    def summary(self) -> str:
        """Return a human-readable description."""


class Candidate(Protocol):
    """A configuration that can compute a request, with its modelled cost."""

    @property
    def config(self) -> Any:
        """Return the configuration."""

    @property
    def cycles(self) -> float:
        """Return the modelled cycles of the launch; only their order matters."""


@dataclass(frozen=True, kw_only=True)
class KernelFile:
    """A compiled kernel in the cache.

    Attributes
    ----------
    path : Path
    name : str
        The kernel's name in the file.
    """

    path: Path
    name: str


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """The compiled kernels of a request, not loaded yet, and what to tell users about them.

    Attributes
    ----------
    computed_by : str
        What multiplies: ``"cupygemm"`` or the name of a library.
    reason : str
        Why the request is computed in this way.
    handle : Any
        What the backend itself needs to launch the kernels.
    notes : tuple of str
        The copies and conversions that are made, as sentences.
    problem : GemmProblem or None
        What the kernel solves.
    config : Config or None
        How it does so.
    resources : callable or None
        Returns what the kernel takes from the device, a record with a `summary`.
    compiler : str or None
        The compiler's name and version.
    grid : tuple of int or None
        Workgroups of the first launch.
    num_launches : int
        Launches of the kernel, those of copies not counted.
    by_address : bool
        The runner uses only the addresses of the arrays' first elements where ``out`` is given.
    file : KernelFile or None
        The compiled kernel, for tools that read its code.
    """

    computed_by: str
    reason: str
    handle: Any
    notes: tuple[str, ...] = ()
    problem: GemmProblem | None = None
    config: Config | None = None
    resources: Callable[[], Any] | None = None
    compiler: str | None = None
    grid: tuple[int, int, int] | None = None
    num_launches: int = 0
    by_address: bool = False
    file: KernelFile | None = None


class Group(Protocol):
    """Products that share one launch."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return which of the requests they are, in the order of the launch."""

    def __call__(
        self, x1s: Sequence[Any], x2s: Sequence[Any], outs: Sequence[Any], places: Places | None
    ) -> list[Any]:
        """Compute the products and return them, in the order of `numbers`.

        Parameters
        ----------
        x1s, x2s : sequence of cupy.ndarray
            The operands of all requests of the call, by number.
        outs : sequence of cupy.ndarray or None
            Where the results are wanted. A group may return new arrays instead, which the caller
            copies to `outs` after all groups have read their operands.
        places : Places or None
            The addresses of `x1s`, `x2s` and `outs`; None if they are not known.
        """


@dataclass(frozen=True)
class BlockScaling:
    """Scales that change along k, one for each block of it.

    Attributes
    ----------
    kind : {"float32", "e8m0"}
        The type of a scale: a number, or the exponent of a power of two in a byte.
    block : int
        Elements along k that share a scale.
    rows, columns : int
        Rows of x1, and columns of x2, that share a scale.
    pairs : bool
        Each byte of the operands holds two 4-bit floats, neighbours along k.
    """

    kind: Literal["float32", "e8m0"]
    block: int
    rows: int = 1
    columns: int = 1
    pairs: bool = False


class Backend(Protocol):
    """What computes products on one device.

    Attributes
    ----------
    name : str
        The name of the backend, for messages and tests.
    formats : tuple of str
        The 8-bit floats that its kernels multiply, as names of `ELEMENT_TYPES`.
    precisions : frozenset of str
        Precisions below float32's in which its kernels multiply float32.
    config_type : type or None
        The class of its configurations; None if it has none.
    """

    @property
    def name(self) -> str:
        """Return the name of the backend."""

    @property
    def formats(self) -> tuple[DType, ...]:
        """Return the 8-bit floats that its kernels multiply."""

    @property
    def precisions(self) -> frozenset[Precision]:
        """Return the precisions below float32's in which it multiplies float32."""

    @property
    def config_type(self) -> type | None:
        """Return the class of its configurations."""

    def supports(self, request: Request) -> Support:
        """Tell whether the backend computes a request (``request.work == "product"``)."""

    def candidates(self, request: Request) -> Sequence[Candidate]:
        """Return the configurations for a supported request, the cheapest first.

        An empty sequence means that there is nothing to choose.
        """

    def compile(self, request: Request, config: Any = None, *, reason: str = "") -> Compiled:
        """Compile the kernels of a supported request, without loading them.

        Parameters
        ----------
        request : Request
        config : Config, optional
            The configuration; by default the first candidate.
        reason : str
            Why that configuration was taken.

        Raises
        ------
        ValueError
            The configuration cannot compute the request.
        """

    def launch(self, request: Request, compiled: Compiled) -> Runner:
        """Load the kernels on the current device, and return what computes the request."""

    def problem(self, request: Request) -> GemmProblem | None:
        """Return what the kernel of a supported request solves; None if it cannot be tuned.

        Optional. Tuned configurations are stored by problem.
        """

    def variants(self, request: Request, config: Any) -> Sequence[Any]:
        """Return configurations that the cost model cannot tell from `config`.

        The tuner measures them too. Optional.
        """

    def groups(self, requests: Mapping[int, Request]) -> Sequence[Group]:
        """Return which requests are better computed by a common launch. Optional.

        Parameters
        ----------
        requests : mapping of int to Request
            Products of matrices, without an epilogue, by number.
        """

    def triangle(self, request: Request) -> Runner | None:
        """Return what computes ``x @ x.T`` by one of its triangles, which is then mirrored.

        Optional. None where computing both triangles takes less time.
        """

    def block_scaled(self, request: Request, scaling: BlockScaling) -> Runner | None:
        """Return what multiplies operands with scales along k in one launch. Optional.

        The runner takes two more arguments before the epilogue's: the scales of the rows of x1,
        (rows, blocks), and of the columns of x2, (columns, blocks). None where no kernel does so.
        """


class NoExtras:
    """A base class for backends without the optional methods."""

    formats: tuple[DType, ...] = ()
    precisions: frozenset[Precision] = frozenset()
    config_type: type | None = None

    def problem(self, request: Request) -> GemmProblem | None:
        """Have nothing to tune."""
        return None

    def variants(self, request: Request, config: Any) -> Sequence[Any]:
        """Return no variants."""
        return ()

    def groups(self, requests: Mapping[int, Request]) -> Sequence[Group]:
        """Group nothing: each request has a launch of its own."""
        return ()

    def triangle(self, request: Request) -> Runner | None:
        """Compute both triangles."""
        return None

    def block_scaled(self, request: Request, scaling: BlockScaling) -> Runner | None:
        """Have no kernel for scales along k."""
        return None
