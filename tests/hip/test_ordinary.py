"""Kernels in the style of HIP's samples, with HIP's headers, against NumPy."""

from __future__ import annotations

import numpy as np

RNG = np.random.default_rng(12)


def test_softmax(program) -> None:
    x = RNG.normal(0, 5, (4, 300)).astype(np.float32)
    out = np.zeros_like(x)
    program("ordinary.hip")("softmax", (4, 1, 1), (128, 1, 1), x, out, np.int32(300))
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=3e-6, atol=1e-12)


def test_bitonic_sort(program) -> None:
    x = RNG.integers(-1000, 1000, (2, 256)).astype(np.int32)
    out = x.copy()
    program("ordinary.hip")("bitonic_sort", (2, 1, 1), (256, 1, 1), out, dynamic_lds=1024)
    np.testing.assert_array_equal(out, np.sort(x, axis=1))


def test_sparse_matrix(program) -> None:
    rows = 150
    dense = RNG.integers(-9, 9, (rows, rows)) * (RNG.random((rows, rows)) < 0.05)
    dense[7] = RNG.integers(1, 9, rows)  # one long row
    start = np.append(0, np.cumsum((dense != 0).sum(1))).astype(np.int32)
    column, value = np.nonzero(dense)[1].astype(np.int32), dense[dense != 0].astype(np.float64)
    x, y = RNG.integers(-9, 9, rows).astype(np.float64), np.zeros(rows)
    program("ordinary.hip")(
        "spmv", (3, 1, 1), (64, 1, 1), start, column, value, x, y, np.int32(rows)
    )
    np.testing.assert_array_equal(y, dense @ x)


def test_breadth_first_search(program) -> None:
    nodes = 120
    linked = np.triu(RNG.random((nodes, nodes)) < 0.03, 1)
    linked |= linked.T
    start = np.append(0, np.cumsum(linked.sum(1))).astype(np.int32)
    edge = np.nonzero(linked)[1].astype(np.int32)
    level = np.full(nodes, -1, np.int32)
    level[0] = 0
    frontier, depth, run = np.zeros(nodes, np.int32), 0, program("ordinary.hip")
    size = 1
    while size:
        depth += 1
        following, count = np.zeros(nodes, np.int32), np.zeros(1, np.int32)
        run(
            "bfs_level",
            (2, 1, 1),
            (64, 1, 1),
            start,
            edge,
            level,
            frontier,
            following,
            np.int32(size),
            count,
            np.int32(depth),
        )
        frontier, size = following, int(count[0])
    expected, reached = np.full(nodes, -1), np.zeros(nodes, bool)
    reached[0], step = True, 0
    while (reached & (expected < 0)).any():
        expected[reached & (expected < 0)] = step
        reached |= linked[reached].any(0)
        step += 1
    np.testing.assert_array_equal(level, expected)


def test_fft(program) -> None:
    x = (RNG.normal(size=128) + 1j * RNG.normal(size=128)).astype(np.complex64)
    out = x.copy()
    program("ordinary.hip")("fft", (1, 1, 1), (64, 1, 1), out)
    np.testing.assert_allclose(out, np.fft.fft(x.astype(np.complex128)), atol=3e-5)


def test_blur(program) -> None:
    image = RNG.integers(0, 256, (37, 50)).astype(np.uint8)
    out = np.zeros_like(image)
    program("ordinary.hip")("blur", (4, 3, 1), (16, 16, 1), image, out, np.int32(50), np.int32(37))
    padded = np.pad(image, 1, mode="edge").astype(int)
    kernel = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]])
    total = sum(kernel[i, j] * padded[i : i + 37, j : j + 50] for i in range(3) for j in range(3))
    np.testing.assert_array_equal(out, (total + 8) // 16)


def test_life(program) -> None:
    field = (RNG.random((32, 32)) < 0.4).astype(np.uint8)
    out = np.zeros_like(field)
    program("ordinary.hip")("life", (4, 8, 1), (8, 4, 1), field, out, np.int32(32))
    around = sum(
        np.roll(field, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)
    )
    np.testing.assert_array_equal(out, (around == 3) | ((around == 2) & (field == 1)))


def test_nearest(program) -> None:
    points = RNG.integers(-50, 50, (128, 4)).astype(np.float32)
    centres = RNG.integers(-50, 50, (9, 4)).astype(np.float32)
    which, distance = np.zeros(128, np.int32), np.zeros(128, np.float32)
    program("ordinary.hip")(
        "nearest", (2, 1, 1), (64, 1, 1), points, centres, which, distance, np.int32(9)
    )
    squared = ((points[:, None] - centres) ** 2).sum(2)
    np.testing.assert_array_equal(which, squared.argmin(1))
    np.testing.assert_allclose(distance, np.sqrt(squared.min(1)), rtol=2e-7)


def test_votes(program) -> None:
    x = RNG.integers(-100, 100, 256).astype(np.int32)
    x[:64] = np.abs(x[:64]) + 1
    masks, flags = np.zeros(256, np.uint64), np.zeros(256, np.int32)
    total = np.zeros(1, np.int32)
    program("ordinary.hip")("votes", (2, 1, 1), (128, 1, 1), x, masks, flags, total)
    assert total[0] == (x > 0).sum()
    for warp in range(4):
        values = x[64 * warp : 64 * warp + 64]
        mask = sum(1 << i for i in range(64) if values[i] > 0)
        flag = (
            int((values > 98).any()) + 2 * int((values > -99).all()) + 4 * (mask.bit_count() > 32)
        )
        assert set(masks[64 * warp : 64 * warp + 64].tolist()) == {mask}
        assert set(flags[64 * warp : 64 * warp + 64].tolist()) == {flag}


def test_pairs_of_halves(program) -> None:
    x, y = (RNG.integers(-16, 16, (64, 2)).astype(np.float16) for _ in range(2))
    out, total = np.zeros_like(x), np.zeros(64, np.float32)
    program("ordinary.hip")("half_pairs", (1, 1, 1), (64, 1, 1), x, y, out, total)
    np.testing.assert_array_equal(out, x * y + x)
    np.testing.assert_array_equal(total, (x * y).astype(np.float32).sum(1))


def test_monte_carlo(program) -> None:
    inside = np.zeros(1, np.uint64)
    program("ordinary.hip")("monte_carlo_pi", (2, 1, 1), (96, 1, 1), inside, np.int32(20))
    with np.errstate(over="ignore"):
        state = np.uint32(1234567) * np.arange(1, 193, dtype=np.uint32)
        count = 0
        for _ in range(20):
            sample = []
            for _ in range(2):
                state = state ^ state << np.uint32(13)
                state = state ^ state >> np.uint32(17)
                state = state ^ state << np.uint32(5)
                sample.append((state >> np.uint32(16)).astype(np.uint64))
            a, b = sample
            count += int((a * a + b * b < 1 << 32).sum())
    assert inside[0] == count
