"""Counts of kernels that can be computed by hand."""

from __future__ import annotations

import pytest

from cupygemm.emulator import run
from cupygemm.emulator.device import Memory
from cupygemm.emulator.profiling.classify import category, matrix_flop, vector_flop
from cupygemm.emulator.targets import TARGETS
from tests.emulator.assembly import load_kernel
from tests.emulator.harness import assemble_all
from tests.emulator.profiled import POINTER, at, profiled

# -- instructions ----------------------------------------------------------------------------------


def test_instruction_mix_and_flop_of_the_lanes_that_are_on() -> None:
    profile = profiled(
        """
        v_mov_b32 v1, 1.0
        s_mov_b64 exec, 0xff
        v_add_f32 v2, v1, v1
        v_fma_f32 v2, v1, v1, v1
        v_pk_fma_f32 v[2:3], v[2:3], v[2:3], v[2:3] op_sel_hi:[0,0,0]
        s_cbranch_scc1 0
        s_barrier
        s_nop 0
        """,
        block=128,
    )
    assert profile.mix == {
        "MFMA": 0,
        "VALU": 8,
        "SALU": 2,
        "VMEM": 0,
        "LDS": 0,
        "SMEM": 2,
        "branch": 2,
        "waitcnt": 2,
        "barrier": 2,
        "other": 4,
    }
    assert profile.executed == 22
    assert profile.vector_flop == {"f32": 2 * 8 * (1 + 2 + 4)}
    assert [inst.lanes for inst in at(profile, "v_")] == [128, 16, 16, 16]


@pytest.mark.parametrize(
    ("target", "text", "expected"),
    [
        ("gfx942", "v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]", (16384, "f16")),
        ("gfx942", "v_mfma_f32_16x16x16_bf16 a[0:3], v[0:1], v[2:3], a[0:3]", (8192, "bf16")),
        ("gfx942", "v_mfma_f32_4x4x4_16b_f16 a[0:3], v[0:1], v[2:3], a[0:3]", (2048, "f16")),
        ("gfx942", "v_mfma_f32_32x32x16_bf8_fp8 a[0:15], v[0:1], v[2:3], a[0:15]", (32768, "fp8")),
        ("gfx942", "v_mfma_f64_16x16x4_f64 a[0:7], v[0:1], v[2:3], a[0:7]", (2048, "f64")),
        ("gfx942", "v_mfma_f64_4x4x4_4b_f64 a[0:1], v[0:1], v[2:3], a[0:1]", (512, "f64")),
        ("gfx942", "v_mfma_f32_16x16x8_xf32 a[0:3], v[0:1], v[2:3], a[0:3]", (4096, "xf32")),
        ("gfx90a", "v_mfma_f32_32x32x4bf16_1k a[0:31], v[0:1], v[2:3], a[0:31]", (16384, "bf16")),
        ("gfx90a", "v_mfma_i32_32x32x8i8 a[0:15], v0, v1, a[0:15]", (16384, "i8")),
        ("gfx950", "v_mfma_f32_16x16x128_f8f6f4 a[0:3], v[0:7], v[8:15], a[0:3]", (65536, "fp8")),
    ],
)
def test_flop_of_an_mfma(target: str, text: str, expected: tuple[int, str]) -> None:
    (inst,) = assemble_all([text], target)
    assert category(inst) == "MFMA"
    assert matrix_flop(inst) == expected


def test_what_is_no_floating_point_operation() -> None:
    lines = [
        "v_max_f32 v0, v1, v2",
        "v_cvt_f32_f16 v0, v1",
        "v_add_u32 v0, v1, v2",
        "v_accvgpr_write_b32 a0, v0",
        "v_cmp_lt_f32 vcc, v0, v1",
    ]
    for inst in assemble_all(lines):
        assert category(inst) == "VALU"
        assert vector_flop(inst) == matrix_flop(inst) == (0, "")


# -- global memory ---------------------------------------------------------------------------------


def test_a_coalesced_load_that_is_repeated_hits_in_l1() -> None:
    profile = profiled(
        """
        v_lshlrev_b32 v1, 4, v0
        global_load_dwordx4 v[4:7], v1, s[4:5]
        global_load_dwordx4 v[8:11], v1, s[4:5]
        """
    )
    first, second = (inst.global_memory for inst in at(profile, "global_load"))
    assert (first.instructions, first.lanes, first.bytes_read) == (1, 64, 1024)
    assert (first.lines_64, first.lines_128) == (16, 8)
    assert (first.coalescing, first.l1_hit_rate, first.l2_hit_rate) == (1, 0, 0)
    assert first.traffic.fabric_read == 1024
    assert (second.coalescing, second.l1_hit_rate) == (1, 1)
    assert second.traffic.l2_requests == 0
    assert (profile.hbm_read, profile.hbm_written) == (1024, 0)


