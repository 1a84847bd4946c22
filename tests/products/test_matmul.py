"""`matmul` on a device: results, memory that it may and may not touch, and repeatability."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from scipy.linalg.blas import sgemm

import cupygemm
from cupygemm import testing

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32 = np.dtype(np.float16), np.dtype(np.float32)
OPERANDS = [BF16, F16]
RESULTS = [BF16, F16, F32]
POISON = 0x7B


def ordered(cp, array, order):
    """Put an array on the device in C or F order."""
    return cp.asarray(array, order="C") if order == "C" else cp.asarray(array.T, order="C").T


def poisoned(cp, shape, dtype, *, order="C", offset=3, pad=5):
    """Return a view of a shape and order inside a larger buffer, and the buffer."""
    count = int(np.prod(shape[:-2])) * (shape[-2] + pad) * (shape[-1] + pad) + 2 * offset
    memory = cp.asarray(np.full(count * dtype.itemsize, POISON, np.uint8))
    rows, columns = shape[-2:]
    inner, outer = (columns, rows) if order == "C" else (rows, columns)
    pitch = (inner + pad) * dtype.itemsize
    strides = (pitch, dtype.itemsize) if order == "C" else (dtype.itemsize, pitch)
    step = pitch * (outer + pad)
    for extent in reversed(shape[:-2]):
        strides = (step, *strides)
        step *= extent
    view = cp.ndarray(shape, dtype, memory.data + offset * dtype.itemsize, strides)
    return view, memory


def assert_only_written(cp, memory, view):
    """Assert that the bytes of the buffer outside the view are still poison."""
    host = cp.asnumpy(memory)
    base = view.data.ptr - memory.data.ptr
    written = np.zeros(host.size, bool)
    np.lib.stride_tricks.as_strided(
        written[base:], (*view.shape, view.dtype.itemsize), (*view.strides, 1)
    )[...] = True
    assert (host[~written] == POISON).all()


@pytest.mark.covering
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1, 1, 1), (1, 70, 40), (70, 1, 40), (33, 65, 1), (31, 33, 127), (64, 64, 64), (100, 90, 130)],
)
@pytest.mark.parametrize("dtype", OPERANDS, ids=str)
def test_exact_products(cp, m, n, k, dtype):
    x1, x2 = testing.integer_operands((m, k), (k, n), dtype)
    orders = itertools.product("CF", "CF", "CF", RESULTS)
    for number, (order1, order2, order, result) in enumerate(orders):
        if number % 5 != (m + n + k) % 5:  # a fifth for each shape; all, over the shapes
            continue
        out = cp.empty((m, n), result, order=order)
        a, b = ordered(cp, x1, order1), ordered(cp, x2, order2)
        returned = cupygemm.matmul(a, b, out, casting="unsafe")
        assert returned is out
        testing.assert_gemm_exact(out, x1, x2)


@pytest.mark.covering
@pytest.mark.parametrize("dtype", OPERANDS, ids=str)
@pytest.mark.parametrize(("m", "n", "k"), [(65, 130, 1030), (17, 300, 257)])
def test_random_products_are_within_the_bound(cp, m, n, k, dtype):
    x1, x2 = testing.random_operands((m, k), (k, n), dtype)
    a, b = cp.asarray(x1), cp.asarray(x2)
    for result in (dtype, F32):
        testing.assert_gemm_close(cupygemm.matmul(a, b, dtype=result), x1, x2)
    # BLAS sums in float32 as well: the two differ by at most twice the bound of sums.
    blas = sgemm(1.0, x1.astype(F32), x2.astype(F32))
    ours = cp.asnumpy(cupygemm.matmul(a, b, dtype=F32))
    magnitude = testing.reference_matmul(np.abs(x1), np.abs(x2))
    assert (np.abs(ours - blas) <= 2 * testing.gamma(k) * magnitude).all()


def test_float32_results_are_not_rounded_to_16_bits_on_the_way(cp):
    x1, x2 = testing.random_operands((32, 64), (64, 32), BF16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    for result in (
        cupygemm.matmul(a, b, dtype=F32),
        cupygemm.matmul(a, b, cp.empty((32, 32), F32)),
    ):
        assert result.dtype == F32
        testing.assert_gemm_close(result, x1, x2)
    rounded = cupygemm.matmul(a, b, cp.empty((32, 32), F32), dtype=BF16)
    host = cp.asnumpy(rounded)
    np.testing.assert_array_equal(host, host.astype(BF16).astype(F32))


@pytest.mark.covering
@pytest.mark.parametrize("dtype", RESULTS, ids=str)
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize(("offset", "pad"), [(0, 0), (1, 3), (4, 4), (8, 8)])
def test_nothing_outside_out_is_written(cp, dtype, order, offset, pad):
    x1, x2 = testing.integer_operands((2, 37, 20), (20, 45), BF16)
    out, memory = poisoned(cp, (2, 37, 45), dtype, order=order, offset=offset, pad=pad)
    cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), out, casting="unsafe")
    testing.assert_gemm_exact(out, x1, x2)
    assert_only_written(cp, memory, out)


@pytest.mark.covering
@pytest.mark.parametrize("order", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize(("offset", "pad"), [(1, 1), (8, 8), (0, 3)])
def test_nothing_outside_the_operands_is_read_into_the_result(cp, order, offset, pad):
    """NaN around the operands must not reach the product."""
    x1, x2 = testing.integer_operands((33, 50), (50, 41), F16)
    views = []
    for x, its_order in zip((x1, x2), order, strict=True):
        view, memory = poisoned(cp, x.shape, F16, order=its_order, offset=offset, pad=pad)
        host = np.full(memory.size, 0x7E, np.uint8)  # 0x7E7E is a NaN of float16
        base = view.data.ptr - memory.data.ptr
        inside = np.lib.stride_tricks.as_strided(host[base:].view(F16), x.shape, view.strides)
        inside[...] = x
        memory.set(host)
        views.append(view)
    testing.assert_gemm_exact(cupygemm.matmul(*views), x1, x2)


@pytest.mark.parametrize(
    ("shape1", "shape2"),
    [
        ((5,), (5,)),
        ((5,), (5, 6)),
        ((4, 5), (5,)),
        ((5,), (3, 5, 6)),
        ((3, 4, 5), (5,)),
        ((3, 4, 5), (5, 6)),
        ((4, 5), (3, 5, 6)),
        ((3, 4, 5), (3, 5, 6)),
        ((3, 1, 4, 5), (2, 5, 6)),
        ((1, 4, 5), (3, 5, 6)),
        ((2, 1, 2, 4, 5), (3, 1, 5, 6)),
        ((2, 1, 2, 1, 4, 5), (3, 1, 3, 5, 6)),
    ],
)
def test_stacks_and_vectors(cp, shape1, shape2):
    x1, x2 = testing.integer_operands(shape1, shape2, BF16)
    result = cupygemm.matmul(cp.asarray(x1), cp.asarray(x2))
    assert isinstance(result, cp.ndarray)
    assert result.dtype == BF16
    testing.assert_gemm_exact(result, x1, x2)


def test_broadcast_and_transposed_stacks_are_used_in_place(cp, device):
    x1, x2 = testing.integer_operands((4, 3, 9, 8), (8, 7), F16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    stacked = cp.broadcast_to(b, (4, 3, 8, 7))
    for operands in (
        (a, stacked),
        (a.transpose(1, 0, 2, 3), b),
        (a.swapaxes(2, 3), cp.asarray(x1)),
    ):
        copies = cupygemm.explain(*operands).copies  # only kernels for Hopper ask for alignment
        assert not any(note.startswith(("x1 is", "x2 is")) for note in copies)
        assert copies == () or device.kind == "cuda"
        testing.assert_gemm_exact(cupygemm.matmul(*operands), *map(cp.asnumpy, operands))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.s_[::-1], np.s_[:]),
        (np.s_[:, ::2], np.s_[::2]),
        (np.s_[::2, ::-1], np.s_[::-1, ::3]),
    ],
)
def test_views_that_are_copied(cp, device, first, second):
    x1, x2 = testing.integer_operands((20, 30), (30, 40), BF16)
    a, b = cp.asarray(x1)[first], cp.asarray(x2)[second]
    if device.has_kernels:
        assert "x1 is copied" in str(cupygemm.explain(a, b))
    testing.assert_gemm_exact(cupygemm.matmul(a, b), x1[first], x2[second])


def test_operands_of_another_type_are_converted(cp, device):
    x1, x2 = testing.integer_operands((9, 8), (8, 7), np.int8)
    a, b = cp.asarray(x1), cp.asarray(x2.astype(F16))
    if device.has_kernels:
        assert "x1 is copied: converted from int8 to float16" in cupygemm.explain(a, b).copies
    result = cupygemm.matmul(a, b)
    assert result.dtype == F16
    testing.assert_gemm_exact(result, x1, x2)


def test_complex_operands_may_lose_their_imaginary_parts(cp):
    x1, x2 = testing.integer_operands((4, 3), (3, 5), np.complex64)
    a, b = cp.asarray(x1 + 1j), cp.asarray(x2 - 2j)
    with pytest.warns(np.exceptions.ComplexWarning):
        result = cupygemm.matmul(a, b, dtype=np.float64, casting="unsafe")
    assert result.dtype == np.float64
    np.testing.assert_array_equal(cp.asnumpy(result), x1.real @ x2.real)


@pytest.mark.parametrize("view", [np.s_[:, ::2], np.s_[::-1, :7], np.s_[::2, 7:0:-1]])
def test_out_of_any_strides(cp, view):
    x1, x2 = testing.integer_operands((8, 5), (5, 7), F16)
    memory = cp.zeros((16, 14), F16)
    out = memory[view][:8, :7]
    x1, x2 = x1[: out.shape[0]], x2[:, : out.shape[1]]
    assert cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), out) is out
    testing.assert_gemm_exact(out, x1, x2)
    host = cp.asnumpy(memory)
    host[view][:8, :7] = 0
    assert not host.any()


def test_out_of_another_type(cp):
    x1, x2 = testing.random_operands((8, 50), (50, 7), BF16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    wide = cupygemm.matmul(a, b, cp.empty((8, 7), np.float64))
    testing.assert_gemm_close(cp.asnumpy(wide).astype(F32), x1, x2)
    np.testing.assert_array_equal(cp.asnumpy(wide), cp.asnumpy(cupygemm.matmul(a, b, dtype=F32)))


@pytest.mark.parametrize(
    "place", ["x1", "x2", "transposed", "shifted", "both", "touching", "half", "type"]
)
def test_out_may_overlap_the_operands(cp, device, place):
    x1, x2 = testing.integer_operands((40, 40), (40, 40), F16)
    memory = cp.empty((4, 40, 40), F16)
    a, b = memory[0], memory[2]
    a[...], b[...] = cp.asarray(x1), cp.asarray(x2)
    flat = memory.reshape(-1)
    if place == "both":
        b, x2 = a, x1
    out = {
        "x1": a,
        "x2": b,
        "transposed": a.T,
        "shifted": flat[41 : 41 + 1600].reshape(40, 40),
        "both": a,
        "touching": memory[1],
        "half": flat[800 : 800 + 1600].reshape(40, 40),
        "type": flat[1600 - 8 : 1600 - 8 + 3200].view(F32).reshape(40, 40),
    }[place]
    if device.has_kernels:
        copies = " ".join(cupygemm.explain(a, b, out).copies)
        assert ("out overlaps an operand" in copies) == (place != "touching")
    cupygemm.matmul(a, b, out)
    testing.assert_gemm_exact(out, x1, x2)


def test_aliasing_is_seen_again_by_a_known_plan(cp):
    x1, x2 = testing.integer_operands((33, 33), (33, 33), F16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    apart = cp.empty((33, 33), F16)
    for _ in range(2):
        cupygemm.matmul(a, b, apart)
        testing.assert_gemm_exact(apart, x1, x2)
    cupygemm.matmul(a, b, a)
    testing.assert_gemm_exact(a, x1, x2)


@pytest.mark.parametrize(
    ("shape1", "shape2"), [((3, 0), (0, 4)), ((0,), (0,)), ((2, 3, 0), (0, 4)), ((0,), (2, 0, 4))]
)
def test_sums_of_nothing_are_zero(cp, shape1, shape2):
    for dtype in (BF16, F32, np.dtype(np.int32)):
        a, b = cp.empty(shape1, dtype), cp.empty(shape2, dtype)
        expected = np.matmul(np.empty(shape1), np.empty(shape2))
        result = cupygemm.matmul(a, b)
        assert result.dtype == dtype
        np.testing.assert_array_equal(cp.asnumpy(result).astype(F32), expected)
        if expected.ndim == 2:
            out, memory = poisoned(cp, expected.shape, dtype, order="F")
            cupygemm.matmul(a, b, out)
            np.testing.assert_array_equal(cp.asnumpy(out).astype(F32), expected)
            assert_only_written(cp, memory, out)


@pytest.mark.parametrize(
    ("shape1", "shape2"),
    [((0, 3), (3, 4)), ((4, 3), (3, 0)), ((0, 2, 3), (3, 4)), ((0, 0), (0, 0))],
)
def test_empty_results(cp, shape1, shape2):
    a, b = cp.empty(shape1, F16), cp.empty(shape2, F16)
    result = cupygemm.matmul(a, b, dtype=F32)
    assert result.shape == np.matmul(np.empty(shape1), np.empty(shape2)).shape
    assert result.dtype == F32
    assert cupygemm.matmul(a, b, result) is result
    assert cupygemm.explain(a, b).backend == "none"


def test_nan_and_infinity_land_where_numpy_puts_them(cp):
    x1, x2 = testing.random_operands((40, 50), (50, 60), BF16)
    x1[3, 7], x1[20, 0], x1[39, 49] = np.nan, np.inf, -np.inf
    x2[11, 5], x2[0, 59], x2[33, 8] = np.nan, -np.inf, np.inf
    a, b = cp.asarray(x1), cp.asarray(x2)
    for dtype in (BF16, F32):
        testing.assert_gemm_close(cupygemm.matmul(a, b, dtype=dtype), x1, x2)


def test_results_too_large_are_infinite(cp):
    x1, x2 = np.full((20, 16), 300, F16), np.full((16, 20), 300, F16)
    x2[:, 10:] *= -1
    a, b = cp.asarray(x1), cp.asarray(x2)
    testing.assert_gemm_close(cupygemm.matmul(a, b), x1, x2)
    testing.assert_gemm_exact(cupygemm.matmul(a, b, dtype=F32), x1, x2)


def test_the_result_is_the_same_bits_each_time(cp):
    x1, x2 = testing.random_operands((70, 300), (300, 80), BF16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    first = cp.asnumpy(cupygemm.matmul(a, b)).tobytes()
    for _ in range(3):
        assert cp.asnumpy(cupygemm.matmul(a.copy(), b)).tobytes() == first


def test_a_row_does_not_depend_on_its_neighbours(cp, device):
    """A row gives the same bits whatever else is in the stack; BLAS does not guarantee this."""
    if not device.has_kernels:
        return
    x1, x2 = testing.random_operands((70, 200), (200, 64), F16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    whole = cp.asnumpy(cupygemm.matmul(a, b))
    stacked = cp.asnumpy(cupygemm.matmul(cp.stack([a, a]), b))
    np.testing.assert_array_equal(stacked[0], whole)
    np.testing.assert_array_equal(stacked[1], whole)


def test_operands_are_left_alone(cp):
    x1, x2 = testing.random_operands((30, 20), (20, 30), F16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    cupygemm.matmul(a, b)
    assert cp.asnumpy(a).tobytes() == x1.tobytes()
    assert cp.asnumpy(b).tobytes() == x2.tobytes()
