"""Products with few rows or columns, vectors among them, as `matmul` takes them."""

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import testing

BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
K = 1100


@pytest.fixture(autouse=True)
def _cdna(device):
    if not device.runs_cdna:
        pytest.skip("kernels of CDNA")


def placed(cp, array, order):
    """Put a matrix on the device in C or F order, or with rows at odd addresses."""
    if order == "odd":
        wide = cp.asarray(np.pad(array, [(0, 0), (1, 2)]))
        return wide[:, 1:-2]
    return cp.asarray(array) if order == "C" else cp.asarray(np.ascontiguousarray(array.T)).T


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.covering
@pytest.mark.parametrize("order", ["C", "F", "odd"])
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_vectors(cp, dtype, order):
    x1, x2 = testing.integer_operands((300, K), (K, 300), dtype)
    tall, wide = placed(cp, x1, order), placed(cp, x2, order)
    testing.assert_gemm_exact(cupygemm.matmul(cp.asarray(x1[0]), wide), x1[0], x2)
    testing.assert_gemm_exact(cupygemm.matmul(tall, cp.asarray(x2[:, 1])), x1, x2[:, 1])
    testing.assert_gemm_exact(cupygemm.matmul(tall[3:19], wide), x1[3:19], x2)


@pytest.mark.slow
def test_a_long_operand_is_read_to_registers_and_a_misaligned_one_is_not(cp):
    x1, x2 = testing.integer_operands((1, 4096), (4096, 2048), F16)
    row = cp.asarray(x1)
    explanation = cupygemm.explain(row, cp.asarray(x2))
    assert explanation.config.mainloop == "direct_to_register"
    assert "direct_to_register" in str(explanation)
    assert cupygemm.explain(row[0], cp.asarray(x2)).config == explanation.config
    odd = cupygemm.explain(row, placed(cp, x2, "odd"))
    assert odd.config.mainloop == "register_double_buffer"


def test_batches_of_vectors(cp):
    x1, x2 = testing.integer_operands((3, 1, K), (3, K, 140), BF16)
    testing.assert_gemm_exact(cupygemm.matmul(cp.asarray(x1), cp.asarray(x2)), x1, x2)


@pytest.mark.slow
def test_an_epilogue_after_few_rows(cp):
    """The waves' sums are in the order that the epilogue expects, so a bias meets its column."""
    x1, x2 = testing.integer_operands((4, K), (K, 300), F16)
    bias = np.arange(300, dtype=np.float32)
    result = cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), dtype=F32, bias=cp.asarray(bias))
    expected = testing.reference_matmul(x1, x2) + bias
    np.testing.assert_array_equal(cp.asnumpy(result).astype(np.float64), expected)
