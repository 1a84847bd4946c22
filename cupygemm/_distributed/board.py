"""`Board`: a word for each rank in memory that all processes of a host share.

Before a product, each rank writes one word: the number of the call, and a digest of the function
and its facts. It then waits for the words of all ranks with that number. If the ranks agreed on the
same digests before, they agree again, within microseconds. Otherwise they exchange their facts
through the rendezvous. Writing a word is atomic, and a rank overwrites its word two calls later,
when all ranks have read it.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

_FOLDER = "/dev/shm"  # noqa: S108  # memory, under any name
_DIGEST_BITS = 48
_DIGEST_MASK = (1 << _DIGEST_BITS) - 1
_NUMBERS = 1 << 16
_PATIENCE = ((200, None), (2000, 0.0), (1 << 62, 50e-6))
"""(looks, seconds): up to this many looks at a word, the pause between two; None does not sleep."""


class Board:
    """The words of all ranks of a group.

    Parameters
    ----------
    path : str
        The file that `create` made on this host.
    rank, size : int

    Raises
    ------
    OSError
        The file does not exist, because the ranks are on different hosts.
    """

    def __init__(self, path: str, rank: int, size: int) -> None:
        with Path(path).open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 16 * size)
        self._words = memoryview(self._memory).cast("Q")
        self._rank, self._size = rank, size
        self._number = 0  # of the current call
        self._first = 0  # where its words begin

    @staticmethod
    def create(size: int) -> str:
        """Create the file of a board and return its path; "" if this host has no shared memory."""
        with contextlib.suppress(OSError):
            file, path = tempfile.mkstemp(prefix="cupygemm-", dir=_FOLDER)
            os.truncate(file, 16 * size)
            os.close(file)
            return path
        return ""

    def meet(self, digest: int, timeout: float, check: Callable[[], None]) -> tuple[int, ...]:
        """Wait until every rank has made its next call, and return their digests, by rank.

        Parameters
        ----------
        digest : int
        timeout : float
            Seconds.
        check : callable
            Raises an exception if the group cannot continue.

        Raises
        ------
        LateError
            Ranks have not made the call within the timeout.
        """
        self._number = (self._number + 1) % _NUMBERS
        self._first = self._size * (self._number % 2)
        self._words[self._first + self._rank] = self._number << _DIGEST_BITS | digest
        found = [0] * self._size
        looks, end = 0, 0.0
        for rank in range(self._size):
            while (theirs := self._digest(rank)) is None:
                looks += 1
                pause = next(seconds for count, seconds in _PATIENCE if looks < count)
                if pause is None:
                    continue
                time.sleep(pause)
                now = time.monotonic()
                end = end or now + timeout
                check()
                if now > end:
                    raise LateError([r for r in range(self._size) if self._digest(r) is None])
            found[rank] = theirs
        return tuple(found)

    def _digest(self, rank: int) -> int | None:
        """Return the digest of a rank's current call; None while its word is of another call."""
        word = self._words[self._first + rank]
        return word & _DIGEST_MASK if word >> _DIGEST_BITS == self._number else None


class LateError(Exception):
    """Ranks have not made a call within the timeout.

    Parameters
    ----------
    ranks : list of int
    """

    def __init__(self, ranks: list[int]) -> None:
        super().__init__(ranks)
        self.ranks = ranks


def digest_of(text: str) -> int:
    """Return a digest of a text, the same in all processes."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=_DIGEST_BITS // 8).digest())
