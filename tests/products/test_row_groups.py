"""`grouped_matmul` of groups of rows: sorted by group or in stacks, with scales, on the device."""

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm._backends.device import device as device_of
from cupygemm._records.dtypes import FLOAT8

RNG = np.random.default_rng(0)
BF16 = np.dtype(ml_dtypes.bfloat16)


def integers(shape, dtype=np.float32):
    return RNG.integers(-3, 4, shape).astype(dtype)


def expected_groups(a, b, sizes, *, stacked):
    """Return the rows of each group as an index, and their products in float32."""
    start = 0
    for group, size in enumerate(sizes):
        index = (group, slice(size)) if stacked else slice(start, start := start + size)
        yield index, a[index].astype(np.float32) @ b[group].astype(np.float32)


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("kind", ["list", "numpy", "int32", "int64"])
def test_sizes_on_the_host_and_on_the_device(cp, stacked, kind):
    sizes = [5, 0, 17, 1]
    a, b = (
        integers((4, 20, 24) if stacked else (25, 24), np.float16),
        integers((4, 24, 32), np.float16),
    )
    given = sizes if kind == "list" else np.array(sizes, "int64" if kind == "numpy" else kind)
    if kind.startswith("int"):
        given = cp.asarray(given)
    result = cupygemm.grouped_matmul(cp.asarray(a), cp.asarray(b), sizes=given, expected_rows=8)
    assert (result.shape, result.dtype) == ((*a.shape[:-1], 32), np.float16)
    found = cp.asnumpy(result)
    for index, product in expected_groups(a, b, sizes, stacked=stacked):
        np.testing.assert_array_equal(found[index], product.astype(np.float16))


def test_offsets_are_ends(cp):
    a, b = integers((25, 24), BF16), integers((4, 24, 9), BF16)
    offsets = cp.asarray(np.array([5, 5, 22, 23], np.int32))
    out = cp.full((25, 9), 7, np.float32)
    result = cupygemm.grouped_matmul(
        cp.asarray(a), cp.asarray(b), out, offsets=offsets, dtype=np.float32
    )
    assert result is out
    found = cp.asnumpy(result)
    for index, product in expected_groups(a, b, [5, 0, 17, 1], stacked=False):
        np.testing.assert_array_equal(found[index], product)


def test_sizes_on_the_device_lead_nowhere_else(cp):
    """Sizes that the host cannot check are clamped at the end of the operand."""
    a, b = integers((9, 8), np.float16), integers((3, 8, 16), np.float16)
    sizes = cp.asarray(np.array([4, -7, 2_000_000_000], np.int32))
    found = cp.asnumpy(cupygemm.grouped_matmul(cp.asarray(a), cp.asarray(b), sizes=sizes))
    for index, product in expected_groups(a, b, [4, 0, 5], stacked=False):
        np.testing.assert_array_equal(found[index], product.astype(np.float16))


def test_an_out_of_any_place_may_overlap_the_operands(cp):
    a, b = integers((9, 16)), integers((2, 16, 16))
    both = cp.asarray(a)
    out = both[::-1]
    cupygemm.grouped_matmul(both, cp.asarray(b), out, sizes=[4, 5])
    found = cp.asnumpy(out)
    for index, product in expected_groups(a, b, [4, 5], stacked=False):
        np.testing.assert_array_equal(found[index], product)


