"""The counts of a main loop, against counts by hand in the comments."""

from __future__ import annotations

import re

import pytest

from cupygemm._backends.cdna.arch import ARCHS
from cupygemm.emulator import profile_loop
from cupygemm.emulator.code_object.control_flow import dominators, graph, heaviest_path, loops
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.memory.allocations import Memory
from cupygemm.emulator.profiling.classify import matrix_cycles
from cupygemm.emulator.profiling.loop import LoopProfile
from cupygemm.emulator.profiling.trip_count import trip_count
from cupygemm.emulator.targets import TARGETS
from tests.emulator.assembly import load_kernel
from tests.emulator.harness import assemble_all
from tests.emulator.listing import entries

MFMA = "v_mfma_f32_16x16x16_f16 v[{0}:{1}], v[100:101], v[102:103], v[{0}:{1}]"


def mfmas(count: int) -> str:
    """Return independent MFMA of 16 cycles each."""
    return "\n".join(MFMA.format(4 * i, 4 * i + 3) for i in range(count))


def profile(body: str, *, threads: int = 256, **options: object) -> LoopProfile:
    memory = Memory()
    try:
        kernel = load_kernel(body, memory, lds=1024)
        return profile_loop(kernel.code_object.elf, threads=threads, **options)  # type: ignore[arg-type]
    finally:
        memory.close()


def looped(body: str) -> str:
    return f"loop:\n{body}\ns_cbranch_scc1 loop\ns_endpgm"


def test_memory_instructions_in_the_shadow_of_mfma_cost_nothing() -> None:
    """Three of 4 cycles issue in the shadow of an MFMA of 16; a fourth would delay the next."""
    body = "\n".join(f"{line}\nv_nop\nv_nop" for line in mfmas(8).splitlines())
    loop = profile(looped(body))  # after the last: v_nop, v_nop, the branch
    assert (loop.mfma, loop.mfma_cycles, loop.cycles, loop.efficiency) == (8, 128, 128, 1.0)
    assert dict(loop.instructions) == {"MFMA": 8, "VALU": 16, "branch": 1}
    body = body.replace("v_nop\nv_nop", "v_nop\nv_nop\nv_nop\nv_nop")
    loop = profile(looped(body))
    assert loop.cycles == 8 * 20 + 4  # MFMA and 4 v_nop, 8 times, and the branch
    assert loop.slots[0][1] == "issue"


def test_nops_and_the_valu_port() -> None:
    loop = profile(looped(mfmas(2) + "\ns_nop 7\ns_nop 2"))
    assert loop.cycles == 16 + 4 + 4 * 8 + 4 * 3 + 4
    # Four waves on a SIMD: 1 MFMA of 16 cycles and 8 v_nop each fill the port for 4 x 36 cycles.
    loop = profile(looped(mfmas(1) + 8 * "\nv_nop"), threads=1024)
    assert loop.waves_per_simd == 4
    assert loop.slots == ((144.0, "VALU"),)


def test_lds_and_its_latency() -> None:
    """Four waves read 2 x 16 bytes per lane, 8 cycles each: 64 for LDS, 64 more for the last."""
    body = "ds_read_b128 v[100:103], v110\nds_read_b128 v[104:107], v110 offset:16\n"
    loop = profile(looped(body + "s_waitcnt lgkmcnt(0)\n" + mfmas(4)))
    assert loop.lds_cycles == 16
    assert loop.lds_bytes == 2 * 1024
    assert loop.segments[0].stall_cycles == 64 + 64 - 8
    assert loop.cycles == 128 + 4 + 3 * 16 + 4 + 4  # the wait's slot, the MFMA, the branch
    # One of two in flight: the first arrives after 32 + 64 cycles.
    loop = profile(looped(body + "s_waitcnt lgkmcnt(1)\n" + mfmas(4)))
    assert loop.segments[0].stall_cycles == 32 + 64 - 8


def test_conflicts_lengthen_what_they_are_told_of() -> None:
    body = looped("ds_write_b128 v110, v[100:103]\n" + mfmas(1))
    loop = profile(body)
    assert loop.segments[0].issue_cycles == 20 + 4 + 4  # the write, the MFMA, the branch
    assert loop.slots == ((32.0, "LDS"),)
    loop = profile(body, conflicts={0: 8.0})
    assert (loop.lds_cycles, loop.lds_conflict_cycles) == (16, 8)
    assert loop.slots == ((64.0, "LDS"),)


BARRIERS = (
    "ds_read_b128 v[100:103], v110\ns_waitcnt lgkmcnt(0)\ns_barrier\n" + mfmas(16) + "\ns_barrier"
)


