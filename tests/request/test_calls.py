"""What calls accept: numbers, scales, memory, byte orders, and types without products."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import testing

F32, F64 = np.dtype("f4"), np.dtype("f8")
I8, U8, I16, I32 = map(np.dtype, ("i1", "u1", "i2", "i4"))

# -- One rule for integers: they saturate if an option of the epilogue is given --------------------

NO_EFFECT = {
    "alpha": lambda cp: {"alpha": 1},
    "beta": lambda cp: {"beta": 0},
    "c that is not read": lambda cp: {"c": cp.ones((3, 5), F32), "beta": 0},
    "scale_a": lambda cp: {"scale_a": 1.0},
    "scale_b": lambda cp: {"scale_b": np.float32(1)},
    "scale_out": lambda cp: {"scale_out": 1},
    "scale_a of the device": lambda cp: {"scale_a": cp.ones((), F32)},
    "clamp": lambda cp: {"clamp": (None, None)},
    "several": lambda cp: {"alpha": 1, "scale_a": 1, "scale_b": 1},
}


@pytest.mark.covering
@pytest.mark.parametrize("options", NO_EFFECT)
@pytest.mark.parametrize("dtype", [I8, U8, I16, I32], ids=str)
def test_integers_saturate_with_any_option(cp, dtype, options):
    largest = np.iinfo(dtype).max
    x1, x2 = cp.full((3, 64), largest // 8, dtype), cp.full((64, 5), 16, dtype)
    given = NO_EFFECT[options](cp)
    for _ in range(2):  # the second call takes its plan from the table
        assert (cupygemm.matmul(x1, x2, **given).get() == largest).all()
    assert cupygemm.matmul(x1, x2, out=cp.zeros((3, 5), dtype), **given).get().max() == largest


@pytest.mark.parametrize("dtype", [I8, U8, I16, I32], ids=str)
def test_integers_wrap_without_options(cp, dtype):
    x1, x2 = (np.full(shape, np.iinfo(dtype).max // 8, dtype) for shape in ((3, 64), (64, 5)))
    none = dict.fromkeys(("alpha", "beta", "c", "bias", "scale_a", "scale_out", "clamp"))
    for options in ({}, none):
        result = cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), **options)
        np.testing.assert_array_equal(result.get(), np.matmul(x1, x2))


def test_integers_of_blas_saturate(cp):
    x1, x2 = cp.full((3, 64), 16, U8), cp.full((64, 3), 16, U8)
    for result in (
        cupygemm.gemm(1, x1, x2),
        cupygemm.scaled_matmul(x1, x2, 1.0, 1.0),
        cupygemm.syrk(1, x1),
    ):
        assert (result.get() == 255).all()


def test_sums_in_int32_stay_exact_with_alpha_of_one(cp):
    x1, x2 = np.full((3, 1500), 127, I8), np.full((1500, 5), 127, I8)
    x1[0, 0] = 1  # a sum that float32 does not hold
    result = cupygemm.gemm(1, cp.asarray(x1), cp.asarray(x2), dtype=I32)
    np.testing.assert_array_equal(result.get(), np.matmul(x1.astype(I32), x2.astype(I32)))


def test_floats_ignore_options_without_effect(cp):
    """They need no epilogue, and so no other kernel; booleans, which have none, are multiplied."""
    a = cp.ones((8, 8), F32)
    assert cupygemm.explain(a, a, alpha=1, scale_out=1).epilogue is None
    for _ in range(2):
        assert (cupygemm.matmul(a, a, alpha=1, scale_out=1).get() == 8).all()
        assert (cupygemm.syrk(1.0, a).get() == 8).all()
    assert cupygemm.matmul(a > 0, a > 0, alpha=1).dtype == bool


# -- Numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["alpha", "scale_a", "scale_out"])
def test_a_number_beyond_float64_is_named(cp, name):
    a = cp.ones((4, 4), F32)
    cupygemm.matmul(a, a, **{name: 3})
    for value, text in ((10**400, "1e400"), (-(10**5000), "-1e5000"), (Fraction(10**400), "1e400")):
        with pytest.raises(ValueError, match=rf"matmul: {name} is about {text}, and float64"):
            cupygemm.matmul(a, a, **{name: value})


# -- Scales ----------------------------------------------------------------------------------------


def test_scales_of_a_stack_with_one_dimensional_operands(cp):
    rng = np.random.default_rng(0)
    row, matrices, column = (rng.standard_normal(s) for s in ((17,), (4, 17, 2), (17,)))
    scale = rng.standard_normal((4, 1, 2))
    result = cupygemm.matmul(*map(cp.asarray, (row, matrices)), scale_b=cp.asarray(scale))
    testing.assert_gemm_close(result, row, matrices, scale_b=scale)
    for dtype in (F32, F64, I16):  # converted first, unless the kernel reads the type
        scale = (rng.standard_normal((4, 3, 1)) * 9).astype(dtype)
        stack = rng.standard_normal((4, 3, 17)).astype(F32)
        x1, x2 = cp.asarray(stack), cp.asarray(column.astype(F32))
        result = cupygemm.matmul(x1, x2, scale_a=cp.asarray(scale))
        testing.assert_gemm_close(result, stack, column.astype(F32), scale_a=scale)


@pytest.mark.parametrize("lengths", ["matrices", "row", "column"])
def test_reversed_and_strided_scales(cp, lengths):
    rng = np.random.default_rng(1)
    x1, x2 = (rng.standard_normal(s).astype(F32) for s in ((3, 6, 20), (3, 20, 7)))
    scale_a = rng.standard_normal((3, 12, 1)).astype(F32)[::-1, ::-2]
    scale_b = rng.standard_normal((3, 1, 14)).astype(F32)[:, :, ::-2]
    options = {"scale_a": scale_a, "scale_b": scale_b}
    if lengths == "row":
        x1, options = x1[0, 0], {"scale_b": scale_b}
    if lengths == "column":
        x2, options = x2[0, :, 0], {"scale_a": scale_a}
    for order in ("C", "F"):
        base = {name: np.array(array, order=order) for name, array in options.items()}
        turned = {name: cp.asarray(np.flip(array)) for name, array in base.items()}
        views = {name: cp.flip(array) for name, array in turned.items()}
        result = cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), **views)
        testing.assert_gemm_close(result, x1, x2, **options)


# -- Memory ----------------------------------------------------------------------------------------


class ReadOnly:
    """A view of an array that says it is read-only."""

    def __init__(self, array):
        self._array = array

    @property
    def __cuda_array_interface__(self):
        interface = self._array.__cuda_array_interface__
        return {**interface, "data": (interface["data"][0], True)}


def test_a_read_only_out_is_refused(cp):
    a, out = cp.ones((3, 3)), cp.zeros((3, 3))
    with pytest.raises(ValueError, match="matmul: out is a read-only ReadOnly"):
        cupygemm.matmul(a, a, ReadOnly(out))
    with pytest.raises(ValueError, match="einsum: out is a read-only ReadOnly"):
        cupygemm.einsum("ij,jk", a, a, out=ReadOnly(out))
    assert not out.get().any()
    assert (cupygemm.matmul(ReadOnly(a), ReadOnly(a), out).get() == 3).all()


@pytest.mark.parametrize("name", ["x1", "x2", "out", "bias"])
def test_another_byte_order_is_refused(cp, name):
    other = F64.newbyteorder()
    arrays = {"x1": cp.ones((3, 3)), "x2": cp.ones((3, 3)), "out": cp.ones((3, 3))}
    arrays["bias"] = cp.ones(3)
    arrays[name] = arrays[name].view(other)
    given = (arrays.pop("x1"), arrays.pop("x2"))
    with pytest.raises(TypeError, match=f"{name} is an array of dtype '{other.str}', whose byte"):
        cupygemm.matmul(*given, **arrays)


def test_a_dtype_of_another_byte_order_is_refused(cp):
    a, other = cp.ones((3, 3)), F64.newbyteorder().str
    with pytest.raises(TypeError, match=f"dtype is '{other}', whose byte .* use '{F64.str}'"):
        cupygemm.matmul(a, a, dtype=other)


# -- Conversion ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bf16", "f4", "c8"])
@pytest.mark.parametrize("wide", ["f8", "c16"])
def test_subnormals_survive_conversion_to_float64(cp, dtype, wide):
    if dtype == "c8" and wide == "f8":
        wide = "c16"
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bf16" else np.dtype(dtype)
    numbers = [1e-40, -1e-39, 1.4e-45, 3e-38, -0.0, 0.0, 1.5, -np.inf, np.nan, 3e38]
    x = np.array(numbers).astype(kind).reshape(2, 5)
    operand = cp.asarray(x.view("u2")).view(kind) if dtype == "bf16" else cp.asarray(x)
    eye = np.ones((2, 1), wide)
    # A strided operand, and one with a column for each row, so that nothing is summed.
    for view, host in ((operand, x), (operand.T, x.T)):
        columns = [
            cupygemm.matmul(view[i : i + 1, j : j + 1], cp.asarray(eye[:1])).get()[0, 0]
            for i, j in np.ndindex(host.shape)
        ]
        expected = host.astype(wide).ravel()
        np.testing.assert_array_equal(np.array(columns).real, expected.real)


# -- Types -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shapes", [((3, 0), (0, 3)), ((0, 3), (3, 3))], ids=["zeros", "empty"])
def test_formats_that_the_device_lacks_without_products(cp, device, shapes):
    """The formats are refused for empty products, too."""
    if not device.has_kernels:
        pytest.skip("no device with 8-bit floats")
    lacking = "e4m3fnuz" if device.target in ("gfx950", "sm_90") else "e4m3fn"
    a, b = (cp.ones(shape, U8) for shape in shapes)
    for options in ({}, {"alpha": 2}):
        with pytest.raises(TypeError, match=f"cupygemm has no kernel yet for float8_{lacking}"):
            cupygemm.matmul(a, b, format_a=lacking, format_b=lacking, **options)
        with pytest.raises(TypeError, match=f"float8_{lacking}"):
            cupygemm.explain(a, b, format_a=lacking, format_b=lacking, **options)
