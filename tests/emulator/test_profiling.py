"""Profiles of kernels whose counts can be worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest

from cupygemm import emulator
from cupygemm._toolchain import find_toolchain
from cupygemm.emulator import code_object, run
from cupygemm.emulator.device import Memory
from cupygemm.emulator.profiling import Profile
from cupygemm.emulator.profiling.classify import category, matrix_flop, vector_flop
from cupygemm.emulator.profiling.record import KernelProfile
from cupygemm.emulator.targets import TARGETS
from tests.emulator.assembly import load_kernel
from tests.emulator.harness import assemble_all

POINTER = "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n"


def profiled(
    body: str,
    *,
    grid: int = 1,
    block: int = 64,
    target: str = "gfx942",
    size: int = 1 << 17,
    lds: int = 0,
) -> KernelProfile:
    """Run a body whose buffer is in s[4:5], and return its profile."""
    memory = Memory()
    kernel = load_kernel(
        POINTER + body + "\ns_endpgm", memory, arguments=[8], lds=lds, target=target
    )
    buffer = memory.malloc(size)
    stats = run.launch(
        kernel, (grid, 1, 1), (block, 1, 1), 0, [buffer.to_bytes(8, "little")], memory,
        TARGETS[target], profile=True,
    )  # fmt: skip
    assert stats.profile is not None
    return stats.profile


def at(profile: KernelProfile, start: str) -> list[Any]:
    """Return the instructions of a profile whose text starts so."""
    return [inst for inst in profile.instructions if inst.text.startswith(start)]


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
        "MFMA": 0, "VALU": 8, "SALU": 2, "VMEM": 0, "LDS": 0, "SMEM": 2, "branch": 2,
        "waitcnt": 2, "barrier": 2, "other": 4,
    }  # fmt: skip
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
    lines = ["v_max_f32 v0, v1, v2", "v_cvt_f32_f16 v0, v1", "v_add_u32 v0, v1, v2",
             "v_accvgpr_write_b32 a0, v0", "v_cmp_lt_f32 vcc, v0, v1"]  # fmt: skip
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


@pytest.mark.parametrize(("lines", "hits"), [(4, 1), (5, 0)])
def test_l1_forgets_the_least_recently_used_line_of_a_set(lines: int, hits: int) -> None:
    loads = [
        f"v_mov_b32 v1, {n * 64 * 128}\nglobal_load_dword v2, v1, s[4:5]" for n in range(lines)
    ]
    profile = profiled("s_mov_b64 exec, 1\n" + "\ns_waitcnt vmcnt(0)\n".join([*loads, loads[0]]))
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


# -- collecting ------------------------------------------------------------------------------------


def run_twice(observe: bool) -> Profile:
    memory = Memory()
    kernel = load_kernel("v_add_f32 v1, 1.0, 1.0\ns_endpgm", memory)
    with emulator.profile() as outer:
        if observe:
            run.launch(kernel, (2, 1, 1), (64, 1, 1), 0, [], memory, TARGETS["gfx942"])
            with emulator.profile() as inner:
                run.launch(kernel, (3, 1, 1), (64, 1, 1), 0, [], memory, TARGETS["gfx942"])
            assert len(inner.launches) == 1
    stats = run.launch(kernel, (1, 1, 1), (64, 1, 1), 0, [], memory, TARGETS["gfx942"])
    assert stats.profile is None
    assert run.observers == []
    return outer


def test_launches_are_collected_and_merged_by_kernel() -> None:
    assert run_twice(observe=False).launches == []
    collected = run_twice(observe=True)
    assert [launch.workgroups for launch in collected.launches] == [2, 3]
    (merged,) = collected.kernels
    assert (merged.launches, merged.workgroups, merged.flop) == (2, 5, 5 * 64)
    assert [inst.executions for inst in merged.instructions] == [5, 5]


def test_kernels_that_differ_are_not_merged() -> None:
    one, other = profiled("s_nop 0"), profiled("s_nop 1")
    with pytest.raises(ValueError, match="not launches of one kernel"):
        one.merged(other)


def test_a_fault_ends_the_collection() -> None:
    with pytest.raises(emulator.KernelFault), emulator.profile() as collected:
        profiled("global_load_dword v1, v0, s[4:5]\nv_mov_b32 v2, v1")
    assert collected.launches == []
    assert run.observers == []


def test_cupy_is_profiled(cp: ModuleType) -> None:
    a = cp.arange(1000, dtype="float32")
    with emulator.profile() as collected:
        (a * 2 + 1).sum()
    assert len(collected.launches) >= 3
    multiply = next(k for k in collected.kernels if "multiply" in k.kernel)
    assert multiply.vector_flop["f32"] >= 1000
    assert multiply.global_memory.bytes_written == 4000
    json.dumps(collected.to_dict())


# -- source lines and presentation -----------------------------------------------------------------

SOURCE = """\
extern "C" __attribute__((global)) void scale(float* x) {
    int i = __builtin_amdgcn_workitem_id_x();
    float value = x[i];
    x[i] = value * 3;
}
"""


def compiled(tmp_path: Any, options: Sequence[str]) -> KernelProfile:
    source, output = tmp_path / "scale.hip", tmp_path / "scale.hsaco"
    source.write_text(SOURCE)
    find_toolchain().compile_hip(source, output, target="gfx942", options=options)
    memory = Memory()
    kernel = code_object.load(output.read_bytes(), memory, "gfx942").kernels["scale"]
    buffer = memory.malloc(256).to_bytes(8, "little")
    target = TARGETS["gfx942"]
    stats = run.launch(kernel, (1, 1, 1), (64, 1, 1), 0, [buffer], memory, target, profile=True)
    assert stats.profile is not None
    return stats.profile


def test_counts_by_source_line(tmp_path: Any) -> None:
    profile = compiled(tmp_path, ["-g", "-O2"])
    lines = {line: insts for (file, line), insts in profile.by_source().items()}
    assert {file.rpartition("/")[2] for file, _ in profile.by_source()} == {"scale.hip"}
    loads = sum(inst.global_memory.bytes_read for inst in lines[3] if inst.global_memory)
    stores = sum(inst.global_memory.bytes_written for inst in lines[4] if inst.global_memory)
    assert (loads, stores) == (256, 256)
    assert "scale.hip:3\n" in profile.listing()
    (load,) = (line for line in profile.source_listing().splitlines() if "value = x[i];" in line)
    assert load.split()[0] == "3"
    assert "VMEM 1" in load
    assert "256 B/wave, 2.0 lines, coalescing 100.0 %" in load


def test_without_debugging_information_there_are_no_lines(tmp_path: Any) -> None:
    profile = compiled(tmp_path, ["-O2"])
    assert profile.by_source() == {}
    assert profile.to_dict()["source_lines"] == []
    assert "compile with -g" in profile.source_listing()


def shown() -> Profile:
    body = """
    v_lshlrev_b32 v1, 2, v0
    global_load_dword v2, v1, s[4:5]
    s_waitcnt vmcnt(0)
    v_mul_f32 v2, v2, v2
    global_store_dword v1, v2, s[4:5]
    s_endpgm
    v_nop
    """
    collected = Profile()
    collected.launches.append(profiled(body))
    return collected


def test_table() -> None:
    text = str(shown())
    rows = {line.partition("  ")[0]: line.partition("  ")[2].split() for line in text.splitlines()}
    assert rows["VGPRs per wave"][0] == "512"
    assert rows["vL1D requests"][0] == "4"
    assert rows["vL1D hit"][:2] == ["0.0", "%"]
    assert rows["vL1D coalescing"][:2] == ["100.0", "%"]
    assert rows["L2 hit"][:2] == ["50.0", "%"]
    assert rows["HBM"][:2] == ["512", "B"]
    assert rows["MFMA count"][0] == "0"
    assert rows["VALU FLOP, f32"][0] == "64"
    assert "computed:" in text
    assert "emulated:" in text
    assert str(Profile()) == "no launches"


def test_table_of_several_kernels() -> None:
    collected = shown()
    collected.launches.append(profiled("s_nop 1"))
    assert str(collected).splitlines()[0] == "Kernels"


def test_listing() -> None:
    lines = shown().listing().splitlines()
    (load,) = (line for line in lines if "global_load_dword" in line)
    assert load.split()[:2] == ["1", "+0x0010"]
    assert "coalescing 100.0 %, vL1D 0.0 %, L2 0.0 %" in load
    assert any("vmcnt for +0x0010, 0 instr. between" in line for line in lines)
    assert any(line.split()[:1] == ["."] and "v_nop" in line for line in lines)


def test_json() -> None:
    (kernel,) = json.loads(json.dumps(shown().to_dict()))["kernels"]
    assert kernel["global_memory"]["traffic"]["requests"] == 4
    assert kernel["mix"]["VMEM"] == 2
    assert kernel["flop_per_byte"] == 64 / 512
    assert kernel["waits"][1]["operations"] == {"16": 1}


def test_roofline(tmp_path: Any) -> None:
    path = tmp_path / "roofline.png"
    shown().roofline(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="no profiled kernel"):
        Profile().roofline(path)
