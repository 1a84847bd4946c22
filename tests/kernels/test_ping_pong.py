"""The ping-pong mainloop: exact with every major and tail, no conflicts, and a busy matrix pipe.

One workgroup each: tiles of 256 x 256 take the emulator a second or so.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from cupygemm import testing
from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.compile import CompiledKernel, compile_kernel
from cupygemm._backends.cdna.mainloops import ping_pong
from cupygemm._records.dtypes import ITEMSIZE
from cupygemm.emulator import profile_loop
from tests.kernels.gemm import Case
from tests.problems import problem_of

LAYOUTS = ("kk", "kn", "mk", "mn")
OUTPUTS = {
    "bf16": "bf16",
    "f16": "f32",
    "f32": "f32",
    "i8": "i32",
    "e4m3fnuz": "bf16",
    "e4m3fn": "bf16",
    "e5m2": "f32",
}
PROBLEM = problem_of(512, 512, 512)


def case_of(
    arch: str, dtype: str, layout: str, rows: int, columns: int, k: int, index: int = 0
) -> Case:
    """Return a product whose rows start at dwords and lie apart, in one tile of C."""
    config = ping_pong.configs(dtype, arch)[index]
    per_dword = 4 // ITEMSIZE[dtype]
    contiguous = (k if layout[0] == "k" else rows, columns if layout[1] == "n" else k)
    pads = tuple(-extent % per_dword + per_dword for extent in contiguous)
    return Case(
        config,
        arch,
        m=rows,
        n=columns,
        k=k,
        a_major=layout[0],
        b_major=layout[1],
        dtype=dtype,
        out_dtype=OUTPUTS[dtype],
        pads=(*pads, 3),
        offsets=(per_dword, per_dword, 1),
    )


# Every layout and type meets the instruction of each target; the depths are of the ragged tile
# alone, of one whole tile beside it, and of several.
CASES = [
    ("gfx942", "bf16", "kk", 2, 256, 256, 0),
    ("gfx942", "f16", "mn", 3, 201, 253, 9),
    ("gfx90a", "bf16", "kn", 3, 131, 250, 63),
    ("gfx942", "i8", "kn", 3, 256, 197, 27),
    ("gfx942", "f32", "kn", 1, 129, 65, 3),
    ("gfx942", "bf16", "mk", 1, 139, 256, 37),
    ("gfx950", "i8", "mn", 3, 256, 256, 126),
    ("gfx950", "bf16", "mn", 2, 250, 253, 63),
    ("gfx950", "f16", "mk", 0, 139, 30, 9),
    ("gfx942", "e4m3fnuz", "kk", 1, 60, 256, 100),
    ("gfx950", "e5m2", "mk", 0, 17, 33, 5),
    ("gfx950", "e4m3fn", "kn", 2, 70, 256, 99),
]


@pytest.mark.slow
@pytest.mark.one_in(7)
@pytest.mark.parametrize(("arch", "dtype", "layout", "tiles", "m", "n", "rest"), CASES)
def test_exact_in_any_order_of_waves_without_conflicts(
    arch: str, dtype: str, layout: str, tiles: int, m: int, n: int, rest: int
) -> None:
    """A missing barrier shows as a hazard or as other bits; a wrong index as a wrong sum."""
    tile_k = ping_pong.configs(dtype, arch)[0].tile_k
    case = case_of(arch, dtype, layout, m, n, tiles * tile_k + rest)
    result = case.run(profile=True)
    result.check_exact()
    conflicts = result.stats.lds_conflicts
    assert conflicts
    assert [extra for *_, extra in conflicts.values() if extra] == []
    assert case.run(order=("random", tiles)).buffer.tobytes() == result.buffer.tobytes()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("layout", ["kn", "mk"])
def test_half_a_tile(layout: str) -> None:
    case = case_of("gfx942", "bf16", layout, 127, 256, 3 * 64 + 1, index=1)
    result = case.run(profile=True)
    result.check_exact()
    assert [extra for *_, extra in result.stats.lds_conflicts.values() if extra] == []


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("a", "b"), [("e4m3fn", "e5m2"), ("e5m2", "e4m3fn")])
def test_two_formats_of_8_bit_floats(a: str, b: str) -> None:
    """The instruction with twice the rate multiplies them; the formats are among its operands."""
    case = replace(case_of("gfx950", a, "kk", 40, 250, 128 + 77), b_dtype=b, out_dtype="f32")
    assert case.config.mma_k == 128
    result = case.run()
    result.check_exact()
    inexact = replace(case, integers=False, seed=3)
    testing.assert_gemm_close(inexact.run().c, *inexact.operands())


@pytest.mark.one_in(4)
@pytest.mark.parametrize("layout", ["kk", "mn"])
def test_the_loop_moves_whole_lines(layout: str) -> None:
    """Every load of the loop asks for 16 bytes per lane, and for all of each 128-byte line."""
    tiles = 4
    case = replace(
        case_of("gfx942", "f16", layout, 256, 256, (tiles + 1) * 64),
        pads=(0, 0, 0),
        offsets=(0, 0, 0),
    )
    stats = case.run(profile=True).stats
    looped = {
        pc: counts
        for pc, counts in stats.global_lines.items()
        if counts[0] and stats.executions[pc] >= tiles * stats.num_waves / 2
    }
    lanes = sum(lanes for _, lanes, *_ in looped.values())
    assert lanes == (tiles - 1) * 2 * 256 * 8  # of T + 1 tiles the prologue loads two
    for _, lanes, num_bytes, _, lines in looped.values():
        assert num_bytes == 16 * lanes == 128 * lines


def compiled(arch: str, dtype: str, layout: str, index: int = 0) -> CompiledKernel:
    config = ping_pong.configs(dtype, arch)[index]
    problem = replace(
        PROBLEM,
        a_dtype=dtype,
        b_dtype=dtype,
        out_dtype=OUTPUTS[dtype],
        a_major=layout[0],
        b_major=layout[1],
        a_align=4,
        b_align=4,
        c_align=4,
    )
    assert check(config, problem, ARCHS[arch]) is None
    return compile_kernel(problem, config, arch)


# The least MFMA issue efficiency, by target, type and layout. A phase of gfx950, half as long as
# gfx942's, is shorter than a transposition in registers; there reads transpose.
EFFICIENCY = {
    ("gfx942", "bf16"): (1, 1, 1, 1),
    ("gfx942", "i8"): (1, 1, 1, 1),
    ("gfx942", "e4m3fnuz"): (1, 1, 1, 1),
    ("gfx950", "bf16"): (1, 1, 1, 1),
    ("gfx950", "i8"): (1, 1, 1, 1),
    ("gfx950", "e4m3fn"): (1, 1, 1, 1),
}


@pytest.mark.one_in(4)
@pytest.mark.covering
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("arch", "dtype"), EFFICIENCY)
def test_the_matrix_pipe_is_busy(arch: str, dtype: str, layout: str) -> None:
    """By the count of `profile_loop`; nothing spills, and two waves fit on a SIMD."""
    kernel = compiled(arch, dtype, layout)
    resources = kernel.resources
    assert resources.scratch_bytes == resources.vgpr_spills == resources.sgpr_spills == 0
    assert resources.vgprs <= 256
    loop = profile_loop(kernel.path)
    assert (loop.groups, loop.waves_per_simd, loop.exposed_cycles) == (2, 2, 0)
    assert loop.instructions["barrier"] == 4
    assert loop.efficiency >= EFFICIENCY[arch, dtype][LAYOUTS.index(layout)]
    # 256 x 256 x 128 bytes: 64 KiB from memory by 512 threads, and 24 fragments of a wave.
    assert loop.global_bytes >= 8 * 1024
    assert loop.lds_bytes >= (24 + 8) * 1024


def test_half_a_tile_is_as_busy() -> None:
    assert profile_loop(compiled("gfx942", "bf16", "kk", 1).path).efficiency >= 0.99


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"waves_m": 4, "waves_n": 2}, "4x2 waves: two groups that take turns are 2x4"),
        ({"num_stages": 2}, "num_stages = 2: the halves of one tile take turns in LDS"),
        ({"tile_k": 128}, "a tile is 256 bytes deep, not 128"),
    ],
)
def test_configurations_that_cannot_be(changes: dict[str, int], words: str) -> None:
    config = replace(ping_pong.configs("bf16", "gfx942")[0], **changes)
    assert words in str(check(config, PROBLEM, ARCHS["gfx942"]))


def test_an_instruction_of_two_steps_is_for_both_at_once() -> None:
    """The mainloop that reads a step at a time has half of its operands."""
    config = replace(ping_pong.configs("e4m3fn", "gfx950")[0], mainloop="register_double_buffer")
    problem = replace(PROBLEM, a_dtype="e4m3fn", b_dtype="e4m3fn")
    assert "16x16x128 instruction takes 32 bytes" in str(check(config, problem, ARCHS["gfx950"]))


def test_rows_within_a_dword_are_refused() -> None:
    config = ping_pong.configs("bf16", "gfx942")[0]
    assert "no register is left to shift rows" in str(
        check(config, replace(PROBLEM, b_align=2), ARCHS["gfx942"])
    )


@pytest.mark.slow
def test_a_persistent_grid_shares_tiles() -> None:
    """Between tiles the groups fall into step again, and one falls behind once more."""
    config = replace(ping_pong.configs("bf16", "gfx942")[1], stream_k=3)
    case = replace(case_of("gfx942", "bf16", "kn", 250, 500, 6 * 64 + 7), config=config)
    case.run(order=("random", 1)).check_exact()
    case = replace(case, config=replace(ping_pong.configs("bf16", "gfx942")[0], stream_k=3))
    assert "no scalar register" in str(
        check(case.config, replace(PROBLEM, m=250, n=500, k=391), ARCHS["gfx942"])
    )