def test_a_strided_store_is_not_coalesced() -> None:
    profile = profiled(
        """
        v_mov_b32 v2, 0
        v_lshlrev_b32 v1, 8, v0
        global_store_dword v1, v2, s[4:5]
        """
    )
    memory = profile.global_memory
    assert (memory.bytes_written, memory.traffic.requests) == (256, 64)
    assert memory.coalescing == 2 / 64  # 256 bytes would fill two lines
    assert (memory.l1_hit_rate, memory.l2_hit_rate) == (None, 0)
    # A sector of each line is dirty, and nothing is fetched for it.
    assert (profile.fabric_written, profile.hbm_written, profile.hbm_read) == (64 * 32, 64 * 32, 0)


@pytest.mark.parametrize(
    ("target", "lines", "hits"),
    [("gfx942", 64, 1), ("gfx942", 65, 0), ("gfx950", 65, 0), ("gfx90a", 4, 1), ("gfx90a", 5, 0)],
)
def test_l1_forgets_the_least_recently_used_line_of_a_set(
    target: str, lines: int, hits: int
) -> None:
    loads = [f"v_mov_b32 v1, {n * 4096}\nglobal_load_dword v2, v1, s[4:5]" for n in range(lines)]
    body = "s_mov_b64 exec, 1\n" + "\ns_waitcnt vmcnt(0)\n".join([*loads, loads[0]])
    profile = profiled(body, target=target, size=1 << 19)
    traffic = profile.global_memory.traffic
    assert (traffic.l1_reads, traffic.l1_hits) == (lines + 1, hits)
    assert (traffic.l2_requests, traffic.l2_hits) == (lines + 1 - hits, 1 - hits)


@pytest.mark.parametrize(
    ("target", "hits", "fabric", "hbm"),
    [("gfx942", 1, 8 * 128, 128), ("gfx950", 1, 8 * 128, 128), ("gfx90a", 8, 128, 128)],
)
def test_each_xcd_has_its_own_l2(target: str, hits: int, fabric: int, hbm: int) -> None:
    """Nine workgroups read one line: on eight XCDs, the ninth back on the first, on its next CU."""
    body = "v_lshlrev_b32 v1, 2, v0\ns_mov_b64 exec, 0xffff\nglobal_load_dword v2, v1, s[4:5]"
    profile = profiled(body, grid=9, target=target)
    memory = profile.global_memory
    assert (memory.traffic.l1_reads, memory.traffic.l1_hits) == (9, 0)
    assert (memory.traffic.l2_requests, memory.traffic.l2_hits) == (9, hits)
    assert (memory.traffic.fabric_read, profile.hbm_read) == (fabric, hbm)


def test_a_load_fetches_what_a_store_has_left_of_a_line() -> None:
    profile = profiled(
        """
        v_mov_b32 v1, 0
        s_mov_b64 exec, 1
        global_store_dword v1, v1, s[4:5]
        s_waitcnt vmcnt(0)
        global_load_dword v2, v1, s[4:5]
        global_load_dword v3, v1, s[4:5] offset:64
        """
    )
    of_stored, of_rest = (inst.global_memory for inst in at(profile, "global_load"))
    # L2 has the sector that was stored, and vL1D is filled with the whole line.
    assert (of_stored.l1_hit_rate, of_stored.l2_hit_rate) == (0, 0)
    assert of_rest.l1_hit_rate == 1
    assert (profile.hbm_read, profile.hbm_written) == (128, 32)


def test_atomics_go_to_l2() -> None:
    profile = profiled(
        """
        v_lshlrev_b32 v1, 2, v0
        v_mov_b32 v2, 1
        global_atomic_add v1, v2, s[4:5]
        global_atomic_add v1, v2, s[4:5]
        """
    )
    first, second = (inst.global_memory for inst in at(profile, "global_atomic"))
    assert (first.bytes_atomic, first.l1_hit_rate) == (256, None)
    assert (first.l2_hit_rate, second.l2_hit_rate) == (0, 1)
    assert (profile.hbm_read, profile.hbm_written) == (256, 256)


