"""The order of tiles: each is computed once, and neighbours run together."""

import ctypes
import functools
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from cupygemm._backends.cdna.mainloops import register_double_buffer
from cupygemm.emulator.profiling.parts import PARTS, CacheGeometry
from tests.kernels.gemm import Case
from tests.kernels.host import compile_for_host

_CODE = """
using namespace cupygemm;
extern "C" unsigned remap_1(unsigned w, unsigned count) { return xcd_contiguous<1>(w, count); }
extern "C" unsigned remap_8(unsigned w, unsigned count) { return xcd_contiguous<8>(w, count); }
extern "C" void order(unsigned index, unsigned tiles_m, unsigned tiles_n, unsigned *out) {
    const TileIndex tile = grouped_order<8>(index, tiles_m, tiles_n);
    out[0] = tile.m, out[1] = tile.n;
}
extern "C" void hilbert_at(unsigned index, unsigned tiles_m, unsigned tiles_n, unsigned *out) {
    const TileIndex tile = hilbert_order(index, tiles_m, tiles_n);
    out[0] = tile.m, out[1] = tile.n;
}
extern "C" void hilbert(unsigned tiles_m, unsigned tiles_n, unsigned *out) {
    for (unsigned index = 0; index < tiles_m * tiles_n; ++index) {
        const TileIndex tile = hilbert_order(index, tiles_m, tiles_n);
        *out++ = tile.m, *out++ = tile.n;
    }
}
"""


@functools.cache
def library() -> ctypes.CDLL:
    return compile_for_host("common/raster.hpp", _CODE)


def tile_order(tiles_m, tiles_n):
    out = (ctypes.c_uint32 * 2)()
    order = []
    for index in range(tiles_m * tiles_n):
        library().order(index, tiles_m, tiles_n, out)
        order.append((out[0], out[1]))
    return order


def hilbert_order(tiles_m, tiles_n):
    tiles = np.empty((tiles_m * tiles_n, 2), np.uint32)
    library().hilbert(tiles_m, tiles_n, tiles.ctypes.data_as(ctypes.c_void_p))
    return tiles.astype(int)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 15, 16, 64, 303, 304, 1000])
def test_the_remap_is_a_permutation_into_contiguous_ranges(count):
    """XCD x runs workgroups x, x + 8, ...: their tiles are neighbours, and none is lost."""
    tiles = np.array([library().remap_8(w, count) for w in range(count)])
    np.testing.assert_array_equal(np.sort(tiles), np.arange(count))
    for xcd in range(min(count, 8)):
        assert (np.diff(tiles[xcd::8]) == 1).all()
    assert [library().remap_1(w, count) for w in range(count)] == list(range(count))


@pytest.mark.parametrize(
    ("tiles_m", "tiles_n"), [(1, 1), (8, 8), (7, 3), (9, 5), (16, 1), (1, 16), (17, 23)]
)
def test_the_grouped_order_visits_every_tile_once(tiles_m, tiles_n):
    order = tile_order(tiles_m, tiles_n)
    assert sorted(order) == [(m, n) for m in range(tiles_m) for n in range(tiles_n)]


def test_a_stretch_of_the_order_is_compact():
    """64 tiles in a row are an 8 x 8 block: they share 8 rows of A and 8 columns of B."""
    order = tile_order(32, 32)
    for first in range(0, len(order), 64):
        block = order[first : first + 64]
        assert len({m for m, _ in block}) == len({n for _, n in block}) == 8


@pytest.mark.parametrize("tiles_m", [*range(1, 20), 31, 32, 33, 64, 100, 511])
def test_hilberts_order_visits_every_tile_once_and_steps_to_adjacent_ones(tiles_m):
    """Only where the longer side is odd and the other even can no such path end where it should."""
    for tiles_n in (*range(1, 20), 31, 32, 33, 64, 100, 511):
        order = hilbert_order(tiles_m, tiles_n)
        where = order[:, 0] * tiles_n + order[:, 1]
        np.testing.assert_array_equal(np.sort(where), np.arange(tiles_m * tiles_n))
        steps = np.abs(np.diff(order, axis=0)).sum(axis=1)
        long, short = max(tiles_m, tiles_n), min(tiles_m, tiles_n)
        assert (steps > 1).sum() <= (long % 2 == 1 and short % 2 == 0)
        assert steps.max(initial=1) <= 3


