"""`NoExtras`: the defaults of the methods and attributes of `Backend` that are optional."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cupygemm._backends.interconnect import PCIE, Interconnect
from cupygemm._backends.protocol import Compiled, Group, Runner
from cupygemm._backends.scales_and_groups import BlockScaling, RowGroups
from cupygemm._backends.struct_kernel import StructKernel
from cupygemm._records.dtypes import DType
from cupygemm._records.formats import Precision
from cupygemm._records.problem import GemmProblem
from cupygemm._request.request import Request


class NoExtras:
    """A base class for backends without the optional methods."""

    formats: tuple[DType, ...] = ()
    precisions: frozenset[Precision] = frozenset()
    config_type: Callable[..., Any] | None = None
    max_cluster: int = 1
    wave_size: int = 32
    solves_tiles: frozenset[str] = frozenset()
    interconnect: Interconnect = PCIE

    def part(self, request: Request, whole: Compiled) -> Compiled | None:
        """Return None: the order of sums is unknown."""
        return None

    def problem(self, request: Request) -> GemmProblem | None:
        """Return None: there are no configurations to tune."""
        return None

    def variants(self, request: Request, config: Any) -> Sequence[Any]:
        """Return no variants."""
        return ()

    def groups(self, requests: Mapping[int, Request]) -> Sequence[Group]:
        """Return no groups: each request has a separate launch."""
        return ()

    def triangle(self, request: Request) -> Runner | None:
        """Return None: both triangles are computed."""
        return None

    def block_scaled(self, request: Request, scaling: BlockScaling) -> Runner | None:
        """Return None: no kernel supports scales along k."""
        return None

    def row_groups(self, request: Request, groups: RowGroups) -> Runner | None:
        """Return None: no kernel reads the sizes of groups."""
        return None

    def sparing(self, units: int) -> Any:
        """Return this backend."""
        return self

    def kernel(self, text: str, entry: str, shared_bytes: int = 0) -> Any:
        """Return the kernel that CuPy compiles. It has no dynamic shared memory."""
        from cupy import RawModule

        return StructKernel(RawModule(code=text, options=("-std=c++17",)).get_function(entry))
