"""An allocator for CuPy that makes each array's bounds the bounds that the emulator checks.

CuPy's memory pool rounds sizes up to 512 bytes and cuts arrays out of larger blocks, so to the
runtime an array looks longer than it is, and its neighbour may follow at once. This allocator takes
memory from the same pool, with a gap behind each array, and tells the device where the array begins
and ends. The pool itself (limits, statistics, `free_all_blocks`) works as before; it counts the
gaps, and gets an array's memory back when CuPy drops the array's owner. All bytes of a fresh array
are 0xA5. With another pool as CuPy's allocator, the bounds are those of that pool's blocks.

The pool hands out at once what it got back last. A pointer that a program has kept would then
point into a new array, and to use it would be no fault. So a block of one of the last small arrays
that were dropped is passed over: the pool is asked again, and gets it back. It is not while other
streams work, which may still use what was dropped: that is found only where it is used again. Pools
that have a limit, and programs that watch them by hooks, see only what they ask for.
"""

from __future__ import annotations

import collections
import weakref
from types import ModuleType
from typing import Any

from cupygemm.emulator.memory.extents import Owner
from cupygemm.emulator.peers import Devices

GAP = 64  # bytes after an array that belong to no array
_SMALL = 1 << 20  # bytes of an array whose memory is passed over
_PASSED = 4  # arrays that are dropped in the meantime, at most


class _Array(weakref.ref[Owner]):
    """A reference to an array's owner that knows the addresses: the first, and behind the last."""

    __slots__ = ("extent",)
    extent: tuple[int, int]


def _unused_lately(pool: Any, dropped: collections.deque[_Array], size: int) -> Any:
    """Return a block of a pool that is none of the last arrays' that were dropped, if possible."""
    block = pool.malloc(size)
    recent, passed = [each.extent for each in tuple(dropped)], []
    starts = {start for start, _ in recent}
    while block.ptr in starts or any(s < block.ptr + size and block.ptr < e for s, e in recent):
        passed.append(block)
        if len(passed) > _PASSED:
            break
        block = pool.malloc(size)
    return block


def install(cupy: ModuleType, devices: Devices) -> None:
    """Make arrays of `cupy` come from its default pool with exact bounds in the devices' memory."""
    pool = cupy.get_default_memory_pool()
    cuda = cupy.cuda
    memory, order = devices.memory, devices.order
    dropped: collections.deque[_Array] = collections.deque(maxlen=_PASSED)
    hooks = cuda.memory_hook.get_memory_hooks
    arrays: dict[int, _Array] = {}  # by address, the last one that was small

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

    def passes_over(size: int) -> bool:
        if size > _SMALL or not dropped or pool.get_limit() or hooks():
            return False
        queue = order.queue(cuda.get_current_stream().ptr, devices.current.index)
        return order.deferral.is_idle and order.has_work_only_in(queue)

    def malloc(size: int) -> Any:
        if size == 0:
            return pool.malloc(0)
        if passes_over(size):
            block = _unused_lately(pool, dropped, size + GAP)
        else:
            block = pool.malloc(size + GAP)
        renew(block.ptr, size)
        owner = memory.carve(block.ptr, size, keep=block)
        if size <= _SMALL:
            array = _Array(owner, dropped.append)  # no Python code runs when it is dropped
            array.extent = block.ptr, block.ptr + size
            arrays[block.ptr] = array
        return cuda.MemoryPointer(cuda.UnownedMemory(block.ptr, size, owner, block.device_id), 0)

    cuda.set_allocator(malloc)