def test_hilberts_order_of_many_tiles():
    """For up to 2^31 - 1 tiles, the first and the last ones are the ends of the curve."""
    out = (ctypes.c_uint32 * 2)()
    for tiles_m, tiles_n in ((1, 2**31 - 1), (2**31 - 1, 1), (46340, 46340), (3, 700_000_001)):
        tiles = []
        for index in (0, 1, tiles_m * tiles_n - 2, tiles_m * tiles_n - 1):
            library().hilbert_at(index, tiles_m, tiles_n, out)
            tiles.append((out[0], out[1]))
        end = (0, tiles_n - 1) if tiles_n >= tiles_m else (tiles_m - 1, 0)
        assert (tiles[0], tiles[3]) == ((0, 0), end)
        for (m, n), (next_m, next_n) in (tiles[:2], tiles[2:]):
            assert abs(next_m - m) + abs(next_n - n) == 1


@pytest.mark.parametrize(("tiles_m", "tiles_n"), [(32, 32), (64, 64), (37, 50), (16, 61)])
def test_stretches_of_hilberts_order_of_any_length_are_compact(tiles_m, tiles_n):
    """They meet rows and columns like a square's: those of the grouped order of one length do."""
    order = hilbert_order(tiles_m, tiles_n)
    for length in (16, 66, 132, 264):
        met = [
            len(set(stretch[:, 0])) + len(set(stretch[:, 1]))
            for stretch in (order[at : at + length] for at in range(0, len(order) - length, 7))
        ]
        assert np.mean(met) < 1.35 * 2 * length**0.5
    grouped = np.array(tile_order(tiles_m, tiles_n))
    met = [sum(len(set(axis)) for axis in grouped[at : at + 264].T) for at in (0, 264)]
    assert np.mean(met) > 1.15 * 2 * 264**0.5


def fetched(tile_m, tile_n, tiles_m, tiles_n, **raster):
    """Return the bytes that the L2s of gfx942 fetch, and their hit rate; each L2 is 256 KiB.

    Tiles are small, so that few seconds suffice, and the L2s in proportion; as many workgroups run
    together as on the device with tiles of four times the size: 64 of 32 x 32 on an XCD.
    """
    config = next(
        c
        for c in register_double_buffer.configs("bf16", "gfx942")
        if (c.tile_m, c.tile_n, c.mma_m) == (tile_m, tile_n, 16)
    )
    case = Case(
        replace(config, **raster),
        "gfx942",
        m=tile_m * tiles_m,
        n=tile_n * tiles_n,
        k=config.tile_k,
        b_major="k",
    )
    part = replace(PARTS["gfx942"], l2=CacheGeometry(256 << 10, 128, 16))
    with mock.patch.dict(PARTS, {"gfx942": part}):
        profile = case.run(profile=True).stats.profile
    traffic = [i.global_memory.traffic for i in profile.instructions if i.global_memory]
    hits, requests = (sum(getattr(t, f"l2_{x}") for t in traffic) for x in ("hits", "requests"))
    return sum(t.fabric_read for t in traffic), hits / requests


@pytest.mark.slow  # two launches of a thousand workgroups
def test_remap_and_grouped_order_keep_an_xcd_to_few_rows_and_columns():
    """31 columns of tiles: dealt one by one to 8 XCDs, each XCD meets all rows and columns.

    Remapped and grouped it has 4 blocks of 8 x 8 of 32 x 31 tiles.
    """
    row_major, rate = fetched(32, 32, 32, 31, group_m=1, xcd_remap=False)
    both, better_rate = fetched(32, 32, 32, 31, group_m=8)
    assert both < 0.4 * row_major
    assert better_rate > rate + 0.2


@pytest.mark.slow  # two launches of five hundred workgroups
@pytest.mark.sweep
def test_the_height_of_a_group_that_the_configurations_have_is_the_better():
    """32 tiles of 64 x 32 run together on an XCD: 4 x 8 tiles are as high as wide."""
    assert fetched(64, 32, 16, 31, group_m=4)[0] < 0.85 * fetched(64, 32, 16, 31, group_m=8)[0]
