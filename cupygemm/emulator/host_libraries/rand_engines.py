"""The engines of rocRAND's generators, each vectorised over many engines.

Each thread of rocRAND's kernels, 131072 in the default ordering, has an engine with its own
subsequence. Engines are created on first use. One matrix doubles their number, since all jumps
commute.

Sources: Marsaglia, Xorshift RNGs (2003); Salmon et al., Parallel random numbers: as easy as 1, 2, 3
(2011); L'Ecuyer, Good parameters and implementations for combined multiple recursive random number
generators (1999). Seeding, subsequences and their lengths are those of rocRAND's headers
(rocrand_xorwow.h, rocrand_mrg32k3a.h, rocrand_philox4x32_10.h).
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

NUM_ENGINES = 512 * 256  # blocks and threads of the default ordering
_MASK = 0xFFFFFFFF
_WEYL = 362437


class Engines(ABC):
    """Engines 0 to `NUM_ENGINES` of one seed, at some offset into their subsequences.

    Parameters
    ----------
    seed : int
    offset : int
        Numbers that the generator skips, one engine after another.
    """

    def __init__(self, seed: int, offset: int) -> None:
        self._skipped, self._ahead = divmod(offset, NUM_ENGINES)
        self._initial = self.seeded(seed)
        self.states = self._started(0)

    @abstractmethod
    def seeded(self, seed: int) -> NDArray[Any]:
        """Return the state of engine 0 at offset 0, (1, words)."""

    @abstractmethod
    def subsequences(self, states: NDArray[Any], power: int) -> NDArray[Any]:
        """Return states moved by 2**`power` subsequences."""

    @abstractmethod
    def skipped(self, states: NDArray[Any], count: int) -> NDArray[Any]:
        """Return states moved by `count` numbers."""

    @abstractmethod
    def step(self, states: NDArray[Any]) -> tuple[NDArray[Any], Words]:
        """Return the states after a number, and the number, (engines,)."""

    def draw(self, engines: NDArray[np.int64], count: int) -> Words:
        """Return the next numbers of some engines.

        Parameters
        ----------
        engines : numpy.ndarray
            Int64 (n,), each engine once.
        count : int

        Returns
        -------
        numpy.ndarray
            Uint32 (n, count).
        """
        while len(self.states) <= int(engines.max()):
            self._extend()
        states = self.states[engines]
        found = np.empty((len(engines), count), np.uint32)
        for place in range(count):
            states, found[:, place] = self.step(states)
        self.states[engines] = states
        return found

    def _extend(self) -> None:
        """Double the number of engines."""
        made = len(self._initial)
        moved = self.subsequences(self._initial, made.bit_length() - 1)
        self._initial = np.concatenate([self._initial, moved])
        self.states = np.concatenate([self.states, self._started(made)])

    def _started(self, first: int) -> NDArray[Any]:
        """Return the states of the engines from `first` on at their offsets."""
        states = self.skipped(self._initial[first:], self._skipped)
        ahead = max(0, self._ahead - first)
        if ahead:
            states[:ahead] = self.skipped(states[:ahead], 1)
        return states


class Xorwow(Engines):
    """XORWOW: five words of a linear generator over bits, and a Weyl sequence."""

    def seeded(self, seed: int) -> Words:  # noqa: D102
        low, high = (seed & _MASK) ^ 0x2C7F967F, (seed >> 32 & _MASK) ^ 0xA03697CB
        t0, t1 = 1228688033 * low & _MASK, 2073658381 * high & _MASK
        words = [
            123456789 + t0,
            362436069 ^ t0,
            521288629 + t1,
            88675123 ^ t1,
            5783321 + t0,
            6615241 + t1 + t0,
        ]
        return np.array([[word & _MASK for word in words]], np.uint32)

    def subsequences(self, states: Words, power: int) -> Words:  # noqa: D102
        # 2**67 is a multiple of the Weyl sequence's period, 2**32.
        return _xorwow_moved(states, _xorwow_power(67 + power))

    def skipped(self, states: Words, count: int) -> Words:  # noqa: D102
        states = states.copy()
        bit = 0
        while count >> bit:
            if count >> bit & 1:
                states = _xorwow_moved(states, _xorwow_power(bit))
            bit += 1
        states[:, 5] += np.uint32(count * _WEYL & _MASK)
        return states

    def step(self, states: Words) -> tuple[Words, Words]:  # noqa: D102
        first, last = states[:, 0], states[:, 4]
        mixed = first ^ (first >> np.uint32(2))
        new = (last ^ (last << np.uint32(4))) ^ (mixed ^ (mixed << np.uint32(1)))
        weyl = states[:, 5] + np.uint32(_WEYL)
        after = np.stack([*states.T[1:5], new, weyl], axis=1)
        return after, weyl + new


def _bits(words: Words) -> NDArray[np.float32]:
    little = words.astype("<u4", order="C").view(np.uint8)
    return np.unpackbits(little, axis=1, bitorder="little").astype(np.float32)


def _xorwow_moved(states: Words, matrix: NDArray[np.float32]) -> Words:
    moved = states.copy()
    bits = (_bits(np.ascontiguousarray(states[:, :5])) @ matrix).astype(np.int32) & 1
    packed = np.packbits(bits.astype(np.uint8), axis=1, bitorder="little")
    moved[:, :5] = packed.view("<u4")
    return moved


@functools.cache
def _xorwow_power(power: int) -> NDArray[np.float32]:
    """Return the matrix of 2**`power` steps, (160, 160) zeros and ones, for bits as rows."""
    if power:
        half = _xorwow_power(power - 1)
        return (half @ half) % 2
    units = np.zeros((160, 6), np.uint32)
    for bit in range(160):
        units[bit, bit // 32] = 1 << bit % 32
    engine = Xorwow.__new__(Xorwow)
    return _bits(np.ascontiguousarray(engine.step(units)[0][:, :5]))


class Mrg32k3a(Engines):
    """MRG32k3a: two linear recurrences modulo primes. A number is 1 to the first prime."""

    def seeded(self, seed: int) -> NDArray[np.uint64]:  # noqa: D102
        seed = seed or 12345
        low, high = (seed & _MASK) ^ 0x55555555, (seed >> 32 & _MASK) ^ 0xAAAAAAAA
        first = [_seed_product(word, seed, 0) for word in (low, high, low)]
        second = [_seed_product(word, seed, 1) for word in (high, low, high)]
        return np.array([first + second], np.uint64)

    def subsequences(self, states: NDArray[Any], power: int) -> NDArray[Any]:  # noqa: D102
        return _mrg_moved(states, 1 << (76 + power))

    def skipped(self, states: NDArray[Any], count: int) -> NDArray[Any]:  # noqa: D102
        return _mrg_moved(states, count) if count else states.copy()

    def step(self, states: NDArray[Any]) -> tuple[NDArray[Any], Words]:  # noqa: D102
        m1, m2 = (np.uint64(prime) for prime in _PRIMES)
        a, b = states[:, :3], states[:, 3:]
        p = (np.uint64(1403580) * a[:, 1] + np.uint64(810728) * (m1 - a[:, 0])) % m1
        q = (np.uint64(527612) * b[:, 2] + np.uint64(1370589) * (m2 - b[:, 0])) % m2
        after = np.stack([a[:, 1], a[:, 2], p, b[:, 1], b[:, 2], q], axis=1)
        number = p - q + np.where(p <= q, m1, np.uint64(0))
        return after, (number & np.uint64(_MASK)).astype(np.uint32)


_PRIMES = 4294967087, 4294944443
_STEPS = (
    ((0, 1, 0), (0, 0, 1), (_PRIMES[0] - 810728, 1403580, 0)),
    ((0, 1, 0), (0, 0, 1), (_PRIMES[1] - 1370589, 0, 527612)),
)


def _seed_product(word: int, seed: int, which: int) -> int:
    """Return rocRAND's product of a word and the seed, whose 64 bits overflow as in C."""
    wide = 0xFFFFFFFFFFFFFFFF
    prime, complement = _PRIMES[which], (1 << 32) - _PRIMES[which]

    def reduced(value: int) -> int:
        for _ in range(which + 1):
            value = complement * (value >> 32) + (value & _MASK)
        return value - prime if value >= prime else value

    high, low = word >> 17, word & 0x1FFFF
    total = reduced(high * seed & wide) * (1 << 17) + reduced(low * seed & wide)
    return reduced(total & wide) & _MASK


