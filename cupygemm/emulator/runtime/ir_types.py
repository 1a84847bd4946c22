"""Parse types in the text of LLVM IR, and make values of a type from unwritten.py's marker."""

from __future__ import annotations

import re
from collections.abc import Iterator

_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}


def members(body: str) -> Iterator[str]:
    """Yield the types in a comma-separated list."""
    depth, start = 0, 0
    for position, character in enumerate(body):
        depth += (character in "[{<(") - (character in "]}>)")
        if character == "," and depth == 0:
            yield body[start:position].strip()
            start = position + 1
    if body[start:].strip():
        yield body[start:].strip()


def width(kind: str) -> int:
    """Return the bits of a number, a pointer or a vector; 0 for any other type."""
    vector = re.fullmatch(r"<(\d+) x (\w+)>", kind)
    if vector:
        return int(vector[1]) * width(vector[2]) if vector[2] != "ptr" else 0
    if kind.startswith("ptr addrspace("):
        return 32 if kind[14] in "2356" else 64
    if re.fullmatch(r"i\d+", kind):
        return int(kind[1:])
    return _BITS.get(kind, 0)


def typed(kind: str, marker: str, prefix: str) -> Iterator[str]:
    """Yield the instructions that convert the marker, an i32, to a value of a type.

    The last one is `prefix`. Types other than numbers, pointers and vectors have none.
    """
    bits = width(kind)
    if not bits or bits % 8:
        return
    words = -(-bits // 32)
    value, have = marker, "i32"
    if words > 1:
        have, value = f"<{words} x i32>", "poison"
        for word in range(words):
            yield f"  {prefix}.w{word} = insertelement {have} {value}, i32 {marker}, i32 {word}"
            value = f"{prefix}.w{word}"
        yield f"  {prefix}.i = bitcast {have} {value} to i{32 * words}"
        value, have = f"{prefix}.i", f"i{32 * words}"
    if bits % 32:
        yield f"  {prefix}.t = trunc {have} {value} to i{bits}"
        value, have = f"{prefix}.t", f"i{bits}"
    cast = "inttoptr" if kind.startswith("ptr") else "bitcast"
    yield f"  {prefix} = {cast} {have} {value} to {kind}"
