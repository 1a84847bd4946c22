"""`matmul` of complex numbers: on AMD GPUs by real matrix instructions, else by CuPy."""

import itertools

import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from tests.products.test_matmul import ordered

C64, C128 = np.dtype(np.complex64), np.dtype(np.complex128)
TYPES = pytest.mark.parametrize("dtype", [C64, C128], ids=str)


@pytest.mark.slow
@TYPES
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (1, 70, 40), (70, 1, 33), (31, 33, 127), (64, 64, 64)]
)
def test_exact_products(cp, device, m, n, k, dtype):
    x1, x2 = testing.integer_operands((m, k), (k, n), dtype, seed=m)
    orders = itertools.product("CF", "CF", "CF")
    for order1, order2, order in itertools.islice(orders, (m + n) % 3, None, 3):
        out = cp.empty((m, n), dtype, order=order)
        a, b = ordered(cp, x1, order1), ordered(cp, x2, order2)
        if device.runs_cdna:
            explanation = cupygemm.explain(a, b, out)
            assert (explanation.backend, explanation.copies) == ("cupygemm", ())
        testing.assert_gemm_exact(cupygemm.matmul(a, b, out), x1, x2)


@pytest.mark.slow
@TYPES
def test_random_products_are_within_the_bound(cp, dtype):
    x1, x2 = testing.random_operands((2, 65, 517), (517, 70), dtype)
    result = cupygemm.matmul(cp.asarray(x1), cp.asarray(x2))
    assert result.dtype == dtype
    testing.assert_gemm_close(result, x1, x2)


@TYPES
def test_stacks_views_and_out_beside_other_numbers(cp, dtype):
    x1, x2 = testing.integer_operands((2, 3, 34, 45), (3, 46, 40), dtype)
    a, b = cp.asarray(x1)[..., 1:33, 2:], cp.asarray(x2)[:, 1:44]
    memory = cp.asarray(np.full((2, 3, 33, 43), 7 - 9j, dtype))
    out = memory[..., 1:, 2:42]
    assert cupygemm.matmul(a, b, out) is out
    testing.assert_gemm_exact(out, x1[..., 1:33, 2:], x2[:, 1:44])
    host = cp.asnumpy(memory)
    host[..., 1:, 2:42] = 7 - 9j
    assert (host == 7 - 9j).all()
    reverse = cupygemm.matmul(cp.asarray(x1)[..., ::-1, ::-1], cp.asarray(x2)[:, 1:, ::2])
    testing.assert_gemm_exact(reverse, x1[..., ::-1, ::-1], x2[:, 1:, ::2])


def test_parts_of_real_operands_are_converted(cp):
    """NumPy's promotion; one rounding if a lower precision is requested."""
    x1, x2 = testing.integer_operands((9, 20), (20, 7), C64)
    for first, second, expected in (
        (x1.real, x2, C64),
        (x1, x2.astype(C128), C128),
        (x1.real.astype(np.float64), x2, C128),
        (x1.real.astype(np.int32), x2, C128),
    ):
        result = cupygemm.matmul(cp.asarray(first), cp.asarray(second))
        assert result.dtype == expected == np.matmul(first, second).dtype
        testing.assert_gemm_exact(result, first, second)
    x1, x2 = testing.random_operands((9, 20), (20, 7), C128)
    narrowed = cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), dtype=C64)
    assert narrowed.dtype == C64
    testing.assert_gemm_close(narrowed, x1, x2)


@TYPES
def test_nan_and_infinities_are_where_the_definition_puts_them(cp, dtype):
    """The definition: each part of a complex product is a sum of two real products."""
    x1, x2 = testing.random_operands((40, 30), (30, 50), dtype)
    x1[3, 7], x1[20, 0], x1[39, 29] = complex(np.nan, 1), complex(np.inf, 2), complex(1, -np.inf)
    x2[11, 5], x2[0, 49], x2[29, 8] = complex(2, np.nan), complex(-np.inf, 0), complex(np.inf, 3)
    result = cupygemm.matmul(cp.asarray(x1), cp.asarray(x2))
    testing.assert_gemm_close(result, x1, x2)
    assert 0.01 < np.isnan(cp.asnumpy(result)).mean() < 0.2


@TYPES
def test_the_imaginary_unit(cp, dtype):
    """Any sign or part in the wrong place changes the result."""
    a = cp.asarray(np.array([[2 + 3j]], dtype))
    b = cp.asarray(np.array([[5 + 7j]], dtype))
    assert complex(cupygemm.matmul(a, b)[0, 0]) == -11 + 29j
    unit = cp.asarray(np.eye(33, dtype=dtype) * np.array(1j, dtype))
    np.testing.assert_array_equal(cp.asnumpy(cupygemm.matmul(unit, unit)), -np.eye(33))


@TYPES
def test_explain_tells_the_real_operations(cp, device, dtype):
    if not device.runs_cdna:
        return
    a = cp.ones((100, 100), dtype)
    explanation = cupygemm.explain(a, a)
    assert explanation.problem.a_dtype == {C64: "c64", C128: "c128"}[dtype]
    assert explanation.problem.flops == 8 * 100**3


@pytest.mark.one_in(2)
@TYPES
def test_tiles_shared_along_k_and_options(cp, device, dtype):
    """Parts of sums are complex too; without atomic additions, which complex numbers lack."""
    x1, x2 = testing.integer_operands((40, 3000), (3000, 36), dtype)
    a, b = cp.asarray(x1), cp.asarray(x2)
    if device.runs_cdna:
        config = cupygemm.explain(a, b, reproducible=False).config
        assert (config.split_k > 1, config.atomic) == (True, False)
    for reproducible in (True, False):
        testing.assert_gemm_exact(cupygemm.matmul(a, b, reproducible=reproducible), x1, x2)
    c = cp.full((36,), 1 - 1j, dtype)
    result = cupygemm.matmul(a, b, alpha=2j, beta=3, c=c)
    np.testing.assert_array_equal(cp.asnumpy(result), (2j * (x1 @ x2) + (3 - 3j)).astype(dtype))
