"""Wait states: the number for each pair of instructions; LLVM's own code is never refused."""

from __future__ import annotations

import dataclasses
import pathlib
import random
import re
import warnings

import pytest

from cupygemm.emulator import checks, code_object, last_launch
from cupygemm.emulator.diagnostics.wait_rules import RULES
from cupygemm.emulator.errors import KernelFault
from cupygemm.emulator.hazards import wait_pairs, wait_states
from cupygemm.emulator.hazards.wait_states import Hazard, hazards_after
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.memory.allocations import Memory
from cupygemm.emulator.programs.program import CheckedStep
from cupygemm.emulator.run import launch
from cupygemm.emulator.targets import TARGETS
from tests.emulator.assembly import load_kernel
from tests.emulator.harness import assemble_all

MFMA4 = "v_mfma_f32_16x16x16_f16 v[8:11], v[2:3], v[4:5], v[8:11]"  # 4 passes
MFMA8 = "v_mfma_f32_32x32x8_f16 v[32:47], v[2:3], v[4:5], v[32:47]"
MFMA_F32 = "v_mfma_f32_16x16x4_f32 v[8:11], v2, v4, v[8:11]"
MFMA_F64 = "v_mfma_f64_16x16x4_f64 v[8:15], v[2:3], v[4:5], v[8:15]"
MFMA90A = "v_mfma_f32_16x16x16f16 v[8:11], v[2:3], v[4:5], v[8:11]"
MASK, SGPR, LANE = "reads an SGPR or vcc as a mask", "reads an SGPR", "selects a lane by an SGPR"
SKIPPED, SET_VSKIP = "is skipped or not", "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 28, 1), 1"
CMP = "v_cmp_eq_u32 vcc, v1, v2"
CASES = [
    # target, first, second, wait states, what the second does
    ("gfx942", MFMA4, "v_add_f32 v1, v8, v8", 7, "reads v8"),
    ("gfx942", MFMA4, "v_mov_b32 v9, 0", 7, "writes v9"),
    ("gfx942", MFMA4, "global_store_dwordx4 v[0:1], v[8:11], off", 7, "reads v8"),
    ("gfx942", MFMA4, "v_accvgpr_read_b32 v1, a0", 0, ""),
    ("gfx942", MFMA4, MFMA4, 0, ""),
    ("gfx942", MFMA4, "v_mfma_f32_16x16x16_f16 v[12:15], v[2:3], v[4:5], v[10:13]", 5, "reads v10"),
    ("gfx942", MFMA4, "v_mfma_f32_16x16x16_f16 v[12:15], v[8:9], v[4:5], v[12:15]", 7, "reads v8"),
    ("gfx942", MFMA8, "v_add_f32 v1, v40, v40", 11, "reads v40"),
    ("gfx942", MFMA_F32, "v_add_f32 v1, v8, v8", 10, "reads v8"),
    ("gfx942", MFMA_F64, "v_add_f64 v[0:1], v[8:9], v[8:9]", 11, "reads v8"),
    ("gfx942", MFMA_F64, "global_store_dwordx2 v[0:1], v[8:9], off", 18, "reads v8"),
    ("gfx942", "v_mov_b32 v2, 0", MFMA4, 2, "reads v2"),
    ("gfx942", "v_cmp_eq_u32 vcc, v1, v2", "v_cndmask_b32 v3, v1, v2, vcc", 2, MASK),
    ("gfx942", "v_exp_f32 v1, v2", "v_add_f32 v3, v1, v1", 1, "reads v1"),
    ("gfx942", "v_mov_b32 v1, v2", "v_readfirstlane_b32 s0, v1", 1, "reads v1"),
    ("gfx950", MFMA4, "v_add_f32 v1, v8, v8", 7, "reads v8"),
    ("gfx90a", MFMA90A, "v_add_f32 v1, v8, v8", 11, "reads v8"),
    ("gfx90a", "v_readlane_b32 s4, v1, 0", "global_load_dword v1, v2, s[4:5]", 5, SGPR),
    ("gfx90a", "v_mov_b32 v1, v2", "v_mov_b32_dpp v3, v1 row_shr:1", 2, "reads v1"),
    ("gfx90a", "v_readlane_b32 s4, v1, 0", "v_readlane_b32 s5, v1, s4", 4, LANE),
    ("gfx90a", "v_cmp_eq_u32 vcc, v1, v2", "v_div_fmas_f32 v3, v1, v2, v4", 4, "reads vcc"),
    ("gfx90a", "v_cmp_eq_u32 vcc, v1, v2", "v_cndmask_b32 v3, v1, v2, vcc", 0, ""),
    ("gfx90a", "s_mov_b32 m0, 0", "buffer_load_dword v1, s[4:7], 0 offen lds", 1, "reads m0"),
    ("gfx942", "s_mov_b32 m0, 0", "global_load_lds_dword v[0:1], off", 1, "reads m0"),
    ("gfx942", "s_mov_b32 m0, 0", "ds_read_addtid_b32 v1", 1, "reads m0"),
    ("gfx942", "s_mov_b32 m0, 0", "s_movrels_b32 s0, s1", 1, "reads m0"),
    ("gfx942", "s_mov_b32 m0, 0", "global_load_dword v2, v[0:1], off", 0, ""),
    ("gfx942", "s_setvskip s0, 1", "v_mov_b32 v1, 0", 2, SKIPPED),
    ("gfx942", "s_setvskip s0, 1", "ds_read_b32 v1, v2", 2, SKIPPED),
    ("gfx942", "s_setvskip s0, 1", MFMA4, 2, SKIPPED),
    ("gfx942", "s_setvskip s0, 1", "s_mov_b32 s1, 0", 0, ""),
    ("gfx942", SET_VSKIP, "global_load_dword v2, v[0:1], off", 2, SKIPPED),
    ("gfx942", "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 5", "v_mov_b32 v1, 0", 0, ""),
    ("gfx942", SET_VSKIP, "s_getreg_b32 s0, hwreg(HW_REG_MODE)", 2, "reads the hardware register"),
    ("gfx942", SET_VSKIP, SET_VSKIP, 2, "writes the hardware register"),
    ("gfx942", SET_VSKIP, "s_getreg_b32 s0, hwreg(HW_REG_STATUS)", 0, ""),
    ("gfx942", "s_setvskip s0, 1", "s_getreg_b32 s0, hwreg(HW_REG_MODE)", 2,
     "reads the hardware register"),
    ("gfx942", CMP, "v_addc_co_u32 v1, vcc, v2, v3, vcc", 0, ""),
    ("gfx942", CMP, "v_mov_b32 v1, vcc_lo", 2, "reads an SGPR or vcc"),
    ("gfx942", "v_readlane_b32 s4, v1, 0", "v_mov_b32 v2, s4", 2, "reads an SGPR or vcc"),
    ("gfx942", "v_readlane_b32 s4, v1, 0", "v_cndmask_b32 v3, v1, v2, s[4:5]", 2, MASK),
    ("gfx942", "v_exp_f32 v1, v2", "v_log_f32 v3, v1", 0, ""),
    ("gfx942", "global_store_dwordx4 v[0:1], v[4:7], off", "v_mov_b32 v6, 0", 2, "writes v6"),
    ("gfx90a", "global_store_dwordx4 v[0:1], v[4:7], off", "v_mov_b32 v6, 0", 1, "writes v6"),
    ("gfx942", "global_store_dwordx2 v[0:1], v[4:5], off", "v_mov_b32 v4, 0", 0, ""),
    ("gfx942", "global_store_dwordx4 v[0:1], v[4:7], off", "v_mov_b32 v1, 0", 0, ""),
    ("gfx942", "buffer_store_dwordx4 v[4:7], v1, s[4:7], s8 offen", "v_mov_b32 v6, 0", 0, ""),
    ("gfx942", "buffer_store_dwordx4 v[4:7], v1, s[4:7], 0 offen", "v_mov_b32 v6, 0", 2,
     "writes v6"),
]  # fmt: skip


