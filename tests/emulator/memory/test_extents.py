"""The tables of valid memory, which are updated from the changes since the latest ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cupygemm.emulator.memory.extent_tables import Tables
from cupygemm.emulator.memory.extents import Extents, Owner


class Drawn:
    """Blocks and arrays that are created and freed at random; most changes are small."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.extents = Extents()
        self.starts: list[int] = []
        self.owners: list[Owner] = []
        self.next_start = 1 << 40

    def add(self) -> None:
        """Add a block, and possibly carve an array from it."""
        self.next_start += 4096
        start = self.next_start - 4096 * self.random.choice([0, 1 << 20])  # adjacent, or far below
        remember = self.random.random() < 0.8
        self.extents.add(start, 512, "block", None, remember=remember)
        self.starts.append(start)

    def carve(self) -> None:
        """Carve an array from a block, whether or not there are others in it."""
        if self.starts:
            start = self.random.choice(self.starts) + 64 * self.random.randrange(8)
            owner = self.extents.carve(start, 64, "array", None)
            assert owner is not None
            self.owners.append(owner)

    def change(self) -> None:
        """Make one change."""
        kind = self.random.choices(["add", "carve", "drop", "remove"], [4, 5, 4, 2])[0]
        if kind == "add":
            self.add()
        elif kind == "carve":
            self.carve()
        elif kind == "drop" and self.owners:
            self.owners.pop(self.random.randrange(len(self.owners)))
        elif kind == "remove" and self.starts:
            self.extents.remove(self.starts.pop(self.random.randrange(len(self.starts))))


@pytest.mark.parametrize("seed", range(8))
def test_tables_are_those_that_are_derived_anew(seed: int) -> None:
    drawn = Drawn(seed)
    extents, freed, from_changes = drawn.extents, [], 0
    known = extents.tables()
    for _ in range(120):
        for _ in range(drawn.random.choice([0, 1, 1, 1, 2, 5])):
            drawn.change()
        recent = list(extents._recent)
        now = list(extents._blocks.values()), list(extents._arrays.values())
        by_address = sorted((block.extent for block in now[0]), key=lambda each: each.start)
        from_changes += known.changed(now[0], by_address, now[1], recent) is not None
        expected, gone = known.replaced(*now, recent)
        freed += [extent for extent in gone if extent.is_remembered]
        known = extents.tables()
        assert (known.blocks, known.arrays) == now
        assert (known.valid, known.all_blocks) == (expected.valid, expected.all_blocks)
        assert known.carved == expected.carved
        for name in ("starts", "ends", "devices"):
            np.testing.assert_array_equal(getattr(known, name), getattr(expected, name))
        assert list(extents._freed) == freed
        assert extents.present_blocks() == expected.all_blocks
    assert 60 < from_changes < 120  # both ways of deriving were compared
    assert len(freed) > 20


class Interrupted(dict[Any, Any]):
    """A dictionary that lets another thread run each time it is read."""

    other: Callable[[], None]

    def values(self) -> Any:
        found = list(super().values())
        self.other()
        return found


@pytest.mark.parametrize("seed", range(8))
def test_other_threads_add_and_remove_while_tables_are_derived(seed: int) -> None:
    drawn = Drawn(seed)
    extents, left = drawn.extents, 0

    def change() -> None:
        nonlocal left
        left, turns = 0, left  # changes read the dictionaries, too
        for _ in range(3 if turns else 0):
            drawn.change()
        left = max(turns - 1, 0)

    extents._blocks, extents._arrays = Interrupted(), Interrupted()
    extents._blocks.other = extents._arrays.other = change
    for _ in range(120):
        left = drawn.random.choice([1, 1, 2, 3])
        extents.tables()
        left = 0
        known = extents.tables()
        expected = Tables.of(list(extents._blocks.values()), list(extents._arrays.values()))
        assert known.valid == expected.valid
        np.testing.assert_array_equal(known.starts, expected.starts)


def test_a_launch_derives_no_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its arguments have the addresses of the previous launch's."""
    extents = Extents()
    for start in range(0, 40960, 4096):
        extents.add(start, 512, "block", None, remember=True)
    kept = [extents.carve(4096 * block, 64, "array", None) for block in range(5)]
    extents.add(81920, 320, "arguments", None, remember=False)
    first = extents.tables()
    monkeypatch.setattr(Tables, "of", None)  # would derive all tables
    extents.remove(81920)
    extents.add(81920, 320, "arguments", None, remember=False)
    second = extents.tables()
    assert first.starts is second.starts
    assert first.ends is second.ends
    assert [extent.serial for extent in second.valid][-1] == extents.newest
    del kept
