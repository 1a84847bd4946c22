"""Derive the sharing of a product's workgroups in the caches from the order of their tiles.

    order of tiles ─► rounds of workgroups ─► rows of A and columns of B of each XCD, at each step
                   ─► bytes from L2, from the last-level cache and from HBM

The rules are those of the device; no constant is fitted:

- Workgroup w runs on XCD w mod XCDs. A round is the workgroups that the device holds at a time.
- The workgroups of a round walk k together. Data that several of them need at a step is fetched
  once by their L2, and once by the last-level cache for several L2s.
- L2 and the last-level cache evict the least recently used line. A block of A or B from an earlier
  round is still cached if at most the cache's size was accessed since.

Not modelled: workgroups that drift apart, which lowers the hit rates of real devices, and the
limited ways and sets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.profiling.parts import PARTS
from cupygemm.emulator.targets import TARGETS

_Panel = tuple[str, int]  # a row of tiles of A or a column of tiles of B, over all of k
_Panels = frozenset[_Panel]


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """The tiles of a product's result, and the order in which workgroups take them.

    Attributes
    ----------
    order : int array (workgroups, 2)
        Row and column of each workgroup's tile, in the order of launch.
    a_bytes, b_bytes : int
        Bytes of A and of B that a workgroup loads at a step of k.
    steps : int
        Steps of k.
    """

    order: NDArray[np.int64]
    a_bytes: int
    b_bytes: int
    steps: int


@dataclass(frozen=True, kw_only=True)
class Shares:
    """The bytes of A and B that a product loads, by the level from which they come.

    Attributes
    ----------
    l2_bytes, fabric_bytes, memory_bytes : float
        Requested from the L2s, from the last-level cache, and from HBM.
    waits : (float, float, float)
        Shares of the requests that wait for L2, for the last-level cache, and for HBM. Workgroups
        that need a line while their L2 fetches it wait as long as the first of them.
    """

    l2_bytes: float
    fabric_bytes: float
    memory_bytes: float
    waits: tuple[float, float, float]

    @property
    def l2_hits(self) -> float:
        """Return the hit rate of L2."""
        return 1 - self.fabric_bytes / self.l2_bytes

    @property
    def last_hits(self) -> float:
        """Return the hit rate of the last-level cache."""
        return 1 - self.memory_bytes / self.fabric_bytes if self.fabric_bytes else 0.0


def row_major(rows: int, columns: int) -> NDArray[np.int64]:
    """Return the tiles row by row."""
    return np.stack(np.divmod(np.arange(rows * columns), columns), axis=1)


def grouped(
    rows: int, columns: int, *, height: int, chunk: int, num_xcds: int
) -> NDArray[np.int64]:
    """Return the tiles in HipKittens' order: groups of rows, and chunks that stay on an XCD.

    Parameters
    ----------
    rows, columns : int
    height : int
        Rows of tiles that are walked column by column before the next rows begin.
    chunk : int
        Consecutive tiles that one XCD takes.
    num_xcds : int
    """
    count = rows * columns
    place = np.arange(count)
    block = num_xcds * chunk
    local = place // num_xcds
    moved = local // chunk * block + place % num_xcds * chunk + local % chunk
    place = np.where(place < count // block * block, moved, place)
    first = place // (height * columns) * height
    high = np.minimum(rows - first, height)
    within = place % (height * columns)
    return np.stack([first + within % high, within // high], axis=1)


def derive(tiling: Tiling, target: str, resident: int = 1) -> Shares:
    """Return the bytes of a product by the level that supplies them.

    Parameters
    ----------
    tiling : Tiling
    target : str
    resident : int
        Workgroups on a compute unit.

    Returns
    -------
    Shares
    """
    part, device = PARTS[target], TARGETS[target]
    size = {"a": tiling.a_bytes, "b": tiling.b_bytes}
    # Every round begins on XCD 0: a device has as many CUs on each XCD.
    at_once = device.num_cus * resident
    shared = _Cache(part.last.size if part.last else 0, tiling.steps, size)
    l2s = [_Cache(part.l2.size, tiling.steps, size) for _ in range(device.num_xcds)]
    requested = fetched = missed = to_fabric = to_memory = 0.0
    for first in range(0, len(tiling.order), at_once):
        tiles = tiling.order[first : first + at_once]
        requested += len(tiles) * (tiling.a_bytes + tiling.b_bytes)
        absent = shared.enter(frozenset(_users(tiles)))
        asked: dict[_Panel, float] = {}
        for xcd, l2 in enumerate(l2s):
            users = _users(tiles[xcd :: device.num_xcds])
            for panel, share in l2.enter(frozenset(users)).items():
                asked[panel] = asked.get(panel, 0.0) + share
                fetched += share * size[panel[0]]
                to_fabric += users[panel] * share * size[panel[0]]
                to_memory += users[panel] * min(share, absent[panel]) * size[panel[0]]
        for panel, share in absent.items():
            missed += min(share, asked[panel]) * size[panel[0]]
    fabric, memory = to_fabric / requested, to_memory / requested
    return Shares(
        l2_bytes=requested * tiling.steps,
        fabric_bytes=fetched * tiling.steps,
        memory_bytes=missed * tiling.steps,
        waits=(1 - fabric, fabric - memory, memory),
    )


def _users(tiles: NDArray[np.int64]) -> Counter[_Panel]:
    """Return the panels of some tiles, and how many of the tiles need each."""
    rows, columns = tiles.T.tolist()
    return Counter([*(("a", row) for row in rows), *(("b", column) for column in columns)])


class _Cache:
    """The panels that a cache has loaded, round by round."""

    def __init__(self, capacity: int, steps: int, size: dict[str, int]) -> None:
        self._capacity, self._steps, self._size = capacity, steps, size
        self._rounds: list[_Panels] = []

    def enter(self, panels: _Panels) -> dict[_Panel, float]:
        """Begin a round; return the share of the steps at which each panel is not in the cache."""
        self._rounds.append(panels)
        found: dict[int, float] = {}  # by the latest round that used it
        result = {}
        for panel in panels:
            last = next(
                (n for n in range(len(self._rounds) - 2, -1, -1) if panel in self._rounds[n]), None
            )
            if last is None:
                result[panel] = 1.0
                continue
            if last not in found:
                found[last] = self._missing(self._rounds[last:-1], self._rounds[last + 1 :])
            result[panel] = found[last]
        return result

    def _missing(self, before: Sequence[_Panels], after: Sequence[_Panels]) -> float:
        """Return the share of the steps whose blocks were evicted since an earlier round.

        Between two uses of a step's block, the cache loads the later steps in the rounds `before`,
        and the steps up to it in the rounds `after`.
        """
        behind, until = self._bytes(before), self._bytes(after)
        step = np.arange(self._steps)
        touched = (self._steps - step) * behind + step * until
        return float(np.mean(touched > self._capacity))

    def _bytes(self, rounds: Sequence[_Panels]) -> int:
        return sum(self._size[kind] for kind, _ in frozenset[_Panel]().union(*rounds))
