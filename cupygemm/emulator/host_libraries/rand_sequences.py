"""The order in which rocRAND's generators return their numbers.

A distribution turns groups of `inputs` numbers into groups of `outputs` results. The kernels store
whole, aligned groups; results before the first aligned address (the head) and after the last whole
group (the tail) come from separate groups. A `Sequence` returns the numbers of all groups: of the
head if there is one, of the body, and of the tail if there is one. The orders are those of
xorwow.hpp, mrg.hpp, philox4x32_10.hpp and sobol.hpp in rocRAND's sources, in the default ordering.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.host_libraries.rand_engines import NUM_ENGINES, Engines, philox

_PHILOX_THREADS = 1024 * 256  # blocks and threads of Philox's kernel


@dataclass(frozen=True)
class Request:
    """The requested number of results, and their groups.

    Attributes
    ----------
    count : int
        Results.
    inputs, outputs : int
        Numbers and results of a group.
    place : int
        The first result's address divided by its size.
    """

    count: int
    inputs: int
    outputs: int
    place: int

    def parts(self, width: int) -> tuple[int, int, int]:
        """Return the head's results, the body's groups of `width`, and the tail's results."""
        head = min(self.count, -self.place % width)
        body, tail = divmod(self.count - head, width)
        return head, body, tail

    @property
    def groups(self) -> int:
        """The number of groups by which a generator advances."""
        return -(-self.count // self.outputs)


class Sequence(ABC):
    """The numbers of a generator."""

    @abstractmethod
    def numbers(self, request: Request) -> NDArray[Any]:
        """Return the next numbers.

        Parameters
        ----------
        request : Request

        Returns
        -------
        numpy.ndarray
            (groups, inputs): of the head, of the body, of the tail.
        """

    def stored_width(self, request: Request) -> int:
        """Return how many results are stored together."""
        return request.outputs


class EngineSequence(Sequence):
    """XORWOW and MRG32k3a: successive groups come from successive engines.

    Parameters
    ----------
    engines : Engines
    offset : int
    """

    def __init__(self, engines: Engines, offset: int) -> None:
        self._engines = engines
        self._start = offset % NUM_ENGINES

    def numbers(self, request: Request) -> NDArray[Any]:
        """Return the next numbers; see `Sequence`."""
        head, body, tail = request.parts(request.outputs)
        parts = []
        for first in range(0, body, NUM_ENGINES):
            places = np.arange(first, min(body, first + NUM_ENGINES))
            parts.append(self._draw(places, request.inputs))
        last = np.array([body])
        if head:
            parts.insert(0, self._draw(last, request.inputs))
        if tail:
            parts.append(self._draw(last, request.inputs))
        self._start = (self._start + request.groups) % NUM_ENGINES
        return np.concatenate(parts) if parts else np.empty((0, request.inputs), np.uint32)

    def _draw(self, places: NDArray[Any], count: int) -> NDArray[Any]:
        return self._engines.draw((places + self._start) % NUM_ENGINES, count)


class PhiloxSequence(Sequence):
    """Philox4x32-10: one sequence, from which a thread takes four numbers at a time."""

    def __init__(self, seed: int, offset: int) -> None:
        self._seed = seed
        self._position = offset

    def stored_width(self, request: Request) -> int:
        """Return how many results are stored together: those of four numbers."""
        return 4 // request.inputs * request.outputs

    def numbers(self, request: Request) -> NDArray[Any]:
        """Return the next numbers; see `Sequence`."""
        head, body, tail = request.parts(self.stored_width(request))
        head_draws = -(-head // request.outputs) * request.inputs
        tail_draws = -(-tail // request.outputs) * request.inputs
        begins = self._of_thread(np.arange(body + 1), head, head_draws)
        body_draws = begins[:-1, None] + np.arange(4)
        tail_positions = begins[-1] + np.arange(tail_draws)
        positions = np.concatenate([np.arange(head_draws), body_draws.ravel(), tail_positions])
        places = positions.astype(np.uint64) + np.uint64(self._position)
        self._position += request.groups * request.inputs
        return philox(self._seed, places).reshape(-1, request.inputs)

    @staticmethod
    def _of_thread(index: NDArray[Any], head: int, head_draws: int) -> NDArray[Any]:
        """Return the positions of the body's steps, after the head's numbers for thread 0."""
        thread, rounds = index % _PHILOX_THREADS, index // _PHILOX_THREADS
        first = np.where(thread == 0, head_draws, 4 * thread + head)
        begins: NDArray[Any] = first + 4 * _PHILOX_THREADS * rounds
        return begins


class SobolSequence(Sequence):
    """The first dimension of Sobol's sequence: the Gray code of the index, its bits reversed.

    Parameters
    ----------
    bits : int
        32 or 64.
    offset : int
    """

    def __init__(self, bits: int, offset: int) -> None:
        self._bits = bits
        self._position = offset

    def numbers(self, request: Request) -> NDArray[Any]:
        """Return the next numbers; see `Sequence`."""
        places = np.arange(request.count, dtype=np.uint64) + np.uint64(self._position)
        index: NDArray[Any] = places & np.uint64(0xFFFFFFFF)
        self._position += request.count
        gray = index ^ (index >> np.uint64(1))
        value = np.zeros_like(gray)
        for bit in range(32):
            is_set = gray >> np.uint64(bit) & np.uint64(1)
            value |= is_set << np.uint64(self._bits - 1 - bit)
        found: NDArray[Any] = value.astype(f"u{self._bits // 8}")[:, None]
        return found


class TwisterSequence(Sequence):
    """NumPy's Mersenne twister, in place of rocRAND's: other numbers of the same distribution."""

    def __init__(self, seed: int, offset: int) -> None:
        self._bits = np.random.MT19937(seed)
        self._draw(offset)

    def _draw(self, count: int) -> NDArray[Any]:
        return np.atleast_1d(self._bits.random_raw(count)).astype(np.uint32)

    def numbers(self, request: Request) -> NDArray[Any]:
        """Return the next numbers; see `Sequence`."""
        head, body, tail = request.parts(request.outputs)
        groups = body + (head > 0) + (tail > 0)
        return self._draw(groups * request.inputs).reshape(groups, request.inputs)