def test_empty_operands(cp):
    nothing = cp.zeros((2, 0, 4), np.float16)
    zeros = cupygemm.grouped_matmul(cp.zeros((3, 0), np.float16), nothing, sizes=[1, 2])
    np.testing.assert_array_equal(cp.asnumpy(zeros), np.zeros((3, 4)))
    none = cupygemm.grouped_matmul(
        cp.zeros((3, 4), np.float16), cp.zeros((0, 4, 5), np.float16), sizes=[]
    )
    assert none.shape == (3, 5)


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [
        ("rows", "columns"),
        ("one", "groups"),
        ("blocks", "blocks"),
        ("blocks", "columns of blocks"),
        ("blocks", None),
        ("rows", "blocks"),
    ],
)
def test_scales(cp, stacked, of_a, of_b):
    """Factors are powers of two, so every sum is exact."""
    name = next((n for n in ("e4m3fn", "e4m3fnuz") if n in device_of(0).kernels.formats), None)
    if name is None:
        pytest.skip("the device has no 8-bit floats")
    sizes, k, n = [5, 0, 17], 200, 144
    lead = (3, 20) if stacked else (22,)
    a, b = integers((*lead, k), FLOAT8[name]), integers((3, k, n), FLOAT8[name])

    def powers(*shape):
        return (2.0 ** RNG.integers(-2, 3, shape)).astype(np.float32)

    scale_a = {"rows": powers(*lead), "one": np.float32(2), "blocks": powers(*lead, 2)}[of_a]
    scale_b = {
        "columns": powers(3, n),
        "groups": powers(3),
        "blocks": powers(3, 2, 2),
        "columns of blocks": powers(3, 2, n),
        None: None,
    }[of_b]
    result = cupygemm.grouped_matmul(
        cp.asarray(a.view(np.uint8)),
        cp.asarray(np.ascontiguousarray(b.view(np.uint8).swapaxes(1, 2))).swapaxes(1, 2),
        sizes=cp.asarray(sizes),
        scale_a=float(scale_a) if of_a == "one" else cp.asarray(scale_a),
        scale_b=None if scale_b is None else cp.asarray(scale_b),
        format_a=name,
        format_b=name,
        dtype=np.float32,
    )
    left, right = a.astype(np.float32), b.astype(np.float32)
    left *= (
        scale_a[..., None] if of_a == "rows" else _along(scale_a, -1, k) if of_a == "blocks" else 2
    )
    if of_b == "blocks":
        right *= _along(_along(scale_b, 1, k), 2, n)
    elif of_b == "columns of blocks":
        right *= _along(scale_b, 1, k)
    elif of_b is not None:
        right *= scale_b[:, None, :] if of_b == "columns" else scale_b[:, None, None]
    found = cp.asnumpy(result)
    for index, product in expected_groups(left, right, sizes, stacked=stacked):
        np.testing.assert_array_equal(found[index], product)


def _along(scales, axis, extent):
    return np.repeat(scales, 128, axis=axis).take(range(extent), axis=axis)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"sizes": [3, 4]}, ValueError, r"the groups have 7 rows, and a has 6"),
        ({"sizes": [-1, 4]}, ValueError, r"sizes\[0\] = -1 is negative"),
        ({"offsets": [4, 2]}, ValueError, r"offsets\[1\] = 2 is below the one before it, 4"),
        ({"sizes": [1, 2, 3]}, ValueError, r"sizes has shape \(3,\); it must be \(2,\)"),
        ({"sizes": [1.0, 2.0]}, TypeError, r"sizes has type float64; it must be integers"),
        ({"sizes": [1, 2], "offsets": [1, 3]}, ValueError, r"pass either sizes or offsets"),
        ({"sizes": [1, 2], "expected_rows": 0}, ValueError, r"expected_rows is 0; it must be"),
        ({"sizes": [1, 2], "block": 0}, ValueError, r"block is 0; it must be a positive"),
        ({"scale_a": 2.0}, TypeError, r"scale_a is for groups of rows: pass a as one array"),
    ],
)
def test_errors(cp, given, error, text):
    a, b = cp.zeros((6, 8), np.float16), cp.zeros((2, 8, 4), np.float16)
    with pytest.raises(error, match=f"^grouped_matmul: .*{text}"):
        cupygemm.grouped_matmul(a, b, **given)


def test_errors_of_shapes(cp):
    a, b = cp.zeros((6, 8), np.float16), cp.zeros((2, 8, 4), np.float16)
    with pytest.raises(ValueError, match=r"a has shape \(6, 7\) and b has shape \(2, 8, 4\)"):
        cupygemm.grouped_matmul(a[:, :7], b, sizes=[1, 2])
    with pytest.raises(ValueError, match=r"a has 3 matrices and b has 2"):
        cupygemm.grouped_matmul(cp.zeros((3, 6, 8), np.float16), b, sizes=[1, 2])
    with pytest.raises(ValueError, match=r"offsets are ends of groups in an a of two axes"):
        cupygemm.grouped_matmul(cp.zeros((2, 6, 8), np.float16), b, offsets=[1, 2])
    with pytest.raises(ValueError, match=r"a group has 7 rows, and a has 6"):
        cupygemm.grouped_matmul(cp.zeros((2, 6, 8), np.float16), b, sizes=[1, 7])
    with pytest.raises(ValueError, match=r"scale_a has shape \(5,\); it must be \(6,\) for rows"):
        cupygemm.grouped_matmul(a, b, sizes=[1, 2], scale_a=cp.zeros(5, np.float32))
    with pytest.raises(ValueError, match=r"out has shape \(6, 5\); it must be \(6, 4\)"):
        cupygemm.grouped_matmul(a, b, cp.zeros((6, 5), np.float16), sizes=[1, 2])
