"""Products by NumPy's names, on the device, against NumPy's, to the bit."""

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import linalg

RNG = np.random.default_rng(0)


def integers(shape, dtype=np.float32):
    """Return small integers, whose sums are exact in every type here."""
    low = 0 if np.dtype(dtype).kind in "bu" else -4
    return RNG.integers(low, 5, shape).astype(dtype)


def check(cp, ours, numpys, *operands, **options):
    """Compare a function with NumPy's on the same values."""
    expected = np.asarray(numpys(*operands, **options))
    if ml_dtypes.bfloat16 in [getattr(x, "dtype", None) for x in operands]:
        expected = expected.astype(ml_dtypes.bfloat16)  # NumPy converts these to float32
    moved = [cp.asarray(x) if isinstance(x, np.ndarray) else x for x in operands]
    result = ours(*moved, **options)
    assert isinstance(result, cp.ndarray)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(cp.asnumpy(result), expected)


DOT_SHAPES = [
    ((), ()),
    ((3,), ()),
    ((), (3, 4)),
    ((5,), (5,)),
    ((3, 5), (5,)),
    ((5,), (5, 4)),
    ((3, 5), (5, 4)),
    ((2, 3, 5), (5,)),
    ((2, 3, 5), (5, 4)),
    ((2, 3, 5), (6, 5, 4)),
    ((5,), (6, 5, 4)),
    ((0,), (0,)),
    ((3, 0), (0, 2)),
    ((0, 5), (5, 2)),
    ((2, 1), (3, 1, 4)),
]


@pytest.mark.parametrize(("shape1", "shape2"), DOT_SHAPES)
def test_dot(cp, shape1, shape2):
    check(cp, cupygemm.dot, np.dot, integers(shape1), integers(shape2))


@pytest.mark.parametrize("function", ["dot", "inner", "tensordot"])
@pytest.mark.parametrize("turned", [(True, False), (False, True), (True, True)])
def test_results_lie_in_c_order(cp, function, turned):
    shapes = {
        "dot": ((2, 3, 4), (5, 4, 6)),
        "inner": ((2, 3, 4), (5, 6, 4)),
        "tensordot": ((2, 3, 4, 5), (4, 5, 3)),
    }[function]
    x1, x2 = (
        np.asfortranarray(integers(shape)) if its else integers(shape)
        for shape, its in zip(shapes, turned, strict=True)
    )
    result = getattr(cupygemm, function)(cp.asarray(x1), cp.asarray(x2))
    assert result.flags.c_contiguous
    np.testing.assert_array_equal(cp.asnumpy(result), getattr(np, function)(x1, x2))


@pytest.mark.parametrize("function", ["dot", "inner"])
def test_products_with_numbers_promote_as_numpy(cp, function):
    ours, numpys = getattr(cupygemm, function), getattr(np, function)
    for number in (2, 2.5, True, np.float32(2), np.int8(3)):
        check(cp, ours, numpys, integers((3,)), number)
        check(cp, ours, numpys, number, integers((3,)))


def test_dot_writes_to_out(cp):
    a, b = integers((2, 3, 5)), integers((6, 5, 4))
    wide = cp.full((2, 3, 6, 8), 7, np.float32)
    out = wide[..., ::2]
    assert cupygemm.dot(cp.asarray(a), cp.asarray(b), out) is out
    np.testing.assert_array_equal(cp.asnumpy(out), np.dot(a, b))
    assert (cp.asnumpy(wide[..., 1::2]) == 7).all()
    scaled = cp.zeros(3, np.float64)
    assert cupygemm.dot(cp.ones(3, np.float32), 2.0, scaled) is scaled
    assert (cp.asnumpy(scaled) == 2).all()


def test_inner(cp):
    for shape1, shape2 in [((4,), (4,)), ((3, 4), (2, 5, 4)), ((), (3,)), ((3, 4), (4,))]:
        check(cp, cupygemm.inner, np.inner, integers(shape1), integers(shape2))


