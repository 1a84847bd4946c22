"""Memory that a launch needs while it runs, for example for partial sums.

Outside graphs, it comes from CuPy's pool and is returned when the launch is enqueued: the pool
reuses it only for later work of the same stream. A captured launch runs again whenever its graph
does, when the pool may have given the memory to an array. So a graph has its own memory, which two
of its nodes allocate and free.
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
