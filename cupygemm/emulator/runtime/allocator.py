"""An allocator for CuPy that makes each array's bounds the bounds that the emulator checks.

CuPy's memory pool rounds sizes up to 512 bytes and cuts arrays out of larger blocks, so to the
runtime an array looks longer than it is, and its neighbour may follow at once. This allocator takes
memory from the same pool, with a gap behind each array, and tells the device where the array begins
and ends. The pool itself (limits, statistics, `free_all_blocks`) works as before; it counts the
gaps. All bytes of a fresh array are 0xA5. With another pool as CuPy's allocator, the bounds are
those of that pool's blocks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from cupygemm.emulator.allocations import Memory

GAP = 64  # bytes after an array that belong to no array


class _Extent:
    """Owns an array's memory: the pool gets it back when CuPy drops this object."""

    _memory: Memory | None = None  # if an interruption ended __init__ at its start

    def __init__(self, memory: Memory, block: Any, size: int) -> None:
        self._block = block
        self._start: int = block.ptr
        self._memory = memory
        memory.uncarve(self._start)  # of an array whose __del__ an interruption ended
        memory.carve(self._start, size)
        memory.poison(self._start, size)

    def __del__(self, _is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # Arrays that a module kept are dropped after the modules are gone.
        if _is_ending() or self._memory is None:
            return
        # First the extent, then the block, or another array could get the block in between.
        self._memory.uncarve(self._start)
        self._block = None


def install(cupy: ModuleType, memory: Memory) -> None:
    """Make arrays of `cupy` come from its default pool with exact bounds in `memory`."""
    pool = cupy.get_default_memory_pool()
    cuda = cupy.cuda

    def malloc(size: int) -> Any:
        if size == 0:
            return pool.malloc(0)
        block = pool.malloc(size + GAP)
        owner = _Extent(memory, block, size)
        return cuda.MemoryPointer(cuda.UnownedMemory(block.ptr, size, owner, block.device_id), 0)

    cuda.set_allocator(malloc)
