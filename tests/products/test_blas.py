"""`gemm`, `syrk`, `linear` and `scaled_matmul` on the device, against NumPy, to the bit."""

import numpy as np
import pytest

import cupygemm
from cupygemm import testing

RNG = np.random.default_rng(0)


def integers(*shape):
    return RNG.integers(-3, 4, shape).astype(np.float32)


@pytest.mark.parametrize(
    ("trans_a", "trans_b"), [(False, "N"), (True, "n"), ("T", True), ("N", "C")]
)
def test_gemm(cp, trans_a, trans_b):
    a, b, c = integers(5, 7), integers(7, 4), integers(5, 4)
    expected = 2 * (a @ b) - 3 * c
    turned_a, turned_b = trans_a in (True, "T"), trans_b in (True, "C")
    ours = [cp.asarray(a.T if turned_a else a), cp.asarray(b.T if turned_b else b), cp.asarray(c)]
    result = cupygemm.gemm(2, ours[0], ours[1], -3, ours[2], trans_a, trans_b)
    np.testing.assert_array_equal(cp.asnumpy(result), expected)
    assert cupygemm.gemm(2, ours[0], ours[1], -3, ours[2], trans_a, trans_b, out=ours[2]) is ours[2]
    np.testing.assert_array_equal(cp.asnumpy(ours[2]), expected)


def test_gemm_does_not_read_c_without_beta(cp):
    a, b = integers(5, 7), integers(7, 4)
    c = cp.full((5, 4), np.nan, np.float32)
    result = cupygemm.gemm(1, cp.asarray(a), cp.asarray(b), 0, c, out=c, activation="relu")
    np.testing.assert_array_equal(cp.asnumpy(result), np.maximum(a @ b, 0))


@pytest.mark.parametrize("trans", [False, True])
def test_syrk(cp, trans):
    a, c = integers(5, 7), integers(5, 5)
    ours = cp.asarray(a.T if trans else a)
    result = cupygemm.syrk(2, ours, 1, cp.asarray(c), trans)
    np.testing.assert_array_equal(cp.asnumpy(result), 2 * (a @ a.T) + c)
    alone = cp.asnumpy(cupygemm.syrk(1, ours, trans=trans))
    np.testing.assert_array_equal(alone, alone.T)


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7), (0, 7)])
def test_linear(cp, shape):
    x, w, bias = integers(*shape), integers(4, 7), integers(4)
    expected = np.maximum(x @ w.T + bias, 0)
    ours = [cp.asarray(array) for array in (x, w, bias)]
    result = cupygemm.linear(*ours, activation="relu")
    assert result.shape == expected.shape
    np.testing.assert_array_equal(cp.asnumpy(result), expected)
    out = cp.zeros((*shape[:-1], 8), np.float32)[..., ::2]
    assert cupygemm.linear(ours[0], ours[1], out=out) is out
    np.testing.assert_array_equal(cp.asnumpy(out), x @ w.T)


@pytest.mark.parametrize("axes", [(1, 2, 0, 3), (2, 1, 0, 3), (0, 2, 1, 3), (1, 0, 2, 3)])
def test_linear_does_not_count_steps_along_axes_of_one_element(cp, axes):
    """Strides of length-1 axes are ignored; here they belong to other rows."""
    x = np.random.default_rng(5).integers(-3, 4, (4, 2, 1, 9)).astype(np.float32)
    w = np.eye(9, dtype=np.float32)[:5]
    result = cupygemm.linear(cp.asarray(x).transpose(axes), cp.asarray(w))
    np.testing.assert_array_equal(cp.asnumpy(result), x.transpose(axes) @ w.T)


@pytest.mark.parametrize("rows", [3, 5])  # of 5: the leading axes merge only if all are taken
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("scale_a", (-1,)),
        ("scale_a", (2, -1, 1)),
        ("scale_b", (4,)),
        ("scale_b", (2, 1, 4)),
        ("bias", (-1, 4)),
        ("bias", (2, -1, 4)),
        ("bias", (2, 1, 1)),
        ("c", (4,)),
        ("c", (2, -1, 4)),
    ],
)
def test_options_of_linear_refer_to_its_own_axes(cp, rows, name, shape):
    """It makes no difference whether its leading axes are one axis of the product."""
    x, w = integers(2, 5, 3), integers(4, 3)
    view = cp.asarray(x)[:, :rows]
    given = integers(*(rows if n < 0 else n for n in shape))
    result = cupygemm.linear(view, cp.asarray(w), **{name: cp.asarray(given)})
    testing.assert_gemm_exact(result, x[:, :rows], w.T, **{name: given})