def program(target: str, lines: list[str]) -> dict[int, Instruction]:
    instructions, place = {}, 0
    for inst in assemble_all(lines, target):
        instructions[place] = inst
        place += inst.size
    return instructions


def hazards(instructions: dict[int, Instruction], target: str) -> list[Hazard]:
    return [
        found
        for pc, inst in instructions.items()
        for found in hazards_after(pc, inst, TARGETS[target], instructions.get)
    ]


def nops(count: int) -> list[str]:
    return [f"s_nop {min(count - done, 16) - 1}" for done in range(0, count, 16)]


@pytest.mark.parametrize(("target", "first", "second", "needed", "what"), CASES)
def test_a_pair(target: str, first: str, second: str, needed: int, what: str) -> None:
    pairs = [line for case in CASES if case[0] == target for line in case[1:3]]
    assemble_all([*pairs, *(f"s_nop {count}" for count in range(16))], target)
    enough = program(target, [first, *nops(needed), second])
    assert not hazards(enough, target)
    if not needed:
        return
    (found,) = hazards(program(target, [first, *nops(needed - 1), second]), target)
    assert (found.what.split(", ")[0], found.needed, found.found) == (what, needed, needed - 1)


@pytest.mark.parametrize(
    ("second", "rule"),
    [("v_mov_b32 v12, 0", "mfma_overwrite"), ("ds_read_b32 v12, v0", "mfma_overwrite_load")],
)
def test_only_a_vector_alu_instruction_overwrites_an_accumulator_by_the_guide(
    second: str, rule: str
) -> None:
    first = "v_mfma_f32_16x16x16_f16 v[8:11], v[2:3], v[4:5], v[12:15]"
    (found,) = hazards(program("gfx942", [first, second]), "gfx942")
    assert (found.rule, found.needed) == (rule, 3)
    assert RULES[rule].severity == ("error" if rule == "mfma_overwrite" else "warn")


