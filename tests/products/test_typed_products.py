"""`matmul` of float32, float64 and bytes: on AMD GPUs by kernels of this library, else by CuPy."""

import itertools

import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from cupygemm._backends.cdna.mainloops import configs_for
from tests.products.test_matmul import ordered

F16, F32, F64 = map(np.dtype, ("f2", "f4", "f8"))
I8, U8, I32 = map(np.dtype, ("i1", "u1", "i4"))


def random_bytes(dtype, *shapes, seed=0):
    """Return arrays of all the values that a type of bytes has."""
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    return [rng.integers(info.min, info.max, shape, dtype, endpoint=True) for shape in shapes]


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (1, 70, 40), (70, 1, 40), (31, 33, 127), (64, 64, 64)]
)
def test_exact_products_of_floats(cp, device, m, n, k, dtype):
    x1, x2 = testing.integer_operands((m, k), (k, n), dtype)
    orders = itertools.product("CF", "CF", "CF")
    for order1, order2, order in itertools.islice(orders, (m + n) % 3, None, 3):
        out = cp.empty((m, n), dtype, order=order)
        a, b = ordered(cp, x1, order1), ordered(cp, x2, order2)
        if device.runs_cdna:
            assert cupygemm.explain(a, b, out).backend == "cupygemm"
        testing.assert_gemm_exact(cupygemm.matmul(a, b, out), x1, x2)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_random_products_are_within_the_bound_of_their_type(cp, dtype):
    x1, x2 = testing.random_operands((2, 65, 517), (517, 70), dtype)
    x1 = x1 * np.float64(1.1)  # float64 operands with all their bits
    x1 = x1.astype(dtype)
    result = cupygemm.matmul(cp.asarray(x1), cp.asarray(x2))
    assert result.dtype == dtype
    testing.assert_gemm_close(result, x1, x2)


def test_rounding_to_less_comes_last(cp):
    x1, x2 = testing.random_operands((33, 200), (200, 40), F32)
    a, b = cp.asarray(x1), cp.asarray(x2)
    testing.assert_gemm_close(cupygemm.matmul(a, b, dtype=F16), x1, x2)
    x1, x2 = testing.integer_operands((33, 70), (70, 41), F64)
    narrowed = cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), dtype=F32)
    assert narrowed.dtype == F32
    testing.assert_gemm_exact(narrowed, x1, x2)


def test_nan_and_infinity_of_float32(cp):
    x1, x2 = testing.random_operands((40, 50), (50, 60), F32)
    x1[3, 7], x1[20, 0], x1[39, 49] = np.nan, np.inf, -np.inf
    x2[11, 5], x2[0, 59], x2[33, 8] = np.nan, -np.inf, np.inf
    testing.assert_gemm_close(cupygemm.matmul(cp.asarray(x1), cp.asarray(x2)), x1, x2)


@pytest.mark.parametrize(
    ("m", "n", "k", "order"),
    [
        (1, 1, 1, "CC"),
        (1, 70, 41, "CF"),
        (70, 1, 3, "FC"),
        (31, 33, 127, "FF"),
        (64, 40, 300, "CC"),
    ],
)
def test_bytes_of_every_value(cp, m, n, k, order):
    """Sums in int32; as int8 and uint8 they wrap as NumPy's do."""
    x1, x2 = random_bytes(I8, (m, k), (k, n), seed=k)
    a, b = (ordered(cp, x, o) for x, o in zip((x1, x2), order, strict=True))
    sums = cupygemm.matmul(a, b, dtype=I32)
    assert sums.dtype == I32
    np.testing.assert_array_equal(cp.asnumpy(sums), x1.astype(I32) @ x2.astype(I32))
    wrapped = cupygemm.matmul(a, b)
    assert wrapped.dtype == I8
    np.testing.assert_array_equal(cp.asnumpy(wrapped), np.matmul(x1, x2))
    wrapped = cupygemm.matmul(a.view(U8), b.view(U8))
    assert wrapped.dtype == U8
    np.testing.assert_array_equal(cp.asnumpy(wrapped), np.matmul(x1.view(U8), x2.view(U8)))


def test_an_int32_out_does_not_ask_for_sums(cp):
    """As in NumPy, only the operands determine the product's type, which is cast to ``out``."""
    x1, x2 = random_bytes(I8, (9, 20), (20, 7))
    a, b = cp.asarray(x1), cp.asarray(x2)
    expected = np.matmul(x1, x2, out=np.empty((9, 7), I32))
    np.testing.assert_array_equal(
        cp.asnumpy(cupygemm.matmul(a, b, cp.empty((9, 7), I32))), expected
    )
    expected = np.matmul(x1, x2, out=np.empty((9, 7), I32), dtype=I32)
    result = cupygemm.matmul(a, b, cp.empty((9, 7), I32), dtype=I32)
    np.testing.assert_array_equal(cp.asnumpy(result), expected)


def test_sums_of_bytes_wrap_at_32_bits(cp):
    k = (1 << 17) + 3
    x1, x2 = np.full((1, k), -128, I8), np.full((k, 1), -128, I8)
    sums = cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), dtype=I32)
    assert int(sums[0, 0]) == (k << 14) - (1 << 32)


@pytest.mark.parametrize("dtype", [I8, U8], ids=str)
def test_bytes_in_stacks_and_rows_at_any_address(cp, device, dtype):
    """Rows that do not start at dwords are copied to rows that do."""
    x1, x2 = random_bytes(dtype, (2, 3, 34, 45), (3, 46, 40))
    a, b = cp.asarray(x1)[..., 1:33, 2:], cp.asarray(x2)[:, 1:44]
    expected = np.matmul(x1[..., 1:33, 2:], x2[:, 1:44])
    if device.runs_cdna:
        (note,) = cupygemm.explain(a, b).copies
        assert (
            note == "x1 is copied: its rows, of single bytes, do not start at multiples of 4 bytes"
        )
    memory = cp.asarray(np.full((2, 3, 33, 43), 77, dtype))
    out = memory[..., 1:, 2:42]
    cupygemm.matmul(a, b, out)
    np.testing.assert_array_equal(cp.asnumpy(out), expected)
    host = cp.asnumpy(memory)
    host[..., 1:, 2:42] = 77
    assert (host == 77).all()


@pytest.mark.parametrize("dtype", ["f32", "f64", "i8"])
def test_explain_tells_type_and_instruction(cp, device, dtype):
    if not device.runs_cdna:
        return
    operand = {"f32": F32, "f64": F64, "i8": I8}[dtype]
    a = cp.asarray(np.ones((100, 100), operand))
    explanation = cupygemm.explain(a, a)
    assert explanation.config in configs_for(dtype, device.target)
    assert f"A {dtype} k-major" in str(explanation)
    assert "MFMA" in str(explanation)