def test_vdot_takes_axes_as_one(cp):
    check(cp, cupygemm.vdot, np.vdot, integers((3, 4)), integers((3, 4)))
    check(cp, cupygemm.vdot, np.vdot, integers((3, 4)), integers(12))
    check(cp, cupygemm.vdot, np.vdot, integers((4, 3)).T, integers((3, 4)))
    check(cp, cupygemm.vdot, np.vdot, integers(()), integers(1))


def test_outer(cp):
    check(cp, cupygemm.outer, np.outer, integers((3, 4)), integers((2, 5)))
    check(cp, cupygemm.outer, np.outer, integers(3, bool), integers(2, bool))
    out = cp.zeros((3, 2), np.float64)
    assert cupygemm.outer(cp.ones(3), cp.ones(2), out) is out
    check(cp, linalg.outer, np.linalg.outer, integers(3), integers(4))


@pytest.mark.parametrize(
    ("shape1", "shape2", "axes"),
    [
        ((3, 4, 5), (4, 3, 2), ([1, 0], [0, 1])),
        ((3, 4, 5), (4, 3, 2), ([0, 1], [1, 0])),
        ((3, 4, 5), (4, 5, 2), 2),
        ((3, 4), (5, 2), 0),
        ((3, 4), (4, 2), -1),  # contracts nothing
        ((3, 4, 5), (4, 5, 2), (1, -3)),
        ((3, 4, 5), (4, 5, 2), (np.array([1, 2]), np.array([0, 1]))),
        ((3, 4), (3, 4), ((0, 1), (0, 1))),
        ((3, 0), (0, 2), 1),
        ((), (), 0),
    ],
)
def test_tensordot(cp, shape1, shape2, axes):
    check(cp, cupygemm.tensordot, np.tensordot, integers(shape1), integers(shape2), axes)
    check(cp, linalg.tensordot, np.linalg.tensordot, integers(shape1), integers(shape2), axes=axes)


@pytest.mark.parametrize(
    ("function", "shape1", "shape2", "options"),
    [
        ("vecdot", (3, 4, 5), (4, 5), {}),
        ("vecdot", (5,), (5,), {"dtype": np.float64}),
        ("vecdot", (3, 5, 4), (5, 1), {"axis": -2}),
        ("vecdot", (3, 5, 4), (5, 1), {"axis": -2, "keepdims": True}),
        ("vecdot", (4, 5), (4, 5), {"keepdims": True}),
        ("vecdot", (3, 5), (5, 3), {"axes": [1, (0,)]}),
        ("vecdot", (3, 5), (5, 3), {"axes": [1, 0, ()]}),
        ("matvec", (3, 4, 5), (2, 1, 5), {}),
        ("matvec", (4, 5), (2, 3, 5), {}),
        ("matvec", (5, 3, 4), (5, 3), {"axes": [(2, 0), 0, 0]}),
        ("vecmat", (2, 1, 4), (3, 4, 5), {}),
        ("vecmat", (4, 3), (4, 5, 3), {"axes": [0, (0, 1), (0,)]}),
        ("vecmat", (0,), (0, 5), {}),
    ],
)
def test_stacks(cp, function, shape1, shape2, options):
    ours, numpys = getattr(cupygemm, function), getattr(np, function)
    check(cp, ours, numpys, integers(shape1), integers(shape2), **options)


def test_stacks_write_to_out_and_repeat_along_it(cp):
    a, b = integers((4, 5)), integers((4, 5))
    expected = np.vecdot(a, b)
    out = cp.zeros((3, 4), np.float32)
    assert cupygemm.vecdot(cp.asarray(a), cp.asarray(b), (out,)) is out
    np.testing.assert_array_equal(cp.asnumpy(out), np.broadcast_to(expected, (3, 4)))
    kept = cp.zeros((4, 1), np.float32)
    assert cupygemm.vecdot(cp.asarray(a), cp.asarray(b), kept, keepdims=True) is kept
    np.testing.assert_array_equal(cp.asnumpy(kept), expected[:, None])


