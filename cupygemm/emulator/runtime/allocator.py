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

from cupygemm.emulator.peers import Devices

GAP = 64  # bytes after an array that belong to no array


def install(cupy: ModuleType, devices: Devices) -> None:
    """Make arrays of `cupy` come from its default pool with exact bounds in the devices' memory."""
    pool = cupy.get_default_memory_pool()
    cuda = cupy.cuda
    memory, order = devices.memory, devices.order

    def renew(start: int, size: int) -> None:
        """Fill a fresh array after the work that waits, which may use the same memory.

        If other streams have such work, the bytes stay: the program may yet order the two.
        """
        if order.deferral.is_idle:
            memory.poison(start, size)
            return
        queue = order.queue(cuda.get_current_stream().ptr, devices.current.index)
        if order.deferral.waits_only_in(queue):
            clock = order.begin(queue, "").clock()
            order.deferral.add(queue, clock, "", lambda: memory.poison(start, size))

    def malloc(size: int) -> Any:
        if size == 0:
            return pool.malloc(0)
        block = pool.malloc(size + GAP)
        renew(block.ptr, size)
        owner = memory.carve(block.ptr, size, keep=block)
        return cuda.MemoryPointer(cuda.UnownedMemory(block.ptr, size, owner, block.device_id), 0)

    cuda.set_allocator(malloc)
