"""Accesses to a ``__shared__`` array that leave it, for another variable in LDS.

The compiler places the variables of a kernel next to each other, so that ``a[64]`` of ``float
a[64]`` is ``b[0]``, and no access is out of the bounds of LDS. The machine code does not tell which
array is meant, but the source does. The line table has the column of each access: that of the
array's name for a read, ``a[i + 1]``, and of the operator for a write, ``a[i + 1] = x``.

If an instruction makes two accesses (``ds_read2``), the column is that of one of them, or missing.
Then an access is a finding only if some lanes are inside an array and others are not. Without a
column, the line must also contain no choice, and only subscript ``__shared__`` arrays and
arguments.

An atomic is a function of HIP's headers that was inlined: the line of the kernel that calls it
names the array, ``atomicAdd(&a[i], 1)``, if it calls no other such function.

An access is left out if the layout of LDS is not certain (`lds_variables`), if it is in another
function that was inlined, wider than an element, or if the kernel declares the name more than once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.code_object.declarations import Variable, declaration_of, element_of
from cupygemm.emulator.code_object.lds_variables import is_declared_once, variables_of
from cupygemm.emulator.code_object.line_table import line_table
from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.weak_cache import weak_cache

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Kernel

CHECK = "shared_arrays"
ACCESS = np.dtype([("pc", "i8"), ("low", "i8"), ("high", "i8")])  # struct named_access
_DS = 0b110110  # the highest 6 bits of an instruction of this encoding
_PLAIN = re.compile(r"ds_(?:read|write)(2|2st64)?_[biu](\d+)(?:_d16(?:_hi)?)?")
_ATOMIC = re.compile(
    r"ds_(?:add|sub|rsub|inc|dec|min|max|and|or|xor|wrxchg|cmpst)_(?:rtn_)?[biuf](\d+)"
)
_ATOMIC_CALL = re.compile(r"\batomic\w+\s*\((?:\s*&\s*(\w+)\s*\[)?")
_READ = re.compile(r"(\w+)\s*\[")
_CHOICE = re.compile(r"\?|&&|\|\||\b(?:if|else|for|while|switch)\b|\*\s*\(")
_ASSIGNED = re.compile(r"(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--")


class Meant(NamedTuple):
    """An access in terms of the array that its source names."""

    element: str
    declaration: str
    distance: str


@weak_cache
def tables_of(kernel: Kernel) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """Return the accesses to check, and the variables in LDS, as C reads them.

    Returns
    -------
    accesses : ndarray
        Array of ACCESS, (n,), ascending. `low` is -1 where any variable may be meant.
    extents : ndarray
        The first byte of each variable, and one past its last: int64 (m, 2).
    """
    found = sorted(_variables(kernel).items())
    bounds = [(v.offset, v.offset + v.size) if v else (-1, -1) for _, v in found]
    rows = [(pc, *each) for (pc, _), each in zip(found, bounds, strict=True)]
    known = variables_of(kernel) if found else []
    extents = np.array([(v.offset, v.offset + v.size) for v in known], np.int64)
    return np.array(rows, ACCESS), extents.reshape(-1, 2)


def meant_by(kernel: Kernel, pc: int, address: int, offset: int = -1) -> Meant | None:
    """Describe an address outside an array in terms of the array that the source names.

    Parameters
    ----------
    kernel : Kernel
    pc : int
    address : int
        An address in LDS.
    offset : int, optional
        Offset of the array in LDS; by default, that of the array that the source names.
    """
    variable = _variables(kernel).get(pc)
    if offset >= 0:
        variable = next((each for each in variables_of(kernel) if each.offset == offset), None)
    if variable is None:
        return None
    before, past = variable.offset - address, address - variable.offset - variable.size
    distance = f"{before} bytes before its start" if before > 0 else f"{past} bytes past its end"
    return Meant(element_of(variable, address), declaration_of(variable), distance)


def meant_outside(kernel: Kernel, pc: int, address: int) -> Meant | None:
    """Return the result of `meant_by` if the address is outside the array that the source names."""
    variable = _variables(kernel).get(pc)
    if variable is None or 0 <= address - variable.offset < variable.size:
        return None
    return meant_by(kernel, pc, address)


@weak_cache
def _variables(kernel: Kernel) -> dict[int, Variable | None]:
    """Return the variable of each access, by program counter; None if it may be any."""
    if not hasattr(kernel, "code_object"):  # a single instruction, outside a kernel
        return {}
    if not kernel.code_object.program[0]:  # another compiler's table has spurious lines
        return {}
    known = {each.name: each for each in variables_of(kernel) if each.extents}
    known = {name: each for name, each in known.items() if is_declared_once(kernel, name)}
    if not known:
        return {}
    code_object = kernel.code_object
    table = line_table(code_object)
    code = bytes(code_object.image[kernel.entry : kernel.entry + (kernel.code_bytes & ~3)])
    words = np.frombuffer(code, "<u4")
    subscripted = {*known, *(each.name.partition(".")[0] for each in kernel.explicit_arguments)}
    found: dict[int, Variable | None] = {}
    for place in np.flatnonzero(words >> 26 == _DS):
        pc = kernel.entry + 4 * int(place)
        try:
            name = decode(code_object.image, pc, code_object.target_name).mnemonic
        except UnsupportedInstruction:  # the second half of another instruction
            continue
        if atomic := _ATOMIC.fullmatch(name):
            variable = known.get(_changed(table.kernel_line(pc)))
            if variable is not None and int(atomic[1]) // 8 <= variable.element_bytes:
                found[pc] = variable
            continue
        plain, text = _PLAIN.fullmatch(name), table.text_around(pc)
        if plain is None or text is None:
            continue
        before, after = text
        size = int(plain[2]) // 8
        variable = known.get(_named(before, after, writes=name.startswith("ds_write")))
        if variable is not None and size <= variable.element_bytes:
            found[pc] = variable
        elif plain[1] and not before and _CHOICE.search(after) is None:
            names = set(_READ.findall(after))
            sizes = {known[each].element_bytes for each in names & set(known)}
            if names <= subscripted and sizes == {size}:
                found[pc] = None
    return found


def _named(before: str, after: str, *, writes: bool) -> str:
    """Return the array that is accessed at a place in a line; "" if it is not certain."""
    if not writes:
        match = _READ.match(after) or (_before(before) if _ASSIGNED.match(after) else None)
    else:
        match = _before(before) if _ASSIGNED.match(after) else None
    return match[1] if match else ""


def _changed(line: str) -> str:
    """Return the array that the only atomic function in a line changes; "" if it is not certain."""
    calls = _ATOMIC_CALL.findall(line)
    return str(calls[0]) if len(calls) == 1 else ""


def _before(text: str) -> re.Match[str] | None:
    """Match the subscripted name that a text ends with."""
    text = text.rstrip()
    while text.endswith("]"):
        depth, place = 0, len(text)
        while place and (depth or place == len(text)):
            place -= 1
            depth += (text[place] == "]") - (text[place] == "[")
        text = text[:place].rstrip()
        if not text.endswith("]"):
            return re.search(r"(?<![\w.>])(\w+)$", text)
    return None