def test_linear_takes_rows_that_are_not_one_axis(cp):
    x, w = integers(3, 4, 7), integers(5, 7)
    view = cp.asarray(x).transpose(1, 0, 2)
    result = cupygemm.linear(view, cp.asarray(w))
    np.testing.assert_array_equal(cp.asnumpy(result), x.transpose(1, 0, 2) @ w.T)


@pytest.mark.covering
@pytest.mark.parametrize(
    ("shape_a", "shape_b"),
    [
        ((), ()),
        ((20,), (24,)),
        ((20, 1), (1, 24)),
        ((20, 3), (3, 24)),
        ((20, 3), (3, 2)),
        ((2, 3), (3, 2)),
        ((2, 3), (24,)),
        ((), (3, 2)),
    ],
)
def test_scales_for_rows_and_blocks(cp, shape_a, shape_b):
    """Powers of two, so that every sum is exact."""
    a, b = integers(20, 40), integers(40, 24)
    scale_a, scale_b = (
        2.0 ** RNG.integers(-2, 3, shape).astype(np.float32) for shape in (shape_a, shape_b)
    )

    def spread(scale, shape, axis):
        if scale.ndim == 1:
            scale = scale[:, None] if axis == 0 else scale[None]
        for direction in range(scale.ndim):
            if scale.shape[direction] not in (1, shape[direction]):
                scale = np.repeat(scale, 16, axis=direction)
                scale = scale[:, : shape[1]] if direction else scale[: shape[0]]
        return scale

    expected = (spread(scale_a, a.shape, 0) * a) @ (spread(scale_b, b.shape, 1) * b)
    ours = [cp.asarray(x) for x in (a, b, scale_a, scale_b)]
    result = cupygemm.scaled_matmul(*ours, block=16, bias=cp.ones(24, np.float32))
    np.testing.assert_array_equal(cp.asnumpy(result), expected + 1)
    out = cp.empty((20, 24), np.float16)
    assert cupygemm.scaled_matmul(*ours, block=16, out=out, casting="same_kind") is out
    np.testing.assert_array_equal(cp.asnumpy(out), expected.astype(np.float16))


