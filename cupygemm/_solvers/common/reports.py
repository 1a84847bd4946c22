"""What kernels report to the host: a word for each matrix, in memory of the host.

A kernel writes to that memory only if a matrix failed. So a call that succeeds transfers nothing:
it waits for its stream, and looks at words that are still zero.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from cupygemm._solvers.common.errors import is_checked, stream_queries

_LEAST = 1024


class _Words:
    """Zeros in memory of the host that kernels on all devices can write to.

    Parameters
    ----------
    size : int
        The number of words, which is even.
    """

    __slots__ = ("address", "pairs", "values")

    def __init__(self, size: int) -> None:
        from cupy.cuda import alloc_pinned_memory

        memory = alloc_pinned_memory(4 * size)
        self.address = int(memory.ptr)
        self.values = np.frombuffer(memory, np.int32, size)  # which keeps the memory
        self.values.fill(0)
        self.pairs = self.values.view(np.int64)


class _OfThread(threading.local):
    words: _Words | None = None


_of_thread = _OfThread()
_lost: list[_Words] = []


def reported(size: int, enqueue: Callable[[int], None]) -> np.ndarray[Any, Any] | None:
    """Enqueue a kernel, wait for it, and return what it reports, or None if no matrix failed.

    Nothing is waited for while a graph is recorded, nor where calls are `unchecked`.

    Parameters
    ----------
    size : int
        The number of matrices.
    enqueue : callable
        Enqueues the kernel on the current stream. It takes the address of a word for each matrix,
        where zero stays if the matrix did not fail; the address is zero if nobody reads the words.
    """
    get_current_stream, is_recording = stream_queries()
    stream = get_current_stream()
    if is_recording(stream) or not is_checked():
        enqueue(0)
        return None
    words = _of_thread.words
    if words is None or len(words.values) < size:
        words = _Words(max(_LEAST, 1 << (size - 1).bit_length()))
    _of_thread.words = None
    try:
        enqueue(words.address)
        stream.synchronize()
    except BaseException:
        _lost.append(words)  # the kernel may still write to them
        raise
    _of_thread.words = words
    if not np.bitwise_or.reduce(words.pairs[: (size + 1) // 2]):
        return None
    found = words.values[:size].copy()
    words.values.fill(0)
    return found