def test_other_instructions_count_as_one_each() -> None:
    between = ["s_mov_b32 s0, 0"] * 6
    assert hazards(program("gfx942", [MFMA4, *between, "v_mov_b32 v1, v8"]), "gfx942")
    between = ["s_mov_b32 s0, 0"] * 7
    assert not hazards(program("gfx942", [MFMA4, *between, "v_mov_b32 v1, v8"]), "gfx942")


OTHER = "v_mfma_f32_32x32x8_f16 v[64:79], v[2:3], v[4:5], v[64:79]"


def test_matrix_instructions_between_count_with_their_wait_for_the_unit() -> None:
    """The second waits for the first's 8 passes, the third for 16, long after v40 is ready."""
    reads = "v_max3_f32 v1, v40, v41, v42"
    (found,) = hazards(program("gfx942", [MFMA8, OTHER, reads]), "gfx942")
    assert (found.needed, found.found, found.rule) == (11, 8, "mfma_result")
    assert not hazards(program("gfx942", [MFMA8, OTHER, "s_nop 2", reads]), "gfx942")
    assert not hazards(program("gfx942", [MFMA8, OTHER, OTHER, reads]), "gfx942")
    # Another pipeline does not wait.
    (found,) = hazards(program("gfx942", [MFMA8, MFMA_F64, reads]), "gfx942")
    assert found.found == 1
    # The states since the first count once.
    between = ["s_nop 3", OTHER]
    (found,) = hazards(program("gfx942", [MFMA8, *between, reads]), "gfx942")
    assert found.found == 8


def test_a_skip_behind_a_branch_may_not_happen() -> None:
    lines = ["s_setvskip s0, 1", "s_cbranch_scc0 1", "v_mov_b32 v1, 0", "s_endpgm"]
    assert not hazards(program("gfx942", lines), "gfx942")


def test_every_rule_is_used() -> None:
    named = (pathlib.Path(wait_pairs.__file__)).read_text(encoding="utf-8")
    assert all(f'"{rule}"' in named for rule in RULES)
    assert set(re.findall(r'Wait\(\w+(?:\(.*?\))?.*?, "(\w+)"', named)) <= set(RULES)


def test_a_branch_is_followed_both_ways() -> None:
    lines = [MFMA4, "s_cbranch_scc0 2", "s_nop 7", "s_nop 7", "v_mov_b32 v1, v8", "s_endpgm"]
    (found,) = hazards(program("gfx942", lines), "gfx942")
    assert (found.needed, found.found) == (7, 1)
    assert not hazards(program("gfx942", [lines[0], "s_nop 7", *lines[1:]]), "gfx942")


