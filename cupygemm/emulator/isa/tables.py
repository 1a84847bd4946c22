"""The encodings of CDNA instructions as plain rows, read from tinygrad and kept in the cache.

This is the only module that knows the source of the encodings. They are part of tinygrad's wheel,
generated from AMD's machine-readable ISA, and give the fields, operand widths and number formats.
Importing tinygrad takes ten times as long as reading the rows.
"""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cupygemm._build.cache import get_or_build

_SOURCES = (
    "renderer/amd/__init__.py",
    "renderer/amd/dsl.py",
    "runtime/autogen/amd/cdna/enum.py",
    "runtime/autogen/amd/cdna/ins.py",
    "runtime/autogen/amd/cdna/operands.py",
)
_SPECIAL_SOURCE = {"_SDWA": 249, "_SDWA_SDST": 249, "_DPP16": 250}  # the value of src0
_MARKS = ("_LIT", "_DPP", "_SDWA")  # in the name of an encoding that is a variant


class EncodingRow(NamedTuple):
    """An encoding.

    Attributes
    ----------
    name : str
    tried : bool
        Whether an instruction may start with it; if not, only a code in a source leads to it.
    size : int
        Bytes of an instruction.
    needed : int
        Bytes that hold all fields.
    fields : list of (str, int, int)
        Name, lowest bit and mask of each field.
    mask, value : int
        The fixed bits.
    opcode : (int, int)
        Lowest bit and mask of the field that tells instructions apart.
    allowed : list of int or None
        The opcodes, if others belong to another encoding.
    src0 : int or None
        The required value of the first source.
    sources : list of (int, int)
        Lowest bit and mask of the sources whose codes select a variant.
    instructions : dict of str to (str, list of int)
        Name and operands, as indices of forms, by opcode.
    """

    name: str
    tried: bool
    size: int
    needed: int
    fields: list[tuple[str, int, int]]
    mask: int
    value: int
    opcode: tuple[int, int]
    allowed: list[int] | None
    src0: int | None
    sources: list[tuple[int, int]]
    instructions: dict[str, tuple[str, list[int]]]


class Tables(NamedTuple):
    """All encodings, in the order in which they are tried.

    Attributes
    ----------
    rows : list of EncodingRow
    forms : list of (str, int, str, str)
        Field, bits, number format and kind of each operand that occurs.
    """

    rows: list[EncodingRow]
    forms: list[tuple[str, int, str, str]]


@functools.cache
def tables() -> Tables:
    """Return the tables, from the cache if they are there."""
    path = get_or_build("isa", _key(), ".json", _write)
    found = json.loads(path.read_text(encoding="utf-8"))
    return Tables([EncodingRow(*row) for row in found["rows"]], found["forms"])


def _key() -> Iterator[str]:
    yield Path(__file__).read_text(encoding="utf-8")
    spec = importlib.util.find_spec("tinygrad")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for name in _SOURCES:
            yield Path(folder, name).read_text(encoding="utf-8")


def _write(output: Path) -> None:
    """Write the tables of tinygrad as JSON."""
    from tinygrad.renderer.amd import _load_formats
    from tinygrad.renderer.amd.dsl import Inst
    from tinygrad.runtime.autogen.amd.cdna import ins

    tried = {table.__name__: table for table in _load_formats()["cdna"]}
    all_of_them = {
        name: table
        for name, table in vars(ins).items()
        if isinstance(table, type) and issubclass(table, Inst) and hasattr(table, "op")
    }
    forms: dict[tuple[str, int, str, str], int] = {}
    rows = [_row(name, tab, name in tried, forms) for name, tab in (tried | all_of_them).items()]
    output.write_text(json.dumps({"rows": rows, "forms": list(forms)}), encoding="utf-8")


def _row(
    name: str, table: Any, tried: bool, forms: dict[tuple[str, int, str, str], int]
) -> EncodingRow:
    from tinygrad.renderer.amd import dsl

    fields = table._fields  # the tables offer no public access
    fixed = [field for _, field in fields if isinstance(field, dsl.FixedBitField)]
    op: Any = next(field for name, field in fields if name == "op")
    allowed = getattr(op, "allowed", None)
    sources = [
        (field.lo, field.mask)
        for _, field in fields
        if isinstance(field, dsl.SrcField) and not isinstance(field, dsl.VGPRField)
    ]
    return EncodingRow(
        name=name,
        tried=tried,
        size=table._size(),  # noqa: SLF001  # a public class method
        needed=4 + 4 * max(field.lo // 32 for _, field in fields),
        fields=[(name, field.lo, field.mask) for name, field in fields],
        mask=sum(field.mask << field.lo for field in fixed),
        value=sum(field.default << field.lo for field in fixed),
        opcode=(op.lo, op.mask),
        allowed=None if allowed is None else sorted(each.value for each in allowed),
        src0=next((v for k, v in _SPECIAL_SOURCE.items() if name.endswith(k)), None),
        sources=[] if any(mark in name for mark in _MARKS) else sources,
        instructions=dict(_instructions(op, forms)),
    )


def _instructions(
    op: Any, forms: dict[tuple[str, int, str, str], int]
) -> Iterator[tuple[str, tuple[str, list[int]]]]:
    from tinygrad.renderer.amd.dsl import OPERANDS

    for opcode in range(op.mask + 1):
        try:
            member = op.decode(opcode)
        except ValueError:
            continue
        operands = [
            forms.setdefault((field, bits, fmt.name, kind.name), len(forms))
            for field, (fmt, bits, kind) in OPERANDS.get(member, {}).items()
        ]
        yield str(opcode), (member.name, operands)
