"""Undefined bits through scalar instructions, SCC included.

A lane mask is a scalar, and its bits are tracked one by one: the comparison of an undefined value
makes only its own lane's bit undefined, and an AND with a mask whose bit is 0 makes it defined
again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cupygemm.emulator.definedness.bits import anywhere, comparison, logic, table_of, upward
from cupygemm.emulator.isa.instruction import EXEC, VCC, Instruction, Operand
from cupygemm.emulator.units.scalar.arithmetic import LOGIC, PAIRS, SINGLES
from cupygemm.emulator.units.scalar.scc import reads_scc
from cupygemm.emulator.units.scalar.source import scalar_source
from cupygemm.emulator.waves.marks import SCC, Marks
from cupygemm.emulator.waves.state import Group

_TABLES = {name: table_of(function, 2) for name, function in LOGIC.items()}
_SUMS = tuple("s_add_ s_sub_ s_mul_i32 s_lshl1_ s_lshl2_ s_lshl3_ s_lshl4_ s_addk_ s_mulk_".split())
# The bits of the result are bits of the first source, moved; s_pack_ moves bits of both sources.
_MOVED = tuple("s_lshl_ s_lshr_ s_ashr_ s_bfe_ s_pack_ s_brev_ s_sext_ s_bitreplicate_".split())
_PLAIN = ("s_mov_b", "s_not_b")
_COMPARES = ("s_cmp_", "s_cmpk_", "s_bitcmp")
_MOVES = ("s_mov", "s_cmov", "s_cselect", "s_and", "s_or", *_MOVED)


def moves(inst: Instruction) -> bool:
    """Return whether an instruction only moves bits."""
    return inst.mnemonic.startswith(_MOVES)


def undefined_of(marks: Marks, group: Group, op: Operand, *, wide: bool | None = None) -> Any:
    """Return the undefined bits of a scalar source as uint32 or uint64 (count,)."""
    wide = op.count == 2 or op.bits == 64 if wide is None else wide
    dtype = np.dtype(np.uint64 if wide else np.uint32)
    rows = marks.undefined_scalar
    if op.kind == "special" and op.index in (251, 253):  # vccz, scc
        row = SCC if op.index == 253 else VCC
        return anywhere(rows[row, group.waves], dtype)
    if op.kind != "s":
        return np.zeros(group.count, dtype)
    low = rows[op.index, group.waves].astype(dtype)
    if not wide:
        return low
    return low | rows[op.index + 1, group.waves].astype(dtype) << dtype.type(32)


def result_of(marks: Marks, group: Group, inst: Instruction) -> tuple[Any, Any]:
    """Return the undefined bits of an instruction's result, and whether its SCC is undefined.

    It is called before the instruction executes. The bits are those of the destination, or of EXEC
    if the instruction writes it; uint32 or uint64 (count,). The flag is a bool array (count,).
    """
    name = inst.mnemonic
    if "_saveexec_" in name or "_wrexec_" in name:
        return _exec_result(marks, group, inst)
    operands = [op for op in inst.src if op.index != EXEC or op.kind != "s"]
    bits = [undefined_of(marks, group, op) for op in operands]
    found: Any = np.zeros(group.count, bool)
    for source_bits in bits:
        found = found | (source_bits != 0)
    flag = marks.undefined_scalar[SCC, group.waves] != 0
    if name.startswith(_COMPARES):
        return found, _comparison(group, inst, operands, bits, found)
    if not inst.dst:
        return found, found
    dtype = np.dtype(np.uint64 if inst.dst[0].count == 2 else np.uint32)
    if reads_scc(inst) and not name.startswith(("s_cselect_", "s_cmov")):
        found = found | flag
    result = _result(marks, group, inst, dtype, found)
    if name.startswith(("s_and", "s_or", "s_xor", "s_n", "s_x", "s_lsh", "s_ashr", "s_bfe")):
        found = result != 0
    return result, found


def _comparison(
    group: Group, inst: Instruction, operands: list[Operand], bits: list[Any], found: Any
) -> Any:
    """Return in which waves the result of a comparison is undefined."""
    if not inst.mnemonic.startswith("s_cmp_"):
        return found
    relation, kind = inst.mnemonic.removeprefix("s_cmp_").split("_")
    values = [np.asarray(_value(group, op, kind.endswith("64"))) for op in operands]
    return comparison(relation, values, bits, signed=kind[0] == "i")


def _result(marks: Marks, group: Group, inst: Instruction, dtype: np.dtype[Any], found: Any) -> Any:
    name, sources = inst.mnemonic, inst.src
    wide = dtype.itemsize == 8
    operation, _, _ = name.removeprefix("s_").partition("_")
    if operation in _TABLES and len(sources) == 2:
        values = [np.asarray(_value(group, op, wide)) for op in sources]
        return logic(
            _TABLES[operation],
            values,
            [undefined_of(marks, group, op, wide=wide) for op in sources],
        )
    if name.startswith(_PLAIN):
        return undefined_of(marks, group, sources[0], wide=wide)
    if name.startswith("s_cselect_"):
        first, second = (undefined_of(marks, group, op, wide=wide) for op in sources[:2])
        chosen = np.where(group.scc, first, second)
        unsure = marks.undefined_scalar[SCC, group.waves] != 0
        return np.where(unsure, anywhere(np.ones(group.count), dtype), chosen).astype(dtype)
    if name.startswith(_SUMS) and not wide:
        total: Any = np.zeros(group.count, np.uint32)
        for op in sources:
            total = total | undefined_of(marks, group, op, wide=False)
        return upward(total)
    if name.startswith(_MOVED):
        return _moved(marks, group, inst, dtype)
    return anywhere(found, dtype)


def _moved(marks: Marks, group: Group, inst: Instruction, dtype: np.dtype[Any]) -> Any:
    name, sources = inst.mnemonic, inst.src
    if name in SINGLES:
        single, width = SINGLES[name]
        moved, _ = single(undefined_of(marks, group, sources[0], wide=width == 64))
        return moved
    pair, width, counts = PAIRS[name]
    first = undefined_of(marks, group, sources[0], wide=width == 64)
    second = undefined_of(marks, group, sources[1], wide=width == 64 and not counts)
    if name.startswith("s_pack_"):
        moved, _ = pair(first, second, group.scc)
        return moved
    moved, _ = pair(first, np.asarray(_value(group, sources[1], wide=False)), group.scc)
    return moved | anywhere(second, dtype)


def _value(group: Group, op: Operand, wide: bool) -> Any:
    return scalar_source(op, 64 if wide else 32)(group)


def _exec_result(marks: Marks, group: Group, inst: Instruction) -> tuple[Any, Any]:
    operation = inst.mnemonic.split("_")[1]
    op = inst.src[0]
    values = [np.asarray(_value(group, op, wide=True)), group.s64(EXEC)]
    bits = [undefined_of(marks, group, op, wide=True), np.zeros(group.count, np.uint64)]
    result = logic(_TABLES[operation], values, bits)
    return result, result != 0


def branch_undefined(marks: Marks, group: Group, inst: Instruction) -> Any:
    """Return which waves branch on an undefined condition, as bool (count,)."""
    name = inst.mnemonic
    if "_scc" in name:
        return marks.undefined_scalar[SCC, group.waves] != 0
    if "_vcc" not in name:
        return np.zeros(group.count, bool)
    low, high = (marks.undefined_scalar[VCC + i, group.waves].astype(np.uint64) for i in (0, 1))
    undefined = low | high << np.uint64(32)
    return (undefined != 0) & (group.s64(VCC) & ~undefined == 0)
