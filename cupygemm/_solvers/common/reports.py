"""Reports of kernels to the host: a word for each matrix, in host memory.

A kernel writes to that memory only if a matrix failed. So a successful call transfers nothing: it
waits for its stream, and reads words that are still zero.

The info of a factorisation is in device memory, and is copied. The host does everything else before
it waits (`pending`), since the caller waits for any work after that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from cupygemm._request.arrays import Array
from cupygemm._solvers.common.errors import (
    is_checked,
    raise_not_finite,
    require_finite,
    stream_queries,
)

_LEAST = 1024
Wait = Callable[[], np.ndarray[Any, Any] | None]
"""Waits for the info of a factorisation, and returns it, or None if no matrix failed."""


class _Words:
    """Zeros in host memory to which kernels on all devices can write.

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
        self.values = np.frombuffer(memory, np.int32, size)  # which keeps the memory alive
        self.values.fill(0)
        self.pairs = self.values.view(np.int64)


class _OfThread(threading.local):
    words: _Words | None = None


_of_thread = _OfThread()
_awaited: list[_Words] = []
"""Words that a device may still write to."""


def pending(info: Array) -> Wait:
    """Begin to copy a factorisation's info to the host, and return a function that waits for it.

    Nothing is copied or waited for while a graph is recorded, or if calls are `unchecked`.

    Parameters
    ----------
    info : cupy.ndarray
        (batches,), int32. Its memory may return to the pool before the copy.

    Returns
    -------
    callable
        To be called once.
    """
    get_current_stream, is_recording = stream_queries()
    stream, size = get_current_stream(), info.size
    if is_recording(stream) or not is_checked():
        return nothing
    words = _taken(size)
    _awaited.append(words)
    _copy(words.address, info, stream)

    def wait() -> np.ndarray[Any, Any] | None:
        stream.synchronize()
        _awaited.remove(words)
        return _given_back(words, size)

    return wait


def nothing() -> None:
    """Return None: no matrix failed."""


def _taken(size: int) -> _Words:
    """Return zeroed words of this thread."""
    words = _of_thread.words
    _of_thread.words = None
    if words is None or len(words.values) < size:
        words = _Words(max(_LEAST, 1 << (size - 1).bit_length()))
    return words


def _given_back(words: _Words, size: int) -> np.ndarray[Any, Any] | None:
    """Return the report, or None if no matrix failed. The words become zeros."""
    _of_thread.words = words
    if not np.bitwise_or.reduce(words.pairs[: (size + 1) // 2]):
        return None
    found = words.values[:size].copy()
    words.values.fill(0)
    return found


def reported(
    size: int, enqueue: Callable[[int], None], finite: Array | None = None
) -> np.ndarray[Any, Any] | None:
    """Enqueue a kernel, wait for it, and return its report, or None if no matrix failed.

    It does not wait while a graph is recorded, or if calls are `unchecked`.

    Parameters
    ----------
    size : int
        The number of matrices.
    enqueue : callable
        Enqueues the kernel on the current stream. Its argument is the address of a word for each
        matrix, which stays zero unless the matrix failed; the address is zero if no one reads the
        words.
    finite : cupy.ndarray, optional
        From `errors.finite_flag`. One more word receives it, so that one wait is for both.

    Raises
    ------
    ValueError
        The flag is set.
    """
    get_current_stream, is_recording = stream_queries()
    stream = get_current_stream()
    if is_recording(stream) or not is_checked():
        enqueue(0)
        require_finite(finite)
        return None
    num_words = size + (finite is not None)
    words = _taken(num_words)
    try:
        enqueue(words.address)
        if finite is not None:
            _copy(words.address + 4 * size, finite, stream)
        stream.synchronize()
    except BaseException:
        _awaited.append(words)
        raise
    found = _given_back(words, num_words)
    if found is not None and finite is not None:
        raise_not_finite(found[size])
    return None if found is None else found[:size]


def _copy(to: int, words: Array, stream: Any) -> None:
    """Begin to copy words of a device to an address on the host."""
    from cupy.cuda.runtime import memcpyAsync, memcpyDeviceToHost

    memcpyAsync(to, words.data.ptr, words.nbytes, memcpyDeviceToHost, stream.ptr)