def test_scratch_and_empty_exec_ask_nothing_of_global_memory() -> None:
    profile = profiled("s_mov_b64 exec, 0\nglobal_load_dword v2, v0, s[4:5]")
    assert profile.global_memory.instructions == 0
    assert profile.hbm_bytes == 0
    assert profile.flop_per_byte is None


def test_where_the_host_puts_a_buffer_plays_no_part() -> None:
    body = "v_lshlrev_b32 v1, 9, v0\nglobal_load_dword v2, v1, s[4:5]\n" * 3
    target, memories, profiles = TARGETS["gfx942"], [Memory(), Memory()], []
    buffers = [memory.malloc(1 << 17) for memory in memories]
    assert buffers[0] != buffers[1]
    for memory, buffer in zip(memories, buffers, strict=True):
        kernel = load_kernel(POINTER + body + "s_endpgm", memory, arguments=[8])
        arguments = [buffer.to_bytes(8, "little")]
        stats = run.launch(
            kernel, (9, 1, 1), (64, 1, 1), 0, arguments, memory, target, profile=True
        )
        profiles.append(stats.profile)
    assert profiles[0] == profiles[1]


# -- LDS -------------------------------------------------------------------------------------------


def test_lds_conflicts_and_utilisation() -> None:
    profile = profiled(
        """
        v_lshlrev_b32 v1, 2, v0
        v_lshlrev_b32 v2, 7, v0
        ds_write_b32 v1, v0
        ds_write_b32 v2, v0
        """,
        lds=8192,
    )
    plain, conflicted = (inst.lds for inst in at(profile, "ds_write"))
    assert (plain.bytes, plain.cycles, plain.conflict_cycles, plain.utilisation) == (256, 2, 0, 1)
    # Each of two phases has 32 lanes on one bank.
    assert (conflicted.bytes, conflicted.cycles, conflicted.conflict_cycles) == (256, 64, 62)
    assert conflicted.utilisation == 256 / (64 * 128)
    assert profile.lds.conflict_rate == 62 / 66


def test_bytes_of_both_halves_of_a_read2() -> None:
    profile = profiled(
        """
        v_lshlrev_b32 v1, 3, v0
        ds_write_b64 v1, v[0:1]
        s_waitcnt lgkmcnt(0)
        s_mov_b64 exec, 0xf
        ds_read2_b32 v[4:5], v1 offset1:1
        """,
        lds=1024,
    )
    assert [inst.lds.bytes for inst in at(profile, "ds_")] == [512, 4 * 8]


# -- waits -----------------------------------------------------------------------------------------


def test_what_waits_wait_for() -> None:
    profile = profiled(
        """
        v_lshlrev_b32 v1, 2, v0
        global_load_dword v2, v1, s[4:5]
        global_load_dword v3, v1, s[4:5]
        s_nop 0
        s_waitcnt vmcnt(1)
        s_waitcnt vmcnt(1)
        global_store_dword v1, v2, s[4:5]
        s_waitcnt vmcnt(0)
        """,
        block=256,
    )
    load, other = (inst.offset for inst in at(profile, "global_load"))
    (store,) = (inst.offset for inst in at(profile, "global_store"))
    scalar, first, again, last = at(profile, "s_waitcnt")
    assert [wait.counter for wait in scalar.waits] == ["lgkmcnt"]
    assert first.waits[0].operations == {load: 4}
    assert (first.waits[0].waves, first.waits[0].distance) == (4, 4 * 2)
    assert again.waits == ()
    assert last.waits[0].operations == {other: 4, store: 4}
    assert last.waits[0].distance == 0
    vm = next(wait for wait in profile.waits if wait.counter == "vmcnt")
    assert (vm.waves, vm.operations) == (8, {load: 4, other: 4, store: 4})


# -- occupancy -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "lds", "block", "workgroups", "limited_by"),
    [
        ("gfx942", 0, 64, 4, "registers"),  # 512 registers: a wave on each SIMD
        ("gfx942", 0, 256, 1, "registers"),
        ("gfx942", 20000, 64, 3, "LDS"),
        ("gfx950", 65536, 64, 2, "LDS"),
    ],
)
def test_occupancy(target: str, lds: int, block: int, workgroups: int, limited_by: str) -> None:
    profile = profiled("", target=target, lds=lds, block=block, grid=3)
    room = profile.occupancy
    assert (room.workgroups, room.limited_by) == (workgroups, limited_by)
    assert room.waves_per_simd == workgroups * block / 64 / 4
    assert room.fills == 3 / (workgroups * TARGETS[target].num_cus)
