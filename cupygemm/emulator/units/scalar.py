"""The scalar unit: SOP1, SOP2, SOPC, SOPK and the branches and mode changes of SOPP.

One value per wave: operands are uint32 or uint64 arrays (count,), results wrap. SCC rules follow
AMD's CDNA3 instruction-set guide, chapter 16. s_waitcnt, s_barrier and s_endpgm belong to the run
loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cupygemm.emulator.errors import Fault, UnsupportedInstruction
from cupygemm.emulator.isa import EXEC, M0, Instruction, Operand
from cupygemm.emulator.state import Group
from cupygemm.emulator.targets import Target
from cupygemm.emulator.units.scalar_ops import COMPARES, PAIRS, SINGLES, Width

Step = Callable[[Group], Any]
Source = Callable[[Group], Any]

_FLOAT_INLINE = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0,
                 248: 0.15915494309189532}  # fmt: skip
_MODE_REGISTER, _XCC_ID_REGISTER = 1, 20
_GPR_IDX_ENABLE = 27  # bit of MODE
_IGNORED = {
    "s_nop", "s_sleep", "s_setprio", "s_icache_inv", "s_incperflevel", "s_decperflevel",
    "s_ttracedata",
    "s_wakeup", "s_sethalt",
}  # fmt: skip


def bind(inst: Instruction, target: Target) -> Step | None:
    """Return the step of a scalar instruction, or None if there is none."""
    name = inst.mnemonic
    if inst.encoding == "SOPP":
        return _bind_program_control(inst)
    if inst.encoding == "SOPK":
        return _bind_immediate(inst, target)
    if name in COMPARES:
        width, compare = COMPARES[name]
        left, right = (
            scalar_source(op, width if i == 0 else None) for i, op in enumerate(inst.src)
        )
        return lambda group: group.set_scc(compare(left(group), right(group)))
    if name in PAIRS:
        return _bind_pair(inst)
    if name in SINGLES:
        return _bind_single(inst)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(inst)
    if "_saveexec_" in name or "_wrexec_" in name:
        return _bind_exec(inst)
    return None


def scalar_source(op: Operand, width: Width | None = None) -> Source:
    """Return a function that fetches a scalar operand, an array (count,) or a NumPy scalar.

    Parameters
    ----------
    op : Operand
    width : {32, 64}, optional
        Width of the value; the operand's own by default.
    """
    wide = (width or (64 if op.count == 2 or op.bits == 64 else 32)) == 64
    if op.kind == "s":
        index = op.index
        return (lambda group: group.s64(index)) if wide else (lambda group: group.s(index))
    if op.kind == "special":
        return _special_source(op.index)
    constant: Any = constant_bits(op, 64 if wide else 32)
    return lambda _group: constant


def constant_bits(op: Operand, bits: int) -> np.uint32 | np.uint64:
    """Return the bit pattern of an inline constant or literal as an operand of 32 or 64 bits."""
    code = op.index
    kind = np.uint64 if bits == 64 else np.uint32
    if code in _FLOAT_INLINE:
        value = _FLOAT_INLINE[code]
        pattern = (
            np.float64(value).view(np.uint64) if bits == 64 else np.float32(value).view(np.uint32)
        )
        return kind(pattern)
    if code == 255:
        literal = op.literal
        if bits == 64 and op.fmt.startswith("I") and literal >> 31:
            literal |= 0xFFFFFFFF << 32
        return kind(literal)
    integer = code - 128 if code <= 192 else 192 - code
    return kind(integer & (1 << bits) - 1)


def _special_source(code: int) -> Source:
    if code == 251:  # vccz
        return lambda group: (group.s64(106) == 0).astype(np.uint32)
    if code == 252:  # execz
        return lambda group: (group.s64(EXEC) == 0).astype(np.uint32)
    if code == 253:
        return lambda group: group.scc.astype(np.uint32)
    from cupygemm.emulator.isa import APERTURE_PRIVATE, APERTURE_SHARED

    apertures = {
        235: APERTURE_SHARED, 236: APERTURE_SHARED + 0xFFFFFFFF,
        237: APERTURE_PRIVATE, 238: APERTURE_PRIVATE + 0xFFFFFFFF,
    }  # fmt: skip
    if code not in apertures:
        raise UnsupportedInstruction(f"scalar source operand {code} is not supported")
    value = np.uint64(apertures[code])
    return lambda _group: value


# -- arithmetic ------------------------------------------------------------------------------------


def _bind_pair(inst: Instruction) -> Step:
    width, is_count, operation = PAIRS[inst.mnemonic]
    left = scalar_source(inst.src[0], width)
    right = scalar_source(inst.src[1], 32 if is_count else width)
    if inst.mnemonic.startswith("s_pack_"):
        left = scalar_source(inst.src[0], 32)
    return _store_result(inst, lambda group: operation(left(group), right(group), group.scc))


def _bind_single(inst: Instruction) -> Step:
    width, operation = SINGLES[inst.mnemonic]
    source = scalar_source(inst.src[0], width)
    return _store_result(inst, lambda group: operation(source(group)))


def _store_result(inst: Instruction, compute: Callable[[Group], tuple[Any, Any]]) -> Step:
    index, wide = inst.dst[0].index, inst.dst[0].count == 2

    def step(group: Group) -> None:
        value, scc = compute(group)
        if wide:
            group.set_s64(index, value)
        else:
            group.set_s(index, value)
        if scc is not None:
            group.set_scc(scc)

    return step


def _bind_exec(inst: Instruction) -> Step | None:
    """Bind s_<op>_saveexec_b64 (dst = exec, exec = op) and s_<op>_wrexec_b64 (dst = exec = op)."""
    operations: dict[str, Callable[[Any, Any], Any]] = {
        "and": lambda s, e: s & e, "or": lambda s, e: s | e, "xor": lambda s, e: s ^ e,
        "andn2": lambda s, e: s & ~e, "orn2": lambda s, e: s | ~e, "nand": lambda s, e: ~(s & e),
        "nor": lambda s, e: ~(s | e), "xnor": lambda s, e: ~(s ^ e), "andn1": lambda s, e: ~s & e,
        "orn1": lambda s, e: ~s | e,
    }  # fmt: skip
    operation = operations[inst.mnemonic.split("_")[1]]
    source, index = scalar_source(inst.src[0], 64), inst.dst[0].index
    save = "_saveexec_" in inst.mnemonic

    def step(group: Group) -> None:
        old = group.s64(EXEC)
        new = operation(source(group), old)
        group.set_s64(index, old if save else new)
        group.set_s64(EXEC, new)
        group.set_scc(new != 0)

    return step


# -- SOPK ------------------------------------------------------------------------------------------


def _bind_immediate(inst: Instruction, target: Target) -> Step | None:
    name, raw = inst.mnemonic, inst.fields["simm16"]
    signed = raw - (1 << 16) if raw >> 15 else raw
    index = inst.fields["sdst"]
    immediate = np.uint32(signed & 0xFFFFFFFF)
    if name.startswith("s_cmpk_"):
        _, compare = COMPARES["s_cmp_" + name.removeprefix("s_cmpk_")]
        operand = np.uint32(raw) if name.endswith("u32") else immediate
        return lambda group: group.set_scc(compare(group.s(index), operand))
    if name == "s_movk_i32":
        return lambda group: group.set_s(index, immediate)
    if name == "s_cmovk_i32":
        return lambda group: group.set_s(index, np.where(group.scc, immediate, group.s(index)))
    if name in ("s_addk_i32", "s_mulk_i32"):
        operation = PAIRS["s_add_i32" if name == "s_addk_i32" else "s_mul_i32"][2]
        return _store_result(inst, lambda group: operation(group.s(index), immediate, group.scc))
    if name == "s_call_b64":
        return _bind_call(index, signed)
    register, offset, size = raw & 63, raw >> 6 & 31, (raw >> 11 & 31) + 1
    mask = ((1 << size) - 1) << offset
    if name == "s_getreg_b32":
        return _bind_getreg(index, register, offset, mask, target)
    if name in ("s_setreg_b32", "s_setreg_imm32_b32"):
        literal = np.uint32(inst.fields.get("literal", 0))
        value: Source = (lambda g: g.s(index)) if name == "s_setreg_b32" else (lambda _g: literal)
        return _bind_setreg(value, register, offset, mask)
    return None


def _bind_call(index: int, offset: int) -> Step:
    def step(group: Group) -> int:
        after = group.state.current_pc + 4
        group.set_s64(index, np.uint64(group.state.kernel.code_object.base + after))
        return after + 4 * offset

    return step


def _bind_getreg(index: int, register: int, offset: int, mask: int, target: Target) -> Step:
    def step(group: Group) -> None:
        if register == _MODE_REGISTER:
            value: Any = group.state.modes[group.waves]
        elif register == _XCC_ID_REGISTER:
            # Workgroup w of a launch is dealt to XCD w mod the number of XCDs.
            value = group.state.launch_order[group.workgroup] % target.num_xcds
        else:
            value = np.uint32(0)
        group.set_s(index, (np.asarray(value, np.uint32) & np.uint32(mask)) >> np.uint32(offset))

    return step


def _bind_setreg(value: Source, register: int, offset: int, mask: int) -> Step:
    def step(group: Group) -> None:
        if register != _MODE_REGISTER:
            return  # the others are debug and trap state
        modes = group.state.modes
        bits = (value(group) << np.uint32(offset)) & np.uint32(mask)
        modes[group.waves] = (modes[group.waves] & np.uint32(~mask & 0xFFFFFFFF)) | bits
        if np.ptp(modes[group.waves]):
            raise UnsupportedInstruction("s_setreg gives waves of one group different MODE values")
        group.state.mode = int(np.atleast_1d(modes[group.waves])[0])

    return step


# -- program control -------------------------------------------------------------------------------

_CONDITIONS: dict[str, Callable[[Group], Any]] = {
    "s_cbranch_scc0": lambda group: ~group.scc,
    "s_cbranch_scc1": lambda group: group.scc,
    "s_cbranch_vccz": lambda group: group.s64(106) == 0,
    "s_cbranch_vccnz": lambda group: group.s64(106) != 0,
    "s_cbranch_execz": lambda group: group.s64(EXEC) == 0,
    "s_cbranch_execnz": lambda group: group.s64(EXEC) != 0,
}


def _bind_program_control(inst: Instruction) -> Step | None:
    name, raw = inst.mnemonic, inst.fields["simm16"]
    jump = 4 + 4 * (raw - (1 << 16) if raw >> 15 else raw)
    if name in _IGNORED:
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

        def trap(_group: Group) -> None:
            raise Fault(
                "trap", f"the kernel ended itself with s_trap {raw}: an abort() or an assert"
            )

        return trap
    if name == "s_set_gpr_idx_off":
        return lambda group: _set_index_mode(group, 0, None)
    if name == "s_set_gpr_idx_mode":
        return lambda group: _set_index_mode(group, None, raw & 15)
    if name == "s_sendmsg" and raw & 15 in (3, 9):  # dealloc VGPRs, get doorbell: nothing to do
        return lambda _group: None
    return None


def _set_index_mode(group: Group, enable: int | None, kinds: int | None) -> None:
    """Set MODE.gpr_idx_en and the index kinds that M0[15:12] holds."""
    if enable is not None:
        modes = group.state.modes
        cleared = modes[group.waves] & np.uint32(~(1 << _GPR_IDX_ENABLE) & 0xFFFFFFFF)
        modes[group.waves] = cleared | np.uint32(enable << _GPR_IDX_ENABLE)
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


def _bind_conditional_move(inst: Instruction) -> Step:
    wide = inst.dst[0].count == 2
    source, index = scalar_source(inst.src[0], 64 if wide else 32), inst.dst[0].index

    def step(group: Group) -> None:
        old = group.s64(index) if wide else group.s(index)
        value = np.where(group.scc, source(group), old)
        if wide:
            group.set_s64(index, value)
        else:
            group.set_s(index, value)

    return step


def _bind_bitset(inst: Instruction) -> Step:
    wide, index = inst.dst[0].count == 2, inst.dst[0].index
    source, setting = scalar_source(inst.src[0], 32), "bitset1" in inst.mnemonic

    def step(group: Group) -> None:
        old = group.s64(index) if wide else group.s(index)
        kind: Any = old.dtype.type
        bit = kind(1) << (np.asarray(source(group)).astype(kind) & kind(63 if wide else 31))
        value = old | bit if setting else old & ~bit
        if wide:
            group.set_s64(index, value)
        else:
            group.set_s(index, value)

    return step


def _bind_relative_move(inst: Instruction) -> Step:
    """Bind s_movrels and s_movreld: register number plus M0."""
    wide, relative_source = inst.dst[0].count == 2, "movrels" in inst.mnemonic
    source, target = inst.src[0], inst.dst[0].index

    def step(group: Group) -> None:
        sgpr, ids = group.state.sgpr, group.wave_ids
        shift = group.s(M0).astype(np.intp)
        for word in range(2 if wide else 1):
            if relative_source:
                sgpr[target + word, ids] = sgpr[source.index + shift + word, ids]
            else:
                value = np.asarray(scalar_source(source, 64 if wide else 32)(group), np.uint64)
                sgpr[target + shift + word, ids] = (value >> np.uint64(32 * word)).astype(np.uint32)

    return step


_SPECIAL: dict[str, Callable[[Instruction], Step]] = {
    "s_getpc_b64": _bind_getpc,
    "s_setpc_b64": _bind_setpc,
    "s_swappc_b64": _bind_setpc,
    "s_cmov_b32": _bind_conditional_move,
    "s_cmov_b64": _bind_conditional_move,
    "s_bitset0_b32": _bind_bitset,
    "s_bitset1_b32": _bind_bitset,
    "s_bitset0_b64": _bind_bitset,
    "s_bitset1_b64": _bind_bitset,
    "s_movrels_b32": _bind_relative_move,
    "s_movrels_b64": _bind_relative_move,
    "s_movreld_b32": _bind_relative_move,
    "s_movreld_b64": _bind_relative_move,
    "s_set_gpr_idx_on": _bind_index_on,
    "s_set_gpr_idx_idx": _bind_index_value,
}
