"""The order of tiles: each is computed once, and neighbours run together."""

import ctypes
import functools

import numpy as np
import pytest

from tests.kernels.host import compile_for_host

_CODE = """
using namespace cupygemm;
extern "C" unsigned remap_1(unsigned w, unsigned count) { return xcd_contiguous<1>(w, count); }
extern "C" unsigned remap_8(unsigned w, unsigned count) { return xcd_contiguous<8>(w, count); }
extern "C" void order(unsigned index, unsigned tiles_m, unsigned tiles_n, unsigned *out) {
    const TileIndex tile = grouped_order<8>(index, tiles_m, tiles_n);
    out[0] = tile.m, out[1] = tile.n;
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
