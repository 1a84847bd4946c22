"""Find the encoding of an instruction by its bits.

This is the only module that knows the source of the encoding tables. They are part of tinygrad's
wheel, generated from AMD's machine-readable ISA, and give the fields, operand widths and number
formats. tinygrad's own search tries the fields of one encoding after another. Here, an encoding is
a mask and a value of its fixed bits, and the first nine bits of an instruction say which encodings
it can have at all.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any, NamedTuple

_VARIANTS = {255: "_LIT", 249: "_SDWA", 250: "_DPP16"}  # by the code of a source
_MARKS = ("_LIT", "_DPP", "_SDWA")  # in the name of an encoding that is a variant
_SPECIAL_SOURCE = {"_SDWA": 249, "_SDWA_SDST": 249, "_DPP16": 250}  # what src0 then is
# LLVM's names of instructions that the tables name differently.
_RENAMED = {
    "v_mad_mix_f32": "v_fma_mix_f32",
    "v_mad_mixlo_f16": "v_fma_mixlo_f16",
    "v_mad_mixhi_f16": "v_fma_mixhi_f16",
    "v_accvgpr_read": "v_accvgpr_read_b32",
    "v_accvgpr_write": "v_accvgpr_write_b32",
}


class OperandForm(NamedTuple):
    """An operand as the tables describe it: its field, bits, number format and kind."""

    name: str
    canonical: str  # without the prefix of src0 and src1
    bits: int
    fmt: str
    kind: str


class Opcode(NamedTuple):
    """An instruction of the tables: LLVM's mnemonic, and the operands."""

    mnemonic: str
    operands: tuple[OperandForm, ...]


class Encoding:
    """An encoding of the tables.

    Parameters
    ----------
    table : type
        tinygrad's class.

    Attributes
    ----------
    name : str
    size : int
        Bytes of an instruction.
    fields : tuple of (str, int, int)
        Name, lowest bit and mask of each field.
    """

    def __init__(self, table: Any) -> None:
        from tinygrad.renderer.amd import dsl

        self.name: str = table.__name__
        self._table, self.size = table, table._size()  # noqa: SLF001  # a public class method
        fields = table._fields  # the tables have no other way to them
        self.fields = tuple((name, field.lo, field.mask) for name, field in fields)
        self.mask = self.value = 0
        for _, field in fields:
            if isinstance(field, dsl.FixedBitField):
                self.mask |= field.mask << field.lo
                self.value |= field.default << field.lo
        self._bytes = 4 + 4 * max(field.lo // 32 for _, field in fields)
        self._op: Any = next(field for name, field in fields if name == "op")
        allowed = getattr(self._op, "allowed", None)
        self._allowed: Collection[int] | None = allowed and {op.value for op in allowed}
        self._src0 = next((v for k, v in _SPECIAL_SOURCE.items() if self.name.endswith(k)), None)
        self._sources: list[tuple[int, int]] = []
        if not any(mark in self.name for mark in _MARKS):
            kinds = (dsl.SrcField, dsl.VGPRField)
            self._sources = [
                (field.lo, field.mask)
                for _, field in fields
                if isinstance(field, kinds[0]) and not isinstance(field, kinds[1])
            ]

    def matches(self, raw: int, length: int) -> bool:
        """Tell whether the first bits of `length` bytes are an instruction of this encoding."""
        return (
            raw & self.mask == self.value
            and length >= self._bytes
            and (self._allowed is None or self.opcode(raw) in self._allowed)
            and (self._src0 is None or raw & 0x1FF == self._src0)
        )

    def variant(self, raw: int) -> Encoding:
        """Return the encoding that the codes of the sources select: this one, or a variant."""
        for low, mask in self._sources:
            suffix = _VARIANTS.get(raw >> low & mask)
            if suffix is not None:
                return _encodings().get(self.name + suffix, self)
        return self

    def opcode(self, raw: int) -> int:
        """Return the field that tells the encoding's instructions apart."""
        number: int = raw >> self._op.lo & self._op.mask
        return number

    @functools.cache  # noqa: B019  # as many encodings as there are tables, which live for ever
    def instruction(self, opcode: int) -> Opcode:
        """Return the instruction of an opcode.

        Raises
        ------
        ValueError
            The encoding has none.
        """
        from tinygrad.renderer.amd.dsl import OPERANDS

        op = self._op.decode(opcode)
        name = op.name.lower().removesuffix("_e32").removesuffix("_e64")
        operands = (
            OperandForm(field, canonical(field), bits, number_format(fmt.name), kind.name)
            for field, (fmt, bits, kind) in OPERANDS.get(op, {}).items()
        )
        return Opcode(_RENAMED.get(name, name), tuple(operands))


def find_encoding(raw: int, length: int) -> Encoding | None:
    """Return the encoding of the instruction in the low bits of `raw`, `length` bytes, or None."""
    for encoding in _candidates()[raw >> 23 & 0x1FF]:
        if encoding.matches(raw, length):
            return encoding.variant(raw)
    return None


def named(name: str) -> Encoding:
    """Return an encoding by its name in the tables."""
    return _encodings()[name]


def canonical(field: str) -> str:
    """Return a field's name without the prefix of some encodings' first two sources."""
    return field[1:] if field in ("vsrc0", "vsrc1", "ssrc0", "ssrc1") else field


def number_format(name: str) -> str:
    """Return a number format without the prefix that it has in the tables."""
    return name.removeprefix("FMT_NUM_").removeprefix("FMT_")


@functools.cache
def _encodings() -> dict[str, Encoding]:
    """Return the encodings by their names, in the order in which they are tried."""
    from tinygrad.renderer.amd import _load_formats
    from tinygrad.renderer.amd.dsl import Inst
    from tinygrad.runtime.autogen.amd.cdna import ins

    found = {table.__name__: Encoding(table) for table in _load_formats()["cdna"]}
    for name, table in vars(ins).items():  # variants, to which only `Encoding.variant` leads
        if isinstance(table, type) and issubclass(table, Inst) and hasattr(table, "op"):
            found.setdefault(name, Encoding(table))
    return found


@functools.cache
def _candidates() -> list[list[Encoding]]:
    """Return the encodings that an instruction can have, by its bits 23 to 31."""
    from tinygrad.renderer.amd import _load_formats

    tried = [named(table.__name__) for table in _load_formats()["cdna"]]
    return [
        [e for e in tried if not (e.mask >> 23 & 0x1FF & (top ^ (e.value >> 23)))]
        for top in range(512)
    ]
