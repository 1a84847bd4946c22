"""An allocator for CuPy that lets the emulator check the bounds of each array.

CuPy's memory pool rounds sizes up to 512 bytes and takes arrays from larger blocks, so to the
runtime an array looks longer than it is, and another array may follow immediately. This allocator
takes memory from the same pool, with a gap after each array, and tells the device where the array
begins and ends. The pool is a `cupy.cuda.MemoryPool` with another `malloc`: limits, statistics and
`free_all_blocks` work as before, and a program may set its `malloc` as allocator again. It counts
the gaps, and reclaims an array's memory when CuPy drops the array's owner. All bytes of a fresh
array are 0xA5. If CuPy's allocator is another pool, the bounds are those of that pool's blocks.

The pool reuses the most recently freed block first. A stale pointer would then point into a new
array, and its use would not be a fault. So if the pool returns the block of a recently dropped
small array, the allocator requests another and returns the first. It does not while other streams
have work that may still use the dropped array: such a use is found only if the block is used again.
Pools with a limit, and pools watched by hooks, see only the program's requests.
"""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable
from typing import Any

from cupygemm.emulator.memory.extents import Owner
from cupygemm.emulator.peers import Devices

GAP = 64  # bytes after an array that belong to no array
_SMALL = 1 << 20  # bytes of an array whose memory is not reused immediately
_PASSED = 4  # arrays dropped before the memory may be reused, at most


class _Array(weakref.ref[Owner]):
    """A weak reference to an array's owner, with the array's start and end addresses."""

    __slots__ = ("extent",)
    extent: tuple[int, int]


def _unused_lately(
    allocate: Callable[[int], Any], dropped: collections.deque[_Array], size: int
) -> Any:
    """Return a block of a pool that no recently dropped array used, if possible."""
    block = allocate(size)
    recent, passed = [each.extent for each in tuple(dropped)], []
    starts = {start for start, _ in recent}
    while block.ptr in starts or any(s < block.ptr + size and block.ptr < e for s, e in recent):
        passed.append(block)
        if len(passed) > _PASSED:
            break
        block = allocate(size)
    return block


def install(cupy: Any, devices: Devices) -> None:
    """Make `cupy` allocate arrays from a default pool with exact bounds in device memory."""
    cuda = cupy.cuda
    memory, order = devices.memory, devices.order
    dropped: collections.deque[_Array] = collections.deque(maxlen=_PASSED)
    hooks = cuda.memory_hook.get_memory_hooks
    arrays: dict[int, _Array] = {}  # the latest small array at each address

    def renew(start: int, size: int) -> None:
        """Fill a fresh array after the pending work, which may use the same memory.

        If other streams have pending work, the bytes stay: the program may yet order the two.
        """
        if order.deferral.is_idle:
            memory.poison(start, size)
            return
        queue = order.queue(cuda.get_current_stream().ptr, devices.current.index)
        if order.deferral.waits_only_in(queue):
            clock = order.begin(queue, "").clock()
            order.deferral.add(queue, clock, "", lambda: memory.poison(start, size))

    def passes_over(size: int, limit: int) -> bool:
        if size > _SMALL or not dropped or limit or hooks():
            return False
        queue = order.queue(cuda.get_current_stream().ptr, devices.current.index)
        return order.deferral.is_idle and order.has_work_only_in(queue)

    class MemoryPool(cuda.MemoryPool):  # type: ignore[name-defined, misc]
        __doc__ = cuda.MemoryPool.__doc__

        def malloc(self, size: int) -> Any:
            """Allocate the memory of an array."""
            allocate = super().malloc
            if size == 0:
                return allocate(0)
            if passes_over(size, self.get_limit()):
                block = _unused_lately(allocate, dropped, size + GAP)
            else:
                block = allocate(size + GAP)
            renew(block.ptr, size)
            owner = memory.carve(block.ptr, size, keep=block)
            if size <= _SMALL:
                array = _Array(owner, dropped.append)  # no Python code runs when it is dropped
                array.extent = block.ptr, block.ptr + size
                arrays[block.ptr] = array
            return cuda.MemoryPointer(
                cuda.UnownedMemory(block.ptr, size, owner, block.device_id), 0
            )

    pool = MemoryPool()
    cupy._default_memory_pool = pool  # noqa: SLF001 - what get_default_memory_pool returns
    cuda.set_allocator(pool.malloc)
