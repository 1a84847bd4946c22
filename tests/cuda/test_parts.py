"""Some rows of a product have the bits of the whole, by any kernel that does not split k."""

import itertools

import pytest

import cupygemm
from cupygemm._backends.device import device as device_of
from cupygemm._backends.hopper.choice.select import sums_in_one_order
from cupygemm._distributed.row_products import RowProducts, plan_rows
from cupygemm._request.call import check_call
from cupygemm._request.options import CallOptions


def random(cp, *shape, dtype):
    return cp.random.default_rng(7).standard_normal(shape, dtype="float32").astype(dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_kernels_of_different_tiles_have_the_same_bits(cp, device, dtype):
    if device.target != "sm_90" or device.emulated:
        pytest.skip("the kernels for Hopper multiply on other GPUs in no tiles")
    import ml_dtypes

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    a, b = random(cp, 384, 4096, dtype=kind), random(cp, 4096, 640, dtype=kind)
    request = check_call(a, b, cp.empty((384, 640), kind), given=CallOptions()).request
    backend = device_of(0).kernels
    problem = backend.problem(request)
    configs = [
        candidate.config
        for candidate in backend.candidates(request)
        if sums_in_one_order(candidate.config, problem)
    ]
    tiles = {(c.tile_m, c.tile_n, c.tile_k, c.transposed_c, c.ping_pong): c for c in configs}
    chosen = list(tiles.values())
    results = set()
    for config in itertools.islice(chosen, 0, None, max(1, len(chosen) // 10)):
        out = cp.empty((384, 640), kind)
        backend.launch(request, backend.compile(request, config))(a, b, out)
        results.add(out.get().tobytes())
    assert len(chosen) > 10
    assert len(results) == 1


@pytest.mark.parametrize(("m", "n", "k"), [(4096, 1024, 2048), (1200, 648, 1000)], ids=str)
def test_parts_have_the_bits_of_the_whole(cp, m, n, k):
    a, b = random(cp, m, k, dtype="float16"), random(cp, k, n, dtype="float16")
    bias = random(cp, n, dtype="float32")
    options = {"bias": bias, "activation": "gelu"}
    whole = cupygemm.matmul(a, b, **options)
    for count in (2, 3, 8):
        out = cp.zeros_like(whole)
        ends = [m * i // count for i in range(count + 1)]
        ranges = list(itertools.pairwise(ends))
        pieces = {rows: a[slice(*rows)] for rows in ranges}
        plans = plan_rows(a, b, out, pieces, dtype=None, casting="same_kind", options=options)
        if plans is None:
            continue
        products = RowProducts(plans, pieces, b, out, options)
        for rows in reversed(ranges):
            products.multiply(rows)
        assert (out.view("u2") == whole.view("u2")).all()
