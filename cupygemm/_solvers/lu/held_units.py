"""Compute units that no product takes while a panel is factored beside it (hold_units.cu).

::

    third stream   | hold units, until the word is set ......................... |
    side stream    | block 0 | block 1 | block 2 | ... | last block | set the word

A block of a panel is a cluster of workgroups, which needs compute units next to each other. Those
of the block before are free between the two launches. If a product begins just then, its workgroups
would take them, and the next block would wait for the product's end, some milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from cupygemm._backends.kernel_kind import Call, Launch
from cupygemm._backends.solver_kernels import HOLD_UNITS
from cupygemm._solvers.common.ahead import Streams
from cupygemm._solvers.common.kernels import load
from cupygemm._solvers.common.residency import REGISTERS, SHARED_BYTES, taken
from cupygemm._solvers.common.words import store_words

_HELD_BYTES = 24 << 10
"""Of an SM's shared memory. Large products leave less to others."""
_THREADS, _MOST_REGISTERS = 32, 32
_MOST_NS = 5_000_000


def has_room(launches: Sequence[Launch]) -> bool:
    """Tell whether the thread blocks of a panel find room beside those that hold units."""
    held = taken(_MOST_REGISTERS, _THREADS, _HELD_BYTES)
    for launch in launches:
        registers, shared_bytes = launch.function.resources()
        own = taken(registers, launch.threads, shared_bytes)
        if own[0] + held[0] > REGISTERS or own[1] + held[1] > SHARED_BYTES:
            return False
    return True


@contextmanager
def held_units(streams: Streams, word: int, team: int) -> Iterator[None]:
    """Hold units for the panel that the block enqueues on the side stream.

    Parameters
    ----------
    streams : Streams
    word : int
        The address of a word of workspace.
    team : int
        The thread blocks of a cluster of the panel.
    """
    third = streams.another()
    store_words(word, 0, stream=third)
    zeroed = streams.recorded(third)
    launch = load(HOLD_UNITS, np.dtype("d"), _THREADS, team=team, shared_bytes=_HELD_BYTES)
    Call(launch, (team, 1), (word, _MOST_NS)).enqueue_on(third)
    try:
        yield
    finally:
        streams.order(zeroed, streams.side)
        store_words(word, 1, stream=streams.side)
        streams.join(streams.recorded(third))
