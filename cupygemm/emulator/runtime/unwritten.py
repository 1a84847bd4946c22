"""Track the elements of local variables, and the numbers, that HIP source may not initialise.

    HIP ─► LLVM IR ─► a marker in each element of an array or structure, where it is declared
        ─► optimiser ─► code object

At -O3, the compiler assumes any value for an element that was never written, so the code shows no
trace of the fault. Here, each element is first set to a marker: the result of an instruction that
writes nothing (see definedness/lanes.py), which is opaque to the optimiser. If a program writes all
elements before it reads them, the optimiser removes the markers, and the program is compiled
without them. Otherwise the device executes the code with markers, and tracks their values to where
they would change a result. So a condition or a loop that the compiler cannot analyse causes no
false finding. Of the numbers, only those that the compiler calls doubtful have markers.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgpack

from cupygemm._build.source_text import read_source
from cupygemm._build.toolchain import CompileError, Toolchain
from cupygemm.emulator.runtime import local_bounds
from cupygemm.emulator.runtime.ir_types import members, typed

MARKER = "v_mov_b32_dpp $0, $0 quad_perm:[0,1,2,3] row_mask:0x0 bank_mask:0x0"
EXPLICIT_LINES = ("-mllvm", "-use-unknown-locations=Enable")
"""Options by which the line table says where code stands for no place of the source."""
_DPP = 0xFA  # src0 of an instruction with DPP
_MOV = 0x7E000200  # v_mov_b32, VOP1
_CONTROL = 0xE4  # quad_perm:[0,1,2,3], and all masks 0
_LARGEST = 256  # elements; larger arrays stay in private memory, which is tracked anyway

_TYPE = re.compile(r"^(%[\w.$-]+|%\"[^\"]+\") = type (<?\{.*\}>?)$", re.MULTILINE)
_ALLOCA = re.compile(
    r"^  (%[\w.$-]+|%\"[^\"]+\") = alloca (\S.*?), align \d+, addrspace\(5\)$", re.MULTILINE
)
_START = re.compile(
    r"^  call void @llvm\.lifetime\.start\.p5\((?:i64 \S+, )?ptr addrspace\(5\) "
    r"(?:captures\(none\) )?(%[\w.$-]+|%\"[^\"]+\")\).*?(, !dbg !\d+)$"
)
_TEMPORARY = ("%agg.", "%ref.tmp", "%tmp", "%undef.", "%coerce", "%cleanup")
# Roughly, a declaration without an initialiser: candidates for a closer look.
_DECLARES = re.compile(r"(?:\]|[\w>]\s+\w+)\s*(?:,[^;={}()]*)?;")
_NO_DECLARATION = re.compile(
    r"//.*|\b(?:return|goto|break|continue|using|typedef|extern|__shared__|__constant__|__device__)"
    # Or of numbers: the compiler itself warns if one is never written.
    r"\b[^;{]*;|\b(?:(?:unsigned|signed|long|short|int|char|bool|float|double|half|__half|size_t"
    r"|u?int(?:8|16|32|64)_t)\s+)+\w+(?:\s*,\s*\w+)*\s*;"
)


def compile_marked(
    toolchain: Toolchain,
    file: Path,
    output: Path,
    *,
    plain: Path,
    target_name: str,
    ways: Sequence[Sequence[str]],
    numbers: Collection[str] = (),
) -> bool:
    """Compile a program with markers to an object file; return whether any marker remains.

    Parameters
    ----------
    toolchain : Toolchain
    file, output : pathlib.Path
        The program, which compiles, in its own folder, and the file to write.
    plain : pathlib.Path
        The object file without markers.
    target_name : str
        LLVM's name of the processor.
    ways : sequence of sequences of str
        Lists of compiler options; the first that compiles the program is used.
    numbers : collection of str
        The names of numbers that also get markers.
    """
    source = read_source(file)
    if not numbers and not may_be_unwritten(source) and not local_bounds.may_index(source):
        return False
    ir = file.with_name("marked.ll")
    try:
        options = _compile_to_ir(toolchain, file, ir, target_name, ways)
        levels = [option for option in options if option.startswith("-O")]
        levels += EXPLICIT_LINES if EXPLICIT_LINES[-1] in options else ()
        text = ir.read_text(encoding="utf-8")
        marked = with_markers(text, numbers)
        bounded = local_bounds.with_bounds(marked or text, dict(_TYPE.findall(text)))
        for changed in (bounded, marked):
            if changed is None:
                continue
            ir.write_text(changed, encoding="utf-8")
            with contextlib.suppress(CompileError):  # the markers may need too many registers
                toolchain.compile_ir(ir, output, target=target_name, options=levels)
                code = output.read_bytes()
                if not has_markers(code):
                    return False
                if changed is marked or _private_bytes(code) <= _private_bytes(plain.read_bytes()):
                    return True
    except CompileError:
        return False
    return False


def _private_bytes(code: bytes) -> int:
    """Return the private memory of a code object's kernels, from their metadata.

    If it is larger than without markers, they keep the optimiser from analysing an array.
    """
    total = 0
    for found in re.finditer(rb"\.private_segment_fixed_size", code):
        unpacker = msgpack.Unpacker()
        unpacker.feed(code[found.end() : found.end() + 9])
        total += int(unpacker.unpack())
    return total


def _compile_to_ir(
    toolchain: Toolchain, file: Path, ir: Path, target_name: str, ways: Sequence[Sequence[str]]
) -> Sequence[str]:
    """Compile a program to LLVM IR, and return the options that succeeded."""
    for options in ways[:-1]:
        with contextlib.suppress(CompileError):
            toolchain.compile_to_ir(file, ir, target=target_name, options=options)
            return options
    toolchain.compile_to_ir(file, ir, target=target_name, options=ways[-1])
    return ways[-1]


def may_be_unwritten(source: str) -> bool:
    """Tell whether a program may declare an array or structure without an initialiser."""
    return _DECLARES.search(_NO_DECLARATION.sub(";", source)) is not None


def with_markers(ir: str, numbers: Collection[str] = ()) -> str | None:
    """Return LLVM IR with markers in the local arrays and structures; None if it has none.

    Parameters
    ----------
    ir : str
        A module as clang emits it for optimised code, before the first pass.
    numbers : collection of str
        The names of numbers that also get markers.
    """
    named = re.compile(rf"%(?:{'|'.join(sorted(numbers))})\d*") if numbers else None
    structures = dict(_TYPE.findall(ir))
    lines: list[str] = []
    variables: dict[str, str] = {}
    count = 0
    for line in ir.splitlines():
        lines.append(line)
        if line.startswith("define "):
            variables = {}
        elif (found := _ALLOCA.match(line)) and not _is_temporary(found[1]):
            has_elements = found[2].startswith(("[", "<", "%"))
            if has_elements or (named and named.fullmatch(found[1])):
                variables[found[1]] = found[2]
        elif (start := _START.match(line)) and start[1] in variables:
            added = list(_stores(start[1], variables[start[1]], structures, count, start[2]))
            lines += added
            count += bool(added)
    return "\n".join([*lines, ""]) if count else None


def _is_temporary(name: str) -> bool:
    return name.strip('%"').startswith(tuple(each[1:] for each in _TEMPORARY))


def has_markers(code: bytes) -> bool:
    """Tell whether a code object has markers, so some element may be read before it is written."""
    for control in (_CONTROL, *local_bounds.CONTROLS):
        position = 0
        while (position := code.find(bytes([control, 0, 0]), position + 1)) >= 0:
            word = int.from_bytes(code[position - 5 : position - 1], "little")
            register = word >> 17 & 0xFF
            if word == _MOV | _DPP | register << 17 and code[position - 1] == register:
                return True
    return False


# -- the elements of a type ------------------------------------------------------------------------


def _stores(
    name: str, kind: str, structures: dict[str, str], number: int, place: str
) -> Iterator[str]:
    """Yield the instructions that store a marker in each element of a variable."""
    leaves = list(_leaves(kind, structures, ()))
    if not leaves or len(leaves) > _LARGEST:
        return
    prefix = f"%cupygemm.{number}"
    # The compiler merges markers with equal text, so the first would stand for all variables.
    text = f"{MARKER} ; {number}"
    yield f'  {prefix} = call i32 asm "{text}", "=v"() nounwind memory(none){place}'
    values: dict[str, str] = {}
    for position, (leaf, path) in enumerate(leaves):
        if leaf not in values:
            lines = list(typed(leaf, prefix, f"{prefix}.{len(values)}"))
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
        for position, member in enumerate(members(body[body.index("{") + 1 : body.rindex("}")])):
            yield from _leaves(member, structures, (*path, position))
    elif body.startswith("["):
        length, _, element = body[1:-1].partition(" x ")
        if int(length) > _LARGEST:
            return
        for position in range(int(length)):
            yield from _leaves(element, structures, (*path, position))
    elif not body.startswith("%"):
        yield body, path
