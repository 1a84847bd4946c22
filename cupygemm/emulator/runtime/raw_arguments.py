"""A launch of a user's kernel, as CuPy passes it, for checks of its accesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Kernel
    from cupygemm.emulator.memory.allocations import Memory
    from cupygemm.emulator.memory.global_shadow import GlobalShadow


@dataclass(frozen=True, eq=False)
class RawLaunch:
    """A launch through `cupy.RawKernel`, or a kernel of `cupy.RawModule`.

    Attributes
    ----------
    kernel : Kernel
    arguments : sequence
    array : type
        CuPy's class of arrays.
    memory : Memory
        The device's memory.
    shadow : GlobalShadow
        The memory's record of accesses.
    target : str
        The name of the target.
    """

    kernel: Kernel
    arguments: Sequence[Any]
    array: Any
    memory: Memory
    shadow: GlobalShadow
    target: str


def reach(array: Any) -> tuple[int, int]:
    """Return the address of an array's first byte, and its end address."""
    reach = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
    start = int(array.data.ptr)
    return (
        start + sum(min(each, 0) for each in reach),
        start + sum(max(each, 0) for each in reach) + array.itemsize,
    )
