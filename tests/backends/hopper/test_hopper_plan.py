"""Products on Hopper: copies, the kernels that are chosen, records of launches. Needs no GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cupygemm._backends.hopper.backend import HopperBackend
from cupygemm._backends.hopper.choice.configurations import configs_for
from cupygemm._backends.hopper.choice.orientation import as_computed
from cupygemm._backends.hopper.choice.tile_shapes import CONFIGS, TRANSPOSED_CONFIGS
from cupygemm._backends.hopper.compilation.source import add_text
from cupygemm._backends.hopper.cost.memory import memory_cycles
from cupygemm._backends.hopper.cost.model import kernel_cost
from cupygemm._backends.hopper.cost.shapes import row_bytes, shapes_of
from cupygemm._backends.hopper.launch import (
    ADD_ARGS,
    FINISH_ARGS,
    HOPPER_ARGS,
    MIRROR_ARGS,
)
from cupygemm._backends.hopper.operands.copies import (
    PAD_ARGS,
    SPLIT_ARGS,
    TRANSPOSE_ARGS,
    OperandCopy,
)
from cupygemm._backends.hopper.operands.stack import TmaStack
from cupygemm._backends.hopper.other_products.block_scales import SCALE_ARGS
from cupygemm._backends.hopper.other_products.grouped import CAPACITIES, choose_groups, grouped_args
from cupygemm._backends.hopper.other_products.triangle import choose_triangle
from cupygemm._backends.hopper.plan import choose
from cupygemm._backends.hopper.requests import place_request, supports_types
from cupygemm._backends.protocol import DeviceProperties
from cupygemm._backends.registry import backends_for
from cupygemm._build.flatten import device_source
from cupygemm._records.dtypes import FLOAT8
from cupygemm._request.epilogue import epilogue_arguments
from cupygemm._request.layout import Operand
from cupygemm._request.options import Options
from cupygemm._request.request import make_request
from tests.backends.hopper.test_hopper_config import ARCH, PROBLEM

BACKEND = HopperBackend(ARCH)


def layout_of(shape1, shape2, dtype=np.float16, **strided):
    arrays = [np.empty(shape, dtype) for shape in (shape1, shape2)]
    views = [strided.get(name, np.s_[...]) for name in ("x1", "x2")]
    operands = [
        Operand(view.shape, view.strides, view.dtype, view.ctypes.data - array.ctypes.data)
        for array, view in ((a, a[v]) for a, v in zip(arrays, views, strict=True))
    ]
    return place_request(make_request(*operands)).layout


def test_the_records_match_the_device_structs():
    assert HOPPER_ARGS.itemsize == 512
    assert "sizeof(HopperArgs) == 512" in device_source("hopper/arguments.cuh")
    assert PAD_ARGS.itemsize == 152
    assert "sizeof(PadArgs) == 152" in device_source("hopper/pad_copy.cu")
    assert TRANSPOSE_ARGS.itemsize == 72
    assert "sizeof(TransposeArgs) == 72" in device_source("hopper/transpose_copy.cu")
    assert SPLIT_ARGS.itemsize == 72
    assert "sizeof(SplitArgs) == 72" in device_source("hopper/split_copy.cu")
    assert ADD_ARGS.itemsize == 80
    assert "sizeof(AddArgs) == 80" in device_source("hopper/add_parts.cu")
    assert SCALE_ARGS.size == 64
    assert "sizeof(BlockScaleArgs) == 64" in device_source("hopper/arguments.cuh")
    assert FINISH_ARGS.itemsize == 32
    assert "sizeof(FinishArgs) == 32" in device_source("hopper/finish_triangle.cu")
    assert MIRROR_ARGS.itemsize == 24
    assert "sizeof(MirrorArgs) == 24" in device_source("hopper/mirror.cu")
    for capacity, num_bytes in zip(CAPACITIES, (3648, 32512), strict=True):
        assert grouped_args(capacity).itemsize == num_bytes
        assert grouped_args(capacity).fields["first_unit"][1] == 512 * capacity
    assert "sizeof(GroupedArgs<7>) == 3648" in device_source("hopper/arguments.cuh")
    assert "sizeof(GroupedArgs<63>) == 32512" in device_source("hopper/arguments.cuh")
    _, offset = HOPPER_ARGS.fields["stage_bytes"]
    assert offset == 476


def test_operands_that_tma_cannot_read_are_copied():
    choice = choose(layout_of((100, 64), (64, 104)), ARCH, CONFIGS[0])
    assert choice.notes == ()
    choice = choose(layout_of((100, 65), (65, 104)), ARCH, CONFIGS[0])
    assert [note[:11] for note in choice.notes] == ["A is copied"]
    assert "multiples of 2 bytes" in choice.a_copy.reason
    choice = choose(layout_of((4, 64, 64), (4, 64, 64), x1=np.s_[::-1]), ARCH, CONFIGS[0])
    assert "backwards" in choice.a_copy.reason
    assert choice.b_copy is None
    choice = choose(layout_of((64, 64), (64, 63)), ARCH, CONFIGS[0])
    assert choice.b_copy is not None
    assert "C is stored without TMA" in choice.notes[-1]


def test_int8_stays_int8_where_kernels_sum_it_in_int32():
    a, b = (Operand((64, 64), (64, 1), np.dtype(np.int8)) for _ in range(2))
    request = make_request(a, b, options=Options(dtype=np.dtype(np.int32)))
    assert BACKEND.supports(request)
    placement = place_request(request)
    assert (placement.x1_copy, placement.x2_copy) == (None, None)
    problem = placement.layout.problem
    assert (problem.a_dtype, problem.out_dtype) == ("i8", "i32")
    wide = BACKEND.supports(make_request(a, b, options=Options(dtype=np.dtype(np.int64))))
    assert not wide
    assert "no kernel yet for int64 operands" in wide.reason
    choice = choose(placement.layout, ARCH)
    assert choice.config.split_k == 1
    assert choice.a_copy is None
    assert choice.b_copy.transposes
    assert "operands of 8 bits" in choice.notes[0]
    assert choice.geometry().b.adjacent == choice.problem.k


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_bytes_are_multiplied_to_bytes(dtype):
    """Results wrap, so unsigned bytes are multiplied by the instruction for signed ones."""
    a, b = (Operand((64, 64), (64, 1), np.dtype(dtype)) for _ in range(2))
    plain = make_request(a, b)
    problem = BACKEND.problem(plain)
    assert BACKEND.supports(plain)
    assert (problem.a_dtype, problem.out_dtype) == ("i8", "i8")
    options = Options(dtype=np.dtype(dtype), epilogue=epilogue_arguments(alpha=0.5).request)
    scaled = make_request(a, b, options=options)
    if dtype == np.uint8:  # saturates elsewhere than signed bytes do
        assert "with an epilogue" in BACKEND.supports(scaled).reason
    else:
        assert BACKEND.supports(scaled)
        assert BACKEND.problem(scaled).out_dtype == "i8"


def posed_in(precision, m, n, k):
    a, b = (Operand(s, (4 * s[1], 4), np.dtype(np.float32)) for s in ((m, k), (k, n)))
    return place_request(make_request(a, b, options=Options(precision=precision))).layout


def test_fp32_goes_to_cublas_unless_a_precision_is_asked_for():
    x = Operand((64, 64), (256, 4), np.dtype(np.float32))
    assert "precision='tf32x3' is nearly exact" in BACKEND.supports(make_request(x, x)).reason
    choice = choose(posed_in("tf32", 256, 512, 300), ARCH)
    assert not choice.config.promote
    assert "rows begin at multiples" not in str(choice.notes)


@pytest.mark.parametrize(
    ("orders", "dtype", "turned", "majors", "copied"),
    [
        ("CC", "float32", True, ("m", "k"), ""),  # B is the A of the transposed product
        ("CF", "float32", False, ("k", "k"), ""),
        ("FF", "float32", False, ("m", "k"), ""),
        ("FC", "float32", False, ("m", "k"), "B"),
        ("CC", "float16", False, ("k", "k"), "B"),  # blocks of 16 bits are turned from tiles only
    ],
)
def test_tf32_operands_are_copied_only_where_both_lie_across_k(
    orders, dtype, turned, majors, copied
):
    shapes = ((256, 320), (320, 512))
    strides = {"C": lambda s: (4 * s[1], 4), "F": lambda s: (4, 4 * s[0])}
    a, b = (
        Operand(s, strides[o](s), np.dtype(np.float32)) for s, o in zip(shapes, orders, strict=True)
    )
    options = Options(dtype=np.dtype(dtype), casting="unsafe", precision="tf32")
    layout = place_request(make_request(a, b, options=options)).layout
    choice = choose(layout, ARCH)
    assert choice.config.transposed_c == turned
    assert (choice.problem.a_major, choice.problem.b_major) == majors
    assert [note[0] for note in choice.notes] == list(copied)
    geometry = choice.geometry()
    assert (geometry.c.rows, geometry.c.adjacent) == (256, 512)
    assert (geometry.m, geometry.n) == ((512, 256) if turned else (256, 512))
    assert geometry.a.adjacent == (geometry.m if majors[0] == "m" else 320)


def test_a_turned_kernel_takes_the_second_operand_for_its_first():
    config = next(c for c in TRANSPOSED_CONFIGS if (c.tile_m, c.tile_n) == (128, 96))
    layout = layout_of((256, 320), (320, 512))
    choice = choose(layout, ARCH, config)
    plain = choose(layout, ARCH, CONFIGS[0])
    assert (choice.problem.m, choice.problem.n) == (512, 256)
    assert (choice.problem.a_major, choice.problem.b_major) == ("m", "k")
    geometry = choice.geometry()
    assert (geometry.a, geometry.b, geometry.c) == (plain.b, plain.a, plain.c)
    assert "of the transpose of C" in config.summary
    assert config.name.endswith("_t")
    copied = choose(layout_of((256, 321), (321, 512)), ARCH, config)
    assert [note[:11] for note in copied.notes] == ["A is copied"]


def test_a_group_may_be_turned_and_a_triangle_is_not():
    layouts = {i: layout_of((1536, 1536), (1536, 512)) for i in range(3)}
    (group,) = choose_groups(layouts, ARCH)
    assert group.config.transposed_c
    assert all(choice.problem.m == 512 for choice in group.choices)
    operands = (
        Operand((2304, 2304), steps, np.dtype(np.float16)) for steps in ((4608, 2), (2, 4608))
    )
    layout = place_request(make_request(*operands)).layout
    assert choose(layout, ARCH).config.transposed_c
    triangle = choose_triangle(layout, ARCH)
    assert not triangle.config.transposed_c
    assert (triangle.problem.a_major, triangle.problem.b_major) == ("k", "k")


def posed_in_fp64(m, n, k, batch=(), **options):
    a, b = np.empty((*batch, m, k)), np.empty((k, n))
    operands = [Operand(x.shape, x.strides, x.dtype, x.ctypes.data % 16) for x in (a, b)]
    return place_request(make_request(*operands, options=Options(**options)))


@pytest.mark.parametrize(
    ("shape", "ours"),
    [
        ((8192, 8192, 8192), False),
        ((2047, 2049, 2051), True),
        ((2048, 2048, 2048), False),
        ((512, 512, 512), False),
        ((16, 8192, 8192), False),
        ((4095, 4097, 4099), True),
        ((100, 101, 103), False),
    ],
)
def test_cublas_multiplies_fp64_where_it_is_faster(shape, ours):
    layout = posed_in_fp64(*shape).layout
    if ours:
        choice = choose(layout, ARCH)
        assert choice.config.mma_sync
        assert not any("transposed" in note for note in choice.notes)
    else:
        with pytest.raises(ValueError, match=r"cuBLAS multiplies fp64 in \d+ cycles"):
            choose(layout, ARCH)


def test_batches_and_epilogues_of_fp64_are_ours():
    assert choose(posed_in_fp64(512, 512, 512, (64,)).layout, ARCH).config.mma_sync
    with pytest.raises(ValueError, match="cuBLAS multiplies fp64"):
        choose(posed_in_fp64(32, 32, 32, (1000,)).layout, ARCH)
    request = epilogue_arguments(alpha=2.0, activation="gelu").request
    choice = choose(posed_in_fp64(100, 101, 103, epilogue=request).layout, ARCH)
    assert choice.problem.epilogue is not None
    assert choice.problem.out_dtype == "f64"


def test_parts_of_fp64_are_summed_in_fp64():
    layout = posed_in_fp64(256, 250, 4096, (1,)).layout
    choice = choose(layout, ARCH, replace(configs_for("f64")[0], split_k=3))
    workspace = choice.geometry().c
    assert (workspace.dtype, workspace.pitch) == ("f64", 252)
    assert "double" in add_text(choice.problem, vectors=True)


def test_fp32_is_split_in_parts_of_which_three_products_are_one():
    choice = choose(posed_in("tf32x3", 4096, 4096, 4095), ARCH)
    geometry = choice.geometry()
    assert choice.config.promote
    assert choice.problem.k == geometry.a.adjacent == geometry.b.adjacent == 3 * 4096
    assert (choice.a_copy.low_term, choice.b_copy.low_term) == (0, 1)
    assert (choice.a_copy.transposes, choice.b_copy.transposes) == (False, True)
    assert choice.asked.k == 4095
    for shape, why in (
        ((4096, 4096, 8), "k = 8"),
        ((64, 64, 64), "cuBLAS multiplies fp32 exactly"),
        ((65536, 65536, 65536), "would take 96 GiB"),
    ):
        with pytest.raises(ValueError, match=why):
            choose(posed_in("tf32x3", *shape), ARCH)


def test_the_parts_of_a_batch_lie_behind_each_other():
    copy = OperandCopy("", transposes=True, num_terms=3)
    target = copy.target(
        TmaStack(
            dtype="tf32x3", adjacent=13, rows=7, pitch=40, batch=(1, 3, 2), strides=(0, 999, 5)
        )
    )
    assert (target.adjacent, target.rows, target.pitch) == (24, 13, 24)
    assert target.strides == (24 * 13 * 6, 24 * 13 * 2, 24 * 13)


def test_a_padded_stack_has_aligned_rows_and_its_matrices_in_order():
    stack = TmaStack(
        dtype="bf16", adjacent=13, rows=7, pitch=40, batch=(1, 3, 2), strides=(0, -999, 5)
    )
    padded = stack.padded()
    assert padded.pitch == 16
    assert padded.strides == (16 * 7 * 6, 16 * 7 * 2, 16 * 7)
    assert padded.num_bytes == 16 * 7 * 6 * 2
    assert padded.why_not_tma(16) is None


@pytest.mark.parametrize(
    ("adjacent", "pitch"),
    [(500, 504), (513, 576), (2047, 2112), (2048, 2112), (2049, 2112), (6100, 6208), (4090, 4160)],
)
def test_rows_of_copies_are_in_all_slices_of_l2(adjacent, pitch):
    """Rows begin at multiples of 16 bytes; long ones at multiples of 128, but not of 4096."""
    stack = TmaStack(
        dtype="f16", adjacent=adjacent, rows=7, pitch=adjacent, batch=(1, 1, 1), strides=(0, 0, 0)
    )
    assert stack.padded().pitch == pitch
    problem = replace(PROBLEM, k=adjacent, a_align=2)
    computed = as_computed(problem, transposed_c=False)
    assert row_bytes(computed, "a") == 2 * pitch


@pytest.mark.parametrize(
    ("dtype", "adjacent", "stored"),
    [
        ("i8", 160, True),
        ("i8", 161, False),
        ("bf16", 160, True),
        ("bf16", 164, False),
        ("f32", 164, True),
        ("f32", 162, False),
        ("f64", 161, False),
    ],
)
def test_tma_writes_whole_16_bytes_of_rows(dtype, adjacent, stored):
    """So what follows a row in a wider matrix would be lost; it reads elements."""
    stack = TmaStack(
        dtype=dtype, adjacent=adjacent, rows=7, pitch=208, batch=(1, 1, 1), strides=(0, 0, 0)
    )
    assert stack.why_not_tma(16) is None
    assert (stack.why_not_stored(16) is None) == stored
    if not stored:
        assert "TMA writes whole 16" in stack.why_not_stored(16)


def test_a_broadcast_operand_has_one_matrix():
    choice = choose(layout_of((5, 64, 32), (32, 64)), ARCH, CONFIGS[0])
    geometry = choice.geometry()
    assert geometry.a.batch == (1, 1, 5) or geometry.m == 5 * 64
    assert geometry.b.batch == (1, 1, 1)


def test_a_split_product_writes_a_workspace():
    choice = choose(layout_of((256, 8192), (8192, 250)), ARCH)
    assert choice.config.split_k > 1
    workspace = choice.geometry().c
    assert workspace.dtype == "f32"
    assert workspace.pitch == 252
    assert workspace.batch == (1, 1, choice.config.split_k)
    assert choice.geometry().tma_store


def test_other_nvidia_gpus_are_left_to_libraries():
    values = {"major": 8, "minor": 0}
    ampere = DeviceProperties(
        index=0, name="NVIDIA A100", is_hip=False, is_emulated=False, values=values
    )
    *_, backend = backends = backends_for(ampere)
    a = Operand((64, 64), (128, 2), np.dtype(np.float16))
    assert [each.name for each in backends] == ["cublaslt", "modular", "cupy"]
    assert not backends[0].supports(make_request(a, a))
    assert backend.dtype(make_request(a, a)) == np.float16
    wide = Operand((64, 64), (512, 8), np.dtype(np.float64))
    by_residues = make_request(wide, wide, options=Options(precision="int8x14"))
    assert str(backends[1].supports(by_residues).reason).startswith("no kernel for this device")


def test_hopper_says_what_it_has():
    assert BACKEND.formats == ("e4m3fn", "e5m2")
    assert BACKEND.precisions == {"tf32", "tf32x3"}
    for name, has in (("e4m3fn", True), ("e5m2", True), ("e4m3fnuz", False)):
        x = Operand((64, 64), (64, 1), FLOAT8[name])
        assert bool(supports_types(make_request(x, x))) == has


@pytest.mark.slow
def test_a_group_takes_the_configuration_that_suits_all_its_tiles():
    """Few tiles are small and many are large; deep products get a launch of their own."""

    def groups(*shapes):
        layouts = {i: layout_of((m, k), (k, n)) for i, (m, n, k) in enumerate(shapes)}
        return choose_groups(layouts, ARCH)

    (few,) = groups(*[(128, 128, 512)] * 3)
    (many,) = groups(*[(1024, 2048, 512)] * 32)
    assert few.config.tile_m * few.config.tile_n < many.config.tile_m * many.config.tile_n
    assert (few.capacity, many.capacity) == CAPACITIES
    (mixed,) = groups((256, 256, 512), (64, 64, 1 << 16), (256, 256, 1024))
    assert mixed.numbers == (2, 0)  # the deeper one first
    assert all(choice.config == mixed.config for choice in mixed.choices)
    assert mixed.config.split_k == 1
    assert groups((64, 64, 512)) == []  # a launch of its own, as for any product


def test_rows_of_padded_copies_begin_at_lines():
    """Both the copies and the cost model follow this rule; the model charges rows across lines."""
    odd = replace(PROBLEM, m=1023, n=1025, k=1027, a_align=2, b_align=2)
    computed = as_computed(odd, transposed_c=False)
    assert (computed.a_align, computed.b_align) == (128, 128)
    assert as_computed(odd, transposed_c=True).b_align == 128
    short = replace(odd, k=100, n=96)  # whose copies are padded to 16 bytes
    assert as_computed(short, transposed_c=False).a_align == 16
    assert as_computed(replace(odd, a_align=16), transposed_c=False).a_align == 16
    unaware = replace(computed, a_align=16, b_align=16)
    assert memory_cycles(shapes_of(computed)) < memory_cycles(shapes_of(unaware))
    config = CONFIGS[4]
    costs = [kernel_cost(config, problem, ARCH).cycles for problem in (computed, unaware)]
    assert costs[0] < costs[1]
    layout = layout_of((1023, 1027), (1027, 1025))
    for name, copied in (("a", 2), ("b", 2)):
        assert getattr(layout.problem, f"{name}_align") == copied
    choice = choose(layout, ARCH)
    assert choice.a_copy.target(choice.a).pitch * 2 % 128 == 0
    assert choice.problem.a_align == 128
