"""Native ALU instructions against their Python steps: every register, over random encodings.

The stored listing has every mnemonic in each of its encodings. Each line's other fields (operands,
modifiers, selections, lane patterns) are drawn at random, and both paths execute the instruction on
edge values and random bits, with every lane on, some or none. A new native operation is therefore
tested as soon as its mnemonic is in the listing.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np
import pytest

from cupygemm.emulator.errors import Fault, UnsupportedInstruction
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.targets import TARGETS as TARGET_RECORDS
from cupygemm.emulator.units import bind
from cupygemm.emulator.units.memory.machine import machine_of
from cupygemm.emulator.units.native import alu
from cupygemm.emulator.waves.state import State
from tests.emulator.harness import set_exec
from tests.emulator.listing import TARGETS, entries
from tests.emulator.variations import variations
from tests.emulator.vector_cases import EDGES, FLOAT_EDGES, execute, fresh_state
from tests.tables import rows_of

ENCODINGS = ("SOP1", "SOP2", "SOPC", "SOPK", "VOP1", "VOP2", "VOP3", "VOP3P", "VOPC")
# Each lane is on in one of the last two.
MASKS = (2**64 - 1, 2**64 - 1, 0, 1, 1 << 63, 0x00FF_F0F0_CCCC_7FFE, 0xFF00_0F0F_3333_8001)
WAVES = len(MASKS)
# The default; subnormals of f32 become zero in operands and results, or in one of them.
MODES = (0x3F0, 0x3F0, 0x3C0, 0x3D0, 0x3E0)
UNLISTED = ("0000e2d104019205",)  # v_div_fmas_f32 v0, v4, v0, v100
ALU = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)  # alu_function


@functools.cache
def listed(target: str) -> dict[str, list[Instruction]]:
    """Return the ALU instructions of the listing, and those that it lacks, by mnemonic."""
    found: dict[str, list[Instruction]] = {}
    for entry in entries(target):
        inst = decode(entry.code + bytes(8), target=target)
        if inst.encoding in ENCODINGS:
            found.setdefault(inst.mnemonic, []).append(inst)
    for code in UNLISTED:
        inst = decode(bytes.fromhex(code) + bytes(8), target=target)
        found.setdefault(inst.mnemonic, []).append(inst)
    return found


@functools.cache
def values(target: str) -> tuple[np.ndarray, np.ndarray]:
    """Return contents of the vector and scalar registers: edge values of each width, and others."""
    rng = np.random.default_rng(11)
    halves = np.array([*EDGES[16], *FLOAT_EDGES[16]], np.uint32)
    words = np.array([*EDGES[8], *EDGES[32], *FLOAT_EDGES[32]], np.uint32)
    pairs = np.array([*EDGES[64], *FLOAT_EDGES[64]], np.uint64)

    def fill(shape: tuple[int, ...]) -> np.ndarray:
        count = int(np.prod(shape[1:]))
        rows = np.empty((shape[0] // 2, 2, count), np.uint32)
        for row in rows:
            kind = rng.integers(0, 4, count)
            wide = rng.choice(pairs, count)
            packed = rng.choice(halves, (2, count)) | rng.choice(halves, (2, count)) << 16
            choices = (
                np.stack([wide.astype(np.uint32), (wide >> 32).astype(np.uint32)]),
                rng.choice(words, (2, count)),
                packed,
                rng.integers(0, 2**32, (2, count), np.uint32),
            )
            row[:] = np.choose(kind, choices)
        return rows.reshape(shape)

    vector = fill((512, WAVES, 64))
    # The second wave holds moderate floats alone, as f32 and as f64, which division need not scale.
    moderate = rng.uniform(0.5, 4, (512, 64)) * rng.choice((-1, 1), (512, 64))
    vector[:, 1] = moderate.astype(np.float32).view(np.uint32)
    return vector, fill((128, WAVES))


def start(state: State, target: str, mode: int) -> None:
    state.mode = machine_of(state).struct.mode = mode
    vector, scalar = values(target)
    state.vgpr[:], state.sgpr[:] = vector, scalar
    state.scc[:] = np.arange(WAVES) % 2 == 0
    set_exec(state, MASKS)


def differences(inst: Instruction, state: State, native: alu.NativeAlu) -> list[str]:
    """Run both paths and describe the differences."""
    mode = MODES[inst.raw % len(MODES)]
    if mode & native.mode_mask != native.mode_value:
        return []
    start(state, inst.target, mode)
    try:
        execute(state, inst)
    except (Fault, UnsupportedInstruction):
        return []
    expected = state.vgpr.copy(), state.sgpr.copy(), state.scc.copy()
    start(state, inst.target, mode)
    run_natively(state, native)
    found = []
    for name, want, got in zip(("v", "s"), expected, (state.vgpr, state.sgpr), strict=False):
        if np.array_equal(want, got):  # as nearly always; takes a tenth of the time of a search
            continue
        for place in np.argwhere(want != got)[:3]:
            number, *rest = place
            found.append(
                f"{inst.text} in mode {mode:#x}: {name}{number} {rest}: C {got[tuple(place)]:#x}, "
                f"Python {want[tuple(place)]:#x}"
            )
    if (expected[2] != state.scc).any():
        found.append(f"{inst.text}: SCC: C {state.scc}, Python {expected[2]}")
    return found


def run_natively(state: State, native: alu.NativeAlu) -> None:
    machine = machine_of(state)
    function = ALU(native.function)
    for wave in range(state.num_waves):
        function(machine.address, native.operation, wave)


def check(inst: Instruction, state: State, seed: str, count: int) -> tuple[int, list[str]]:
    tested, found = 0, []
    for other in variations(inst, seed, count):
        try:
            bind(other, state.target)
        except UnsupportedInstruction:
            continue
        native = alu.bind(other, state.target)
        if native is None:
            continue
        tested += 1
        found += differences(other, state, native)
    return tested, found


def check_mnemonic(mnemonic: str, target: str, count: int) -> None:
    """Compare the two paths on `count` variations of each line of the listing."""
    state = fresh_state(WAVES, target)
    tested, found = 0, []
    for inst in listed(target)[mnemonic]:
        number, wrong = check(inst, state, inst.text, count)
        tested += number
        found += wrong
    assert not found, "\n".join(found[:20])
    assert tested or mnemonic in WITHOUT.split()


@pytest.mark.covering
@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    ("target", "mnemonic"),
    rows_of(lambda: [(target, name) for target in TARGETS for name in listed(target)], width=2),
)
def test_native_instructions_do_what_the_python_steps_do(target: str, mnemonic: str) -> None:
    check_mnemonic(mnemonic, target, 12)


# They are rare in kernels, or their Python step uses features that only Python has.
WITHOUT = """
s_call_b64 s_getpc_b64 s_getreg_b32 s_movreld_b32 s_movreld_b64 s_movrels_b32 s_movrels_b64
s_set_gpr_idx_idx s_set_gpr_idx_on s_setpc_b64 s_setreg_b32 s_setreg_imm32_b32 s_setvskip
s_swappc_b64 v_clrexcp v_cubeid_f32 v_cubema_f32 v_cubesc_f32 v_cubetc_f32
v_cvt_scalef32_2xpk16_fp6_f32 v_cvt_scalef32_f16_bf8 v_cvt_scalef32_f16_fp8
v_cvt_scalef32_f32_bf8 v_cvt_scalef32_f32_fp8 v_cvt_scalef32_pk32_bf16_bf6
v_cvt_scalef32_pk32_bf6_bf16 v_cvt_scalef32_pk32_bf6_f16 v_cvt_scalef32_pk32_f16_bf6
v_cvt_scalef32_pk32_f16_fp6 v_cvt_scalef32_pk32_f32_bf6 v_cvt_scalef32_pk32_f32_fp6
v_cvt_scalef32_pk32_fp6_bf16 v_cvt_scalef32_pk_bf16_bf8 v_cvt_scalef32_pk_bf16_fp4
v_cvt_scalef32_pk_bf16_fp8 v_cvt_scalef32_pk_bf8_bf16 v_cvt_scalef32_pk_bf8_f16
v_cvt_scalef32_pk_bf8_f32 v_cvt_scalef32_pk_f16_bf8 v_cvt_scalef32_pk_f16_fp4
v_cvt_scalef32_pk_f16_fp8 v_cvt_scalef32_pk_f32_bf8 v_cvt_scalef32_pk_f32_fp4
v_cvt_scalef32_pk_f32_fp8 v_cvt_scalef32_pk_fp4_bf16 v_cvt_scalef32_pk_fp4_f16
v_cvt_scalef32_pk_fp4_f32 v_cvt_scalef32_pk_fp8_bf16 v_cvt_scalef32_pk_fp8_f16
v_cvt_scalef32_pk_fp8_f32 v_cvt_scalef32_sr_bf8_bf16 v_cvt_scalef32_sr_bf8_f16
v_cvt_scalef32_sr_bf8_f32 v_cvt_scalef32_sr_fp8_bf16 v_cvt_scalef32_sr_fp8_f16
v_cvt_scalef32_sr_fp8_f32 v_cvt_scalef32_sr_pk32_bf6_bf16 v_cvt_scalef32_sr_pk32_bf6_f16
v_cvt_scalef32_sr_pk32_bf6_f32 v_cvt_scalef32_sr_pk32_fp6_f16 v_cvt_scalef32_sr_pk32_fp6_f32
v_cvt_scalef32_sr_pk_fp4_bf16 v_cvt_scalef32_sr_pk_fp4_f16 v_cvt_scalef32_sr_pk_fp4_f32
v_cvt_sr_bf16_f32 v_cvt_sr_f16_f32 v_mad_legacy_f32 v_mqsad_pk_u16_u8 v_mqsad_u32_u8 v_nop
v_qsad_pk_u16_u8 v_screen_partition_4se_b32 v_trig_preop_f64
"""


def has_native_form(inst: Instruction) -> bool:
    target = TARGET_RECORDS[inst.target]
    return any(alu.bind(other, target) for other in variations(inst, inst.text, 8))


def test_only_rare_instructions_have_no_native_form() -> None:
    covered, names = set(), set()
    for target in TARGETS:
        for name, instructions in listed(target).items():
            names.add(name)
            if name not in covered and any(map(has_native_form, instructions)):
                covered.add(name)
    assert names - covered == set(WITHOUT.split())
