"""Groups of rows on the modelled GPU, whose sizes the kernel reads: one launch, to the bit."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm._backends.hopper.choice.tile_shapes import SCALED_CONFIGS
from cupygemm._backends.hopper.other_products import block_scales
from cupygemm._plan.table import PLANS
from cupygemm._products import row_groups

E4M3, BF16 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.bfloat16)
F16, F32 = np.dtype(np.float16), np.dtype(np.float32)
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def one_launch(monkeypatch):
    """Refuse products of single groups, which would be launches of their own."""
    PLANS.clear()
    monkeypatch.setattr(row_groups, "_one_by_one", None)
    yield
    PLANS.clear()


def integers(shape, dtype):
    return RNG.integers(-3, 4, shape).astype(dtype)


def powers(*shape):
    return (2.0 ** RNG.integers(-2, 3, shape)).astype(F32)


def spread(scales, axis, extent, block=128):
    return np.repeat(scales, block, axis=axis).take(range(extent), axis=axis)


@pytest.mark.parametrize(
    "sizes", [(70, 0, 130, 5), (0, 0, 0, 0), (1, 300, 1, 1), (128, 64, 64, 64)]
)
@pytest.mark.parametrize("ends", [False, True])
def test_rows_sorted_by_group(cp, sizes, ends):
    m, k, n = 330, 300, 136
    a, b = integers((m, k), F16), integers((4, k, n), F16)
    numbers = np.cumsum(sizes) if ends else np.array(sizes)
    given = {"offsets" if ends else "sizes": cp.asarray(numbers.astype(np.int32))}
    out = cp.zeros((m, n), F32)
    result = cupygemm.grouped_matmul(cp.asarray(a), cp.asarray(b), out, dtype=F32, **given)
    assert result is out
    start, found = 0, np.array(result, subok=False)
    for group, size in enumerate(sizes):
        rows = slice(start, start := start + size)
        np.testing.assert_array_equal(found[rows], a[rows].astype(F32) @ b[group].astype(F32))
    assert not found[start:].any()


def check_scaled(cp, sizes, *, masked, shape_b, dtype=F32, along_rows=False, **options):
    """Scales are powers of two, of which every sum is exact."""
    groups, rows, k, n = len(sizes), 200 if masked else sum(sizes) + 9, 300, 200
    steps = -(-k // 128)
    lead = (groups, rows) if masked else (rows,)
    a, b = (integers(shape, E4M3) for shape in ((*lead, k), (groups, k, n)))
    scale_a = powers(*lead, steps)
    scale_b = powers(groups, steps, *shape_b(n)) if shape_b else powers(groups, n)
    turned = cp.asarray(np.ascontiguousarray(b.view(np.uint8).swapaxes(1, 2))).swapaxes(1, 2)
    of_rows = cp.asarray(np.ascontiguousarray(scale_a.swapaxes(-1, -2)) if along_rows else scale_a)
    result = cupygemm.grouped_matmul(
        cp.asarray(a.view(np.uint8)),
        turned,
        sizes=cp.asarray(np.array(sizes, np.int32)),
        scale_a=of_rows.swapaxes(-1, -2) if along_rows else of_rows,
        scale_b=cp.asarray(scale_b),
        format_a="e4m3fn",
        format_b="e4m3fn",
        dtype=dtype,
        **options,
    )
    left = a.astype(F32) * spread(scale_a, -1, k)
    if shape_b:
        scale_b = (
            spread(spread(scale_b, 1, k), 2, n) if shape_b(n) != (n,) else spread(scale_b, 1, k)
        )
        right = b.astype(F32) * scale_b
    else:
        right = b.astype(F32) * scale_b[:, None]
    found, start = np.array(result, subok=False), 0
    for group, size in enumerate(sizes):
        index = (group, slice(size)) if masked else slice(start, start := start + size)
        expected = left[index] @ right[group]
        np.testing.assert_array_equal(found[index], expected.astype(dtype))


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape_b", [lambda n: (-(-n // 128),), lambda n: (n,), None])
def test_scales_along_k(cp, masked, shape_b):
    check_scaled(cp, (70, 0, 130, 5), masked=masked, shape_b=shape_b)


@pytest.mark.parametrize("masked", [False, True])
def test_scales_that_are_adjacent_along_the_rows(cp, masked):
    """The copy engine copies those of a tile, but not those of groups that begin in between."""
    sizes = (72, 0, 130, 5)  # groups of sorted rows begin at 0, 72 and 202
    check_scaled(cp, sizes, masked=masked, shape_b=lambda n: (n // 128 + 1,), along_rows=True)


@pytest.mark.parametrize("group_m", [1, 2, 3])
def test_tiles_are_in_raster_groups(cp, monkeypatch, group_m):
    """Five rows of tiles are in full raster groups and in one that is lower."""
    small = next(each for each in SCALED_CONFIGS if (each.tile_m, each.tile_n) == (64, 64))
    monkeypatch.setattr(block_scales, "SCALED_CONFIGS", (replace(small, group_m=group_m),))
    check_scaled(cp, (300, 0, 70), masked=False, shape_b=lambda n: (n // 128 + 1,))