def test_waves_in_step_hide_nothing() -> None:
    """Segments: read (4), wait until 64 + 64, slot, barrier; 2 x 16 consecutive MFMA."""
    loop = profile(looped(BARRIERS), threads=512)
    assert [segment.mfma_cycles for segment in loop.segments] == [0, 256]
    read = 4 + 128 + 4 + 4  # branch, read, wait and its slot, barrier: 8 waves x 8 cycles + 64
    multiply = 2 * 256  # which the issue, 15 * 16 + 4 + 4 + 256, does not exceed
    assert loop.segments[0].issue_cycles == read
    assert [cycles for cycles, _ in loop.slots] == [read, multiply]
    assert loop.efficiency == 512 / (read + multiply)


AROUND_A_BARRIER = """
{}
s_cmp_lt_u32 s8, 4
s_cbranch_scc0 loop
s_barrier
"""
WAVE = "v_lshrrev_b32 v1, 6, v0\nv_readfirstlane_b32 s8, v1"
ARGUMENT = "s_load_dword s8, s[0:1], 0x0\ns_waitcnt lgkmcnt(0)"


def test_staggered_waves_hide_each_others_memory_phase() -> None:
    """With half of the waves held back, each slot is one group's MFMA and the other's reads."""
    skewed = AROUND_A_BARRIER.format(WAVE) + looped(BARRIERS)
    loop = profile(skewed, threads=512)
    assert loop.groups == 2
    assert loop.slots == ((256.0, "MFMA"), (256.0, "MFMA"))
    assert loop.efficiency == 1
    assert profile(skewed, threads=512, staggered=False).groups == 1
    assert profile(looped(BARRIERS), threads=512, staggered=True).groups == 2
    assert profile("s_barrier\n" + looped(BARRIERS), threads=512).groups == 1  # all waves pass it


def test_a_barrier_that_no_wave_or_every_wave_avoids_staggers_nothing() -> None:
    """The branch depends on an argument, or only on the work-item after a reconvergence."""
    assert profile(AROUND_A_BARRIER.format(ARGUMENT) + looped(BARRIERS), threads=512).groups == 1
    masked = """
    v_cmp_gt_u32 vcc, 256, v0
    s_and_saveexec_b64 s[10:11], vcc
    {}
    s_or_b64 exec, exec, s[10:11]
    s_cmp_eq_u32 s2, 0
    s_cselect_b64 s[12:13], -1, 0
    s_and_b64 vcc, exec, s[12:13]
    s_cbranch_vccz loop
    s_barrier
    """
    assert profile(masked.format("v_mov_b32 v1, 0") + looped(BARRIERS), threads=512).groups == 1
    skipping = masked.format("s_cbranch_execz join\ns_barrier\njoin:")
    assert profile(skipping + looped(BARRIERS), threads=512).groups == 2
    both = """
    s_cmp_lt_u32 s8, 4
    s_cbranch_scc0 other
    s_barrier
    s_branch loop
    other:
    s_barrier
    """
    assert profile(WAVE + both + looped(BARRIERS), threads=512).groups == 1


def test_a_barrier_between_two_loops_staggers_nothing() -> None:
    """All waves pass the barrier after the inner loop before they return to it."""
    nested = (
        f"outer:\nloop:\n{BARRIERS}\ns_cbranch_scc1 loop\ns_barrier\ns_cbranch_vccz outer\ns_endpgm"
    )
    assert profile(nested, threads=512).groups == 1


def nested_loops(bound: str) -> str:
    return f"""
    outer:
    buffer_load_dwordx4 v[104:107], v110, s[4:7], 0 offen
    s_mov_b32 s8, 0
    inner:
    {mfmas(2)}
    s_add_i32 s8, s8, 2
    s_cmp_lt_i32 s8, {bound}
    s_cbranch_scc1 inner
    s_waitcnt vmcnt(0)
    s_barrier
    s_cbranch_vccz outer
    s_endpgm
    """


def test_the_loop_around_a_loop_of_known_length_is_counted() -> None:
    """Of 0, 2, 4 and 6, all are below 7: the inner loop runs 4 times for one load and barrier."""
    loop = profile(nested_loops("7"), memory_latency=0)
    assert loop.begin == 0
    assert loop.mfma == 4 * 2
    assert loop.instructions == {
        "VMEM": 1,
        "MFMA": 8,
        "SALU": 1 + 2 * 4,
        "branch": 4 + 1,
        "waitcnt": 1,
        "barrier": 1,
    }
    assert loop.global_bytes == 1024
    assert loop.enclosing is None


