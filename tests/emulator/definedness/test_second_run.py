"""The second run in C against Python's: undefined bits and their origins, over random encodings.

The stored listing has every mnemonic in each of its encodings; operands and modifiers are drawn at
random, as are the bits of their registers that are undefined and the waves that have never written
one. An instruction that gets a second run in C is therefore tested as soon as it is in the listing.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
import pytest

from cupygemm.emulator.definedness.native import second_run_of
from cupygemm.emulator.definedness.uses import MEMORY, VECTOR, follow
from cupygemm.emulator.definedness.vector import shadow_of
from cupygemm.emulator.errors import Fault, UnsupportedInstruction
from cupygemm.emulator.execution.native_loop import LoopStruct
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.isa.instruction import EXEC, Instruction, registers
from cupygemm.emulator.native import library
from cupygemm.emulator.programs.native_program import InstructionStruct
from cupygemm.emulator.units import bind
from cupygemm.emulator.units.memory.machine import machine_of
from cupygemm.emulator.waves.marks import Marks, marks_of
from cupygemm.emulator.waves.state import Group, State
from tests.emulator.harness import make_state, set_exec
from tests.emulator.listing import TARGETS, entries
from tests.emulator.variations import variations
from tests.tables import rows_of

MASKS = (2**64 - 1, 0x00FF_F0F0_CCCC_7FFE, 0, 1 << 63, 2**64 - 1)
WAVES = len(MASKS)
COMPARED = """
undefined undefined_scalar origin origin_scalar unwritten
suspect_vector suspect_scalar marked tainted
"""
GROUPS: tuple[Any, ...] = (slice(0, 5), slice(1, 4), np.array([0, 2, 4]))


@functools.cache
def listed(target: str) -> dict[str, list[Instruction]]:
    """Return the instructions that may have a second run, by mnemonic."""
    found: dict[str, list[Instruction]] = {}
    for entry in entries(target):
        inst = decode(entry.code + bytes(8), target=target)
        if inst.encoding in (*VECTOR, *MEMORY):
            found.setdefault(inst.mnemonic, []).append(inst)
    return found


def mark(marks: Marks, inst: Instruction, rng: np.random.Generator) -> None:
    """Make random bits of an instruction's registers undefined."""
    for array in (marks.undefined, marks.undefined_scalar, marks.origin, marks.origin_scalar):
        array.fill(0)
    marks.unwritten.fill(False)
    marks.suspect_vector = marks.suspect_scalar = marks.marked = 0
    for register in registers(inst.vector_reads | inst.vector_writes):
        bits = rng.integers(0, 1 << 32, (WAVES, 64), np.uint32)
        bits &= rng.integers(0, 1 << 32, (WAVES, 64), np.uint32)
        bits *= rng.random((WAVES, 64)) < rng.choice((0, 0.1, 0.6))
        bits *= (rng.random((WAVES, 1)) < 0.7).astype(np.uint32)
        marks.unwritten[register] = never = rng.random(WAVES) < rng.choice((0, 0, 0.3))
        marks.undefined[register] = np.where(never[:, None], 0, bits)
        marks.origin[register] = 8 * rng.integers(0, 512, WAVES)
        marks.settle(register, marked=True)
    for register in registers(inst.scalar_reads | inst.scalar_writes):
        if register < EXEC and rng.random() < 0.5:
            chosen = rng.random(WAVES) < 0.5
            bits = rng.integers(0, 1 << 32, WAVES, np.uint32)
            marks.undefined_scalar[register] = np.where(chosen, bits, 0)
            marks.origin_scalar[register] = 8 * rng.integers(0, 512, WAVES)
            marks.settle_scalar(register)


def snapshot(marks: Marks, tainted: bool) -> list[Any]:
    return [
        marks.undefined.copy(),
        marks.undefined_scalar[:128].copy(),
        marks.origin.copy(),
        marks.origin_scalar[:128].copy(),
        marks.unwritten.copy(),
        marks.suspect_vector,
        marks.suspect_scalar,
        marks.marked,
        tainted,
    ]


def restore(marks: Marks, kept: list[Any]) -> None:
    marks.undefined[:], marks.undefined_scalar[:128], marks.origin[:] = kept[:3]
    marks.origin_scalar[:128], marks.unwritten[:] = kept[3:5]
    marks.suspect_vector, marks.suspect_scalar, marks.marked = kept[5:8]


