"""Cross-lane instructions against index arithmetic."""

from __future__ import annotations

import numpy as np

RNG = np.random.default_rng(8)
WAVE = ((1, 1, 1), (64, 1, 1))
L = np.arange(64)


def test_permutes_and_swizzles(program) -> None:
    x = RNG.integers(-1000, 1000, 64).astype(np.int32)
    out = np.zeros((64, 8), np.int32)
    program("lanes.hip")("permutes", *WAVE, x, out)
    pushed = np.zeros(64, np.int32)
    pushed[(L * 5 + 1) % 64] = x
    expected = [
        x[(L * 7 + 3) % 64],
        pushed,
        x[L ^ 3],
        x[L ^ 1],
        x[L ^ 31],
        x[L & ~7],
        np.full(64, x[0]),
        np.full(64, x[37]),
    ]
    np.testing.assert_array_equal(out, np.stack(expected, axis=1))


def test_dpp(program) -> None:
    x = RNG.integers(0, 1000, 64).astype(np.int32)
    out = np.zeros((64, 10), np.int32)
    program("lanes.hip")("dpp", *WAVE, x, out)
    row, place = L // 16, L % 16

    def shifted(by: int, outside: int) -> np.ndarray:
        source = place - by
        return np.where((source >= 0) & (source < 16), x[(16 * row + source) % 64], outside)

    expected = [
        x[L ^ 3],
        shifted(-1, -1),
        shifted(3, 0),
        x[16 * row + (place - 5) % 16],
        x[16 * row + 15 - place],
        x[L ^ 7],
        np.where(row % 2 == 1, x[(16 * row - 1) % 64], -1),
        np.where(L > 0, x[L - 1], -1),
        x[(L + 1) % 64],
        np.where((row < 2) & (place // 4 % 2 == 0), shifted(1, -1), -1),
    ]
    np.testing.assert_array_equal(out, np.stack(expected, axis=1))


def test_ballots(program) -> None:
    x = RNG.integers(0, 100, 64).astype(np.int32)
    masks, counts = np.zeros(64, np.uint64), np.zeros(64, np.uint32)
    program("lanes.hip")("ballots", *WAVE, x, masks, counts)
    odd, large = (sum(1 << i for i in range(64) if chosen[i]) for chosen in (x % 2 == 1, x > 50))
    assert masks.tolist() == [large if v > 50 else odd for v in x]
    before = np.cumsum(x % 2) - x % 2
    np.testing.assert_array_equal(counts, before + 1000 * (x % 2).sum())


def test_compaction(program) -> None:
    x = RNG.integers(0, 100, 64).astype(np.int32)
    out, kept = np.full(64, -1, np.int32), np.zeros(1, np.uint32)
    program("lanes.hip")("compact", *WAVE, x, out, kept)
    chosen = x[x % 3 == 0]
    assert kept[0] == chosen.size
    np.testing.assert_array_equal(out[: chosen.size], chosen)
    assert (out[chosen.size :] == -1).all()


def test_loop_over_distinct_values(program) -> None:
    x = RNG.integers(0, 9, 64).astype(np.int32)
    out = np.zeros(64, np.int32)
    program("lanes.hip")("distinct", *WAVE, x, out)
    seen = list(dict.fromkeys(x.tolist()))
    assert out.tolist() == [seen.index(v) for v in x.tolist()]


def test_swaps(program, variant) -> None:
    """v_permlane16_swap exchanges odd rows of the first with even rows of the second."""
    run = program("lanes.hip")
    assert ("swaps" in run.code.kernels) == (variant[0] == "gfx950")
    if variant[0] != "gfx950":
        return
    x, y = (RNG.integers(0, 2**32, 64, dtype=np.uint32) for _ in range(2))
    out = np.zeros((64, 4), np.uint32)
    run("swaps", *WAVE, x, y, out)
    for column, width in ((0, 16), (2, 32)):
        a, b = x.reshape(-1, 2, width), y.reshape(-1, 2, width)
        first, second = a.copy(), b.copy()
        first[:, 1], second[:, 0] = b[:, 0], a[:, 1]
        np.testing.assert_array_equal(out[:, column], first.ravel())
        np.testing.assert_array_equal(out[:, column + 1], second.ravel())
