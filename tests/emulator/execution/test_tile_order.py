"""Sharing in the caches by the workgroups of a product, derived from the order of their tiles."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

from cupygemm.emulator.calibration import order
from cupygemm.emulator.profiling.timing.tile_order import (
    Tiling,
    _Cache,
    derive,
    grouped,
    row_major,
)

BLOCK = 1024


def tiling(tiles: np.ndarray, steps: int = 64) -> Tiling:
    return Tiling(order=tiles, a_bytes=BLOCK, b_bytes=2 * BLOCK, steps=steps)


@pytest.mark.parametrize(("height", "chunk"), [(1, 1), (4, 16), (7, 5), (8, 64), (3, 1000)])
def test_every_tile_has_its_place(height, chunk):
    tiles = grouped(13, 19, height=height, chunk=chunk, num_xcds=8)
    assert sorted(map(tuple, tiles.tolist())) == [(r, c) for r in range(13) for c in range(19)]


def test_a_chunk_stays_on_its_xcd():
    tiles = grouped(16, 16, height=16, chunk=4, num_xcds=8)
    first_xcd = tiles[0::8][:4]
    assert first_xcd.tolist() == [[0, 0], [1, 0], [2, 0], [3, 0]]


def test_one_round_on_one_die_fetches_each_panel_once():
    # 10 x 11 tiles on gfx90a's 110 CUs.
    shares = derive(tiling(row_major(10, 11)), "gfx90a")
    assert shares.l2_bytes == 110 * 3 * BLOCK * 64
    assert shares.fabric_bytes == (10 * BLOCK + 11 * 2 * BLOCK) * 64
    assert shares.waits == pytest.approx((0, 0, 1))


def test_eight_l2s_share_what_the_last_level_cache_fetches():
    # A row of 304 tiles: each XCD needs the one row of A and its own columns.
    shares = derive(tiling(row_major(1, 304)), "gfx942")
    assert shares.fabric_bytes == (8 * BLOCK + 304 * 2 * BLOCK) * 64
    assert shares.memory_bytes == (BLOCK + 304 * 2 * BLOCK) * 64


def test_a_second_round_finds_what_the_caches_still_hold():
    # The second row of tiles has the same columns of B; they fit the caches only at few steps.
    short = derive(tiling(row_major(2, 304), steps=16), "gfx942")
    assert short.fabric_bytes == (2 * 8 * BLOCK + 304 * 2 * BLOCK) * 16
    long = derive(tiling(row_major(2, 304), steps=4096), "gfx942")
    assert long.fabric_bytes == 2 * (8 * BLOCK + 304 * 2 * BLOCK) * 4096
    assert long.memory_bytes == 2 * (BLOCK + 304 * 2 * BLOCK) * 4096


@pytest.mark.parametrize("capacity", [3, 7, 12, 20, 33, 60])
def test_evictions_are_those_of_a_least_recently_used_cache(capacity):
    """Every access of random rounds goes through a plain LRU cache of blocks."""
    rng, steps = np.random.default_rng(capacity), 7
    derived, exact = _Cache(capacity, steps, {"a": 1, "b": 1}), OrderedDict()
    for _ in range(12):
        panels = sorted(("a", int(n)) for n in rng.choice(9, rng.integers(2, 5), replace=False))
        misses = dict.fromkeys(panels, 0)
        for step in range(steps):
            for panel in panels:
                misses[panel] += (panel, step) not in exact
            for panel in panels:
                exact[panel, step] = None
                exact.move_to_end((panel, step))
            while len(exact) > capacity:
                exact.popitem(last=False)
        found = derived.enter(frozenset(panels))
        assert sum(found.values()) * steps == pytest.approx(sum(misses.values()), abs=len(panels))


def test_hit_rates_are_near_published_ones():
    errors = {figure.name: figure.modelled - figure.published for figure in order.figures()}
    assert errors.pop("9216, row-major, L2") == pytest.approx(17.7, abs=0.5)  # they drift apart
    assert max(map(abs, errors.values())) < 6.5
    assert sum(map(abs, errors.values())) / len(errors) < 2.5
