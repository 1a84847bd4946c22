"""Rotating operands: each call uses the next set, which determines the state of the caches.

Warm operands are one set. Cold operands are enough sets that L2 has evicted a set before it is used
again. All sets are views of two arenas, one of operands and one of results, so that creating a set
takes no time. The operands are uniform in [-0.5, 0.5): a GPU's clock depends on the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ALIGN = 512
"""Bytes; CuPy's own allocations begin at multiples of it."""
MAX_SETS = 512


@dataclass(frozen=True)
class Operand:
    """An array of a set: its shape in memory, and whether products use its transpose."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    transposed: bool = False

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def room(self) -> int:
        return -(-self.nbytes // ALIGN) * ALIGN


def num_sets(set_bytes: int, cold_bytes: int) -> int:
    """Return the number of sets for `cold_bytes` between two uses of a set; 1 for 0 bytes."""
    if cold_bytes == 0:
        return 1
    return min(MAX_SETS, 1 + -(-cold_bytes // set_bytes))


def places(operands: Sequence[Operand], sets: int) -> list[list[int]]:
    """Return the byte offsets of the arrays of each set in an arena."""
    step = sum(operand.room for operand in operands)
    starts, at = [], 0
    for operand in operands:
        starts.append(at)
        at += operand.room
    return [[each * step + start for start in starts] for each in range(sets)]


class Arena:
    """Memory for rotating operands and results, filled once with random numbers of a type."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self._inputs = self._outputs = None

    def sets(self, inputs: Sequence[Operand], output: Operand, cold_bytes: int) -> list[list[Any]]:
        """Return sets of CuPy arrays, the inputs and then the output."""
        one = sum(operand.room for operand in (*inputs, output))
        count = num_sets(one, cold_bytes)
        input_bytes = sum(operand.room for operand in inputs) * count
        if self._inputs is None or self._inputs.nbytes < input_bytes:
            self._inputs = None
            self._inputs = _random(input_bytes, self.dtype)
        if self._outputs is None or self._outputs.nbytes < output.room * count:
            self._outputs = None
            self._outputs = _random(output.room * count, self.dtype)
        found = []
        for at, (start,) in zip(places(inputs, count), places([output], count), strict=True):
            arrays = [_view(self._inputs, each, x) for each, x in zip(at, inputs, strict=True)]
            found.append([*arrays, _view(self._outputs, start, output)])
        return found


def _random(num_bytes: int, dtype: np.dtype[Any]) -> Any:
    import cupy as cp

    count = -(-num_bytes // dtype.itemsize)
    if dtype.itemsize == 8:
        return cp.random.uniform(-0.5, 0.5, count, dtype=np.float64).astype(dtype, copy=False)
    array, step = cp.empty(count, dtype), 1 << 26
    for at in range(0, count, step):  # free the wide numbers soon
        part = array[at : at + step]
        part[:] = cp.random.uniform(-0.5, 0.5, part.size, dtype=np.float32).astype(dtype)
    return array


def _view(arena: Any, start: int, operand: Operand) -> Any:
    import cupy as cp

    array = cp.ndarray(operand.shape, operand.dtype, arena.data + start)
    return array.T if operand.transposed else array


class Rotating:
    """A call that uses the next set of operands each time.

    Parameters
    ----------
    call : callable
        ``call(*set)``.
    sets : sequence of sequences
    """

    def __init__(self, call: Callable[..., Any], sets: Sequence[Sequence[Any]]) -> None:
        self._call, self._sets, self._next = call, sets, 0

    def __call__(self) -> None:
        """Compute with the next set."""
        chosen = self._sets[self._next]
        self._next = (self._next + 1) % len(self._sets)
        self._call(*chosen)

    def warm_up(self, turns: int) -> None:
        """Use every set several times."""
        for _ in range(turns * len(self._sets)):
            self()
