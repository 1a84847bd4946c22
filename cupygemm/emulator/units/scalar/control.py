"""Program control of the scalar unit: branches, calls, MODE and other hardware registers.

The run loop implements s_waitcnt, s_barrier and s_endpgm. The step of a branch returns where the
waves continue: one byte offset, or one per wave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cupygemm.emulator.errors import Fault, UnsupportedInstruction, lanes_of
from cupygemm.emulator.isa.instruction import EXEC, M0, VCC, Instruction
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units.scalar.source import Source, scalar_source
from cupygemm.emulator.waves.state import GPR_INDEX, VSKIP, Group

Step = Callable[[Group], Any]

_MODE_REGISTER, _XCC_ID_REGISTER = 1, 20
IGNORED = frozenset(  # their effects are not modelled
    """
    s_nop s_sleep s_setprio s_icache_inv s_incperflevel s_decperflevel s_ttracedata s_wakeup
    s_sethalt
    """.split()
)

_CONDITIONS: dict[str, Callable[[Group], Any]] = {
    "s_cbranch_scc0": lambda group: ~group.scc,
    "s_cbranch_scc1": lambda group: group.scc,
    "s_cbranch_vccz": lambda group: group.s64(VCC) == 0,
    "s_cbranch_vccnz": lambda group: group.s64(VCC) != 0,
    "s_cbranch_execz": lambda group: group.s64(EXEC) == 0,
    "s_cbranch_execnz": lambda group: group.s64(EXEC) != 0,
}


_WRONG_MASK = 32  # the s_trap by which device/warp_sync.h reports a mask
# Other s_trap instructions of the headers here: the kind of fault, and what to do.
_TRAPS = {
    33: (
        "failed assert",
        "the condition of an assert() is false in these lanes; define NDEBUG to compile without it",
    ),
    34: (
        "grid_group::sync outside a cooperative launch",
        (
            "workgroups may wait for each other only if all of them are on the device together:\n"
            "launch the kernel by hipLaunchCooperativeKernel, or emulator.launch(cooperative=True)"
        ),
    ),
    35: (
        "tiled_partition of an impossible size",
        "a tile has a power of two of lanes, at most 64",
    ),
}
_UNKNOWN_TRAP = "trap", "the kernel executed s_trap {}: an abort(), or what -fsanitize= looks for"


def bind_program_control(inst: Instruction) -> Step | None:
    """Return the step of a SOPP instruction, or None if it is not emulated."""
    name, raw = inst.mnemonic, inst.fields["simm16"]
    jump = inst.jump
    if name in IGNORED:
        return lambda _group: None
    if name == "s_branch":
        return lambda group: group.state.current_pc + jump
    if name in _CONDITIONS:
        condition = _CONDITIONS[name]

        def branch(group: Group) -> Any:
            taken = condition(group)
            pc = group.state.current_pc
            if taken.all():
                return pc + jump
            if not taken.any():
                return pc + 4
            return np.where(taken, pc + jump, pc + 4)

        return branch
    if name == "s_trap":

        def trap(group: Group) -> None:
            lanes = lanes_of(int(group.s64(EXEC)[0]))
            if raw == _WRONG_MASK:
                _report_mask(group, lanes)
                return
            kind, what = _TRAPS.get(raw, _UNKNOWN_TRAP)
            raise Fault(
                kind,
                what.format(raw),
                wave=0,
                lane=lanes[0] if lanes else -1,
                lanes=lanes,
            )

        return trap
    if name == "s_set_gpr_idx_off":
        return lambda group: _set_index_mode(group, 0, None)
    if name == "s_set_gpr_idx_mode":
        return lambda group: _set_index_mode(group, None, raw & 15)
    if name == "s_sendmsg" and raw & 15 in (3, 9):  # dealloc VGPRs, get doorbell: nothing to do
        return lambda _group: None
    return None


def _report_mask(group: Group, lanes: tuple[int, ...]) -> None:
    fault = Fault(
        "mask of other lanes",
        "a _sync function is called with a mask that does not name exactly the lanes that call\n"
        "it with this mask: ROCm's functions stop the kernel there, unless NDEBUG is defined.\n"
        "A wave has 64 lanes: pass ~0ull where all take part, or the result of __ballot()",
        wave=0,
        lane=lanes[0],
        lanes=lanes,
        check="sync_masks",
    )
    group.state.findings.report(fault, group, group.state.current_pc)


def _bind_getpc(inst: Instruction) -> Step:
    index = inst.dst[0].index
    return lambda group: group.set_s64(
        index, np.uint64(group.state.kernel.code_object.base + group.state.current_pc + 4)
    )


def _bind_setpc(inst: Instruction) -> Step:
    """Bind s_setpc_b64 and s_swappc_b64, the return and the call of a function."""
    source = scalar_source(inst.src[0], 64)
    link = inst.dst[0].index if inst.mnemonic == "s_swappc_b64" else None

    def step(group: Group) -> Any:
        base = group.state.kernel.code_object.base
        targets = source(group)
        if link is not None:
            group.set_s64(link, np.uint64(base + group.state.current_pc + 4))
        return targets.astype(np.int64) - base

    return step


def bind_call(index: int, jump: int) -> Step:
    """Return the step of s_call_b64, whose target is `jump` bytes from it."""

    def step(group: Group) -> int:
        pc = group.state.current_pc
        group.set_s64(index, np.uint64(group.state.kernel.code_object.base + pc + 4))
        return pc + jump

    return step


PROGRAM_COUNTER: dict[str, Callable[[Instruction], Step]] = {
    "s_getpc_b64": _bind_getpc,
    "s_setpc_b64": _bind_setpc,
    "s_swappc_b64": _bind_setpc,
}
"""SOP1 instructions that read or set the program counter."""


# -- MODE and other hardware registers -------------------------------------------------------------


def bind_getreg(index: int, register: int, offset: int, mask: int, target: Target) -> Step:
    """Return the step of s_getreg_b32, which reads a field of a hardware register."""

    def step(group: Group) -> None:
        if register == _MODE_REGISTER:
            value: Any = group.state.modes[group.waves]
        elif register == _XCC_ID_REGISTER:
            # Workgroups are distributed over the XCDs in turn.
            value = group.state.launch_order[group.workgroup] % target.num_xcds
        else:
            value = np.uint32(0)
        group.set_s(index, (np.asarray(value, np.uint32) & np.uint32(mask)) >> np.uint32(offset))

    return step


def bind_setreg(value: Source, register: int, offset: int, mask: int) -> Step:
    """Return the step of s_setreg, which writes a field of a hardware register."""

    def step(group: Group) -> None:
        if register != _MODE_REGISTER:
            return  # the other registers hold debug and trap state
        modes = group.state.modes
        bits = (value(group) << np.uint32(offset)) & np.uint32(mask)
        modes[group.waves] = (modes[group.waves] & np.uint32(~mask & 0xFFFFFFFF)) | bits
        if np.ptp(modes[group.waves]):
            raise UnsupportedInstruction(
                "s_setreg writes different MODE values in the waves of one group"
            )
        group.state.mode = int(np.atleast_1d(modes[group.waves])[0])

    return step


def _set_index_mode(group: Group, enable: int | None, kinds: int | None) -> None:
    """Set MODE.gpr_idx_en and the index kinds that M0[15:12] holds."""
    if enable is not None:
        modes = group.state.modes
        cleared = modes[group.waves] & np.uint32(~GPR_INDEX & 0xFFFFFFFF)
        modes[group.waves] = cleared | np.uint32(enable * GPR_INDEX)
        group.state.mode = int(np.atleast_1d(modes[group.waves])[0])
    if kinds is not None:
        group.set_s(M0, (group.s(M0) & np.uint32(0xFFFF0FFF)) | np.uint32(kinds << 12))


def _bind_index_on(inst: Instruction) -> Step:
    source, kinds = scalar_source(inst.src[0], 32), inst.raw >> 8 & 15

    def step(group: Group) -> None:
        group.set_s(M0, (group.s(M0) & np.uint32(0xFFFFFF00)) | (source(group) & np.uint32(0xFF)))
        _set_index_mode(group, 1, kinds)

    return step


def _bind_index_value(inst: Instruction) -> Step:
    source = scalar_source(inst.src[0], 32)
    return lambda group: group.set_s(
        M0, (group.s(M0) & np.uint32(0xFFFFFF00)) | (source(group) & np.uint32(0xFF))
    )


def _bind_vector_skip(inst: Instruction) -> Step:
    """Bind s_setvskip, which copies a bit of its first operand to MODE.vskip.

    The run loop skips vector instructions where that bit is set.
    """
    value, position = scalar_source(inst.src[0], 32), scalar_source(inst.src[1], 32)

    def step(group: Group) -> None:
        modes = group.state.modes
        bit = np.asarray(value(group)) >> (np.asarray(position(group)) & np.uint32(31))
        skips = (bit & np.uint32(1)) * np.uint32(VSKIP)
        modes[group.waves] = (modes[group.waves] & np.uint32(~VSKIP & 0xFFFFFFFF)) | skips
        group.state.mode = int(np.atleast_1d(modes[group.waves])[0])

    return step


INDEX_MODE: dict[str, Callable[[Instruction], Step]] = {
    "s_set_gpr_idx_on": _bind_index_on,
    "s_set_gpr_idx_idx": _bind_index_value,
    "s_setvskip": _bind_vector_skip,
}
"""Steps of the instructions that change how vector instructions are executed."""