def run_in_c(state: State, group: Group, second_run: Any) -> bool:
    """Run an instruction on undefined bits in C; return whether C could."""
    marks = marks_of(state)
    loop = LoopStruct(machine=machine_of(state).address, count=group.count)
    loop.unwritten = marks.unwritten.ctypes.data
    ids = np.ascontiguousarray(group.wave_ids, np.int64)
    loop.ids = ids.ctypes.data
    if isinstance(group.waves, slice):
        loop.first, loop.step = int(ids[0]), 1
    for name in ("suspect_vector", "suspect_scalar", "marked"):
        words = getattr(loop, name)
        size = ctypes.sizeof(words)
        ctypes.memmove(words, getattr(marks, name).to_bytes(size, "little"), size)
    record = InstructionStruct(second_run=ctypes.addressof(second_run))
    done = bool(library().run_again(ctypes.byref(loop), ctypes.byref(record)))
    for name in ("suspect_vector", "suspect_scalar", "marked"):
        setattr(marks, name, int.from_bytes(getattr(loop, name), "little"))
    return done


def differs(inst: Instruction, state: State, second_run: Any, rng: np.random.Generator) -> str:
    """Run both paths and describe the differences; empty if there are none."""
    marks, machine = marks_of(state), machine_of(state).struct
    mark(marks, inst, rng)
    waves = GROUPS[int(rng.integers(len(GROUPS)))]
    group = Group(state, waves, len(np.arange(WAVES)[waves]))
    before = snapshot(marks, tainted=False)
    machine.tainted = False
    try:
        follow(marks, group, inst)
    except Fault:
        restore(marks, before)
        return f"{inst.text}: C reports nothing" * run_in_c(state, group, second_run)
    expected = snapshot(marks, bool(machine.tainted))
    restore(marks, before)
    machine.tainted = False
    if not run_in_c(state, group, second_run):
        return f"{inst.text}: C leaves it to Python"
    got = snapshot(marks, bool(machine.tainted))
    for name, want, have in zip(COMPARED.split(), expected, got, strict=True):
        if isinstance(want, np.ndarray) and (want != have).any():
            place = tuple(np.argwhere(want != have)[0])
            return f"{inst.text}: {name}{list(place)}: C {have[place]:#x}, Python {want[place]:#x}"
        if not isinstance(want, np.ndarray) and want != have:
            return f"{inst.text}: {name}: C {have:#x}, Python {want:#x}"
    return ""


def has_shadow(inst: Instruction, state: State) -> bool:
    """Whether an instruction has a second run in Python; others cannot be assembled."""
    unpacks = inst.mnemonic.startswith("v_cvt_") and inst.mnemonic.endswith(("_fp8", "_bf8"))
    if unpacks and inst.fields.get("dst_sel", 6) != 6:  # they write whole registers
        return False
    try:
        bind(inst, state.target)
        if inst.encoding in VECTOR:
            shadow_of(inst)
    except UnsupportedInstruction:
        return False
    return True


def check(mnemonic: str, target: str, count: int) -> int:
    """Compare both paths on `count` variations of each line; return how many have one in C."""
    state = make_state(waves=WAVES, lds_bytes=256, scratch_bytes=64, target=target, seed=5)
    set_exec(state, MASKS)
    rng, tested, found = np.random.default_rng(7), 0, []
    for inst in listed(target)[mnemonic]:
        for other in variations(inst, inst.text, count):
            if not has_shadow(other, state):
                continue
            second_run = second_run_of(other)
            if second_run is not None:
                tested += 1
                found.append(differs(other, state, second_run, rng))
    wrong = [each for each in found if each]
    assert not wrong, "\n".join(wrong[:20])
    return tested


@pytest.mark.one_in(20)
@pytest.mark.parametrize(
    ("target", "mnemonic"),
    rows_of(lambda: [(target, name) for target in TARGETS for name in listed(target)], width=2),
)
def test_c_carries_undefined_bits_as_python_does(target: str, mnemonic: str) -> None:
    check(mnemonic, target, 8)


def test_what_kernels_compute_with_runs_in_c() -> None:
    names = """
    v_mov_b32 v_add_u32 v_fma_f32 v_fma_f64 v_pk_fma_f32 v_cndmask_b32 v_mad_u64_u32 v_lshl_add_u64
    v_lshlrev_b32 v_and_b32 v_cmp_lt_f32 v_cmp_ne_u32 v_cmp_gt_i64 v_cmp_le_u16
    v_readlane_b32 v_writelane_b32 v_accvgpr_read_b32
    ds_read_b64 ds_write_b128 global_load_dwordx4 global_store_dword buffer_load_dword
    scratch_load_dword
    """
    assert [name for name in names.split() if not check(name, "gfx942", 4)] == []
