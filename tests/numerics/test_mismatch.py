"""The message of a failed comparison names misplaced tiles, and elements that nothing wrote."""

import re

import numpy as np
import pytest

from cupygemm import testing


def message(assertion, actual, x1, x2):
    with pytest.raises(AssertionError) as caught:
        assertion(actual, x1, x2)
    return str(caught.value)


def product(shape1, shape2, dtype="f2", *, exact=True):
    make = testing.integer_operands if exact else testing.random_operands
    x1, x2 = make(shape1, shape2, dtype)
    return x1, x2, testing.reference_matmul(x1, x2).astype("f4" if exact else dtype)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "close"])
@pytest.mark.parametrize(
    ("tile", "source", "size"),
    [
        ((0, 64), (0, 128), (64, 64)),
        ((128, 0), (0, 192), (128, 48)),
        ((37, 11), (112, 200), (19, 23)),
        ((200, 296), (16, 0), (16, 24)),
        ((0, 0), (1, 0), (255, 320)),
    ],
)
def test_a_tile_that_belongs_elsewhere(tile, source, size, exact):
    x1, x2, right = product((256, 64), (64, 320), exact=exact)
    wrong = right.copy()
    (r, c), (i, j), (m, n) = tile, source, size
    wrong[r : r + m, c : c + n] = right[i : i + m, j : j + n]
    assertion = testing.assert_gemm_exact if exact else testing.assert_gemm_close
    text = message(assertion, wrong, x1, x2)
    assert f"tile {tile} holds what belongs to {source}, {m}x{n} elements" in text
    assert text.count("belongs to") == 1
    assert "hold " not in text


def test_swapped_tiles_and_matrices_of_a_batch():
    x1, x2, right = product((3, 96, 64), (3, 64, 320))
    wrong = right.copy()
    wrong[0, :16, :16], wrong[0, :16, 16:32] = right[0, :16, 16:32], right[0, :16, :16]
    wrong[1, 32:64] = right[2, 64:96]
    text = message(testing.assert_gemm_exact, wrong, x1, x2)
    assert "tile (0, 0, 0) holds what belongs to (0, 0, 16), 16x16 elements" in text
    assert "tile (0, 0, 16) holds what belongs to (0, 0, 0), 16x16 elements" in text
    assert "tile (1, 32, 0) holds what belongs to (2, 64, 0), 32x320 elements" in text
    assert "matrix (0)" in text
    assert "matrix (1)" in text
    assert "matrix (2)" not in text
    assert "        0 AB.................." in text
    assert "       32 CCCCCCCCCCCCCCCCCCCC" in text


def test_noise_and_small_products_belong_nowhere_else():
    """Wrong elements that are no tile of the product are not called one."""
    x1, x2, right = product((256, 64), (64, 320))
    noise = np.random.default_rng(1).integers(-300, 300, right.shape)
    assert "belongs" not in message(testing.assert_gemm_exact, right + noise, x1, x2)
    assert "belongs" not in message(testing.assert_gemm_exact, 2 * right, x1, x2)
    for shapes in (((1, 8), (8, 1)), ((2, 8), (8, 3)), ((8,), (8, 5)), ((8,), (8,))):
        x1, x2, right = product(*shapes)
        text = message(
            testing.assert_gemm_exact, right[..., ::-1] + 1 if right.ndim else right + 1, x1, x2
        )
        assert "belongs" not in text
        assert f"{right.size} of {right.size} elements" in text


def test_the_map_marks_whole_and_partly_wrong_blocks():
    x1, x2, wrong = product((128, 32), (32, 80))
    wrong[32:48, 16:32] += 1
    wrong[5, 79] += 1
    text = message(testing.assert_gemm_exact, wrong, x1, x2)
    rows = dict(re.findall(r"^ +(\d+) ([.+#]+)$", text, re.MULTILINE))
    assert list(rows) == [str(row) for row in range(0, 128, 16)]
    assert (rows.pop("0"), rows.pop("32")) == ("....+", ".#...")
    assert set(rows.values()) == {"....."}


def test_values_that_were_there_before():
    x1, x2, right = product((64, 32), (32, 96))
    wrong = right.copy()
    wrong[16:32] = -7.5
    wrong[40, 3] = np.nan
    text = message(testing.assert_gemm_exact, wrong, x1, x2)
    assert "hold -7.5: [16:32, 0:96]; if the array held that before, no store wrote them" in text
    assert "1 of the wrong elements are NaN: [40:41, 3:4]" in text
    fresh = np.full(right.shape, 0xA5A5A5A5, np.uint32).view(np.float32)
    assert "no store wrote them: fresh memory" in message(testing.assert_gemm_exact, fresh, x1, x2)


def test_elements_that_no_store_wrote(cp, device):
    if not device.emulated:
        pytest.skip("only the emulated device records what was written")
    x1, x2, right = product((256, 64), (64, 320))
    store = cp.RawKernel(
        """extern "C" __global__ void store(float* out, const float* in) {
            const int i = 320 * blockIdx.x + threadIdx.x;
            if (threadIdx.x < 200 || blockIdx.x < 16) out[i] = in[i];
        }""",
        "store",
    )
    base = cp.empty((257, 320), np.float32)
    store((256,), (320,), (base[1:], cp.asarray(right)))
    text = message(testing.assert_gemm_exact, base[1:], x1, x2)
    assert "no store wrote any of them: [16:256, 200:320]" in text
    assert "       16 ............????????" in text
    base[1 + 100, 7] = 1e6
    text = message(testing.assert_gemm_exact, base[1:], x1, x2)
    assert "no store wrote 28800 of them: [16:256, 200:320]" in text
    across = cp.empty((320, 257), np.float32)[:, 1:].T
    across[:, :200] = cp.asarray(right)[:, :200]
    text = message(testing.assert_gemm_exact, across, x1, x2)
    assert "no store wrote any of them: [0:256, 200:320]" in text


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "close"])
def test_a_transposed_product_and_transposed_tiles(exact):
    assertion = testing.assert_gemm_exact if exact else testing.assert_gemm_close
    x1, x2, right = product((48, 40), (40, 48), exact=exact)
    assert "  the product is transposed" in message(assertion, right.T, x1, x2)
    x1, x2, right = product((16, 40), (40, 32), exact=exact)
    tiles = np.concatenate([right[:, :16].T, right[:, 16:].T], axis=1)
    assert "  each tile of 16x16 is transposed" in message(assertion, tiles, x1, x2)
    tiles[0, 1] += 1
    assert "transposed" not in message(assertion, tiles, x1, x2)
