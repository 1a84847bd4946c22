"""`matmul` of 8-bit floats in uint8 arrays, and of float32 in tf32, as seen by a caller."""

import textwrap

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from cupygemm._backends.device import device as device_of
from cupygemm._epilogue.float8 import rounded_to_float8
from cupygemm._records.dtypes import FLOAT8

U8 = np.dtype(np.uint8)


@pytest.fixture(scope="module")
def formats(cp):
    """The two formats of the device."""
    names = device_of(0).kernels.formats
    if not names:
        pytest.skip("the device has no 8-bit floats")
    return names


def on_device(cp, array, order="C"):
    """Put 8-bit floats on the device as bytes, in C or F order."""
    array = array.view(U8)
    return cp.asarray(array, order="C") if order == "C" else cp.asarray(array.T, order="C").T


def test_every_code_means_what_its_format_says(cp, formats):
    """A product with the identity decodes each of the 256 codes, from either side."""
    codes = np.arange(256, dtype=U8).reshape(16, 16)
    for name in formats:
        one = on_device(cp, np.eye(16).astype(FLOAT8[name]))
        values = codes.view(FLOAT8[name]).astype(np.float32)
        finite = np.where(np.isfinite(values), codes, U8.type(0))  # the others would spread
        a = cp.asarray(finite)
        left = cupygemm.matmul(a, one, format_a=name, format_b=name)
        right = cupygemm.matmul(one, a, format_a=name, format_b=name)
        expected = finite.view(FLOAT8[name]).astype(np.float32)
        np.testing.assert_array_equal(cp.asnumpy(left), expected)
        np.testing.assert_array_equal(cp.asnumpy(right), expected)
        bad = codes[~np.isfinite(values)]
        for code in bad:
            x = cp.asarray(np.full((1, 1), code, U8))
            result = cp.asnumpy(cupygemm.matmul(x, one[:1, :1], format_a=name, format_b=name))
            np.testing.assert_array_equal(
                result, np.full((1, 1), code, U8).view(FLOAT8[name]).astype(np.float32)
            )


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("m", "n", "k", "orders"),
    [
        (1, 70, 41, "CF"),
        pytest.param(70, 1, 3, "FC", marks=pytest.mark.sweep),  # the first one, transposed
        (31, 33, 127, "FF"),
        (64, 40, 300, "CC"),
    ],
)
def test_exact_products_of_both_formats(cp, formats, m, n, k, orders):
    first, second = formats
    x1 = testing.integer_operands((m, k), (k, n), FLOAT8[first])[0]
    x2 = testing.integer_operands((m, k), (k, n), FLOAT8[second], seed=1)[1]
    a, b = on_device(cp, x1, orders[0]), on_device(cp, x2, orders[1])
    tags = {"format_a": first, "format_b": f"float8_{second}"}
    result = cupygemm.matmul(a, b, **tags)
    assert result.dtype == np.float32
    testing.assert_gemm_exact(result, x1, x2)
    for dtype in ("float16", ml_dtypes.bfloat16):
        testing.assert_gemm_exact(cupygemm.matmul(a, b, dtype=dtype, **tags), x1, x2)
    for name in formats:
        rounded = cupygemm.matmul(a, b, dtype=name, **tags)
        assert rounded.dtype == U8
        testing.assert_gemm_exact(cp.asnumpy(rounded).view(FLOAT8[name]), x1, x2)


def test_stacks_views_and_out(cp, formats):
    """Rows at any address, broadcasting, a result inside a larger buffer, and one in F order."""
    name, _ = formats
    x1 = testing.integer_operands((2, 3, 34, 45), (3, 46, 40), FLOAT8[name])[0]
    x2 = testing.integer_operands((2, 3, 34, 45), (3, 46, 40), FLOAT8[name])[1]
    a, b = on_device(cp, x1)[..., 1:33, 2:], on_device(cp, x2)[:, 1:44]
    views = x1[..., 1:33, 2:], x2[:, 1:44]
    tags = {"format_a": name, "format_b": name, "dtype": name}
    memory = cp.asarray(np.full((2, 3, 33, 43), 77, U8))
    out = memory[..., 1:, 2:42]
    assert cupygemm.matmul(a, b, out, **tags) is out
    testing.assert_gemm_exact(np.ascontiguousarray(cp.asnumpy(out)).view(FLOAT8[name]), *views)
    host = cp.asnumpy(memory)
    host[..., 1:, 2:42] = 77
    assert (host == 77).all()
    out = cp.empty((2, 3, 32, 40), np.float32, order="F")
    cupygemm.matmul(a, b, out, format_a=name, format_b=name)
    testing.assert_gemm_exact(out, *views)


