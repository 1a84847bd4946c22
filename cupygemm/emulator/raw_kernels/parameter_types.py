"""The C++ types of a kernel's parameters, as far as its name or its source contain them.

A code object states the size of each argument, but not its type. The name of a C++ kernel contains
the types of its parameters. The name of an ``extern "C"`` kernel does not, so its declaration is
looked up in the source that the code object contains. Macros with parameters are not expanded, and
a type that is declared elsewhere is unknown.
"""

from __future__ import annotations

import ctypes
import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cupygemm.emulator.code_object.kept_source import without_comments
from cupygemm.emulator.weak_cache import weak_cache

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Kernel

_QUALIFIERS = re.compile(
    r"\b(?:const|volatile|__restrict__|__restrict|restrict|__grid_constant__|struct|register)\b"
    r"|__attribute__\s*\(\(.*?\)\)|\[\[.*?\]\]|\b(?:std|thrust|cupy|hip|cuda)::"
)
_ALIASES = (
    re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([\w:<> \t*]+?)[ \t]*$", re.MULTILINE),
    re.compile(r"\busing\s+(\w+)\s*=\s*([\w:<> *]+?)\s*;"),
)
_TYPEDEF = re.compile(r"\btypedef\s+([\w:<> *]+?)[\s*]\s*(\w+)\s*;")
_INTEGER_WORDS = {"unsigned", "signed", "char", "short", "int", "long"}
_DTYPES = {
    "float": "f4", "double": "f8", "half": "f2", "__half": "f2", "_Float16": "f2",
    "float16": "f2", "__half_raw": "f2", "bool": "?", "int8_t": "i1", "uint8_t": "u1",
    "int16_t": "i2", "uint16_t": "u2", "ushort": "u2", "int32_t": "i4", "uint32_t": "u4",
    "uint": "u4", "int64_t": "i8", "uint64_t": "u8", "size_t": "u8", "ptrdiff_t": "i8",
    "intptr_t": "i8", "uintptr_t": "u8", "ulong": "u8", "complex<float>": "c8",
    "complex<double>": "c16", "hipFloatComplex": "c8", "hipDoubleComplex": "c16",
    "cuFloatComplex": "c8", "cuDoubleComplex": "c16", "hip_bfloat16": "bf16",
    "__hip_bfloat16": "bf16", "__nv_bfloat16": "bf16", "bfloat16": "bf16", "__bf16": "bf16",
}  # fmt: skip
_DEPTH = 8  # of aliases of aliases


@dataclass(frozen=True)
class Parameter:
    """The type of a parameter.

    Attributes
    ----------
    text : str
        The type as written in the source or the demangled name.
    dtype : str
        NumPy's name of the type, or of a pointer's target; "bf16" for bfloat16; "" if unknown.
    is_pointer : bool
    """

    text: str
    dtype: str
    is_pointer: bool


@weak_cache
def parameters_of(kernel: Kernel) -> tuple[Parameter, ...] | None:
    """Return the types of a kernel's parameters, in order; None if unknown."""
    texts, aliases = _declared(kernel)
    if not texts or len(texts) != len(kernel.explicit_arguments):
        return None
    return tuple(_parameter(text, aliases) for text in texts)


def _declared(kernel: Kernel) -> tuple[list[str] | None, dict[str, str]]:
    """Return the texts of the parameters' types, and the aliases that the source declares."""
    if kernel.name.startswith("_Z"):
        return _from_name(kernel.name), {}
    source = without_comments(kernel.code_object.program[1])
    return _from_source(source, kernel.name), _aliases(source)


def _aliases(source: str) -> dict[str, str]:
    """Return a program's type aliases, unless they may depend on compiler options."""
    pairs = [pair for each in _ALIASES for pair in each.findall(source)]
    pairs += [(name, text) for text, name in _TYPEDEF.findall(source)]
    found: dict[str, set[str]] = {}
    for name, text in pairs:
        found.setdefault(name, set()).add(text)
    tested = set(re.findall(r"#[ \t]*ifn?def[ \t]+(\w+)|\bdefined\b[ \t(]*(\w+)", source))
    doubtful = {name for pair in tested for name in pair}
    return {n: texts.pop() for n, texts in found.items() if len(texts) == 1 and n not in doubtful}


def _from_name(name: str) -> list[str] | None:
    text = _demangled(name)
    if not text.endswith(")"):
        return None
    depth = 0
    for start in range(len(text) - 1, -1, -1):
        depth += (text[start] == ")") - (text[start] == "(")
        if not depth:
            return _split(text[start + 1 : -1])
    return None


@functools.lru_cache(maxsize=256)
def _demangled(name: str) -> str:
    """Return a C++ name demangled; "" if that fails."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        demangle, free = library["__cxa_demangle"], ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return ""
    demangle.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    status = ctypes.c_int()
    found = demangle(name.encode(), None, None, ctypes.byref(status))
    if not found:
        return ""
    try:
        return ctypes.string_at(found).decode(errors="replace")
    finally:
        free(found)


def _from_source(source: str, name: str) -> list[str] | None:
    """Return the types in a kernel's declarations, if these agree."""
    found = []
    for match in re.finditer(rf"__global__\b[^;{{}}]*?\b{re.escape(name)}\s*\(", source):
        depth, end = 1, match.end()
        while depth and end < len(source):
            depth += (source[end] == "(") - (source[end] == ")")
            end += 1
        found.append([without_name(each) for each in _split(source[match.end() : end - 1])])
    return found[0] if found and all(each == found[0] for each in found) else None


def _split(text: str) -> list[str]:
    """Split parameters at commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "(<[{") - (letter in ")>]}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    stripped = [" ".join(part.split()) for part in parts]
    return [] if stripped in ([""], ["void"]) else stripped


def without_name(parameter: str) -> str:
    """Return a parameter's type: without its name, its default, and the extents of an array."""
    text = parameter.partition("=")[0].strip()
    text, bracket, _ = text.partition("[")
    words = re.split(r"(?<=[\w>])\s+(?=\w)|(?<=[*&>])\s*(?=\w)", text.strip())
    named = re.fullmatch(r"[A-Za-z_]\w*", words[-1]) and len(words) > 1
    if named and words[-1] not in _INTEGER_WORDS | {"__restrict__", "const"}:
        text = text.rstrip()[: -len(words[-1])]
    return text.strip() + "*" * bool(bracket)


def _parameter(text: str, aliases: dict[str, str]) -> Parameter:
    plain = _expanded(" ".join(_QUALIFIERS.sub(" ", text).split()), aliases)
    stars = plain.count("*")
    base = plain.replace("*", "").strip()
    known = "&" not in plain and stars <= 1
    return Parameter(text, _dtype(base) if known else "", stars > 0)


def _expanded(plain: str, aliases: dict[str, str]) -> str:
    for _ in range(_DEPTH):
        base = plain.replace("*", "").strip()
        if base not in aliases:
            break
        held = _QUALIFIERS.sub(" ", aliases[base])
        plain = " ".join((held + "*" * plain.count("*")).split())
    return plain


def _dtype(base: str) -> str:
    words = base.split()
    if not words or not set(words) <= _INTEGER_WORDS:
        return _DTYPES.get(base.replace(" ", ""), "")
    size = 1 if "char" in words else 2 if "short" in words else 8 if "long" in words else 4
    return ("u" if "unsigned" in words else "i") + str(size)
