"""Products by some rows at a time have the bits of the whole product, or say that they cannot."""

import itertools
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm._backends.device import device as device_of
from cupygemm._distributed.row_products import RowProducts, plan_rows
from cupygemm._plan.plan import choose
from cupygemm._request.call import check_call
from cupygemm._request.options import CallOptions

RNG = np.random.default_rng(5)
SHAPES = [(96, 40, 200), (33, 17, 2100)]
"""m, n and k; k of the second is split over workgroups."""


def array(cp, *shape, dtype="float32"):
    values = RNG.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * RNG.standard_normal(shape)
    return cp.asarray((values * 4).astype(dtype))


def by_rows(cp, a, b, dtype=None, parts=3, **options):
    """Return the product by parts, the last first, and whether that was possible."""
    expected = cupygemm.matmul(a, b, dtype=dtype, **options)
    out = cp.zeros_like(expected)
    ends = np.linspace(0, len(a), parts + 1).astype(int).tolist()
    ranges = list(itertools.pairwise(ends))
    pieces = {rows: a[slice(*rows)] for rows in ranges}
    plans = plan_rows(a, b, out, pieces, dtype=dtype, casting="same_kind", options=options)
    if plans is None:
        return False
    products = RowProducts(plans, pieces, b, out, options)
    for rows in reversed(ranges):
        products.multiply(rows)
    np.testing.assert_array_equal(out.get().view("u1"), expected.get().view("u1"))
    return True


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, "float32", "complex64"], ids=str)
def test_rows_have_the_bits_of_the_whole(cp, device, shape, dtype):
    m, n, k = shape
    possible = by_rows(cp, array(cp, m, k, dtype=dtype), array(cp, k, n, dtype=dtype))
    assert possible or not device.emulated


def test_epilogues_are_cut_by_rows(cp, device):
    m, n, k = SHAPES[0]
    a, b = array(cp, m, k, dtype="float16"), array(cp, k, n, dtype="float16")
    possible = by_rows(
        cp,
        a,
        b,
        dtype="float32",
        alpha=0.5,
        scale_a=array(cp, m),
        scale_b=array(cp, n),
        c=array(cp, m, n),
        beta=2,
        bias=array(cp, m, 1),
        activation="gelu",
        clamp=(-9, None),
    )
    assert possible or not device.emulated


def test_what_cannot_be_cut_has_no_plans(cp):
    assert not by_rows(cp, cp.ones((6, 0), "f"), cp.ones((0, 3), "f"))
    assert not by_rows(cp, cp.ones((6, 4), "f"), cp.ones((4, 0), "f"))


def test_another_split_of_k_has_other_bits(cp, device):
    """The tests above could fail: k of their second shape is split, and the split shows."""
    if not device.emulated:
        pytest.skip("the choice depends on the device; the emulated one's is tested")
    m, n, k = SHAPES[1]
    a, b = array(cp, m, k), array(cp, k, n)
    call = check_call(a, b, given=CallOptions())
    backend, whole = choose(call.request, device_of(0))
    assert whole.config.split_k > 1
    other = backend.compile(call.request, replace(whole.config, split_k=1))
    results = [backend.launch(call.request, each)(a, b, None).get() for each in (whole, other)]
    assert (results[0] != results[1]).any()


def test_stream_k_is_not_cut(cp, device):
    if not device.emulated:
        pytest.skip("a configuration of the emulated device is altered")
    a, b = cp.ones((200, 64), "float16"), cp.ones((64, 64), "float16")
    place = device_of(0)
    request = check_call(a, b, cp.empty((200, 64), "float16"), given=CallOptions()).request
    backend, whole = choose(request, place)
    assert backend.part(request, whole) is not None
    streamed = replace(whole, config=replace(whole.config, stream_k=3))
    assert backend.part(request, streamed) is None
    wider = check_call(a, cp.ones((64, 65), "float16"), given=CallOptions()).request
    assert backend.part(wider, whole) is None