def test_arrays_of_the_formats_own_dtype_need_no_tag(cp, formats):
    """CuPy cannot create such an array, but can view bytes as one."""
    first, second = formats
    x1, x2 = testing.integer_operands((20, 30), (30, 10), FLOAT8[first])
    a, b = (on_device(cp, x).view(FLOAT8[first]) for x in (x1, x2))
    testing.assert_gemm_exact(cupygemm.matmul(a, b), x1, x2)
    out = cp.empty((20, 10), U8).view(FLOAT8[second])
    assert cupygemm.matmul(a[::-1], b, out) is out
    testing.assert_gemm_exact(cp.asnumpy(out.view(U8)).view(FLOAT8[second]), x1[::-1], x2)


def test_an_out_that_overlaps_an_operand(cp, formats):
    name, _ = formats
    x1, x2 = testing.integer_operands((16, 16), (16, 16), FLOAT8[name])
    a = on_device(cp, x1)
    cupygemm.matmul(a, on_device(cp, x2), a, format_a=name, format_b=name, dtype=name)
    testing.assert_gemm_exact(cp.asnumpy(a).view(FLOAT8[name]), x1, x2)


def test_results_saturate_and_nan_stays(cp, formats):
    for name in formats:
        largest = float(ml_dtypes.finfo(FLOAT8[name]).max)
        x1 = np.array([[largest], [-largest], [1], [np.nan]], np.float32)
        x2 = np.array([[2, 1, 0.5, np.inf, -np.inf]], np.float32)
        rounded = cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), dtype=name)
        actual = cp.asnumpy(rounded).view(FLOAT8[name]).astype(np.float32)
        with np.errstate(invalid="ignore", over="ignore"):
            expected = np.clip(x1 @ x2, -largest, largest)
        np.testing.assert_array_equal(actual, expected)


def test_rounding_to_8_bits_is_to_nearest_even(cp, formats):
    """Every number halfway between two neighbours, and those a little to either side."""
    for name in formats:
        codes = np.arange(255, dtype=U8).view(FLOAT8[name]).astype(np.float32)
        values = np.unique(codes[np.isfinite(codes)])
        half = (values[1:] + values[:-1]) / 2
        numbers = np.concatenate([values, half, np.nextafter(half, 9e9), np.nextafter(half, -9e9)])
        numbers = numbers.astype(np.float32)[:, None]
        rounded = cupygemm.matmul(cp.asarray(numbers), cp.ones((1, 1), np.float32), dtype=name)
        expected = numbers.astype(FLOAT8[name])
        np.testing.assert_array_equal(
            cp.asnumpy(rounded).view(FLOAT8[name]).astype(np.float32), expected.astype(np.float32)
        )


@pytest.mark.parametrize("name", FLOAT8)
def test_rounding_by_cupy(cp, name):
    """Every number halfway between two neighbours and its own; what is beyond; signs and NaN."""
    codes = np.arange(128, dtype=U8).view(FLOAT8[name]).astype(np.float32)
    values = codes[np.isfinite(codes)]
    half = (values[1:] + values[:-1]) / 2
    infinity = np.float32(np.inf)
    numbers = [values, half, np.nextafter(half, infinity), np.nextafter(half, -infinity)]
    positive = np.concatenate(numbers).astype(np.float32)
    numbers = np.concatenate([positive, -positive, [np.nan]]).astype(np.float32)
    expected = numbers.astype(FLOAT8[name]).view(U8)
    np.testing.assert_array_equal(
        cp.asnumpy(rounded_to_float8(cp.asarray(numbers), FLOAT8[name])), expected
    )
    beyond = np.array([1e30, -1e30, np.inf, -np.inf], np.float32)
    actual = cp.asnumpy(rounded_to_float8(cp.asarray(beyond), FLOAT8[name])).view(FLOAT8[name])
    np.testing.assert_array_equal(
        actual.astype(np.float32), np.sign(beyond) * values[-1].astype(np.float32)
    )


