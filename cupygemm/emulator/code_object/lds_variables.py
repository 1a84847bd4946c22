"""Name the element of a ``__shared__`` variable or a private array at an address, from source.

    source ─► declarations in the kernel ─► sizes ─► LLVM's layout ─► equal to the kernel's LDS?

A code object has no names for LDS: the compiler combines a kernel's variables in one structure.
Here, they are read from the source and laid out as in LLVM (AMDGPULowerModuleLDS: by alignment,
which grows with the size to 16, then by size, then by mangled name; smaller ones fill gaps). An
element is named only if the result has the size of the kernel's LDS. Variables of functions that
the kernel calls, or of types that are not known here, therefore leave all addresses without a name.

A private array that the compiler does not keep in registers is at the start of the private memory
of a work-item. It is named if neither the kernel nor a function that it may call declares another,
and the kernel has no more private memory than this array takes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cupygemm.emulator.code_object.declarations import (
    Variable,
    declaration_of,
    declared_in,
    element_of,
    types_and_constants,
    without_noise,
)
from cupygemm.emulator.code_object.line_table import line_table

if TYPE_CHECKING:
    from cupygemm.emulator.code_object.loading import Kernel

_MOST_VARIABLES = 8  # whose subsets are tried
_DECLARATION = re.compile(r"(?<!extern )__shared__\s+([^;{}]+);")
_PRIVATE = re.compile(  # an array of any type, initialised by a list if at all
    r"(?<=[;{})])\s*([\w:<>,*\s]+?\b\w+\s*(?:\[[^\]]*\]\s*)+[^;{}()=]*)(?:=?\s*\{[^;]*\})?;"
)
_NOT_PRIVATE = re.compile(
    r"\s*(?:return|else|typedef|extern|static)\b|.*\b__(?:shared|constant|device)__"
)
_OTHER_KERNEL = re.compile(r"\b__global__\b(?=[^;]*?\{)")
_KEYWORDS = {"return", "else", "do", "case", "sizeof", "and", "or", "not"}
_FRAME = 32  # bytes by which a stack frame may exceed its contents


def variable_at(kernel: Kernel, address: int) -> str:
    """Describe the element at an address in LDS; "" if it is not known.

    Parameters
    ----------
    kernel : Kernel
    address : int
    """
    if not hasattr(kernel, "code_object"):  # a single instruction, outside a kernel
        return ""
    for each in variables_of(kernel):
        if each.offset <= address < each.offset + each.size:
            return f"{_element(each, address)} in LDS"
    return ""


def variables_of(kernel: Kernel) -> list[Variable]:
    """Return the variables of a loaded kernel in LDS; none if they are not certain."""
    text = line_table(kernel.code_object).source_of(kernel.entry)
    return variables(text, kernel.name, kernel.lds_bytes)


def is_declared_once(kernel: Kernel, name: str) -> bool:
    """Tell whether a kernel's function declares a name once, for its variable in LDS."""
    text = without_noise(line_table(kernel.code_object).source_of(kernel.entry))
    declared = rf"(\w+)\s+{name}\b|(\w+)\s*[*&]+\s*{name}\b(?!\s*\[)|(>)\s*{name}\b(?=\s*[=;])"
    words = ["".join(found) for found in re.findall(declared, _body(text, kernel.name))]
    return sum(word not in _KEYWORDS for word in words) <= 1


def private_array_at(kernel: Kernel, address: int) -> str:
    """Describe the element at an address in private memory; "" if it is not known.

    Parameters
    ----------
    kernel : Kernel
    address : int
        Offset in the private memory of a work-item.
    """
    if not hasattr(kernel, "code_object"):  # a single instruction, outside a kernel
        return ""
    text = line_table(kernel.code_object).source_of(kernel.entry)
    found = private_array(text, kernel.name, kernel.scratch_bytes)
    if found is None or not 0 <= address < found.size:
        return ""
    return f"{_element(found, address)} in private memory"


def _element(variable: Variable, address: int) -> str:
    byte = (address - variable.offset) % variable.element_bytes
    inside = f"byte {byte} of " if byte else ""
    return f"{inside}{element_of(variable, address)} lies there: {declaration_of(variable)}"


