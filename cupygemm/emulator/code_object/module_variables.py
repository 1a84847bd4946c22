"""Name the element of a ``__device__`` or ``__constant__`` variable at an address or an index.

    symbol table ─► variable and its bytes ─► type, from DWARF (-g) or the source's declaration
        ─► element: scratch[0], params[1].w[2]

Without a type, a location is named as a byte of its variable.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from elftools.elf.elffile import ELFFile

from cupygemm.emulator.code_object.declarations import (
    Variable,
    declaration_of,
    declared_as,
    element_of,
    subscripts,
)
from cupygemm.emulator.code_object.elf import damage_reported
from cupygemm.emulator.code_object.line_table import line_table
from cupygemm.emulator.weak_cache import weak_cache

if TYPE_CHECKING:
    from cupygemm.emulator.code_object.loading import CodeObject, Kernel

_NESTED = re.compile(r"L?(\d+)")
_NAME, _STEP = re.compile(r"\b[A-Za-z_]\w*"), re.compile(r"\s*(?:\[|(?:\.|->|::)\s*\w+)")
_SUBSCRIPTED = re.compile(r"(\w+)\s*\[\]")
_STORED = re.compile(r"(?:[-+*/%&|^]|<<|>>)?=(?!=)")
_TYPEDEFS = ("DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type")


@dataclass(frozen=True)
class ModuleVariable:
    """A variable of a module.

    Attributes
    ----------
    name : str
        The name in the source, without its namespaces.
    address, size : int
        Address on the device, and size in bytes.
    type : DIE or None
        Its type in the debug information.
    declared : Variable or None
        Its declaration in the source.
    """

    name: str
    address: int
    size: int
    type: Any
    declared: Variable | None

    def element(self, address: int) -> str:
        """Return the element at an address: ``scratch[0] of __device__ ...``."""
        offset = address - self.address
        if self.type is not None:
            return f"{self.name}{''.join(_path(self.type, offset))}"
        if self.declared is not None:
            byte = offset % self.declared.element_bytes
            inside = f"byte {byte} of " if byte else ""
            return f"{inside}{element_of(self.declared, offset)}"
        return self.name if self.size <= 8 else f"byte {offset} of {self.name}"

    def __str__(self) -> str:
        known = declaration_of(self.declared) if self.declared else self.name
        return f"{known} ({self.size} byte{'s' * (self.size != 1)})"


@dataclass(frozen=True)
class IndexedArray:
    """An array that an index expression of the source accesses.

    Attributes
    ----------
    declared : Variable
    """

    declared: Variable

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.declared.extents)

    def element(self, index: int) -> str:
        """Return an element's name in source; outside, the first subscript is out of range.

        Parameters
        ----------
        index : int
            Index over all dimensions.
        """
        return element_of(self.declared, index * self.declared.element_bytes)

    def __str__(self) -> str:
        return f"{declaration_of(self.declared)}, which has {self.count} elements"


@weak_cache
def module_variables(code_object: CodeObject) -> list[ModuleVariable]:
    """Return the variables of a module."""
    types = _types(code_object.elf)
    _, text = code_object.program
    kernels = {f"{name}.kd" for name in code_object.kernels}
    return [
        _variable(symbol, address, size, types, text)
        for symbol, (address, size) in code_object.symbols.items()
        if size and symbol not in kernels and not symbol.startswith("__hip_cuid")
    ]


def variable_at(code_object: CodeObject, address: int) -> str:
    """Describe the element of a module's variable at an address; "" if none is there."""
    for each in module_variables(code_object):
        if each.address <= address < each.address + each.size:
            return f"{each.element(address)} of the module's variable {each}"
    return ""


def indexed_at(kernel: Kernel, pc: int) -> IndexedArray | None:
    """Return the array that source indexes at an instruction's column; None if not certain."""
    around = line_table(kernel.code_object).text_around(pc)
    if around is None:
        return None
    before, after = around
    stored = _STORED.match(after) is not None  # the column is that of the operator
    text = next(_ending(before.rstrip()), "") if stored else _leading(after)
    arrays = list(_SUBSCRIPTED.finditer(_without_subscripts(text)))
    if not arrays:
        return None
    source = line_table(kernel.code_object).source_of(pc)
    name = arrays[-1][1]
    sizes = [each.size for each in module_variables(kernel.code_object) if each.name == name]
    declared = declared_as(source, name, size=sizes[0] if len(sizes) == 1 else 0)
    if declared is None or not declared.extents:
        return None
    return IndexedArray(replace(declared, offset=0))


def _leading(text: str) -> str:
    """Return the element with which a text begins: ``params[i].w[2]``."""
    end = 0
    while part := _STEP.match(text, end) if end else _NAME.match(text):
        end = part.end()
        if part[0] == "[":
            depth = 1
            while depth and end < len(text):
                depth += (text[end] == "[") - (text[end] == "]")
                end += 1
    return text[:end]


