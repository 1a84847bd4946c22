"""Follow the elements of local variables that HIP source does not initialise.

    HIP ─► LLVM IR ─► a marker in each element of an array or structure, where it is declared
        ─► optimiser ─► code object

At -O3, the compiler assumes any value for an element that nothing has written, so that the code
shows no trace of the fault. Here, each element is written at first, with what an instruction leaves
that writes nothing (the marker, see definedness/lanes.py), and of which the optimiser knows
nothing. Where a program writes all elements before it reads them, the optimiser removes the
markers, and the program is compiled without them. Otherwise the device executes the code with them,
and follows their values to where they would change a result. So a condition or a loop that the
compiler does not see through is no finding.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from cupygemm._build.source_text import read_source
from cupygemm._build.toolchain import CompileError, Toolchain

MARKER = "v_mov_b32_dpp $0, $0 quad_perm:[0,1,2,3] row_mask:0x0 bank_mask:0x0"
EXPLICIT_LINES = ("-mllvm", "-use-unknown-locations=Enable")
"""Options by which the line table says where code stands for no place of the source."""
_DPP = 0xFA  # src0 of an instruction with DPP
_MOV = 0x7E000200  # v_mov_b32, VOP1
_CONTROL = 0xE4  # quad_perm:[0,1,2,3], and all masks 0
_LARGEST = 256  # elements; larger arrays stay in private memory, which is followed anyway

_TYPE = re.compile(r"^(%[\w.$-]+|%\"[^\"]+\") = type (<?\{.*\}>?)$", re.MULTILINE)
_ALLOCA = re.compile(
    r"^  (%[\w.$-]+|%\"[^\"]+\") = alloca ([\[<%].*?), align \d+, addrspace\(5\)$", re.MULTILINE
)
_START = re.compile(
    r"^  call void @llvm\.lifetime\.start\.p5\((?:i64 \S+, )?ptr addrspace\(5\) "
    r"(?:captures\(none\) )?(%[\w.$-]+|%\"[^\"]+\")\).*?(, !dbg !\d+)$"
)
_TEMPORARY = ("%agg.", "%ref.tmp", "%tmp", "%undef.", "%coerce", "%cleanup")
# A declaration without an initialiser, roughly: what to look at more closely.
_DECLARES = re.compile(r"(?:\]|[\w>]\s+\w+)\s*(?:,[^;={}()]*)?;")
_NO_DECLARATION = re.compile(
    r"//.*|\b(?:return|goto|break|continue|using|typedef|extern|__shared__|__constant__|__device__)"
    # Or of numbers: the compiler itself warns of those that are never written.
    r"\b[^;{]*;|\b(?:(?:unsigned|signed|long|short|int|char|bool|float|double|half|__half|size_t"
    r"|u?int(?:8|16|32|64)_t)\s+)+\w+(?:\s*,\s*\w+)*\s*;"
)
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}


def compile_marked(
    toolchain: Toolchain,
    file: Path,
    output: Path,
    *,
    target_name: str,
    ways: Sequence[Sequence[str]],
) -> bool:
    """Compile a program with markers to an object file; return whether any is left in it.

    Parameters
    ----------
    toolchain : Toolchain
    file, output : pathlib.Path
        The program, which compiles, in a folder of its own, and what to write.
    target_name : str
        LLVM's name of the processor.
    ways : sequence of sequences of str
        The compiler's options, of which the first are used that compile it.
    """
    if not may_be_unwritten(read_source(file)):
        return False
    ir = file.with_name("marked.ll")
    try:
        options = _compile_to_ir(toolchain, file, ir, target_name, ways)
        marked = with_markers(ir.read_text())
        if marked is None:
            return False
        ir.write_text(marked)
        levels = [option for option in options if option.startswith("-O")]
        levels += EXPLICIT_LINES if EXPLICIT_LINES[-1] in options else ()
        toolchain.compile_ir(ir, output, target=target_name, options=levels)
    except CompileError:  # as where the markers need more registers than there are
        return False
    return has_markers(output.read_bytes())


def _compile_to_ir(
    toolchain: Toolchain, file: Path, ir: Path, target_name: str, ways: Sequence[Sequence[str]]
) -> Sequence[str]:
    """Compile a program to LLVM IR, and return the options that did."""
    for options in ways[:-1]:
        with contextlib.suppress(CompileError):
            toolchain.compile_to_ir(file, ir, target=target_name, options=options)
            return options
    toolchain.compile_to_ir(file, ir, target=target_name, options=ways[-1])
    return ways[-1]


def may_be_unwritten(source: str) -> bool:
    """Tell whether a program may declare an array or structure without an initialiser."""
    return _DECLARES.search(_NO_DECLARATION.sub(";", source)) is not None


def with_markers(ir: str) -> str | None:
    """Return LLVM IR with markers in the local arrays and structures; None if it has none.

    Parameters
    ----------
    ir : str
        Of a module, as clang emits it for an optimisation, before the first pass.
    """
    structures = dict(_TYPE.findall(ir))
    lines: list[str] = []
    variables: dict[str, str] = {}
    count = 0
    for line in ir.splitlines():
        lines.append(line)
        if line.startswith("define "):
            variables = {}
        elif found := _ALLOCA.match(line):
            if not found[1].strip('%"').startswith(tuple(each[1:] for each in _TEMPORARY)):
                variables[found[1]] = found[2]
        elif (start := _START.match(line)) and start[1] in variables:
            added = list(_stores(start[1], variables[start[1]], structures, count, start[2]))
            lines += added
            count += bool(added)
    return "\n".join([*lines, ""]) if count else None


def has_markers(code: bytes) -> bool:
    """Tell whether a code object has markers, so that some element may be read unwritten."""
    position = 0
    control = bytes([_CONTROL, 0, 0])
    while (position := code.find(control, position + 1)) >= 0:
        word = int.from_bytes(code[position - 5 : position - 1], "little")
        register = word >> 17 & 0xFF
        if word == _MOV | _DPP | register << 17 and code[position - 1] == register:
            return True
    return False


# -- the elements of a type ------------------------------------------------------------------------


def _stores(
    name: str, kind: str, structures: dict[str, str], number: int, place: str
) -> Iterator[str]:
    """Yield the instructions that put a marker into each element of a variable."""
    leaves = list(_leaves(kind, structures, ()))
    if not leaves or len(leaves) > _LARGEST:
        return
    prefix = f"%cupygemm.{number}"
    yield f'  {prefix} = call i32 asm "{MARKER}", "=v"() nounwind memory(none){place}'
    values: dict[str, str] = {}
    for position, (leaf, path) in enumerate(leaves):
        if leaf not in values:
            lines = list(_value(leaf, prefix, f"{prefix}.{len(values)}"))
            if not lines:
                continue
            yield from (f"{line}{place}" for line in lines)
            values[leaf] = lines[-1].split(" = ")[0].strip()
        steps = "".join(f", i32 {step}" for step in path)
        pointer = f"{prefix}.p{position}"
        yield f"  {pointer} = getelementptr {kind}, ptr addrspace(5) {name}, i32 0{steps}{place}"
        yield f"  store {leaf} {values[leaf]}, ptr addrspace(5) {pointer}, align 1{place}"


def _leaves(
    kind: str, structures: dict[str, str], path: tuple[int, ...]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the numbers, pointers and vectors of a type, with their indices."""
    body = structures.get(kind, kind)
    if body.startswith(("{", "<{")):
        for position, member in enumerate(_members(body[body.index("{") + 1 : body.rindex("}")])):
            yield from _leaves(member, structures, (*path, position))
    elif body.startswith("["):
        length, _, element = body[1:-1].partition(" x ")
        if int(length) > _LARGEST:
            return
        for position in range(int(length)):
            yield from _leaves(element, structures, (*path, position))
    elif not body.startswith("%"):
        yield body, path


def _members(body: str) -> Iterator[str]:
    """Yield the types in a list of them."""
    depth, start = 0, 0
    for position, character in enumerate(body):
        depth += (character in "[{<(") - (character in "]}>)")
        if character == "," and depth == 0:
            yield body[start:position].strip()
            start = position + 1
    if body[start:].strip():
        yield body[start:].strip()


def _width(kind: str) -> int:
    """Return the bits of a number, a pointer or a vector; 0 if it is none of them."""
    vector = re.fullmatch(r"<(\d+) x (\w+)>", kind)
    if vector:
        return int(vector[1]) * _width(vector[2]) if vector[2] != "ptr" else 0
    if kind.startswith("ptr addrspace("):
        return 32 if kind[14] in "2356" else 64
    if re.fullmatch(r"i\d+", kind):
        return int(kind[1:])
    return _BITS.get(kind, 0)


def _value(kind: str, marker: str, prefix: str) -> Iterator[str]:
    """Yield the instructions that make a value of a type of the marker, the last of which is it."""
    bits = _width(kind)
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
