"""Read the declarations of variables in HIP source: their types, sizes and extents."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_SCALARS = {
    "bool": 1, "char": 1, "short": 2, "int": 4, "unsigned": 4, "long": 8, "float": 4, "double": 8,
    "half": 2, "__half": 2, "_Float16": 2, "__bf16": 2, "__hip_bfloat16": 2, "hip_bfloat16": 2,
    "half2": 4, "__half2": 4, "size_t": 8, "uchar": 1, "ushort": 2, "uint": 4, "ulong": 8,
    "longlong": 8, "ulonglong": 8,
    **{f"{sign}int{bits}_t": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"', re.DOTALL)
_SPECIFIERS = re.compile(r"\b(?:__\w+__|static|inline|extern|constexpr|thread_local)\b")
_ALIGNED = re.compile(r"(?:__attribute__\s*\(\(aligned|alignas|__align__)\s*\((\d+)\)+")
_TYPE = re.compile(
    r"((?:(?:volatile|const|static|signed|unsigned|long|short)\s+)*(?:\w+(?:::\w+)*)??)\s*"
    r"(\w+\s*(?:\[[^\]]*\]\s*)*(?:,\s*\w+\s*(?:\[[^\]]*\]\s*)*)*)$"
)
_ARRAY = re.compile(r"([\w:<>,*\s]+?)\b(\w+)\s*((?:\[[^\]]*\]\s*)+)")
_EXTENT = re.compile(r"\[([^\]]*)\]")
_VECTOR_TYPE = re.compile(
    r"typedef\s+(\w+)\s+(\w+)\s+__attribute__\s*\(\(ext_vector_type\((\w+)\)\)\)|"
    r"using\s+(\w+)\s*=\s*(\w+)\s+__attribute__\s*\(\(ext_vector_type\((\w+)\)\)\)"
)
_CONSTANT = re.compile(
    r"#[ \t]*define[ \t]+(\w+)[ \t]+([^\n]+)|"
    r"\bconst(?:expr)?\s+(?:static\s+)?(?:unsigned\s+)?(?:int|unsigned|long|size_t|auto)\s+"
    r"(\w+)\s*=\s*([^;,]+)"
)
_DEPTH = 8  # of constants that are defined in terms of others
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


@dataclass(frozen=True)
class Variable:
    """A variable, as a source declares it.

    Attributes
    ----------
    name, type : str
    element_bytes : int
    extents : tuple of int
        The extents of an array.
    alignment : int
        The alignment that its declaration requests, in bytes.
    offset : int
    """

    name: str
    type: str
    element_bytes: int
    extents: tuple[int, ...]
    alignment: int
    offset: int = -1

    @property
    def natural_alignment(self) -> int:
        """The alignment of its type, in bytes."""
        return min(self.element_bytes, 16)

    @property
    def size(self) -> int:
        """The size of the whole variable, in bytes."""
        return self.element_bytes * math.prod(self.extents)


def element_of(variable: Variable, address: int) -> str:
    """Return the name of an element; outside the array, its first subscript is out of range."""
    index = (address - variable.offset) // variable.element_bytes
    return variable.name + (subscripts(index, variable.extents) if variable.extents else "")


def subscripts(index: int, extents: Sequence[int]) -> str:
    """Return the subscripts of an element of an array: ``[1][2]``; an extent of 0 counts as 1.

    Parameters
    ----------
    index : int
        Index over all dimensions. Outside the array, the first subscript is out of range.
    extents : sequence of int
    """
    places: list[int] = []
    for extent in reversed(extents[1:]):
        index, place = divmod(index, extent or 1)
        places.insert(0, place)
    return "".join(f"[{place}]" for place in (index, *places))


def declaration_of(variable: Variable) -> str:
    """Return the declaration of a variable, as in source: ``float tile[16][16]``."""
    return f"{variable.type} {variable.name}" + "".join(f"[{each}]" for each in variable.extents)


def declared_as(text: str, name: str, space: str = "", *, size: int) -> Variable | None:
    """Return the variable of a name that a source declares; None unless it does so exactly once.

    Parameters
    ----------
    text : str
    name : str
    space : str
        A pattern with which the declaration begins.
    size : int
        Bytes of the variable, for an array of a type that is not known here; 0 if not known.
    """
    text = without_noise(text)
    names = types_and_constants(text)
    found: set[Variable] = set()
    for each in re.finditer(
        rf"(?<=[;{{}})\n])\s*([\w:<>,*\s]*?\b{name}\s*[^;{{}}()=]*)[=;{{]", text
    ):
        if space and not re.search(space, each[1]):
            continue
        declaration = _SPECIFIERS.sub(" ", each[1])
        made = list(declared_in(declaration, *names)) or list(_of_size(declaration, names[1], size))
        found.update(each for each in made if each.name == name)
    return found.pop() if len(found) == 1 else None


def _of_size(text: str, constants: Mapping[str, str], size: int) -> Iterator[Variable]:
    """Yield the array of a declaration, with elements of the size that fits the whole."""
    parts = _ARRAY.fullmatch(text.strip())
    extents = [_evaluated(each, constants) for each in _EXTENT.findall(parts[3])] if parts else []
    if parts and all(extents) and size and size % math.prod(extents) == 0:
        bytes_each = size // math.prod(extents)
        yield Variable(parts[2], " ".join(parts[1].split()), bytes_each, tuple(extents), 1)


def without_noise(text: str) -> str:
    """Return source without comments and strings."""
    return _NOISE.sub(" ", text)


def types_and_constants(text: str) -> tuple[dict[str, int], dict[str, str]]:
    """Return the bytes of the types, and the constants, that a source defines."""
    constants = {
        found[1] or found[3]: (found[2] or found[4]).strip() for found in _CONSTANT.finditer(text)
    }
    types = dict(_SCALARS)
    for each in _VECTOR_TYPE.finditer(text):
        base, name, count = (each[1], each[2], each[3]) if each[1] else each.group(5, 4, 6)
        lanes = _evaluated(count, constants)
        if base in types and lanes:
            types[name] = types[base] * lanes
    return types, constants


def declared_in(
    text: str, types: Mapping[str, int], constants: Mapping[str, str]
) -> Iterator[Variable]:
    """Yield the variables of a declaration; none if one of them is not understood."""
    aligned = _ALIGNED.search(text)
    parts = _TYPE.match(_ALIGNED.sub(" ", text).strip())
    words = [w for w in (parts[1] if parts else "").split() if w not in ("volatile", "static")]
    if parts is None or not words:
        return
    size = _size(words, types)
    found = []
    for declarator in parts[2].split(","):
        name = re.match(r"\s*(\w+)", declarator)
        extents = [_evaluated(each, constants) for each in re.findall(r"\[([^\]]*)\]", declarator)]
        if name is None or not size or not all(extents):
            return
        if size & (size - 1):
            return
        alignment = max(min(size, 16), int(aligned[1]) if aligned else 1)
        found.append(
            Variable(name[1], " ".join(words), size, tuple(e for e in extents if e), alignment)
        )
    yield from found


def _size(words: list[str], types: Mapping[str, int]) -> int:
    """Return the bytes of a type; 0 if it is not known."""
    plain = [word for word in words if word not in ("const", "signed")]
    if "long" in plain:
        return 8 if set(plain) <= {"long", "unsigned", "int"} else 0
    if len(plain) > 1:
        plain = [word for word in plain if word != "unsigned"]
    if len(plain) > 1 and plain[0] == "short":
        plain = plain[:1]
    if len(plain) != 1:
        return 0
    vector = re.fullmatch(r"(u?(?:char|short|int|long|longlong)|float|double)([24])", plain[0])
    if vector and plain[0] not in types:
        return types[vector[1]] * int(vector[2])
    return types.get(plain[0].rpartition("::")[2], 0)


def _evaluated(text: str, constants: Mapping[str, str]) -> int:
    """Return the value of an integer expression; 0 if it is not known."""
    try:
        return _value(ast.parse(_integers(text), mode="eval").body, constants, _DEPTH)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return 0


def _integers(text: str) -> str:
    return re.sub(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", text.strip())


def _value(node: ast.expr, constants: Mapping[str, str], depth: int) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = (_value(each, constants, depth) for each in (node.left, node.right))
        if isinstance(node.op, ast.LShift) and not 0 <= right < 32:
            raise ValueError("too far")
        return int(_OPERATORS[type(node.op)](left, right))
    if isinstance(node, ast.Name) and depth and node.id in constants:
        inner = ast.parse(_integers(constants[node.id]), mode="eval").body
        return _value(inner, constants, depth - 1)
    raise ValueError("not an expression of known integers")
