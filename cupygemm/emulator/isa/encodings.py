"""Find the encoding of an instruction by its bits.

tinygrad's own search tries the fields of one encoding after another. Here, an encoding is a mask
and a value of its fixed bits, and the first nine bits of an instruction say which encodings it can
have at all.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from cupygemm.emulator.isa.tables import EncodingRow, tables

_ALSO_TRIED = ("MTBUF",)  # tinygrad's own search leaves it out
_VARIANTS = {255: "_LIT", 249: "_SDWA", 250: "_DPP16"}  # by the code of a source
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
    row : EncodingRow

    Attributes
    ----------
    name : str
    size : int
        Bytes of an instruction.
    fields : list of (str, int, int)
        Name, lowest bit and mask of each field.
    mask, value : int
        The fixed bits.
    """

    def __init__(self, row: EncodingRow) -> None:
        self.name, self.size, self.fields = row.name, row.size, row.fields
        self.mask, self.value = row.mask, row.value
        self._row = row
        self._allowed = None if row.allowed is None else frozenset(row.allowed)
        self._op_low, self._op_mask = row.opcode

    def matches(self, raw: int, length: int) -> bool:
        """Tell whether bits that have the fixed ones are an instruction of this encoding.

        Parameters
        ----------
        raw : int
            The first bits of `length` bytes.
        length : int
        """
        return (
            length >= self._row.needed
            and (self._allowed is None or self.opcode(raw) in self._allowed)
            and (self._row.src0 is None or raw & 0x1FF == self._row.src0)
        )

    def variant(self, raw: int) -> Encoding:
        """Return the encoding that the codes of the sources select: this one, or a variant."""
        for low, mask in self._row.sources:
            suffix = _VARIANTS.get(raw >> low & mask)
            if suffix is not None:
                return _encodings().get(self.name + suffix, self)
        return self

    def opcode(self, raw: int) -> int:
        """Return the field that tells the encoding's instructions apart."""
        return raw >> self._op_low & self._op_mask

    @functools.cache  # noqa: B019  # a few encodings, which are never freed
    def instruction(self, opcode: int) -> Opcode:
        """Return the instruction of an opcode.

        Raises
        ------
        ValueError
            The encoding has none.
        """
        found = self._row.instructions.get(str(opcode))
        if found is None:
            raise ValueError(opcode)
        name = found[0].lower().removesuffix("_e32").removesuffix("_e64")
        operands = (
            OperandForm(field, canonical(field), bits, number_format(fmt), kind)
            for field, bits, fmt, kind in (tables().forms[index] for index in found[1])
        )
        return Opcode(_RENAMED.get(name, name), tuple(operands))


def find_encoding(raw: int, length: int) -> Encoding | None:
    """Return the encoding of the instruction in the low bits of `raw`, `length` bytes, or None."""
    for encoding in _candidates()[raw >> 23 & 0x1FF]:
        if raw & encoding.mask == encoding.value and encoding.matches(raw, length):
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
    return {row.name: Encoding(row) for row in tables().rows}


@functools.cache
def _candidates() -> list[list[Encoding]]:
    """Return the encodings that an instruction can have, by its bits 23 to 31."""
    tried = [named(row.name) for row in tables().rows if row.tried or row.name in _ALSO_TRIED]
    return [
        [e for e in tried if not (e.mask >> 23 & 0x1FF & (top ^ (e.value >> 23)))]
        for top in range(512)
    ]
