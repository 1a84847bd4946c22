"""The Hopper kernels on a GPU: each variant exactly, random problems, memory, streams, graphs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cupygemm
from cupygemm import testing
from tests.cuda.variants import product, variants, variants_in_turns

BF16 = np.dtype(ml_dtypes.bfloat16)
F16 = np.dtype(np.float16)
F32 = np.dtype(np.float32)
EXTENT = st.integers(1, 700) | st.integers(1, 80).map(lambda eighth: 8 * eighth)


def on_device(cp, array, order):
    return cp.asarray(np.array(array, order=order))


@pytest.mark.parametrize("variant", list(variants()), ids=lambda variant: variant.name)
@pytest.mark.parametrize("extents", [(64, 64, 392), (513, 784, 1040)])
def test_each_variant_is_exact(cp, variant, extents):
    x1, x2, result = product(variant, *extents)
    testing.assert_gemm_exact(result, x1, x2)


@pytest.mark.parametrize("variant", list(variants_in_turns()), ids=lambda variant: variant.name)
@pytest.mark.parametrize("extents", [(3000, 5000, 200), (1290, 2900, 1500)])
def test_consumers_in_turns_are_exact(cp, variant, extents):
    """Every block has several tiles."""
    m, n, k = extents
    if variant.config.accumulators > 160 and not variant.config.transposed_c:
        n = -(-n // 8) * 8  # no registers are left to store rows that TMA cannot store
    x1, x2, result = product(variant, m, n, k)
    testing.assert_gemm_exact(result, x1, x2)


@settings(max_examples=500)
@given(
    m=EXTENT,
    n=EXTENT,
    k=EXTENT,
    batch=st.sampled_from([((), ()), ((3,), (3,)), ((2, 3), (3,)), ((1,), (4,))]),
    dtype=st.sampled_from([BF16, F16]),
    wide=st.booleans(),
    shift=st.integers(0, 9),
    order=st.sampled_from(["x1", "x2", "both", "neither"]),
    seed=st.integers(0, 1000),
)
def test_random_problems(cp, m, n, k, batch, dtype, wide, shift, order, seed):
    first, second = batch
    x1, x2 = testing.random_operands((*first, m, k), (*second, k, n), dtype, seed=seed)
    a, b = cp.empty((*first, m, k + shift), dtype)[..., shift:], cp.asarray(x2)
    a[...] = cp.asarray(x1)
    if order in ("x1", "both"):
        a = cp.swapaxes(cp.asarray(np.ascontiguousarray(np.swapaxes(x1, -1, -2))), -1, -2)
    if order in ("x2", "both"):
        b = cp.swapaxes(cp.asarray(np.ascontiguousarray(np.swapaxes(x2, -1, -2))), -1, -2)
    result = cupygemm.matmul(a, b, dtype=F32 if wide else dtype)
    testing.assert_gemm_close(result, x1, x2)


@pytest.mark.parametrize(
    ("columns", "pitch"),
    [(96, 120), (97, 121), (128, 152), (97, 120), (98, 128), (101, 136), (124, 160)],
)
@pytest.mark.parametrize("dtype", [F16, F32])
def test_nothing_is_written_beside_the_result(cp, columns, pitch, dtype):
    """TMA would write whole 16 bytes of a row, also where the row ends within them."""
    x1, x2 = testing.integer_operands((70, 90), (90, columns), F16)
    memory = cp.full((80, pitch), 7, dtype)
    out = memory[5:75, 8 : 8 + columns]
    cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), out)
    testing.assert_gemm_exact(out, x1, x2)
    out[...] = 7
    assert (memory == 7).all()


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_what_lies_beside_the_operands_is_not_read(cp, dtype):
    """This includes the rest of the 16 bytes in which a row ends."""
    x1, x2 = testing.integer_operands((70, 161), (161, 91), dtype)
    a, b, c = (cp.full(shape, np.nan, dtype) for shape in ((72, 168), (168, 96), (96, 168)))
    a[1:71, :161], b[:161, :91], c[:91, :161] = (cp.asarray(x) for x in (x1, x2, x2.T))
    testing.assert_gemm_exact(cupygemm.matmul(a[1:71, :161], b[:161, :91], dtype=F32), x1, x2)
    testing.assert_gemm_exact(cupygemm.matmul(a[1:71, :161], c[:91, :161].T, dtype=F32), x1, x2)


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize(
    ("first", "second"),
    [((300, 1040), (1040, 528)), ((129, 131), (131, 77)), ((3, 64, 100), (100, 40)), ((5,), (5,))],
)
def test_int8_is_summed_in_int32(cp, orders, first, second):
    generator = np.random.default_rng(7)
    x1, x2 = (generator.integers(-128, 128, shape, np.int8) for shape in (first, second))
    a, b = (on_device(cp, x, order) for x, order in zip((x1, x2), orders, strict=True))
    result = cupygemm.matmul(a, b, dtype=np.int32)
    assert cupygemm.explain(a, b, dtype=np.int32).backend == "cupygemm"
    assert result.dtype == np.int32
    np.testing.assert_array_equal(
        cp.asnumpy(result), np.matmul(x1.astype(np.int32), x2.astype(np.int32))
    )


def test_int8_into_an_array_of_int32(cp):
    generator = np.random.default_rng(8)
    x1, x2 = (generator.integers(-128, 128, (70, 70), np.int8) for _ in range(2))
    out = cp.zeros((70, 75), np.int32)[:, 2:72]
    cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), out, dtype=np.int32)
    np.testing.assert_array_equal(
        cp.asnumpy(out), np.matmul(x1.astype(np.int32), x2.astype(np.int32))
    )


def test_nan_stays_in_its_row_and_column(cp):
    x1, x2 = testing.integer_operands((300, 200), (200, 300), F16)
    x1[17, 5], x2[9, 250] = np.nan, np.inf
    x1[x1 == 0] = 1
    result = cp.asnumpy(cupygemm.matmul(cp.asarray(x1), cp.asarray(x2)))
    clean = np.delete(np.delete(result, 17, 0), 250, 1)
    assert np.isnan(result[17]).all()
    assert np.isinf(np.delete(result[:, 250], 17)).all()
    assert np.isfinite(clean).all()


def test_a_split_product_is_the_same_bits_each_time(cp):
    x1, x2 = testing.random_operands((256, 16384), (16384, 256), BF16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    assert cupygemm.explain(a, b).config.split_k > 1
    first = cupygemm.matmul(a, b, dtype=F32).tobytes()
    for _ in range(20):
        assert cupygemm.matmul(a.copy(), b, dtype=F32).tobytes() == first
    testing.assert_gemm_close(cupygemm.matmul(a, b), x1, x2)


@pytest.mark.parametrize(("m", "k", "n"), [(256, 128, 256), (255, 127, 257), (63, 8191, 65)])
def test_a_stream_and_a_graph(cp, m, k, n):
    """Products in place, with copied operands, and with k in parts, too."""
    x1, x2 = testing.integer_operands((m, k), (k, n), BF16)
    a, b, out = cp.asarray(x1), cp.asarray(x2), cp.zeros((m, n), BF16)
    cp.cuda.Device().synchronize()
    pool = cp.cuda.MemoryPool()  # that lives as long as the graph
    with cp.cuda.using_allocator(pool.malloc), cp.cuda.Stream(non_blocking=True) as stream:
        cupygemm.matmul(a, b, out)
        out[...] = cp.zeros_like(out)
        stream.begin_capture()
        cupygemm.matmul(a, b, out)
        graph = stream.end_capture()
        for _ in range(3):
            graph.launch()
        stream.synchronize()
    testing.assert_gemm_exact(out, x1, x2)


@pytest.mark.parametrize(("m", "k", "n"), [(255, 127, 257), (63, 8191, 65)])
def test_threads_with_a_stream_each_share_a_plan(cp, m, k, n):
    """Copies and parts lie in memory of their own stream, and launches have their own arguments."""
    pairs = [testing.integer_operands((m, k), (k, n), BF16, seed=seed) for seed in range(4)]
    arrays = [(cp.asarray(x1), cp.asarray(x2)) for x1, x2 in pairs]
    cp.cuda.Device().synchronize()

    def multiply(number):
        with cp.cuda.Stream(non_blocking=True) as stream:
            results = [cupygemm.matmul(*arrays[number]) for _ in range(50)]
            stream.synchronize()
            return [cp.asnumpy(result) for result in results]

    with ThreadPoolExecutor(len(pairs)) as threads:
        for (x1, x2), results in zip(pairs, threads.map(multiply, range(4)), strict=True):
            for result in results:
                testing.assert_gemm_exact(result, x1, x2)


def test_explain_names_the_kernel(cp):
    a = cp.ones((4096, 4096), F16)
    text = str(cupygemm.explain(a, a))
    assert "warp_specialized: tile " in text
    assert "0 B local memory" in text
    assert "copies     none" in text
    odd = cp.ones((4095, 4097), F16)
    assert "copied for TMA" in str(cupygemm.explain(odd, odd.T))
