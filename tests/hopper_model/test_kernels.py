"""The Hopper kernels on the modelled GPU: exact, whatever the order in which its parts run.

On an H200 they are (tests/cuda), so a failure is the model's, or shows what a GPU happened not to.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import testing
from cupygemm._backends.hopper.choice.configurations import configs_for
from cupygemm._backends.hopper.choice.tile_shapes import CONFIGS, PART_CONFIGS
from cupygemm._backends.hopper.operands.copies import OperandCopy
from cupygemm._backends.hopper.operands.stack import TmaStack
from tests.cuda.variants import (
    BF16,
    F16,
    F32,
    F64,
    Variant,
    multiply,
    product,
    variants_in_hilberts_order,
    variants_in_parts,
    variants_in_turns,
    variants_of_halves,
    variants_of_narrow_boxes,
    variants_of_others,
    variants_of_short_sides,
    variants_that_cut_tiles,
    variants_that_turn,
)

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)


def cases() -> Iterator[Variant]:
    """Yield one variant of each configuration for halves, and some of each other type."""
    yield from (
        next(islice(variants_of_halves(), 4 * number + number % 4, None))
        for number in range(len(CONFIGS))
    )
    others: dict[object, list[Variant]] = {}
    for variant in variants_of_others():
        if variant.dtype != F64:
            others.setdefault((variant.dtype, variant.precision), []).append(variant)
    for which, found in enumerate(others.values()):
        yield found[-1 - which % 3]
        if found[0].precision == "tf32":  # A in registers, or B's transpose
            config = replace(found[-2].config, transposed_c=False)
            yield replace(found[-2], orders="FC", config=config)
            yield next(variant for variant in found if variant.config.transposed_c)
    yield from variants_that_cut_tiles()
    yield from variants_that_turn()
    yield from variants_of_short_sides()
    yield from variants_in_parts()
    yield from variants_of_narrow_boxes()


@pytest.mark.slow
@pytest.mark.one_in(4)
@pytest.mark.covering(apart_from=("tile_n", "num_stages", "group_m"))
@pytest.mark.parametrize("variant", list(cases()), ids=lambda variant: variant.name)
def test_each_configuration_is_exact(cp, model, variant):
    config = variant.config
    m = config.tile_m * config.cluster_m + 21
    n = config.tile_n * config.cluster_n + 40
    if config.transposed_c:
        m, n = n, m + 3
    # Enough steps that each block meets every stage of the ring again, in the other phase.
    parts = config.split_k * config.cluster_k
    deep = min(1000, (config.num_stages + 2) * parts * config.tile_k + 8)
    for seed, extents in enumerate([(m, n, 3 * config.tile_k + 8), (5, 9, 400), (m, 64, deep)]):
        model.seed = seed
        x1, x2, result = product(variant, *extents)
        testing.assert_gemm_exact(result, x1, x2)


@pytest.mark.one_in(5)
@pytest.mark.covering(apart_from=("orders", "result", "aligned", "num_stages", "split_k"))
@pytest.mark.parametrize(
    "variant", list(variants_in_hilberts_order()), ids=lambda variant: variant.name
)
def test_hilberts_order_is_exact(cp, model, variant):
    """Producer and consumers walk the same curve, over rectangles that are odd, long and square."""
    rows = variant.config.tile_m * variant.config.cluster_m
    columns = variant.config.tile_n * variant.config.cluster_n
    for seed, (tiles_m, tiles_n) in enumerate([(5, 3), (2, 9), (4, 4)]):
        model.seed = seed
        k = 4 * variant.config.tile_k + 8
        x1, x2, result = product(variant, tiles_m * rows - 9, tiles_n * columns - 24, k)
        testing.assert_gemm_exact(result, x1, x2)


@pytest.mark.one_in(5)
@pytest.mark.covering(
    apart_from=("tile_m", "tile_n", "num_stages", "group_m", "result", "orders", "split_k")
)
@pytest.mark.parametrize("variant", list(variants_in_turns()), ids=lambda variant: variant.name)
def test_consumers_in_turns_are_exact(cp, model, variant):
    """Each block has several tiles, an odd or an even number of them, or one, of few steps or many.

    Fewer steps than the ring has stages, and more, so that a consumer passes over whole rounds.
    """
    config = variant.config
    rows, columns = config.tile_m * config.cluster_m, config.tile_n * config.cluster_n
    if config.transposed_c:
        rows, columns = columns, rows
    deep = (2 * config.num_stages + 3) * config.tile_k * config.split_k
    for seed, (tiles_m, tiles_n, k) in enumerate(
        [(5, 6, 2 * config.tile_k + 8), (3, 3, deep), (1, 1, deep), (3, 5, config.tile_k * 2)]
    ):
        model.seed = seed
        x1, x2, result = product(variant, tiles_m * rows - 9, tiles_n * columns - 24, k)
        testing.assert_gemm_exact(result, x1, x2)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("number", "change", "result", "orders", "aligned"),
    [
        (0, {}, F64, "CC", True),
        (0, {"cluster_m": 2}, F32, "CF", True),
        (1, {}, F64, "FC", False),
        (2, {"split_k": 2}, F64, "FF", True),
        (2, {"cluster_n": 2}, F64, "FF", True),
        (3, {}, F64, "CF", False),
    ],
)
def test_fp64_is_exact(cp, model, number, change, result, orders, aligned):
    config = replace(configs_for("f64")[number], **change)
    m, n = config.tile_m * config.cluster_m + 21, config.tile_n * config.cluster_n + 40
    variant = Variant(config, F64, result, orders, aligned=aligned)
    for seed, extents in enumerate([(m, n, 3 * config.tile_k + 8), (5, 9, 100), (m, 16, 7)]):
        model.seed = seed
        if extents[2] >= config.tile_k * config.split_k:
            x1, x2, product_ = product(variant, *extents)
            testing.assert_gemm_exact(product_, x1, x2)


def test_batches_of_fp64_in_one_launch(cp, model):
    x1, x2 = testing.random_operands((2, 1, 3, 9, 50), (4, 1, 50, 13), F64)
    a, b = cp.asarray(x1), cp.asarray(x2)
    variant = Variant(configs_for("f64")[3], F64, F64, "CC", aligned=True)
    for seed in range(2):
        model.seed = seed
        testing.assert_gemm_close(multiply(variant, a, b), x1, x2)


@pytest.mark.covering
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((3, 2, 70, 40), (2, 40, 72)),
        ((2, 1, 3, 9, 64), (4, 1, 64, 8)),
        ((1, 8, 1), (5, 1, 16)),
        ((5,), (5,)),
    ],
)
def test_batches(cp, model, first, second, seed):
    model.seed = seed
    x1, x2 = testing.integer_operands(first, second, F16)
    testing.assert_gemm_exact(cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), dtype=F32), x1, x2)


def test_strides_that_tma_cannot_take(cp, model):
    x1, x2 = testing.integer_operands((6, 33, 47), (3, 47, 71), F16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    for first, second in (
        (np.s_[:3, ::-1], np.s_[...]),
        (np.s_[::-2, :, 1:], np.s_[:, 1:, ::-1]),
        (np.s_[1:4, 3:, 5::3], np.s_[::-1, :42:3, 8:]),
    ):
        result = cupygemm.matmul(a[first], b[second])
        testing.assert_gemm_exact(result, x1[first], x2[second])


@pytest.mark.parametrize("dtype", [F16, F32])
def test_nothing_is_written_beside_the_result(cp, model, dtype):
    x1, x2 = testing.integer_operands((70, 90), (90, 161), F16)
    for pitch in (188, 193, 200):  # rows that begin at some, all, and one of 16 bytes' elements
        memory = cp.full((80, pitch), 7, dtype)
        for column in (8, 9):
            out = memory[5:75, column : column + 161]
            cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), out)
            testing.assert_gemm_exact(out, x1, x2)
            out[...] = 7
            assert (memory == 7).all()


@pytest.mark.parametrize(
    ("rows", "adjacent"), [(1, 1), (70, 7), (5, 300), (3, 4099), (9, 2048), (2, 9000)]
)
@pytest.mark.parametrize("itemsize", [1, 2, 4])
def test_the_padding_copy(cp, model, rows, adjacent, itemsize):
    """Rows begin anywhere; a block of threads copies several rows, or several blocks copy one."""
    dtype = np.dtype(f"u{itemsize}")
    generator = np.random.default_rng(rows)
    memory = generator.integers(0, 256, (2, rows, adjacent + 5), np.uint8).astype(dtype)
    source = cp.asarray(memory)[:, :, 3 : 3 + adjacent]
    name = {1: "e4m3fn", 2: "bf16", 4: "tf32"}[itemsize]
    pitch, matrix = adjacent + 5, rows * (adjacent + 5)
    stack = TmaStack(
        dtype=name,
        adjacent=adjacent,
        rows=rows,
        pitch=pitch,
        batch=(1, 1, 2),
        strides=(0, 0, matrix),
    )
    copy = OperandCopy("").launch(stack)
    padded = stack.padded()
    target = cp.zeros((2, rows, padded.pitch), dtype)
    assert target.nbytes == copy.num_bytes
    copy(source.data.ptr, target.data.ptr)
    np.testing.assert_array_equal(
        cp.asnumpy(target)[:, :, :adjacent], memory[:, :, 3 : 3 + adjacent]
    )


@pytest.mark.parametrize(
    ("rows", "adjacent"), [(1, 1), (70, 7), (130, 300), (127, 129), (256, 128), (9, 515), (4096, 5)]
)
@pytest.mark.parametrize("column", [0, 3])
def test_the_transposing_copy(cp, model, rows, adjacent, column):
    """Whole and partial tiles, with rows that begin at multiples of 16 bytes or anywhere."""
    generator = np.random.default_rng(rows)
    pitch = -(-adjacent // 16) * 16 + column
    memory = generator.integers(1, 256, (2, rows, pitch), np.uint8)
    source = cp.asarray(memory)[:, :, column:]
    stack = TmaStack(
        dtype="i8",
        adjacent=adjacent,
        rows=rows,
        pitch=pitch,
        batch=(1, 1, 2),
        strides=(0, 0, rows * pitch),
    )
    turned = OperandCopy("", transposes=True)
    copy, target = turned.launch(stack), turned.target(stack)
    result = cp.full((2, adjacent, target.pitch), 255, np.uint8)
    assert result.nbytes == copy.num_bytes
    copy(source.data.ptr, result.data.ptr)
    whole = -(-rows // 16) * 16
    expected = np.zeros((2, adjacent, whole), np.uint8)  # what k lacks of a vector is zeros
    expected[:, :, :rows] = memory[:, :, column : column + adjacent].swapaxes(1, 2)
    np.testing.assert_array_equal(cp.asnumpy(result)[:, :, :whole], expected)


def test_both_operands_are_padded_by_one_launch(cp, model):
    """This includes a broadcast operand, and operands long enough for several blocks."""
    for first, second in (((3, 2, 33, 47), (2, 47, 71)), ((99, 389), (389, 77))):
        x1, x2 = testing.integer_operands(first, second, F16)
        a, b = cp.asarray(x1), cp.asarray(x2)
        before = model.num_launches
        result = cupygemm.matmul(a, b)
        assert model.num_launches - before == 2
        testing.assert_gemm_exact(result, x1, x2)


@pytest.mark.slow
@pytest.mark.parametrize("config", [replace(CONFIGS[-1], split_k=5), PART_CONFIGS[-1]])
def test_parts_of_k_are_added_in_their_order(cp, model, config):
    x1, x2 = testing.random_operands((60, 4000), (4000, 60), BF16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    explained = cupygemm.explain(a, b).config
    assert explained.split_k > 1 or explained.cluster_k > 1
    variant, results = Variant(config, BF16, F32, "CC", aligned=True), []
    for seed in range(4):
        model.seed = seed
        results.append(multiply(variant, a, b).get())
    assert all(np.array_equal(results[0], result) for result in results)
    testing.assert_gemm_close(results[0], x1, x2)


def test_a_thread_that_made_no_call_before(cp, model):
    """It has no context, which the driver does not give it."""
    x1, x2 = testing.integer_operands((70, 90), (90, 50), F16)
    a, b = cp.asarray(x1), cp.asarray(x2)
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(cupygemm.matmul, a, b).result()
    testing.assert_gemm_exact(result, x1, x2)


def test_a_cut_tile_is_the_same_bits_each_time(cp, model):
    """Each part is added once, although adding clusters may run before those that store parts."""
    variant = Variant(replace(CONFIGS[-1], stream_k=4), F16, F32, "CC", aligned=True)
    x1, x2 = testing.random_operands((150, 700), (700, 130), F16, seed=3)
    results = []
    for seed in range(3):
        model.seed = seed
        results.append(multiply(variant, cp.asarray(x1), cp.asarray(x2)).get())
        testing.assert_gemm_close(results[-1], x1, x2)
    assert all(np.array_equal(results[0], result) for result in results)


def test_sums_of_8_bit_floats_and_of_tf32(cp, model):
    x1, x2 = testing.random_operands((40, 300), (300, 50), E4M3)
    a, b = (cp.asarray(x.view(np.uint8)) for x in (x1, x2))
    result = cupygemm.matmul(a, b, format_a="e4m3fn", format_b="e4m3fn")
    testing.assert_gemm_close(result, x1, x2)
    x1, x2 = testing.random_operands((40, 300), (300, 50), F32)
    result = cupygemm.matmul(cp.asarray(x1), cp.asarray(x2), precision="tf32")
    testing.assert_gemm_close(result, x1, x2, precision="tf32")