def test_scaled_bytes(cp, device):
    """8-bit floats of the device's own format, scaled by rows, columns and blocks."""
    import ml_dtypes

    if not (device.emulated and device.target in ("gfx942", "gfx950")):
        pytest.skip("the device lacks 8-bit floats")
    name = "float8_e4m3fnuz" if device.target == "gfx942" else "float8_e4m3fn"
    a, b = (integers(32, 256).astype(name), integers(256, 32).astype(name))
    scale_a, scale_b = np.float32([[0.5, 4]] * 32), np.float32([[2], [0.25]])
    expected = sum(
        scale_a[:, [i]] * (a[:, s].astype("f4") @ b[s].astype("f4")) * scale_b[i]
        for i, s in enumerate((np.s_[:128], np.s_[128:]))
    )
    ours = [cp.asarray(x.view(np.uint8)) for x in (a, b)]
    result = cupygemm.scaled_matmul(
        *ours,
        cp.asarray(scale_a),
        cp.asarray(scale_b),
        format_a=name,
        format_b=name,
        dtype=ml_dtypes.bfloat16,
    )
    np.testing.assert_array_equal(cp.asnumpy(result), expected.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("shape", [(3, 2), (2, 3, 2)])
def test_transpositions_of_syrk_are_letters_or_flags(cp, shape):
    a = np.arange(np.prod(shape), dtype="float64").reshape(shape)
    plain, turned = a @ a.swapaxes(-1, -2), a.swapaxes(-1, -2) @ a
    for trans, expected in ((False, plain), ("N", plain), (True, turned), ("T", turned)):
        assert (cupygemm.syrk(1, cp.asarray(a), trans=trans).get() == expected).all()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda f: cupygemm.gemm(1, f(2, 3), f(3, 4), 2), "gemm: beta is 2, but c is missing"),
        (lambda f: cupygemm.gemm(1, f(3), f(3, 4)), r"gemm: a has shape \(3,\); it needs two"),
        (lambda f: cupygemm.gemm(1, f(2, 3), f(3, 4), trans_a="X"), "trans_a is 'X'; it must be"),
        (lambda f: cupygemm.gemm(1, f(2, 3), f(3, 4), trans_b=5), "trans_b is 5; it must be True"),
        (lambda f: cupygemm.syrk(1, f(2, 3), trans="C"), "trans is 'C'; .* False, 'N' or 'T'$"),
        (lambda f: cupygemm.scaled_matmul(f(2, 3), f(3, 4), 1, 1, block=0), "block is 0; it must"),
        (
            lambda f: cupygemm.gemm(1, f(3, 2), f(4, 3), trans_a=True),
            r"gemm: .* op\(a\) has shape \(2, 3\) with trans_a=True, op\(b\) has shape \(4, 3\)",
        ),
        (lambda f: cupygemm.syrk(1, f(3)), r"syrk: a has shape \(3,\)"),
        (
            lambda f: cupygemm.linear(f(2, 3), f(4, 5)),
            r"linear: x has shape \(2, 3\) and w has shape \(4, 5",
        ),
        (lambda f: cupygemm.linear(f(2, 3), f(4, 3), out=f(4, 2)), r"linear: out .* \(2, 4\)"),
        (lambda f: cupygemm.scaled_matmul(f(2, 3), f(4, 5), 1, 1), "scaled_matmul: a has shape"),
        (
            lambda f: cupygemm.scaled_matmul(f(2, 300), f(300, 5), f(2, 2), 1),
            r"scale_a has shape \(2, 2\); for blocks of 128 it must be \(2, 3\) or \(1, 3\)",
        ),
        (
            lambda f: cupygemm.scaled_matmul(f(2, 300), f(300, 5), 1, f(2, 5)),
            r"scale_b has shape \(2, 5\); for blocks of 128 it must be \(3, 5\) or \(3, 1\)",
        ),
        (
            lambda f: cupygemm.scaled_matmul(f(2, 300), f(300, 5), f(2, 3), 1, alpha=2),
            "alpha, beta and c cannot be combined with scales for",
        ),
    ],
)
def test_refusals(cp, call, text):
    with pytest.raises(ValueError, match=text):
        call(lambda *shape: cp.ones(shape, np.float32))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda f: cupygemm.gemm(1, f(2, 3), f(3, 4), out=f(5, 5)),
            ValueError,
            r"gemm: out has shape \(5, 5\), but a of shape \(2, 3\) and b of shape \(3, 4\)",
        ),
        (
            lambda f: cupygemm.gemm(1, f(2, 3), f(3, 4), bias=f(7)),
            ValueError,
            r"gemm: bias has shape \(7,\)",
        ),
        (lambda f: cupygemm.gemm(f(1), f(2, 3), f(3, 4)), TypeError, "gemm: alpha is a cupy"),
        (lambda f: cupygemm.gemm(1, f(2, 3), f(3, 4), f(2), f(4)), TypeError, "gemm: beta is a"),
        (lambda f: cupygemm.gemm(1, f(2, 3), f(3, 4), gain=2), TypeError, r"gemm\(\) got an un"),
        (lambda f: cupygemm.syrk(1, f(2, 3), 1, f(7)), ValueError, r"syrk: c has shape \(7,\)"),
        (lambda f: cupygemm.syrk(1, f(2, 3), dtype="foo"), TypeError, "'foo' is not a type; pass"),
        (
            lambda f: cupygemm.linear(f(2, 3), f(4, 3).astype("complex64"), dtype="float32"),
            TypeError,
            r"linear: cannot cast w from dtype\('complex64'\)",
        ),
        (
            lambda f: cupygemm.linear(f(2, 3), f(4, 3), f(5)),
            ValueError,
            r"linear: bias has shape \(5,\)",
        ),
        (
            lambda f: cupygemm.linear(f(2, 3), f(4, 3), "gelu"),
            TypeError,
            "linear: bias is a str, not a cupy.ndarray; pass a CuPy array$",
        ),
        (
            lambda f: cupygemm.linear(f(2, 3), f(4, 3), activation=["gelu"]),
            ValueError,
            r"linear: activation must be one of 'relu', .* \(got \['gelu'\]\)",
        ),
        (
            lambda f: cupygemm.scaled_matmul(f(2, 3), f(3, 4), f(7), 1),
            ValueError,
            r"scaled_matmul: scale_a has shape \(7,\)",
        ),
    ],
)
def test_errors_name_the_function_and_its_operands(cp, call, error, text):
    with pytest.raises(error, match=f"^{text}"):
        call(lambda *shape: cp.ones(shape, np.float32))
