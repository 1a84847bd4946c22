"""Words in device memory that a small kernel sets, rather than a memset (store_words.cu)."""

from __future__ import annotations

import numpy as np

from cupygemm._backends.kernel_kind import Call
from cupygemm._backends.solver_kernels import STORE_WORDS
from cupygemm._solvers.common.kernels import load

WORD_BYTES = 8
_THREADS = 256


def store_words(to: int, value: int, count: int = 1, stream: int | None = None) -> None:
    """Store a number to adjacent words.

    Parameters
    ----------
    to : int
        The address of the first word.
    value : int
    count : int
        The number of words.
    stream : int, optional
        The address of the stream, by default the current one.
    """
    launch = load(STORE_WORDS, np.dtype("d"), _THREADS)
    call = Call(launch, (-(-count // _THREADS), 1), (to, value, count, 0))
    call.enqueue() if stream is None else call.enqueue_on(stream)
