"""Memory that a launch needs while it runs, such as for parts of sums.

Outside graphs it comes from CuPy's pool and goes back when the launch is enqueued: the pool reuses
it for later work of the same stream only. A captured launch runs again whenever its graph does; the
pool may have given the memory to an array by then. So a graph has memory of its own, which two of
its nodes allocate and free.
"""

from __future__ import annotations

from collections.abc import Callable


def with_workspace(num_bytes: int, enqueue: Callable[[int], None]) -> None:
    """Call ``enqueue(address)`` with the address of memory for the work that it enqueues.

    Parameters
    ----------
    num_bytes : int
    enqueue : callable
        Enqueues work in the current stream.
    """
    from cupy.cuda import alloc, get_current_stream, runtime

    stream = get_current_stream().ptr
    if not runtime.streamIsCapturing(stream):
        memory = alloc(num_bytes)
        enqueue(memory.ptr)
        return
    address = runtime.mallocAsync(num_bytes, stream)
    enqueue(address)
    runtime.freeAsync(address, stream)