def _mrg_moved(states: NDArray[Any], count: int) -> NDArray[Any]:
    moved = np.empty_like(states)
    for which, prime in enumerate(_PRIMES):
        matrix = _mrg_power(count, which)
        columns = states[:, 3 * which : 3 * which + 3].T
        for row in range(3):
            terms = [
                np.uint64(factor) * column % np.uint64(prime)
                for factor, column in zip(matrix[row], columns, strict=True)
            ]
            moved[:, 3 * which + row] = (terms[0] + terms[1] + terms[2]) % np.uint64(prime)
    return moved


@functools.lru_cache(maxsize=256)
def _mrg_power(count: int, which: int) -> tuple[tuple[int, ...], ...]:
    """Return the matrix of `count` steps modulo a prime."""
    if count == 0:
        return (1, 0, 0), (0, 1, 0), (0, 0, 1)
    half = _mrg_power(count // 2, which)
    power = _product(half, half, which)
    return _product(power, _STEPS[which], which) if count % 2 else power


def _product(
    a: tuple[tuple[int, ...], ...], b: tuple[tuple[int, ...], ...], which: int
) -> tuple[tuple[int, ...], ...]:
    prime, indices = _PRIMES[which], range(3)
    return tuple(
        tuple(sum(row[k] * b[k][column] for k in indices) % prime for column in indices)
        for row in a
    )


def philox(seed: int, positions: NDArray[np.uint64]) -> Words:
    """Return numbers of Philox4x32-10's sequence.

    Parameters
    ----------
    seed : int
        The key.
    positions : numpy.ndarray
        Uint64, any shape: positions in the sequence; four share a counter.

    Returns
    -------
    numpy.ndarray
        Uint32, of that shape.
    """
    counters, inverse = np.unique(positions.ravel() // np.uint64(4), return_inverse=True)
    mask, half = np.uint64(_MASK), np.uint64(32)
    x, y = counters & mask, counters >> half
    z, w = np.zeros_like(x), np.zeros_like(x)
    key = [seed & _MASK, seed >> 32 & _MASK]
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * x, np.uint64(0xCD9E8D57) * z
        x, y, z, w = (
            (second >> half) ^ y ^ np.uint64(key[0]),
            second & mask,
            (first >> half) ^ w ^ np.uint64(key[1]),
            first & mask,
        )
        key = [(key[0] + 0x9E3779B9) & _MASK, (key[1] + 0xBB67AE85) & _MASK]
    numbers = np.stack([x, y, z, w], axis=1).astype(np.uint32)
    found: Words = numbers[inverse, (positions.ravel() % np.uint64(4)).astype(np.int64)]
    return found.reshape(positions.shape)