def test_a_loop_of_unknown_length_is_counted_alone_and_says_so() -> None:
    loop = profile(nested_loops("s9"))
    assert (loop.mfma, loop.global_bytes) == (2, 0)
    assert loop.enclosing is not None
    assert loop.enclosing[0] == 0 < loop.begin < loop.end < loop.enclosing[1]
    assert "the code does not tell how often this one repeats" in str(loop)
    assert loop.to_dict()["enclosing"] == loop.enclosing
    # More instructions than are counted at most.
    assert profile(nested_loops("0x4000")).mfma == 2


@pytest.mark.parametrize(
    ("start", "step", "compare", "count"),
    [
        ("s_mov_b32 s8, 0", "s_add_i32 s8, s8, 32", "s_cmp_lg_u32 s8, 0x100", 8),
        ("s_movk_i32 s8, 0x100", "s_sub_u32 s8, s8, 64", "s_cmp_lg_u32 s8, 0", 4),
        ("s_mov_b32 s8, 10", "s_addk_i32 s8, -3", "s_cmpk_gt_i32 s8, 0xfffe", 4),  # 10 7 4 1 -2
        ("s_mov_b32 s8, 0", "s_add_u32 s8, 1, s8", "s_cmp_ge_u32 5, s8", 6),
        ("s_mov_b32 s8, 0", "s_add_i32 s8, s8, s9", "s_cmp_lg_u32 s8, 0x100", None),
        ("s_mov_b32 s8, s9", "s_add_i32 s8, s8, 32", "s_cmp_lg_u32 s8, 0x100", None),
        ("s_mov_b32 s8, 0", "s_lshl_b32 s8, s8, 1", "s_cmp_lg_u32 s8, 0x100", None),
        ("s_mov_b32 s8, 1", "s_add_i32 s8, s8, 2", "s_cmp_lg_u32 s8, 0", None),  # never equal
    ],
)
def test_how_often_a_loop_repeats(start: str, step: str, compare: str, count: int | None) -> None:
    memory = Memory()
    kernel = load_kernel(f"{start}\n" + looped(f"v_nop\n{step}\n{compare}"), memory)
    nodes = graph(kernel)
    idom = dominators(nodes, kernel.entry)
    (loop,) = loops(nodes, idom)
    assert trip_count(nodes, idom, loop) == count
    memory.close()


def test_latency_of_memory_that_nothing_covers() -> None:
    """A load with an immediate wait, and one that a whole iteration covers."""
    at_once = "buffer_load_dwordx4 v[100:103], v110, s[4:7], 0 offen\ns_waitcnt vmcnt(0)\n"
    loop = profile(looped(at_once + mfmas(4)), memory_latency=500)
    assert loop.exposed_cycles == 500 - 4
    assert loop.global_bytes == 1024
    later = "s_waitcnt vmcnt(0)\nbuffer_load_dwordx4 v[100:103], v110, s[4:7], 0 offen\n"
    loop = profile(looped(later + mfmas(40)), memory_latency=500)
    assert loop.exposed_cycles == 0  # with 640 cycles of MFMA in between
    loop = profile(looped(later + mfmas(16)), memory_latency=500)
    assert loop.exposed_cycles == 500 - (loop.cycles - loop.exposed_cycles) + 4  # less the wait
    assert profile(looped(at_once + mfmas(4)), memory_latency=0).exposed_cycles == 0
    # With two loads in flight, vmcnt(1) waits for the older one, of the previous iteration.
    loop = profile(looped(at_once.replace("vmcnt(0)", "vmcnt(1)") + mfmas(16)), memory_latency=300)
    # Its wait comes 260 cycles after it, and every other time later by the wait before.
    assert loop.exposed_cycles == (300 - 260) / 2


def test_of_several_loops_and_paths_the_one_that_multiplies_most() -> None:
    """The inner loop counts, and in it the side of the branch with the MFMA."""
    body = f"""
    outer:
    {MFMA.format(0, 3)}
    inner:
    s_cbranch_vccz other
    {mfmas(3)}
    s_branch join
    other:
    v_nop
    {MFMA.format(0, 3)}
    join:
    s_cbranch_scc1 inner
    s_cbranch_vccnz outer
    s_endpgm
    """
    loop = profile(body)
    assert loop.mfma == 3
    assert loop.instructions["branch"] == 3
    assert loop.begin == 8
    memory = Memory()
    kernel = load_kernel(body, memory)
    nodes = graph(kernel)
    found = loops(nodes, dominators(nodes, kernel.entry))
    assert sorted(loop.head - kernel.entry for loop in found) == [0, 8]
    inner = max(found, key=lambda loop: loop.head)
    assert (
        len(heaviest_path(nodes, inner, lambda _: 0)) == 6
    )  # equal weights: the most instructions
    memory.close()


