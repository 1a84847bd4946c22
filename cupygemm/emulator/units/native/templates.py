"""Native forms of instructions that differ in their register numbers alone, made from one record.

Kernels have few shapes of ALU instructions beside their registers. To resolve operands and
modifiers takes four times as long as to copy the record of an instruction of the same shape and to
write the register numbers into it. Where these are is found by resolving the first instruction of a
shape twice, with different numbers: the records differ there.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from cupygemm.emulator.isa.instruction import Instruction, Operand
from cupygemm.emulator.units.native.form import NativeAlu

Bind = Callable[[Instruction], NativeAlu | None]
_MOST = 1 << 13  # shapes that are kept
# The modifiers of VOP3 and VOP3P: abs, op_sel and clamp; omod, op_sel_hi and neg.
_MODIFIERS = 0xFF00 | 0x1F << 59
_FIRST = 1 << 12  # register numbers of a trial are its multiples, which no instruction has
_WORD = struct.Struct("=i")


class _Template(NamedTuple):
    """The record of a shape of instructions.

    Attributes
    ----------
    form : NativeAlu
    content : bytes
        That of its record.
    places : list of (int, int, int)
        Of each register number: its offset in the record, which operand it is of, and how far it is
        from the operand's first register.
    """

    form: NativeAlu
    content: bytes
    places: list[tuple[int, int, int]]


_templates: dict[tuple[Any, ...], _Template | None] = {}


def bind_by_template(inst: Instruction, bind: Bind, target: str) -> NativeAlu | None:
    """Return what `bind` returns for an instruction without DPP and SDWA."""
    has_modifiers = inst.encoding in ("VOP3", "VOP3P")
    if inst.size > 4 and not has_modifiers:  # a literal, which few instructions share
        return bind(inst)
    modifiers = inst.raw & _MODIFIERS if has_modifiers else 0
    operands = (*inst.dst, *inst.src)
    kinds = [op.kind if op.kind in ("v", "s") else op.index for op in operands]
    shape = (inst.mnemonic, inst.encoding, modifiers, target, len(inst.dst), *kinds)
    try:
        template = _templates[shape]
    except KeyError:
        if len(_templates) >= _MOST:
            _templates.clear()
        template = _templates[shape] = _made(inst, bind)
    if template is None:
        return None
    form, content = template.form, bytearray(template.content)
    for offset, place, distance in template.places:
        _WORD.pack_into(content, offset, operands[place].index + distance)
    record = type(form.record).from_buffer_copy(content)
    return form._replace(operation=ctypes.addressof(record), record=record)


def _made(inst: Instruction, bind: Bind) -> _Template | None:
    """Return the template of an instruction's shape, or None if it has no native form."""
    if bind(inst) is None:  # or it raises, with the instruction's own registers in the message
        return None
    count = len(inst.dst) + len(inst.src)
    numbers = [_FIRST * (place + 1) for place in range(count)]
    form = bind(_renumbered(inst, numbers))
    # The registers of each operand move by another distance, which tells whose number it is.
    other = bind(_renumbered(inst, [number + 1 + place for place, number in enumerate(numbers)]))
    assert form is not None
    assert other is not None
    content = bytes(form.record)
    places = []
    for offset in range(0, len(content), _WORD.size):
        (number,), (moved,) = (
            _WORD.unpack_from(record, offset) for record in (content, bytes(other.record))
        )
        if moved != number:
            place = moved - number - 1
            places.append((offset, place, number - numbers[place]))
    return _Template(form, content, places)


def _renumbered(inst: Instruction, numbers: Sequence[int]) -> Instruction:
    """Return an instruction with other register numbers."""

    def moved(op: Operand, number: int) -> Operand:
        return replace(op, index=number) if op.kind in ("v", "s") else op

    results = len(inst.dst)
    return replace(
        inst,
        dst=tuple(map(moved, inst.dst, numbers)),
        src=tuple(map(moved, inst.src, numbers[results:])),
    )
