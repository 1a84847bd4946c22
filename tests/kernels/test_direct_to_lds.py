"""The mainloop that loads directly to LDS: exact, without conflicts, with minimal waits.

Loads to LDS leave no trace in a register, so the compiler knows nothing of when they arrive: every
wait is written by hand. The emulator checks each read of LDS against them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from cupygemm import emulator, testing
from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.compile import compile_kernel
from cupygemm._backends.cdna.config import GemmConfig
from cupygemm._backends.cdna.mainloops import direct_to_lds, register_double_buffer
from cupygemm._backends.cdna.select import select
from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import Epilogue, GemmProblem, Source
from tests.kernels.gemm import Case, Placement, with_layout
from tests.problems import problem_of
from tests.tables import rows_of

LAYOUTS = ["kk", "kn", "mk", "mn"]
RESULTS = {"bf16": "bf16", "f16": "f32", "f64": "f64", "i8": "i32"}
PROBLEM = problem_of(4096, 4096, 4096)


def config_of(
    arch: str,
    tile_m: int,
    tile_n: int,
    mma: int = 16,
    dtype: str = "bf16",
    num_stages: int | None = None,
) -> GemmConfig:
    """Return the configuration with that tile, instruction and ring."""
    return next(
        c
        for c in direct_to_lds.configs(dtype, arch)
        if (c.tile_m, c.tile_n, c.mma_m) == (tile_m, tile_n, mma)
        and num_stages in (None, c.num_stages)
    )


def aligned(case: Case, align: int = 16) -> Case:
    """Return the case with pads after the rows of A and B that align them, and odd rows of C."""
    per = max(align // ITEMSIZE[case.dtype], 1)
    a_row = case.k if case.a_major == "k" else case.m
    b_row = case.n if case.b_major == "n" else case.k
    return replace(case, pads=(-a_row % per, -b_row % per, 3), offsets=(0, per, 1))


def case_of(config: GemmConfig, arch: str, layout: str, dtype: str, **changes: object) -> Case:
    """Return a case with ragged tiles on every side."""
    m, n, k = config.tile_m + 5, config.tile_n - 3, 2 * config.tile_k + 9
    case = Case(config, arch, m=m, n=n, k=k, dtype=dtype, out_dtype=RESULTS.get(dtype, "f32"))
    case = with_layout(replace(case, **changes), layout)
    return aligned(case, ARCHS[arch].direct_load_bytes)


def exact_cases() -> list[object]:
    """Return each configuration of 16-bit operands with a layout that it takes, and others."""
    chosen = []
    for number, config in enumerate(direct_to_lds.configs("bf16", "gfx950")):
        layout = LAYOUTS[(number + number // 4) % 4]
        if config.tile_m // config.waves_m % 32:
            layout = "k" + layout[1]
        chosen.append((config, "gfx950", layout, ("bf16", "f16")[number % 2]))
    chosen += [(config_of("gfx950", 64, 64), "gfx950", layout, "bf16") for layout in LAYOUTS]
    chosen += [(config_of("gfx950", 128, 128, 32), "gfx950", layout, "f16") for layout in LAYOUTS]
    for dtype in ("i8", "f32", "f64", "e4m3fn"):
        for tile in ((64, 64), (32, 32)):
            chosen.append((config_of("gfx950", *tile, dtype=dtype), "gfx950", "kk", dtype))
    for arch, dtypes in (
        ("gfx942", ("bf16", "f32", "tf32")),
        ("gfx90a", ("f16", "f32")),
    ):
        chosen += [(config_of(arch, 64, 64, dtype=dtype), arch, "kk", dtype) for dtype in dtypes]
    return [
        pytest.param(*case, id=f"{case[1]}-{case[3]}-{case[2]}-{case[0].name}")
        for case in dict.fromkeys(chosen)
    ]


@pytest.mark.slow
@pytest.mark.one_in(6)
@pytest.mark.covering(apart_from=("tile_m", "tile_n", "waves_m", "waves_n", "waves_per_simd"))
@pytest.mark.parametrize(("config", "arch", "layout", "dtype"), exact_cases())
def test_exact_without_conflicts_or_spills(
    config: GemmConfig, arch: str, layout: str, dtype: str
) -> None:
    case = case_of(config, arch, layout, dtype)
    result = case.run(profile=True)
    result.check_exact()
    conflicts = result.stats.lds_conflicts
    assert conflicts
    assert [extra for *_, extra in conflicts.values() if extra] == []
    whole = Placement(16, 64, (0, 0, 0), 0)
    odd = Placement(ITEMSIZE[case.out_dtype], 1, (0, 0, 0), 0)
    resources = compile_kernel(case.problem(whole, whole, odd), config, arch).resources
    assert resources.scratch_bytes == resources.vgpr_spills == resources.sgpr_spills == 0
    assert resources.vgprs <= ARCHS[arch].registers_per_simd // config.waves_per_simd
    assert resources.lds_bytes == direct_to_lds.lds_bytes(config, ITEMSIZE[dtype])


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("num_stages", "layout"), [(3, "kn"), (3, "mk"), (5, "kk"), (5, "mn")])
def test_every_number_of_tiles_along_k(num_stages: int, layout: str) -> None:
    """Fewer tiles than the ring has stages, as many, and more; the last is whole or ragged."""
    config = config_of("gfx950", 64, 64, num_stages=num_stages)
    for k in (1, 64, 65, 64 * num_stages, 64 * num_stages + 66):
        case = aligned(with_layout(Case(config, "gfx950", m=40, n=72, k=k, seed=k), layout))
        case.run().check_exact()


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("tile", "mma"), [((128, 128), 16), ((128, 128), 32), ((64, 64), 16)])
def test_fragments_that_are_read_in_vain_have_arrived(tile: tuple[int, int], mma: int) -> None:
    """After the last tile 16 reads were on their way when the epilogue used their registers."""
    config = config_of("gfx950", *tile, mma)
    m, n = tile
    case = Case(config, "gfx950", m=m, n=n, k=3 * config.tile_k, a_major="m", b_major="n")
    case.run().check_exact()


@pytest.mark.one_in(5)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("m", "n"), [(65, 67), (63, 129), (1, 3)])
def test_memory_may_end_in_the_middle_of_a_dword(layout: str, m: int, n: int) -> None:
    """The last row of a matrix has no pad after it, and k is whole or ends a dword early."""
    config = config_of("gfx950", 64, 64)
    for k in (128, 127):
        aligned(with_layout(Case(config, "gfx950", m=m, n=n, k=k), layout)).run().check_exact()


def test_batches_and_parts_of_large_matrices() -> None:
    config = config_of("gfx950", 64, 64)
    case = Case(
        config, "gfx950", m=40, n=72, k=136, batch=(2, 3), pads=(64, 8, 5), offsets=(8, 16, 1)
    )
    case.run().check_exact()


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("arch", "layout"), [("gfx950", "kn"), ("gfx950", "mk"), ("gfx942", "kk")])
def test_the_order_of_waves_does_not_matter(arch: str, layout: str) -> None:
    """A missing barrier would show as other bits, or as a hazard, for one of the orders."""
    config = config_of(arch, 64, 64)
    case = case_of(config, arch, layout, "bf16", k=6 * 64 + 8, integers=False)
    bits = [
        case.run(order=order).buffer.view(np.uint16)
        for order in ("lockstep", "forward", "reverse", ("random", 1), ("random", 2))
    ]
    for other in bits[1:]:
        np.testing.assert_array_equal(bits[0], other)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("arch", "layout"), [("gfx950", "mn"), ("gfx942", "kk")])
def test_parts_of_k(arch: str, layout: str) -> None:
    """One part ends with a whole tile, which is not the last of k, and the other is ragged."""
    config = replace(config_of(arch, 64, 64), split_k=2)
    case_of(config, arch, layout, "bf16", k=7 * 64 + 9).run().check_exact()


def test_error_bound() -> None:
    case = replace(case_of(config_of("gfx950", 64, 64), "gfx950", "mn", "bf16"), integers=False)
    result = case.run()
    result.check_guards()
    testing.assert_gemm_close(result.c, *case.operands())


@pytest.mark.one_in(4)
@pytest.mark.parametrize("layout", ["kn", "mk"])
def test_whole_tiles_move_whole_lines(layout: str) -> None:
    """Every load of the loop asks for 16 bytes per lane, and for all of each 128-byte line."""
    case = Case(config_of("gfx950", 128, 128), "gfx950", m=128, n=128, k=5 * 64)
    stats = with_layout(case, layout).run(profile=True).stats
    loop = {pc: n for pc, n in stats.executions.items() if n == 5 * stats.num_waves}
    loads = [stats.global_lines[pc] for pc in loop if pc in stats.global_lines]
    assert len(loads) == 8
    for _, lanes, num_bytes, _, lines in loads:
        assert num_bytes == 16 * lanes == 128 * lines


# -- The loop in the code object: computed, not emulated -------------------------------------------


def loop_of(
    config: GemmConfig, arch: str, layout: str = "kk", dtype: str = "bf16"
) -> emulator.LoopProfile:
    """Return the main loop of the kernel for aligned operands."""
    problem = replace(
        PROBLEM,
        a_major=layout[0],
        b_major=layout[1],
        a_dtype=dtype,
        b_dtype=dtype,
        out_dtype=RESULTS.get(dtype, "f32"),
    )
    compiled = compile_kernel(problem, config, arch)
    resources = compiled.resources
    assert resources.scratch_bytes == resources.vgpr_spills == resources.sgpr_spills == 0
    return emulator.profile_loop(compiled.path)


@pytest.mark.slow
@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("layout", "dtype"),
    [*((layout, "bf16") for layout in LAYOUTS), ("kk", "i8"), ("kk", "e4m3fn"), ("kk", "f32")],
)
def test_the_largest_tile_keeps_the_matrix_units_busy(layout: str, dtype: str) -> None:
    """95 % of the cycles of a loop of 64 KiB, and nothing in it but what a tile needs."""
    loop = loop_of(config_of("gfx950", 256, 256, dtype=dtype), "gfx950", layout, dtype)
    assert loop.efficiency >= 0.95
    assert loop.global_bytes == 8 * 1024
    assert loop.lds_bytes == 24 * 1024
    assert loop.instructions["barrier"] == 1
    assert loop.instructions["VMEM"] == 8


@pytest.mark.slow
def test_a_full_epilogue_leaves_the_largest_tile_without_spills() -> None:
    sources = {"scale_a": "row", "scale_b": "column", "c": "matrix", "bias": "column"}
    epilogue = Epilogue(
        alpha=True,
        activation="gelu",
        scale=True,
        clamp=True,
        **{name: Source("bf16", along, 16) for name, along in sources.items()},
    )
    problem = replace(PROBLEM, epilogue=epilogue)
    resources = compile_kernel(problem, config_of("gfx950", 256, 256), "gfx950").resources
    assert resources.scratch_bytes == resources.vgpr_spills == resources.sgpr_spills == 0


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("arch", "tile", "num_stages", "layout", "in_flight"),
    [
        ("gfx950", (256, 256), 2, "mn", 0),
        ("gfx950", (256, 128), 3, "kn", 6),
        ("gfx950", (64, 64), 5, "kk", 12),
        ("gfx942", (64, 64), 4, "kk", 32),
    ],
)
def test_loads_are_waited_for_at_the_barrier_alone(
    arch: str, tile: tuple[int, int], num_stages: int, layout: str, in_flight: int
) -> None:
    """The wait is for the tile that is read next; the compiler adds no wait for all loads."""
    loop = loop_of(config_of(arch, *tile, num_stages=num_stages), arch, layout)
    waits = [wait for wait in loop.waits if "vmcnt" in wait]
    assert waits == [f"s_waitcnt vmcnt({in_flight}) lgkmcnt(0)"]


def of_persistent_grids() -> Iterator[tuple[str, str, GemmConfig]]:
    """Yield the layouts and types in which stream-k uses a tile, with its configuration."""
    for layout, dtype in itertools.product(LAYOUTS, ("bf16", "i8", "f32")):
        for base in direct_to_lds.configs(dtype, "gfx950"):
            config = replace(base, stream_k=250)
            if check(config, persistent_problem(layout, dtype), ARCHS["gfx950"]) is None:
                yield layout, dtype, config


def persistent_problem(layout: str, dtype: str) -> GemmProblem:
    return replace(
        PROBLEM,
        m=4001,
        a_major=layout[0],
        b_major=layout[1],
        a_dtype=dtype,
        b_dtype=dtype,
        out_dtype=RESULTS.get(dtype, "f32"),
        c_align=4,
    )


@pytest.mark.one_in(7)
@pytest.mark.covering
@pytest.mark.parametrize(("layout", "dtype", "config"), rows_of(of_persistent_grids, width=3))
def test_a_persistent_grid_leaves_it_its_registers(
    layout: str, dtype: str, config: GemmConfig
) -> None:
    """The tiles of each type that stream-k uses do not spill; tiles with more loads would."""
    resources = compile_kernel(persistent_problem(layout, dtype), config, "gfx950").resources
    assert resources.scratch_bytes == 0
    assert resources.vgpr_spills == resources.sgpr_spills == 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_tiles_of_persistent_grids(layout: str) -> None:
    taken = {(its.tile_m, its.tile_n) for how, _, its in of_persistent_grids() if how == layout}
    assert {(256, 128), (128, 64), (64, 64)} <= taken
    assert (256, 256) not in taken


@pytest.mark.slow
@pytest.mark.one_in(5)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_persistent_grid_in_any_order_of_waves(layout: str) -> None:
    """The ring begins anew with each tile, when nothing of the last is on its way to it."""
    config = replace(config_of("gfx950", 64, 64, num_stages=5), stream_k=4)
    case = aligned(with_layout(Case(config, "gfx950", m=133, n=125, k=6 * 64 + 9), layout))
    results = [case.run(order=order) for order in ("lockstep", ("random", 1))]
    results[0].check_exact()
    assert results[0].buffer.tobytes() == results[1].buffer.tobytes()


# -- What is asked, and when it is chosen ----------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "changes", "words"),
    [
        ("gfx950", {"a_align": 8}, "A is aligned to 8 bytes: loads straight to LDS take 16"),
        ("gfx942", {"b_align": 2}, "B is aligned to 2 bytes: loads straight to LDS take 4"),
        (
            "gfx942",
            {"a_major": "m"},
            "A is m-major: direct_to_lds cannot transpose elements of 2 bytes",
        ),
        ("gfx950", {"num_stages": 1}, "num_stages = 1"),
        (
            "gfx950",
            {"stream_k": 250, "tile_k": 128, "waves_per_simd": 0},
            "8 loads of a tile, each",
        ),
        ("gfx950", {"waves_m": 1, "waves_n": 1, "waves_per_simd": 0}, "64 threads"),
        ("gfx942", {"num_stages": 4, "waves_n": 1, "waves_per_simd": 0}, "96 loads on their way"),
        ("gfx950", {"waves_m": 4, "waves_n": 1, "a_major": "m"}, "16 rows are not blocks of 32"),
    ],
)
def test_what_it_refuses(arch: str, changes: dict[str, object], words: str) -> None:
    of_config = {k: v for k, v in changes.items() if k in GemmConfig.__dataclass_fields__}
    of_problem = {k: v for k, v in changes.items() if k not in of_config}
    config = replace(config_of(arch, 64, 64), **of_config)
    reason = check(config, replace(PROBLEM, b_major="k", **of_problem), ARCHS[arch])
    assert reason is not None
    assert words in reason


@pytest.mark.parametrize("dtype", ["f32", "i8"])
def test_only_16_bit_elements_are_transposed(dtype: str) -> None:
    problem = replace(PROBLEM, a_dtype=dtype, b_dtype=dtype, out_dtype=RESULTS.get(dtype, "f32"))
    reason = check(config_of("gfx950", 64, 64, dtype=dtype), problem, ARCHS["gfx950"])
    assert reason is not None
    assert "cannot transpose" in reason


@pytest.mark.sweep
@pytest.mark.parametrize(("dtype", "least"), [("c128", 0.99), ("c64", 0.95)])
def test_complex_numbers_are_refused_and_lose_nothing(dtype: DType, least: float) -> None:
    """Their loops keep the matrix units busy where operands are staged in registers."""
    problem = replace(PROBLEM, a_dtype=dtype, b_dtype=dtype, out_dtype=dtype, a_major="m")
    config = replace(config_of("gfx950", 64, 64), tile_k=128 // ITEMSIZE[dtype], mma_k=4)
    reason = check(config, problem, ARCHS["gfx950"])
    assert reason == f"{dtype} operands are staged in registers"
    for config in register_double_buffer.configs(dtype, "gfx950"):
        if config.tile_m * config.tile_n >= 64 * 64 and config.mma_m == 16:
            compiled = compile_kernel(problem, config, "gfx950")
            loop = emulator.profile_loop(compiled.path, compiled.name)
            assert loop.efficiency >= least, config.name


def test_what_a_dword_cannot_hold() -> None:
    problem = replace(PROBLEM, a_dtype="f64", b_dtype="f64", out_dtype="f64", b_major="k")
    config = replace(config_of("gfx942", 64, 64), tile_k=16, mma_k=4)
    reason = check(config, problem, ARCHS["gfx942"])
    assert reason is not None
    assert "f64 has 8 bytes, and a lane loads 4 straight to LDS" in reason
    problem = replace(problem, a_dtype="i8", b_dtype="i8", out_dtype="i32")
    reason = check(replace(config, tile_k=128, mma_k=32), problem, ARCHS["gfx942"])
    assert reason is not None
    assert "takes more scalar registers" in reason
    assert direct_to_lds.configs("f64", "gfx942") == direct_to_lds.configs("i8", "gfx942") == ()


def test_when_it_is_chosen() -> None:
    """It is chosen for aligned operands too small for the GPU, on older targets if also K-major."""
    gfx950, gfx942 = ARCHS["gfx950"], ARCHS["gfx942"]
    small = replace(PROBLEM, m=512, n=512)
    assert select(small, gfx950).config.mainloop == direct_to_lds.NAME
    assert select(small, gfx950).reason.startswith("direct_to_lds, tile ")
    assert select(replace(small, a_align=8), gfx950).config.mainloop != direct_to_lds.NAME
    few = replace(PROBLEM, m=512, n=512, b_major="k")
    assert select(few, gfx942).config.mainloop == direct_to_lds.NAME
    assert select(replace(few, b_major="n"), gfx942).config.mainloop != direct_to_lds.NAME
    assert select(replace(PROBLEM, b_major="k"), gfx942).config.mainloop != direct_to_lds.NAME