def test_scales_bias_and_activation_with_an_8_bit_result(cp, formats):
    name, _ = formats
    x1, x2 = testing.integer_operands((40, 64), (64, 36), FLOAT8[name])  # summed exactly
    options = {
        "scale_a": 0.5,
        "scale_b": np.linspace(1, 2, 36, dtype=np.float32),
        "bias": np.ones(36, np.float32),
        "activation": "relu",
    }
    given = {k: cp.asarray(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    a, b = on_device(cp, x1), on_device(cp, x2)
    out = cp.empty((40, 36), U8)
    result = cupygemm.matmul(a, b, out, dtype=name, format_a=name, format_b=name, **given)
    assert result is out
    testing.assert_gemm_close(cp.asnumpy(out).view(FLOAT8[name]), x1, x2, **options)


def test_bytes_without_a_tag_are_integers(cp, formats):
    x = np.random.default_rng(0).integers(0, 256, (9, 9), U8)
    a = cp.asarray(x)
    tagged = cupygemm.matmul(a, a, format_a=formats[0], format_b=formats[0])
    np.testing.assert_array_equal(cp.asnumpy(cupygemm.matmul(a, a)), x @ x)
    assert tagged.dtype == np.float32


def test_no_work(cp, formats):
    name, _ = formats
    a, b = cp.empty((3, 0), U8), cp.empty((0, 2), U8)
    tags = {"format_a": name, "format_b": name}
    assert cupygemm.matmul(a, b, **tags).tolist() == [[0, 0]] * 3
    zeros = cupygemm.matmul(a, b, dtype=name, **tags)
    assert (zeros.dtype, zeros.tolist()) == (U8, [[0, 0]] * 3)


def test_explain_names_the_formats(cp, device, formats):
    first, second = formats
    a = cp.ones((64, 64), U8)
    text = str(cupygemm.explain(a, a, format_a=first, format_b=second, dtype=second))
    assert f"float8_{first} (64, 64) @ float8_{second} (64, 64) -> float8_{second}" in text
    if device.has_kernels:
        assert f"A {first} k-major, B {second} n-major, C {second}" in text


def test_refusals_leave_out_alone(cp, formats):
    name, _ = formats
    foreign = next(f for f in FLOAT8 if f not in formats)
    a, half = cp.ones((4, 4), U8), cp.ones((4, 4), np.float16)
    out = cp.asarray(np.full((4, 4), 9, np.float32))
    known = " and ".join(f"float8_{f}" for f in formats)
    convert = f"convert float8_{foreign} on the host, .*{foreign}.*uint8"
    for operands, options, text in (
        ((a, a), {"format_a": foreign, "format_b": foreign}, f"are {known}: {convert}"),
        ((a, a), {"format_a": name}, "x2 of dtype uint8 have no common dtype.*format_b"),
        ((half, half), {"format_a": name}, "x1 has dtype float16; pass a uint8 array"),
        ((a, a), {"format_a": "fp8", "format_b": name}, "format_a = 'fp8' is not a format"),
        ((a, half), {"format_a": name}, "float8.* and x2 of dtype float16 have no common dtype"),
    ):
        for function in (cupygemm.matmul, cupygemm.explain):
            with pytest.raises(TypeError, match=text):
                function(*operands, out, **options)
    with pytest.raises(TypeError, match=f"float8_{foreign} product; .* are {known}: pass another"):
        cupygemm.matmul(half, half, dtype=foreign)
    with pytest.raises(ValueError, match="precision must be one of"):
        cupygemm.matmul(half, half, precision="half")
    assert (cp.asnumpy(out) == 9).all()


@pytest.mark.slow
def test_a_device_without_8_bit_floats_says_so(run_python):
    """The message says what to do. For `precision`, exact float32 replaces the missing type."""
    code = """
        import cupygemm, cupy as cp, numpy as np
        a = cp.ones((4, 4), "uint8")
        try:
            cupygemm.matmul(a, a, format_a="e4m3fn", format_b="e4m3fn")
        except TypeError as err:
            print(err)
        x = cp.asarray(np.full((4, 4), 1 + 2**-20, "float32"))
        print(cupygemm.matmul(x, x, precision="tf32")[0, 0] == np.float32(4 * (1 + 2**-19)))
        print(cupygemm.explain(x, x, precision="tf32"))
    """
    text = run_python(textwrap.dedent(code), target="gfx90a")
    assert "gfx90a (emulated) has no 8-bit floats: convert float8_e4m3fn on the host" in text
    assert "True\n" in text
    assert "gfx90a (emulated) has no tf32: float32 is multiplied exactly" in text


@pytest.mark.slow
def test_tf32(cp, device):
    x1, x2 = testing.random_operands((2, 65, 517), (517, 70), np.float32)
    a, b = cp.asarray(x1), cp.asarray(x2)
    exact = cupygemm.matmul(a, b)
    for name in ("tf32", "xf32"):
        result = cupygemm.matmul(a, b, precision=name)
        assert result.dtype == np.float32
        testing.assert_gemm_close(result, x1, x2, precision=name)
        if "tf32" in device_of(0).kernels.precisions:
            assert (cp.asnumpy(result) != cp.asnumpy(exact)).mean() > 0.9
    np.testing.assert_array_equal(
        cp.asnumpy(cupygemm.matmul(a, b, precision="ieee")), cp.asnumpy(exact)
    )
    doubled = cupygemm.matmul(a.astype(np.float64), b.astype(np.float64), precision="tf32")
    testing.assert_gemm_close(doubled, x1.astype(np.float64), x2.astype(np.float64))
