"""The GEMM kernels as NVRTC compiles them for sm_90a: what they take from an SM. Needs no GPU.

Every configuration is compiled with two sets of majors, types and ways to store, dealt so that each
meets each kind of tile. The compiler's log must be empty.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cupygemm._backends.hopper.choice.check import check
from cupygemm._backends.hopper.choice.configurations import (
    configs_for,
    in_turns,
    short_widths,
    transposed_widths,
)
from cupygemm._backends.hopper.choice.tile_shapes import (
    CONFIGS,
    NARROW_CONFIGS,
    PART_CONFIGS,
    PING_PONG_CONFIGS,
    SCALED_CONFIGS,
    TRANSPOSED_CONFIGS,
    TRANSPOSED_PART_CONFIGS,
    TRANSPOSED_PING_PONG_CONFIGS,
)
from cupygemm._backends.hopper.compilation.source import generate
from cupygemm._backends.hopper.config import HopperArch, HopperConfig
from cupygemm._backends.hopper.other_products.block_scales import scaled_configs
from cupygemm._backends.scales_and_groups import BlockScaling
from cupygemm._records.dtypes import DType
from cupygemm._records.problem import Epilogue, GemmProblem, Source
from tests.kernels.hopper_cubins import EVERYTHING, PROBLEM, assert_fits, compiled

pytestmark = pytest.mark.one_in(83)  # a compilation takes 0.6 s of processor time

FP64 = replace(PROBLEM, a_dtype="f64", b_dtype="f64", out_dtype="f64")
FP64_EVERYTHING = Epilogue(
    alpha=True,
    scale_a=Source("f64", "row"),
    scale_b=Source("f64", "column"),
    c=Source("f64", "matrix"),
    bias=Source("f64", "column"),
    activation="silu",
    scale_out=Source("f64", "one"),
    clamp=True,
)
TRANSPOSED = (*TRANSPOSED_CONFIGS, *transposed_widths())
BIAS = Epilogue(bias=Source("bf16", "column"), activation="gelu")


def variants() -> list[object]:
    """Return each configuration with two kinds of operands and results."""
    found = []
    for number, config in enumerate(CONFIGS):
        for turn in range(2):
            which = number + 2 * turn
            dtype = ("bf16", "f16")[which % 2]
            problem = replace(
                PROBLEM,
                a_dtype=dtype,
                b_dtype=dtype,
                out_dtype=(dtype, "f32")[(number + turn) % 2],
                a_major=("k", "m")[which // 2 % 2],
                b_major=("n", "k")[number % 2],
                batch=((), (2, 3))[turn],
            )
            split = 2 if turn and number % 3 == 0 else 1
            chosen = replace(config, split_k=split)
            tma_store = (number + turn) % 4 != 3
            name = f"{chosen.name}-{problem.a_major}{problem.b_major}-{problem.out_dtype}"
            found.append(pytest.param(chosen, problem, tma_store, id=name))
    return found


@pytest.mark.parametrize(("config", "problem", "tma_store"), variants())
def test_nothing_spills(config: HopperConfig, problem: GemmProblem, tma_store: bool) -> None:
    assert check(config, problem, HopperArch()) is None
    text = generate(problem, config, tma_store=tma_store)
    assert_fits(text, config)


@pytest.mark.parametrize("config", configs_for("i8")[1::4], ids=lambda config: config.name)
@pytest.mark.parametrize("tma_store", [True, False])
def test_int8_does_not_spill(config: HopperConfig, tma_store: bool) -> None:
    problem = replace(PROBLEM, a_dtype="i8", b_dtype="i8", out_dtype="i32", b_major="k")
    assert check(config, problem, HopperArch()) is None
    assert_fits(generate(problem, config, tma_store=tma_store), config)


@pytest.mark.sweep
@pytest.mark.parametrize("number", range(1, len(CONFIGS), 3))
@pytest.mark.parametrize("dtype", ["i8", "e4m3fn"])
def test_results_of_bytes_do_not_spill(dtype: DType, number: int) -> None:
    """Half of them with an epilogue, and some stored without TMA."""
    configs = configs_for(dtype)
    config = configs[number % len(configs)]
    fused = number % 2 == 1 and config.num_consumers < 3
    problem = replace(
        PROBLEM,
        a_dtype=dtype,
        b_dtype=dtype,
        b_major="k",
        out_dtype="u8" if fused and dtype == "i8" else dtype,
        epilogue=EVERYTHING if fused else None,
    )
    assert check(config, problem, HopperArch()) is None
    compiled(generate(problem, config, tma_store=number % 4 != 1))


@pytest.mark.parametrize(
    "config",
    [config for config in configs_for("i8") if config.num_consumers == 3],
    ids=lambda config: config.name,
)
def test_three_consumers_store_rows_of_bytes_without_spills(config: HopperConfig) -> None:
    """Their lanes have the fewest registers, and without TMA rows of bytes take the most."""
    problem = replace(PROBLEM, a_dtype="i8", b_dtype="i8", out_dtype="i8", b_major="k")
    compiled(generate(problem, config, tma_store=False))


@pytest.mark.parametrize(
    ("types", "number"),
    [
        *((("e4m3fn", "e5m2"), number) for number in range(len(configs_for("e4m3fn")))),
        *((("tf32", "tf32"), number) for number in range(0, len(configs_for("tf32")), 3)),
        (("tf32x3", "tf32x3"), 1),
        (("e5m2", "e4m3fn"), 0),
    ],
)
def test_other_floats_do_not_spill(types: tuple[DType, DType], number: int) -> None:
    config = configs_for(types[0])[number]
    problem = replace(
        PROBLEM,
        a_dtype=types[0],
        b_dtype=types[1],
        out_dtype=("bf16", "f32")[number % 2],
        b_major="k",
    )
    assert check(config, problem, HopperArch()) is None
    text = generate(problem, config, tma_store=number % 3 != 1)
    assert_fits(text, config)


@pytest.mark.parametrize(
    ("number", "transposed_c"),
    [*((number, True) for number in range(len(configs_for("tf32")))), (1, False), (5, False)],
)
def test_an_a_in_registers_does_not_spill(number: int, transposed_c: bool) -> None:
    config = replace(configs_for("tf32")[number], transposed_c=transposed_c)
    problem = replace(
        PROBLEM,
        a_dtype="tf32",
        b_dtype="tf32",
        a_major="m",
        b_major="k",
        out_dtype="f32" if transposed_c else "bf16",
    )
    refusal = check(config, problem, HopperArch())
    if refusal is not None:
        assert (config.tile_m, config.cluster_m) == (256, 2), refusal
        pytest.skip(refusal)
    text = generate(problem, config, tma_store=number % 3 != 1)
    assert_fits(text, config)


@pytest.mark.sweep
@pytest.mark.parametrize("number", range(len(NARROW_CONFIGS)))
@pytest.mark.parametrize("turn", range(3))
def test_narrow_boxes_do_not_spill(number: int, turn: int) -> None:
    """Each configuration is compiled plain, with k in parts, and with a complete epilogue."""
    config = NARROW_CONFIGS[number]
    if turn == 1:
        config = replace(config, stream_k=HopperArch().num_clusters(config.cluster_size))
    problem = replace(
        PROBLEM,
        m=3300,
        n=5100,
        a_major="km"[number % 2],
        b_major="nnk"[(number + turn) % 3],
        out_dtype=("bf16", "f32", "e4m3fn")[(number + turn) % 3],
        epilogue=EVERYTHING if turn == 2 else None,
    )
    if config.tile_n % 16:
        problem = replace(problem, b_major="k", out_dtype=("bf16", "f32", "f16")[turn])
    objection = check(config, problem, HopperArch())
    if objection is not None:
        assert turn > 0
        assert "registers" in objection
        return
    text = generate(problem, config, tma_store=(number + turn) % 4 != 1)
    assert_fits(text, config)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(TRANSPOSED)))
def test_turned_results_do_not_spill(number: int) -> None:
    """This includes cut tiles, tiles of three consumers, and the widest tiles."""
    config = TRANSPOSED[number]
    cut = replace(config, stream_k=132 // config.cluster_size)
    problem = replace(
        PROBLEM,
        m=3000,
        n=5000,
        a_major="mk"[number % 2],
        b_major="k",
        out_dtype=("bf16", "f16")[number // 2 % 2],
        batch=((), (2, 3))[number % 2],
    )
    assert check(config, problem, HopperArch()) is None
    if check(cut, problem, HopperArch()) is None and (number % 3 == 0 or config.accumulators > 104):
        config = cut
    text = generate(problem, config, tma_store=number % 4 != 3)
    assert_fits(text, config)


@pytest.mark.parametrize("number", range(len(short_widths())))
def test_tiles_for_short_sides_do_not_spill(number: int) -> None:
    """This includes cut tiles, every order of memory, epilogues, and stores without TMA."""
    config = short_widths()[number]
    fused = number % 3 == 0 and not config.transposed_c and config.num_consumers < 3
    problem = replace(
        PROBLEM,
        a_major="km"[number % 2],
        b_major="kn"[number // 2 % 2],
        epilogue=EVERYTHING if fused else None,
        batch=(2, 3),
    )
    assert check(config, problem, HopperArch()) is None
    cut = replace(config, stream_k=132)
    if number % 3 == 1 and check(cut, problem, HopperArch()) is None:
        config = cut
    assert_fits(generate(problem, config, tma_store=number % 4 != 3), config)


@pytest.mark.parametrize("config", [*PART_CONFIGS, *TRANSPOSED_PART_CONFIGS], ids=lambda c: c.name)
@pytest.mark.parametrize("fused", [False, True])
def test_exchanges_of_sums_do_not_spill(config: HopperConfig, fused: bool) -> None:
    problem = replace(
        PROBLEM,
        a_major="km"[config.cluster_n % 2],
        b_major="k" if config.transposed_c else "n",
        epilogue=EVERYTHING if fused else None,
    )
    objection = check(config, problem, HopperArch())
    if objection is not None:
        assert fused
        assert "epilogue" in objection
        return
    text = generate(problem, config, tma_store=config.tile_n % 3 > 0)
    assert_fits(text, config)


@pytest.mark.parametrize("config", PING_PONG_CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("tma_store", [True, False])
def test_turns_do_not_spill(config: HopperConfig, tma_store: bool) -> None:
    """Their consumers have up to 192 sums a thread; rows that are stored without TMA take more."""
    problem = replace(
        PROBLEM,
        a_major="k" if tma_store else "m",
        b_major="k" if config.tile_n == 176 or config.tile_n % 16 else "n",
        out_dtype="bf16" if tma_store else "f32",
        batch=((2, 3), ())[tma_store],
        c_align=16 if tma_store else 4,
    )
    objection = check(config, problem, HopperArch())
    if objection is not None:
        assert (config.tile_n, tma_store) == (192, False), objection
        assert "rows without TMA" in objection
        return
    assert_fits(generate(problem, config, tma_store=tma_store), config)


@pytest.mark.parametrize("number", range(len(in_turns("tf32"))))
@pytest.mark.parametrize(
    ("dtype", "result", "fused", "tma_store"),
    [
        ("tf32", "f32", False, True),
        ("tf32", "bf16", False, False),
        ("i8", "i32", False, False),
        ("i8", "i8", False, True),
        ("i8", "u8", True, True),
    ],
)
def test_turns_of_other_types_do_not_spill(
    dtype: DType, result: DType, fused: bool, tma_store: bool, number: int
) -> None:
    config = in_turns(dtype)[number]
    problem = replace(
        PROBLEM,
        a_dtype=dtype,
        b_dtype=dtype,
        b_major="k",
        out_dtype=result,
        c_align=16 if tma_store else 1,
        epilogue=EVERYTHING if fused else None,
    )
    objection = check(config, problem, HopperArch())
    if objection is not None:
        assert config.accumulators > 128, objection
        assert fused or not tma_store
        return
    assert_fits(generate(problem, config, tma_store=tma_store), config)


@pytest.mark.parametrize("config", TRANSPOSED_PING_PONG_CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("tma_store", [True, False])
def test_turned_turns_do_not_spill(config: HopperConfig, tma_store: bool) -> None:
    problem = replace(
        PROBLEM, a_major="m", b_major="k", out_dtype="f16", batch=((), (2, 3))[tma_store]
    )
    assert check(config, problem, HopperArch()) is None
    assert_fits(generate(problem, config, tma_store=tma_store), config)


@pytest.mark.parametrize("number", range(0, len(CONFIGS), 2))
@pytest.mark.parametrize("special", [{"group_capacity": 63}, {"lower_triangle": True}])
def test_groups_and_triangles_do_not_spill(number: int, special: dict[str, int]) -> None:
    config = CONFIGS[number]
    text = generate(PROBLEM, config, tma_store=number % 3 != 1, **special)
    assert_fits(text, config)


@pytest.mark.sweep
@pytest.mark.parametrize("config", TRANSPOSED_CONFIGS[1::5], ids=lambda config: config.name)
def test_turned_groups_do_not_spill(config: HopperConfig) -> None:
    problem = replace(PROBLEM, a_major="m", b_major="k")
    text = generate(problem, config, tma_store=config.num_consumers < 3, group_capacity=63)
    assert_fits(text, config)


@pytest.mark.sweep
@pytest.mark.parametrize("number", range(len(CONFIGS)))
def test_cut_tiles_do_not_spill(number: int) -> None:
    dtype: DType = ("bf16", "e4m3fn", "f16", "i8")[number % 4]
    config = configs_for(dtype)[number % len(configs_for(dtype))]
    config = replace(config, stream_k=HopperArch().num_clusters(config.cluster_size))
    problem = replace(
        PROBLEM,
        m=3300,
        n=5100,
        a_dtype=dtype,
        b_dtype=dtype,
        b_major="k",
        out_dtype="i32" if dtype == "i8" else "bf16",
        epilogue=EVERYTHING if dtype == "f16" else None,
    )
    objection = check(config, problem, HopperArch())
    if objection is not None:
        assert "leaves no registers" in objection
        return
    assert_fits(generate(problem, config, tma_store=number % 3 != 1), config)


@pytest.mark.sweep
@pytest.mark.parametrize("number", [0, 3, 7, 13])
@pytest.mark.parametrize("cut", [{}, {"split_k": 2}, {"stream_k": 66}])
def test_hilberts_order_does_not_spill(number: int, cut: dict[str, int]) -> None:
    config = replace(CONFIGS[number], raster="hilbert", **cut)
    problem = replace(PROBLEM, m=3000, n=5000, epilogue=EVERYTHING if number == 3 else None)
    if check(config, problem, HopperArch()) is not None:
        assert check(replace(config, raster="grouped"), problem, HopperArch()) is not None
        return
    assert_fits(generate(problem, config, tma_store=True), config)


@pytest.mark.sweep
@pytest.mark.parametrize("columns", [128, 1])
@pytest.mark.parametrize("config", SCALED_CONFIGS, ids=lambda config: config.name)
def test_scales_along_k_do_not_spill(columns: int, config: HopperConfig) -> None:
    problem = replace(PROBLEM, a_dtype="e4m3fn", b_dtype="e4m3fn", b_major="k")
    how, _ = scaled_configs(BlockScaling(kind="float32", block=128, columns=columns))
    assert_fits(generate(problem, config, tma_store=True, block_scales=how), config)


@pytest.mark.parametrize("config", configs_for("f64"), ids=lambda config: config.name)
@pytest.mark.parametrize(
    ("majors", "change", "tma_store"),
    [
        ("kn", {}, True),
        ("mk", {}, False),
        ("mn", {"batch": (2, 3), "out_dtype": "f32"}, True),
        ("kk", {"epilogue": "everything"}, False),
        ("mn", {"epilogue": "everything"}, True),
    ],
)
def test_fp64_does_not_spill(
    config: HopperConfig, majors: str, change: dict[str, Any], tma_store: bool
) -> None:
    a_major, b_major = majors
    problem = replace(FP64, a_major=a_major, b_major=b_major)
    for name, value in change.items():
        problem = replace(problem, **{name: FP64_EVERYTHING if name == "epilogue" else value})
    assert check(config, problem, HopperArch()) is None
    assert_fits(generate(problem, config, tma_store=tma_store), config)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "dtype", "out_dtype", "epilogue"),
    [
        (CONFIGS[0], "bf16", "bf16", BIAS),
        (CONFIGS[6], "f16", "f32", EVERYTHING),
        (configs_for("i8")[5], "i8", "f16", EVERYTHING),
    ],
    ids=["bias", "everything", "int8"],
)
def test_epilogues_do_not_spill(
    config: HopperConfig, dtype: str, out_dtype: str, epilogue: Epilogue
) -> None:
    problem = replace(
        PROBLEM, a_dtype=dtype, b_dtype=dtype, b_major="k", out_dtype=out_dtype, epilogue=epilogue
    )
    assert check(config, problem, HopperArch()) is None
    compiled(generate(problem, config, tma_store=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [number for number, config in enumerate(CONFIGS) if config.num_consumers < 3],
    ids=lambda number: CONFIGS[number].name,
)
def test_no_configuration_spills_with_every_part_at_once(number: int) -> None:
    """The compiler serialises no wgmma. The cases differ in sources, prefetching and stores."""
    problem = replace(
        PROBLEM,
        b_major="kn"[number % 2],
        out_dtype=("bf16", "f32")[number // 2 % 2],
        epilogue=replace(EVERYTHING, activation="gelu"),
    )
    compiled(generate(problem, CONFIGS[number], tma_store=number % 3 != 0))


@pytest.mark.sweep
@pytest.mark.parametrize(("number", "n"), [(3, 512), (3, 511), (7, 512)])
@pytest.mark.parametrize("c_dtype", ["bf16", "f32"])
def test_a_matrix_is_fetched_ahead_without_spills(c_dtype: str, number: int, n: int) -> None:
    """Pairs at once, or, where n is odd, element by element; by two consumers, and by three."""
    epilogue = Epilogue(alpha=True, c=Source(c_dtype, "matrix"), bias=Source("bf16", "row"))
    text = generate(replace(PROBLEM, n=n, epilogue=epilogue), CONFIGS[number], tma_store=n == 512)
    compiled(text)