def test_what_cannot_be_counted() -> None:
    with pytest.raises(ValueError, match="none of the kernel's 1 loops has an MFMA"):
        profile(looped("v_nop"))
    memory = Memory()
    elf = load_kernel(looped(mfmas(1)), memory).code_object.elf
    with pytest.raises(ValueError, match="has no kernel 'other'; its kernels: k"):
        profile_loop(elf, "other")
    memory.close()


def test_the_table() -> None:
    text = str(profile(looped(BARRIERS), threads=512, conflicts={0: 2.0}))
    assert "MFMA issue efficiency" in text
    assert "waiting for LDS" in text
    assert "16 of them bank conflicts" in text
    assert "lgkmcnt(0)" in text
    figures = profile(looped(BARRIERS)).to_dict()
    assert figures["instructions"]["MFMA"] == 16
    assert figures["segments"][1]["mfma_cycles"] == 256


# Passes of 4 cycles, from AMD's matrix instruction calculator and LLVM's scheduling model.
PASSES = {
    "gfx90a": {
        "v_mfma_f32_32x32x8f16": 16,
        "v_mfma_f32_16x16x16bf16_1k": 8,
        "v_mfma_f32_32x32x4bf16": 16,
        "v_mfma_f32_4x4x4f16": 2,
        "v_mfma_f64_16x16x4f64": 8,
        "v_mfma_f64_4x4x4f64": 4,
        "v_mfma_f32_32x32x1f32": 16,
        "v_mfma_f32_16x16x4f16": 8,
        "v_mfma_i32_16x16x16i8": 8,
    },
    "gfx942": {
        "v_mfma_f32_32x32x8_bf16": 8,
        "v_mfma_f32_16x16x16_bf16": 4,
        "v_mfma_f32_16x16x8_xf32": 4,
        "v_mfma_f32_16x16x32_fp8_bf8": 4,
        "v_mfma_i32_32x32x16_i8": 8,
        "v_mfma_f32_16x16x4_f32": 8,
        "v_mfma_f32_32x32x4_2b_f16": 16,
        "v_mfma_f32_16x16x4_4b_f16": 8,
        "v_smfmac_f32_16x16x32_f16": 4,
    },
    "gfx950": {
        "v_mfma_f32_16x16x32_bf16": 4,
        "v_mfma_f32_32x32x16_f16": 8,
        "v_mfma_f32_16x16x16_f16": 4,
        "v_mfma_f64_16x16x4_f64": 16,
        "v_mfma_i32_16x16x64_i8": 4,
        "v_mfma_f32_32x32x8_f16": 8,
    },
}


@pytest.mark.parametrize("target", TARGETS)
def test_cycles_of_the_matrix_pipe(target: str) -> None:
    listed = {
        entry.text.split()[0]: matrix_cycles(decode(entry.code, 0, target), target)
        for entry in entries(target)
        if entry.text.startswith(("v_mfma_f", "v_mfma_i", "v_smfmac"))
    }
    assert {name: listed[name] for name in PASSES[target]} == {
        name: 4 * passes for name, passes in PASSES[target].items()
    }
    # The cost model's table agrees. Complex products are several instructions; the f8f6f4 ones take
    # the cycles of their formats.
    names = {
        "e4m3fn": "fp8_fp8",
        "e4m3fnuz": "fp8_fp8",
        "e5m2": "bf8_bf8",
        "e5m2fnuz": "bf8_bf8",
        "tf32": "xf32",
    }
    for dtype, shapes in ARCHS[target].mfma_cycles.items():
        if dtype in ("c64", "c128"):
            continue
        if dtype == "e2m1x2":
            ((_, cycles),) = shapes.items()
            text = "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[8:11], v[0:3], v12, v13"
            (inst,) = assemble_all([f"{text} op_sel_hi:[0,0,0] cbsz:4 blgp:4"], target)
            assert matrix_cycles(inst, target) == cycles
            continue
        for (m, n, k), cycles in shapes.items():
            kind = "f8f6f4" if k == 128 else names.get(dtype, dtype)
            name = re.compile(rf"v_mfma_[fi]\d+_{m}x{n}x{k}_?{kind}(_1k)?")
            assert {c for text, c in listed.items() if name.fullmatch(text)} == {cycles}
