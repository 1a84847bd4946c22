"""An allocator for CuPy that makes each array's bounds the bounds that the emulator checks.

CuPy's memory pool rounds sizes up to 512 bytes and cuts arrays out of larger blocks, so to the
runtime an array looks longer than it is, and its neighbour may follow at once. This allocator takes
memory from the same pool, with a gap behind each array, and tells the device where the array begins
and ends. The pool itself (limits, statistics, `free_all_blocks`) works as before; it counts the
gaps, and gets an array's memory back when CuPy drops the array's owner. All bytes of a fresh array
are 0xA5. With another pool as CuPy's allocator, the bounds are those of that pool's blocks.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from cupygemm.emulator.allocations import Memory

GAP = 64  # bytes after an array that belong to no array


def install(cupy: ModuleType, memory: Memory) -> None:
    """Make arrays of `cupy` come from its default pool with exact bounds in `memory`."""
    pool = cupy.get_default_memory_pool()
    cuda = cupy.cuda

    def malloc(size: int) -> Any:
        if size == 0:
            return pool.malloc(0)
        block = pool.malloc(size + GAP)
        memory.poison(block.ptr, size)
        owner = memory.carve(block.ptr, size, keep=block)
        return cuda.MemoryPointer(cuda.UnownedMemory(block.ptr, size, owner, block.device_id), 0)

    cuda.set_allocator(malloc)
