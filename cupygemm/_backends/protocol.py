"""`Backend`, the interface of components that compute products, and its records.

A backend is an object with the attributes and the first four methods of `Backend`. They are called
in order: does the backend support a request, which configurations can compute it, compile their
kernels, and launch them. The other methods are optional; `no_extras.NoExtras` has their defaults.

A device has a list of backends (`cupygemm._backends.registry`), and a request goes to the first one
that supports it. docs/developer/add_a_backend.rst builds a backend step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from cupygemm._backends.interconnect import Interconnect
from cupygemm._backends.scales_and_groups import BlockScaling, RowGroups
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
    """The properties of a device that factories use.

    Attributes
    ----------
    index : int
        CuPy's number of the device.
    name : str
        The device's name in messages; the name of an emulated device ends in ``"(emulated)"``.
    is_hip : bool
        CuPy is built for ROCm.
    is_emulated : bool
    values : dict
        The result of ``cupy.cuda.runtime.getDeviceProperties``.
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
        Why it does not, as a clause without a full stop; empty if the backend is not meant for such
        requests. None if it does.
    """

    reason: str | None = None

    def __bool__(self) -> bool:
        return self.reason is None


SUPPORTED = Support()
NOT_ASKED = Support("")


class Config(Protocol):
    """How a kernel computes a product: a frozen dataclass that the backend defines.

    Its fields are numbers, strings and booleans, so that the database of tuned configurations can
    store them.
    """

    @property
    def brief(self) -> str:
        """Return a description that fits a cell of a table: the tile and a few more fields."""

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
    """The compiled kernels of a request, which are not loaded yet, and their description.

    Attributes
    ----------
    computed_by : str
        What computes the product: ``"cupygemm"`` or the name of a library.
    reason : str
        Why the request is computed in this way.
    handle : Any
        What the backend needs to launch the kernels; private to the backend.
    notes : tuple of str
        The copies and conversions that are made, as sentences.
    problem : GemmProblem or None
        The problem that the kernel solves.
    config : Config or None
        The configuration of the kernel.
    resources : callable or None
        Returns the registers and the memory that the kernel uses, a record with a `summary`.
    compiler : str or None
        The compiler's name and version.
    grid : tuple of int or None
        The workgroups of the first launch.
    num_launches : int
        The number of launches of the kernel, without those of copies.
    by_address : bool
        If ``out`` is given, the runner uses only the addresses of the arrays' first elements.
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
        """Return the numbers of the requests, in the order of the launch."""

    def __call__(
        self, x1s: Sequence[Any], x2s: Sequence[Any], outs: Sequence[Any], places: Places | None
    ) -> list[Any]:
        """Compute the products and return them, in the order of `numbers`.

        Parameters
        ----------
        x1s, x2s : sequence of cupy.ndarray
            The operands of all requests of the call, by number.
        outs : sequence of cupy.ndarray or None
            The arrays for the results. A group may return new arrays instead, which the caller
            copies to `outs` after all groups have read their operands.
        places : Places or None
            The addresses of `x1s`, `x2s` and `outs`; None if they are not known.
        """


class Backend(Protocol):
    """The interface of a backend, which computes products on one device."""

    @property
    def name(self) -> str:
        """Return the name of the backend, for messages and tests."""

    @property
    def formats(self) -> tuple[DType, ...]:
        """Return the 8-bit floats that its kernels multiply, as names of `ELEMENT_TYPES`."""

    @property
    def precisions(self) -> frozenset[Precision]:
        """Return the precisions below float32's in which its kernels multiply float32."""

    @property
    def config_type(self) -> Callable[..., Any] | None:
        """Return what makes a configuration from its fields, such as the configurations' class.

        None if the backend has no configurations.
        """

    @property
    def max_cluster(self) -> int:
        """Return the largest number of workgroups whose shared memory a kernel may address.

        1 if only its own.
        """

    @property
    def wave_size(self) -> int:
        """Return the threads that execute an instruction together: those of a wave or a warp."""

    @property
    def solves_tiles(self) -> frozenset[str]:
        """Return NumPy's characters of the types that ``hopper/solve_tiles.cu`` supports here."""

    @property
    def interconnect(self) -> Interconnect:
        """Return the interconnect of devices of this kind in one host."""

    def supports(self, request: Request) -> Support:
        """Tell whether the backend computes a request (``request.work == "product"``)."""

    def candidates(self, request: Request) -> Sequence[Candidate]:
        """Return the configurations for a supported request, if any, the cheapest first."""

    def compile(self, request: Request, config: Any = None, *, reason: str = "") -> Compiled:
        """Compile the kernels of a supported request, without loading them.

        Parameters
        ----------
        request : Request
        config : Config, optional
            The configuration; by default the first candidate.
        reason : str
            Why that configuration was chosen.

        Raises
        ------
        ValueError
            The configuration cannot compute the request.
        """

    def launch(self, request: Request, compiled: Compiled) -> Runner:
        """Load the kernels on the current device and return the runner of the request."""

    def part(self, request: Request, whole: Compiled) -> Compiled | None:
        """Compile a product of some rows of another product, with the same bits. Optional.

        Parameters
        ----------
        request : Request
            The product of some rows of x1, supported.
        whole : Compiled
            The kernels of the product of all rows.

        Returns
        -------
        Compiled or None
            None if the rows would be summed in another order.
        """

    def problem(self, request: Request) -> GemmProblem | None:
        """Return the problem that a supported request's kernel solves; None if it cannot be tuned.

        Tuned configurations are stored by problem. Optional.
        """

    def variants(self, request: Request, config: Any) -> Sequence[Any]:
        """Return configurations to which the cost model assigns the same cost as to `config`.

        The tuner measures them too. Optional.
        """

    def groups(self, requests: Mapping[int, Request]) -> Sequence[Group]:
        """Return the groups of requests that take less time in a common launch. Optional.

        Parameters
        ----------
        requests : mapping of int to Request
            By number, without an epilogue.
        """

    def triangle(self, request: Request) -> Runner | None:
        """Return the runner of a triangle of ``x @ x.T`` and its mirror image. Optional."""

    def block_scaled(self, request: Request, scaling: BlockScaling) -> Runner | None:
        """Return the runner that multiplies operands with scales along k in one launch, or None.

        The runner takes two more arguments before the epilogue's: the scales of the rows of x1,
        (rows, blocks), and of the columns of x2, (columns, blocks). Optional.
        """

    def row_groups(self, request: Request, groups: RowGroups) -> Runner | None:
        """Return the runner that multiplies groups of rows in one launch.

        The request is for the whole batch. The runner is called with x1, x2, the result, the array
        of sizes, the scales of x1 and of x2, (..., rows, blocks) and (..., columns, blocks) or
        None, and the epilogue's arguments. None if no kernel does this. Optional.
        """

    def sparing(self, units: int) -> Backend:
        """Return this backend for products that leave compute units to other work. Optional."""

    def kernel(self, text: str, entry: str, shared_bytes: int = 0) -> Any:
        """Compile a translation unit other than a product, and load it on the current device.

        Parameters
        ----------
        text : str
            C++17 without includes, in CUDA or HIP according to the device.
        entry : str
            The name of the kernel.
        shared_bytes : int
            The dynamic shared memory of a workgroup.

        Returns
        -------
        callable
            ``kernel(grid, threads, packed)`` enqueues a launch: its workgroups along x and y, the
            threads of each, and the bytes of its only argument, a struct.
        """