def _ending(text: str) -> Iterator[str]:
    """Yield the elements with which a text ends, the longest first."""
    for start in _NAME.finditer(text):
        if _leading(text[start.start() :]) == text[start.start() :]:
            yield text[start.start() :]


def _without_subscripts(text: str) -> str:
    """Return the text of an element with ``[]`` for each subscript."""
    found, depth = "", 0
    for letter in text:
        depth -= letter == "]"
        found += letter * (depth == 0)
        depth += letter == "["
    return found


def _variable(
    symbol: str, address: int, size: int, types: dict[str, Any], text: str
) -> ModuleVariable:
    name = _plain(symbol.removesuffix(".managed"))
    declared = declared_as(text, name, space=r"__(?:device|constant|managed)__", size=size)
    if declared is not None and declared.size != size:
        declared = None
    return ModuleVariable(
        name,
        address,
        size,
        types.get(symbol) or types.get(name),
        declared and replace(declared, offset=0),
    )


def _plain(symbol: str) -> str:
    """Return a variable's name in the source, without its namespaces."""
    if not symbol.startswith("_Z"):
        return symbol.partition(".")[0]
    rest, name = symbol[2:].removeprefix("N"), symbol
    while length := _NESTED.match(rest):
        start = length.end()
        name, rest = rest[start : start + int(length[1])], rest[start + int(length[1]) :]
    return name


# -- debug information -----------------------------------------------------------------------------


def _types(elf: bytes) -> dict[str, Any]:
    """Return the types of a file's global variables, by symbol and by name."""
    found: dict[str, Any] = {}
    with damage_reported():
        file = ELFFile(io.BytesIO(elf)) if elf else None
        if file is None or not file.has_dwarf_info():
            return found
        for unit in file.get_dwarf_info().iter_CUs():
            for entry in _variables_in(unit.get_top_DIE()):
                for name in ("DW_AT_name", "DW_AT_linkage_name"):
                    if name in entry.attributes and "DW_AT_type" in entry.attributes:
                        kind = entry.get_DIE_from_attribute("DW_AT_type")
                        found[entry.attributes[name].value.decode(errors="replace")] = kind
    return found


def _variables_in(entry: Any) -> Iterator[Any]:
    for child in entry.iter_children():
        if child.tag == "DW_TAG_variable":
            yield child
            if "DW_AT_specification" in child.attributes:
                yield child.get_DIE_from_attribute("DW_AT_specification")
        elif child.tag == "DW_TAG_namespace":
            yield from _variables_in(child)


def _path(kind: Any, offset: int) -> Iterator[str]:
    """Yield the indices and members that lead to a byte of a type."""
    kind = _without_names(kind)
    if kind.tag == "DW_TAG_array_type":
        inner = kind.get_DIE_from_attribute("DW_AT_type")
        extents = [_extent(each) for each in kind.iter_children()]
        size = _size(inner)
        index, offset = divmod(offset, size or 1)
        yield subscripts(index, extents)
        yield from _path(inner, offset)
    elif kind.tag in ("DW_TAG_structure_type", "DW_TAG_class_type"):
        held = [each for each in kind.iter_children() if each.tag == "DW_TAG_member"]
        starts = [(_value(each, "DW_AT_data_member_location"), each) for each in held]
        inside = [pair for pair in starts if pair[0] <= offset]
        if inside:
            start, member = max(inside, key=lambda pair: pair[0])
            if "DW_AT_name" in member.attributes:
                yield f".{member.attributes['DW_AT_name'].value.decode(errors='replace')}"
            yield from _path(member.get_DIE_from_attribute("DW_AT_type"), offset - start)


def _without_names(kind: Any) -> Any:
    while kind.tag in _TYPEDEFS and "DW_AT_type" in kind.attributes:
        kind = kind.get_DIE_from_attribute("DW_AT_type")
    return kind


def _size(kind: Any) -> int:
    kind = _without_names(kind)
    if kind.tag in ("DW_TAG_pointer_type", "DW_TAG_reference_type"):
        return 8
    if kind.tag != "DW_TAG_array_type":
        return _value(kind, "DW_AT_byte_size")
    size = _size(kind.get_DIE_from_attribute("DW_AT_type"))
    for each in kind.iter_children():
        size *= _extent(each)
    return size


def _extent(subrange: Any) -> int:
    if "DW_AT_upper_bound" in subrange.attributes:
        return _value(subrange, "DW_AT_upper_bound") + 1
    return _value(subrange, "DW_AT_count")


def _value(entry: Any, name: str) -> int:
    attribute = entry.attributes.get(name)
    return attribute.value if attribute is not None and isinstance(attribute.value, int) else 0