def private_array(text: str, kernel: str, scratch_bytes: int) -> Variable | None:
    """Return the only private array of a kernel and the functions it may call; None if not certain.

    Parameters
    ----------
    text : str
        The source.
    kernel : str
        The name of the kernel, as mangled.
    scratch_bytes : int
        Private memory of a work-item.
    """
    text = without_noise(text)
    body = _body(text, kernel)
    functions = _OTHER_KERNEL.split(text)[0]
    for part in _OTHER_KERNEL.split(text)[1:]:
        functions += part[_end_of(part, part.find("{"), "{}") :]
    arrays = (each[1] for each in _PRIVATE.finditer(f"{functions};{body}"))
    declared = [each for each in arrays if not _NOT_PRIVATE.match(each)]
    if len(declared) != 1:
        return None
    made = list(declared_in(declared[0], *types_and_constants(text)))
    if len(made) != 1 or not made[0].size <= scratch_bytes < made[0].size + _FRAME:
        return None
    return replace(made[0], offset=0)


def variables(text: str, kernel: str, lds_bytes: int) -> list[Variable]:
    """Return a kernel's variables in LDS with their offsets; none if they are not certain.

    Parameters
    ----------
    text : str
        The source.
    kernel : str
        The name of the kernel, as mangled.
    lds_bytes : int
        Size of the structure that the compiler has made of its variables.
    """
    made = _all_declared(text, kernel)
    whole = _laid_out(made)
    if _total(whole) <= lds_bytes or len(made) > _MOST_VARIABLES:
        return whole if _total(whole) == lds_bytes else []
    # The optimiser has removed some of them.
    parts = (
        _laid_out(part)
        for count in range(1, len(made))
        for part in itertools.combinations(made, count)
    )
    fitting = [part for part in parts if _total(part) == lds_bytes]
    return fitting[0] if len(fitting) == 1 else []


def removed_bytes(kernel: Kernel) -> int:
    """Return the bytes of LDS variables that the compiler has removed; 0 if not known."""
    if not hasattr(kernel, "code_object"):
        return 0
    text = line_table(kernel.code_object).source_of(kernel.entry)
    made = _all_declared(text, kernel.name)
    return max(0, _total(_laid_out(made)) - kernel.lds_bytes) if made else 0


def _all_declared(text: str, kernel: str) -> list[Variable]:
    """Return the variables in LDS that a kernel declares; none if one of them is not certain."""
    text = without_noise(text)
    types, constants = types_and_constants(text)
    made: list[Variable] = []
    for declaration in _DECLARATION.finditer(_body(text, kernel)):
        found_here = list(declared_in(declaration[1], types, constants))
        if not found_here:
            return []
        made += found_here
    return made if len({variable.name for variable in made}) == len(made) else []


def _body(text: str, kernel: str) -> str:
    """Return the text of a kernel's function; "" if it is not found or not unique."""
    mangled = re.match(r"_Z(\d+)(\w+)", kernel)
    name = mangled[2][: int(mangled[1])] if mangled else kernel
    bodies = []
    for found in re.finditer(rf"\b{re.escape(name)}\s*\(", text):
        start = _end_of(text, found.end() - 1, "()")
        opening = re.match(r"\s*\{", text[start:])
        if opening:
            first = start + opening.end() - 1
            bodies.append(text[first : _end_of(text, first, "{}")])
    return bodies[0] if len(bodies) == 1 else ""


def _end_of(text: str, start: int, pair: str) -> int:
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == pair[0]) - (text[place] == pair[1])
        if not depth:
            return place + 1
    return len(text)


def _laid_out(made: Sequence[Variable]) -> list[Variable]:
    """Return variables with the offsets that LLVM gives them (OptimizedStructLayout).

    The next one has the largest alignment that fits without a gap. If there is none, it is the one
    with the smallest gap.
    """
    left = []
    for each in made:
        least = next(a for a, size in ((16, 8), (8, 4), (4, 2), (2, 1), (1, 0)) if each.size > size)
        left.append((max(each.alignment, least), each))
    left.sort(key=lambda pair: (-pair[0], -pair[1].size, f"{len(pair[1].name)}{pair[1].name}"))
    end, found = 0, []
    while left:
        gaps = [-end % alignment for alignment, _ in left]
        alignment, each = left.pop(gaps.index(min(gaps)))
        found.append(replace(each, offset=end + -end % alignment))
        end = found[-1].offset + each.size
    return found


def _total(laid_out: Sequence[Variable]) -> int:
    """Return the size in bytes of the structure of the variables."""
    if not laid_out:
        return 0
    end = laid_out[-1].offset + laid_out[-1].size
    most = max(each.natural_alignment for each in laid_out)
    return -(-end // most) * most
