"""`scaled_matmul` with exponents for blocks of 32 along k, against decoded float64 products.

Elements are small and exponents close to 127, so that all sums are exact in float32 and the bits
must agree; ml_dtypes decodes the codes.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import cupygemm

ELEMENTS = {
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}
RNG = np.random.default_rng(5)


def quantised(name: str, rows: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return codes (rows, k, or pairs of them), exponents (rows, blocks) and float64 numbers."""
    numbers = RNG.choice([-2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2], (rows, k))
    codes = numbers.astype(ELEMENTS[name]).view(np.uint8)
    if name == "e2m1":
        codes = codes[:, ::2] | codes[:, 1::2] << 4
    exponents = RNG.integers(125, 130, (rows, -(-k // 32))).astype(np.uint8)
    factors = 2.0 ** (exponents.astype(int) - 127)
    return codes, exponents, numbers * np.repeat(factors, 32, axis=1)[:, :k]


def operands(cp, names, m, n, k, layout="kk"):
    """Return the arguments of scaled_matmul in the given layouts, and the product."""
    a, scale_a, x = quantised(names[0], m, k)
    b, scale_b, y = quantised(names[1], n, k)
    a, b = cp.asarray(a), cp.asarray(b).T
    a = a if layout[0] == "k" else cp.asfortranarray(a)
    b = b if layout[1] == "k" else cp.ascontiguousarray(b)
    arrays = (a, b, cp.asarray(scale_a), cp.asarray(scale_b).T)
    return arrays, dict(zip(("format_a", "format_b"), names, strict=True)), x @ y.T


@pytest.mark.parametrize(
    ("names", "layout", "m", "n", "k"),
    [
        (("e4m3fn", "e4m3fn"), "kk", 300, 129, 384),
        (("e4m3fn", "e5m2"), "mn", 65, 260, 160),
        (("e5m2", "e4m3fn"), "kn", 7, 33, 77),
        (("e2m1", "e2m1"), "kk", 257, 300, 512),
        (("e2m1", "e2m1"), "mn", 40, 24, 32),
        (("e2m1", "e2m1"), "mk", 300, 31, 266),
        (("e2m3", "e3m2"), "kk", 33, 20, 64),
        (("e5m2", "e2m1"), "kn", 20, 36, 100),
        (("e2m1", "e3m2"), "mk", 16, 16, 34),
    ],
)
def test_exact(cp, names, layout, m, n, k):
    """Tails along every axis; rows that do not start at dwords are copied."""
    arrays, formats, expected = operands(cp, names, m, n, k, layout)
    result = cupygemm.scaled_matmul(*arrays, **formats)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(cp.asnumpy(result), expected)


def test_gfx950_multiplies_without_decoding(cp, device, monkeypatch):
    """This includes a k that is no multiple of 32, and operands whose rows are copied."""
    if device.target != "gfx950":
        pytest.skip("gfx950 alone has the instruction")
    monkeypatch.setattr("cupygemm._products.microscaled.scaled_numbers", None)
    for names in (("e5m2", "e4m3fn"), ("e2m1", "e2m1"), ("e2m3", "e2m1")):
        arrays, formats, expected = operands(cp, names, 5, 6, 70, "mn")
        result = cupygemm.scaled_matmul(*arrays, **formats)
        np.testing.assert_array_equal(cp.asnumpy(result), expected)


@pytest.mark.parametrize("names", [("e4m3fn", "e4m3fn"), ("e2m1", "e2m1")])
def test_options_of_matmul(cp, names):
    """The epilogue is that of `matmul`; ``out`` may be transposed, and the stream another one."""
    arrays, formats, expected = operands(cp, names, 40, 50, 128)
    c, bias = RNG.integers(-3, 4, (40, 50)), RNG.integers(-3, 4, 50).astype(np.float32)
    stream = cp.cuda.Stream(non_blocking=True)
    result = cupygemm.scaled_matmul(
        *arrays,
        **formats,
        alpha=2,
        beta=-1,
        c=cp.asarray(c.astype(np.float32)),
        bias=cp.asarray(bias),
        activation="relu",
        dtype=ml_dtypes.bfloat16,
        stream=stream,
    )
    stream.synchronize()
    expected_all = np.maximum(2 * expected - c + bias, 0).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(cp.asnumpy(result), expected_all)
    out = cp.empty((50, 40), np.float16).T
    assert cupygemm.scaled_matmul(*arrays, **formats, out=out) is out
    np.testing.assert_array_equal(cp.asnumpy(out), expected.astype(np.float16))


def test_exponents(cp):
    """From 2**-126 to 2**127, and NaN; a dtype of ml_dtypes replaces a keyword."""
    a = np.ones((3, 64), ml_dtypes.float8_e4m3fn).view(np.uint8)
    scale_a = np.array([[1, 127], [122, 127], [127, 255]], np.uint8)
    scale_b = np.array([[254], [127]], np.uint8)
    a, scale_a, scale_b = (cp.asarray(x) for x in (a, scale_a, scale_b))
    e4m3fn, e8m0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu
    result = cupygemm.scaled_matmul(
        a.view(e4m3fn), a[:1].T.view(e4m3fn), scale_a.view(e8m0), scale_b.view(e8m0)
    )
    np.testing.assert_array_equal(cp.asnumpy(result), np.float32([[64 + 32], [2.0**127], [np.nan]]))


@pytest.mark.parametrize("name", list(ELEMENTS))
def test_every_code(cp, name):
    """A product with ones decodes each code that is a number."""
    codes = np.arange(256 if name[0:2] in ("e4", "e5") else 64 if name != "e2m1" else 16)
    numbers = codes.astype(np.uint8).view(ELEMENTS[name]).astype(np.float64)
    codes = codes[np.isfinite(numbers)].astype(np.uint8)
    one = int(np.ones(1, ELEMENTS[name]).view(np.uint8)[0])
    scales = cp.full((len(codes), 1), 127, np.uint8), cp.full((1, 1), 127, np.uint8)
    result = cupygemm.scaled_matmul(
        cp.asarray(codes[:, None]),
        cp.full((1, 1), one, np.uint8),
        *scales,
        format_a=name,
        format_b=name,
    )
    np.testing.assert_array_equal(cp.asnumpy(result)[:, 0], numbers[np.isfinite(numbers)])


def test_no_k(cp):
    empty = cp.empty((3, 0), np.uint8), cp.empty((0, 4), np.uint8)
    result = cupygemm.scaled_matmul(*empty, *empty, format_a="e2m1", format_b="e2m1")
    np.testing.assert_array_equal(cp.asnumpy(result), np.zeros((3, 4), np.float32))


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"block": 16}, ValueError, "block is 16; with exponents as scales it must be 32"),
        ({"format_a": "e4m3fnuz"}, TypeError, "format_a is 'e4m3fnuz'; with exponents as scales"),
        ({"format_b": None}, TypeError, "b has dtype uint8 and format_b is None"),
        (
            {"format_b": "e2m1", "scale_b": (4, 5)},
            ValueError,
            "64 in a .* 128 in b .* two elements of e2m1",
        ),
        ({"scale_a": (2, 4)}, ValueError, r"scale_a has shape \(2, 4\).*\(4, 2\); pass scale_a.T"),
        ({"scale_b": (2, 4)}, ValueError, r"scale_b has shape \(2, 4\).* must have shape \(2, 5\)"),
        ({"scale_b": 2.0}, TypeError, "scale_b must be exponents too"),
        (
            {"scale_a": 1.0, "scale_b": 1.0, "format_a": "e2m1", "format_b": "e2m1"},
            TypeError,
            "the format requires them",
        ),
    ],
)
def test_errors(cp, change, error, text):
    given = {
        "scale_a": (4, 2),
        "scale_b": (2, 5),
        "format_a": "e5m2",
        "format_b": "e4m3fn",
    } | change
    for key in ("scale_a", "scale_b"):
        if isinstance(given[key], tuple):
            given[key] = cp.full(given[key], 127, np.uint8)
    with pytest.raises(error, match=text):
        cupygemm.scaled_matmul(cp.zeros((4, 64), np.uint8), cp.zeros((64, 5), np.uint8), **given)


@pytest.mark.sweep  # in `make test`, kernels and the page about these formats run on gfx950
def test_on_gfx950(device, run_python):
    """gfx950 multiplies without decoding; the session's device may decode."""
    if not device.emulated or device.target == "gfx950":
        pytest.skip("the other tests are of gfx950, or of a GPU")
    chosen = "without_decoding or exponents"
    code = f"import pytest; raise SystemExit(pytest.main(['-q', '-k', '{chosen}', {__file__!r}]))"
    assert "passed" in run_python(code, target="gfx950")
