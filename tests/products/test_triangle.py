"""`syrk` by one triangle: the same results, half of the multiplications, and when it is chosen."""

import dataclasses
import itertools

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm._backends.cdna import triangle
from cupygemm._backends.device import device as device_of
from cupygemm._plan.table import PLANS
from cupygemm._request.layout import contiguous
from cupygemm._request.request import make_request

RNG = np.random.default_rng(0)
BF16 = ml_dtypes.bfloat16


@pytest.fixture
def panels_of_64(cp, monkeypatch):
    """Use small panels, which the emulated device multiplies quickly, regardless of the model."""
    if device_of(0).kernels.name != "cdna":
        pytest.skip("other backends do not compute panels")
    monkeypatch.setattr(triangle, "PANEL_ROWS", 64)
    monkeypatch.setattr(triangle, "triangle_pays", lambda *args, **options: True)
    PLANS.clear()
    yield
    PLANS.clear()


def integers(cp, shape, dtype):
    values = RNG.integers(-3, 4, shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * RNG.integers(-3, 4, shape)
    return cp.asarray(values.astype(dtype))


def exact(array, kind=np.float64):
    """Return an array on the host, in a type that holds all sums."""
    array = array.get() if hasattr(array, "get") else array
    return array.astype(np.complex128 if array.dtype.kind == "c" else kind)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("dtype", "result"),
    [
        (np.float16, np.float32),
        (np.float32, None),
        (np.float64, None),
        (np.complex64, None),
        (BF16, np.float32),
        (BF16, None),
    ],
)
def test_both_triangles_are_right(cp, panels_of_64, dtype, result):
    a = integers(cp, (200, 30), dtype)
    expected = exact(a) @ exact(a).T
    product = cupygemm.syrk(1, a, dtype=result)
    assert product.dtype == (dtype if result is None else result)
    np.testing.assert_array_equal(exact(product), exact(expected.astype(product.dtype)))
    turned = cupygemm.syrk(1, a.T, trans=True, dtype=result)
    np.testing.assert_array_equal(exact(turned), exact(product))


@pytest.mark.slow
def test_factors_and_an_addend_that_is_not_symmetric(cp, panels_of_64):
    a, c = integers(cp, (130, 16), np.float16), integers(cp, (130, 130), np.float32)
    expected = 2 * exact(a) @ exact(a).T - 3 * exact(c)
    result = cupygemm.syrk(2, a, -3, c, dtype=np.float32)
    np.testing.assert_array_equal(exact(result), expected)
    assert cupygemm.syrk(2, a, -3, c, out=c) is c
    np.testing.assert_array_equal(exact(c), expected)
    rounded = cupygemm.syrk(2**-4, a)
    np.testing.assert_array_equal(exact(rounded), exact(a) @ exact(a).T / 16)


def test_out_of_any_strides_that_overlaps_the_operand(cp, panels_of_64):
    block = cp.full((140, 290), 9, np.float32)
    a, out = block[:130, :16], block[5:135, 20:280:2]
    a[...] = integers(cp, (130, 16), np.float32)
    expected = exact(a) @ exact(a).T
    assert cupygemm.syrk(1, a, out=out) is out
    np.testing.assert_array_equal(exact(out), expected)
    block[5:135, 20:280:2] = 9
    assert (cp.asnumpy(block[:, 16:]) == 9).all()
    inside = block[:130, 8:138]
    values = a.copy()
    cupygemm.syrk(1, a, out=inside)
    np.testing.assert_array_equal(exact(inside), exact(values) @ exact(values).T)


def test_half_of_the_multiplications(cp, device, panels_of_64, monkeypatch):
    """Eight panels: 36 of 64 blocks, in one launch, and one that mirrors them."""
    if not device.emulated:
        pytest.skip("only the emulated device counts")
    a = integers(cp, (512, 128), np.float16)
    with cupygemm.emulator.profile() as profile:
        cupygemm.syrk(1, a, dtype=np.float32)
    assert [kernel.launches for kernel in profile.kernels] == [1, 1]
    assert sum(profile.kernels[0].matrix_flop.values()) == 2 * 512 * 512 * 128 * 36 / 64


def test_refusals_are_those_of_the_plain_product(cp, panels_of_64):
    a, out = integers(cp, (130, 16), np.float32), cp.full((130, 129), 9, np.float32)
    with pytest.raises(ValueError, match=r"out has shape \(130, 129\)"):
        cupygemm.syrk(1, a, out=out)
    with pytest.raises(TypeError, match="cannot cast"):
        cupygemm.syrk(1, a, out=cp.zeros((130, 130), np.int32))
    with pytest.raises(ValueError, match="c has shape"):
        cupygemm.syrk(1, a, 1, out)
    assert (cp.asnumpy(out) == 9).all()


@pytest.mark.slow
def test_the_model_takes_a_triangle_of_many_tiles_only(cp):
    """Few tiles leave compute units idle, and a plain product uses them for parts of k."""
    backend = device_of(0).kernels
    if backend.name != "cdna":
        pytest.skip("other backends do not compute panels")

    def has_triangle(n, dtype, k=4096):
        x = contiguous((n, k), np.dtype(dtype))
        transposed = dataclasses.replace(x, shape=(k, n), strides=x.strides[::-1])
        return backend.triangle(make_request(x, transposed)) is not None

    for dtype in (BF16, np.float32):
        assert not has_triangle(512, dtype)
        assert has_triangle(16384, dtype)
    assert not has_triangle(16384, np.int8)
    assert not has_triangle(16384, np.int32)


@pytest.mark.parametrize("rows", [511, 512, 3000, 16384, 100_000])
def test_panels_are_the_rows_in_order(rows):
    edges = triangle.panel_edges(rows)
    assert len(edges) <= triangle.MAX_PANELS
    assert (edges[0][0], edges[-1][1]) == (0, rows)
    assert all(one[1] == other[0] for one, other in itertools.pairwise(edges))
    assert all((last - first) % triangle.PANEL_ROWS == 0 for first, last in edges[:-1])