TYPES = [np.bool_, np.int8, np.uint64, np.float16, np.float64, np.dtype(ml_dtypes.bfloat16)]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_result_types(cp, dtype):
    """NumPy's types and values; integers wrap, booleans are added by "or"."""
    a, b = integers((40, 37), dtype), integers((37, 40), dtype)
    if np.dtype(dtype).kind in "iu":
        a, b = a * a.dtype.type(31), b * b.dtype.type(17)
    for ours, numpys, operands in (
        (cupygemm.dot, np.matmul, (a, b)),
        (cupygemm.inner, lambda x, y: np.matmul(x, y.T), (a, b.T)),
        (cupygemm.matvec, np.matvec, (a, b[:, 0])),
        (cupygemm.vecdot, np.vecdot, (a, b.T)),
    ):
        check(cp, ours, numpys, *operands)


def test_multi_dot_multiplies_in_the_cheapest_order(cp):
    shapes = [(30, 35), (35, 15), (15, 5), (5, 10), (10, 20), (20, 25)]  # the example of CLRS
    arrays = [integers(shape, np.float64) for shape in shapes]
    result = linalg.multi_dot([cp.asarray(x) for x in arrays])
    np.testing.assert_array_equal(cp.asnumpy(result), np.linalg.multi_dot(arrays))
    row, column = integers(30, np.float64), integers(25, np.float64)
    for factors in ([row, *arrays], [*arrays, column], [row, *arrays, column], arrays[:2]):
        expected = np.linalg.multi_dot(factors)
        out = cp.zeros(expected.shape, expected.dtype)
        assert linalg.multi_dot([cp.asarray(x) for x in factors], out=out) is out
        np.testing.assert_array_equal(cp.asnumpy(out), expected)


def test_the_cheapest_order():
    from cupygemm._products.chains import cheapest_order

    splits = cheapest_order([30, 35, 15, 5, 10, 20, 25])
    assert splits[0, 5] == 2
    assert splits[0, 2] == 0
    assert splits[3, 5] == 4


@pytest.mark.parametrize("power", [0, 1, 2, 3, 10])
def test_matrix_power(cp, power):
    a = RNG.integers(-1, 2, (2, 5, 5)).astype(np.float64)
    check(cp, linalg.matrix_power, np.linalg.matrix_power, a, power)


@pytest.mark.parametrize("power", [3, 5, 6])
def test_nan_spreads_in_a_power_as_in_numpy(cp, power):
    a = np.array([[2.0, 3.0], [np.inf, 0.0]])
    got = linalg.matrix_power(cp.asarray(a), power)
    with np.errstate(invalid="ignore"):  # inf * 0
        expected = np.linalg.matrix_power(a, power)
    np.testing.assert_array_equal(got.get(), expected)


def test_a_power_of_an_inverse(cp):
    a = np.asarray([[2, 1], [1, 1]])
    power = linalg.matrix_power(cp.asarray(a), -3)
    np.testing.assert_allclose(cp.asnumpy(power), np.linalg.matrix_power(a, -3), rtol=1e-14)


def test_a_singular_matrix_has_no_negative_power(cp):
    with pytest.raises(np.linalg.LinAlgError, match="pivot 1 is zero"):
        linalg.matrix_power(cp.ones((2, 2)), -2)


def test_matrix_transpose_is_a_view(cp):
    x = cp.asarray(integers((2, 3, 4)))
    view = linalg.matrix_transpose(x)
    assert view.shape == (2, 4, 3)
    assert view.data.ptr == x.data.ptr


def test_array_api_names(cp):
    a, b = integers((2, 3, 4)), integers((2, 4, 5))
    check(cp, linalg.matmul, np.linalg.matmul, a, b)
    check(cp, linalg.vecdot, np.linalg.vecdot, a, a)
    check(cp, linalg.vecdot, np.linalg.vecdot, a, a, axis=-2)


def test_repeated_calls_of_other_shapes_and_types(cp):
    """A call never uses the cached plan of a different call."""
    for dtype in (np.float32, np.float64):
        for shape in ((3, 4), (4, 3), (4, 4)):
            a = integers(shape, dtype)
            check(cp, cupygemm.inner, np.inner, a, a)
            check(cp, cupygemm.inner, np.inner, np.asfortranarray(a), a)
