"""Profiles are collected, added up and shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest

from cupygemm import emulator
from cupygemm._build.toolchain import find_toolchain
from cupygemm.emulator import code_object, profiling, run
from cupygemm.emulator.device import Memory
from cupygemm.emulator.profiling import Profile
from cupygemm.emulator.profiling.kernel_profile import KernelProfile
from cupygemm.emulator.targets import TARGETS
from tests.emulator.assembly import load_kernel
from tests.emulator.profiled import profiled

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
    assert profiling.active == []
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
    assert profiling.active == []


HASTY = "global_load_dword v1, v0, s[4:5]\nv_mov_b32 v2, v1\ns_waitcnt vmcnt(0)"


def test_checks_can_be_off_while_profiling() -> None:
    with pytest.raises(emulator.KernelFault, match="read before wait"):
        profiled(HASTY)
    with emulator.checks(False), emulator.profile() as collected:
        profiled(HASTY)
    assert len(collected.launches) == 1


def test_checks_do_not_change_what_is_counted() -> None:
    body = """
    v_lshlrev_b32 v1, 2, v0
    global_load_dword v2, v1, s[4:5]
    ds_write_b32 v1, v0
    s_waitcnt vmcnt(0) lgkmcnt(0)
    ds_read_b32 v3, v1
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v3, s[4:5]
    """
    checked = profiled(body, lds=1024, block=128)
    with emulator.checks(False):
        unchecked = profiled(body, lds=1024, block=128)
    assert unchecked.to_dict() == checked.to_dict()
    assert len(checked.waits) == 2


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
    address = memory.malloc(256)
    memory.write(address, bytes(256))
    buffer = address.to_bytes(8, "little")
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
    collected.launches += [profiled("s_nop 1"), profiled("s_nop 1")]
    text = str(collected)
    assert text.splitlines()[0] == "Kernels"
    name = collected.launches[0].kernel
    for number in (1, 2):
        assert f"\n{name} ({number} of 2) on emulated gfx942: grid" in text
        assert f"\n{name} ({number} of 2)  " in text, "the row of the overview"
    assert f"{name} (2 of 2) on emulated" in collected._repr_html_()
    assert f"{name} on emulated" in str(shown()), "no number where names differ"


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