def test_a_loop_is_followed_back() -> None:
    lines = [
        "v_mov_b32 v1, v8",
        "s_nop 7",
        MFMA4,
        "s_cbranch_scc0 65531",
    ]  # -5 dwords: to the start
    (found,) = hazards(program("gfx942", lines), "gfx942")
    assert (found.consumer, found.found) == (0, 1)


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_a_glance_misses_nothing_that_the_search_finds(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = sorted({line for of, *pair, _, _ in CASES if of == target for line in pair})
    kinds = [*program(target, [*lines, "s_nop 0", "s_nop 3", "v_mov_b32 v20, 0"]).values()]
    draw = random.Random(1)
    found = 0
    for _ in range(200):
        places, place = {}, 0
        for inst in draw.choices(kinds, k=24):
            places[place] = inst
            place += inst.size
        with_glance = hazards(places, target)
        with monkeypatch.context() as patch:
            patch.setattr(wait_states, "_is_harmless", lambda *_: False)
            assert hazards(places, target) == with_glance
        found += len(with_glance)
    assert found > 400


BODY = """
v_mov_b32 v2, 0
v_mov_b32 v3, 0
v_mov_b32 v8, 0
v_mov_b32 v9, 0
v_mov_b32 v10, 0
v_mov_b32 v11, 0
s_nop 1
v_mfma_f32_16x16x16_f16 v[8:11], v[2:3], v[2:3], v[8:11]
s_nop {nop}
v_add_f32 v1, v8, v8
s_endpgm
"""


def test_a_launch_reports_what_comes_too_early(memory: Memory) -> None:
    target = TARGETS["gfx942"]
    launch(load_kernel(BODY.format(nop=6), memory), (1, 1, 1), (64, 1, 1), 0, [], memory, target)
    early = load_kernel(BODY.format(nop=3), memory)
    with pytest.raises(KernelFault, match="missing wait states") as caught:
        launch(early, (1, 1, 1), (64, 1, 1), 0, [], memory, target)
    assert caught.value.instruction.startswith("v_add_f32")
    assert "v_mfma_f32_16x16x16_f16" in caught.value.detail
    assert "reads v8 4 wait states after" in caught.value.detail
    assert "7 are needed: put s_nop 2" in caught.value.detail
    launch(early, (1, 1, 1), (64, 1, 1), 0, [], memory, target, checks=False)


SOURCE = """
typedef float f4 __attribute__((ext_vector_type(4)));
typedef _Float16 h4 __attribute__((ext_vector_type(4)));
extern "C" __global__ void product(const h4* a, const h4* b, f4* c) {
    f4 sum = {0, 0, 0, 0};
    sum = __builtin_amdgcn_mfma_f32_16x16x16f16(a[threadIdx.x], b[threadIdx.x], sum, 0, 0, 0);
    f4 other = __builtin_amdgcn_mfma_f32_16x16x16f16(b[threadIdx.x], a[threadIdx.x], sum, 0, 0, 0);
    c[threadIdx.x] = sum;
    c[threadIdx.x + 64] = other;
}
"""


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_each_nop_of_the_compiler_is_needed(target: str, memory: Memory) -> None:
    """The table agrees exactly with the compiler's."""
    from cupygemm.emulator.runtime.compile import compile_program

    code = code_object.load(compile_program(SOURCE, "p", target_name=target).code, memory, target)
    start, size, _ = code.functions[0]
    instructions, place = {}, start
    while place < start + size:
        instructions[place] = decode(code.image, place, target)
        place += instructions[place].size
    assert not hazards(instructions, target)
    weakened, less = 0, 2 if target == "gfx950" else 1  # the table requires one state less there
    for pc, inst in instructions.items():
        if inst.mnemonic != "s_nop" or inst.fields["simm16"] < less:
            continue
        fields = {**inst.fields, "simm16": inst.fields["simm16"] - less}
        shorter = {**instructions, pc: dataclasses.replace(inst, fields=fields)}
        assert hazards(shorter, target), f"s_nop at 0x{pc - start:x}"
        weakened += 1
    assert weakened


LOOP = """
s_movk_i32 s6, 100
again:
v_cmp_eq_u32 vcc, v0, v0
v_cndmask_b32 v1, v0, v0, vcc
s_sub_u32 s6, s6, 1
s_cmp_lg_u32 s6, 0
s_cbranch_scc1 again
s_endpgm
"""


@pytest.mark.parametrize("severity", ["warn", "off"])
def test_c_executes_what_has_been_reported(
    severity: str, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a loop of 100 rounds, Python executes the instruction once in each launch."""
    target = TARGETS["gfx942"]
    kernel = load_kernel(LOOP, memory)
    executed, step = [], CheckedStep.__call__
    monkeypatch.setattr(
        CheckedStep, "__call__", lambda self, group: executed.append(0) or step(self, group)
    )
    for count in (1, 2):
        with checks(wait_states_lane_mask=severity), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            launch(kernel, (1, 1, 1), (64, 1, 1), 0, [], memory, target)
        found = last_launch().warnings
        assert [fault.check for fault in found] == ["wait_states_lane_mask"] * (severity == "warn")
        assert len(executed) == count


LEAVES_LDS = """
s_mov_b32 s6, 0
again:
s_mov_b32 m0, s6
ds_read_addtid_b32 v1
s_waitcnt lgkmcnt(0)
s_add_u32 s6, s6, 0x8000
s_cmp_lt_u32 s6, 0x10000
s_cbranch_scc1 again
s_endpgm
"""


def test_what_c_executes_after_a_report_may_have_another_finding(memory: Memory) -> None:
    kernel = load_kernel(LEAVES_LDS, memory, lds=256)
    with checks(wait_states="warn", bounds="warn"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        launch(kernel, (1, 1, 1), (64, 1, 1), 0, [], memory, TARGETS["gfx942"])
    found = [fault.check for fault in last_launch().warnings]
    assert found == ["wait_states_m0", "bounds"]
