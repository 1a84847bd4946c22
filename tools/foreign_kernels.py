"""Check kernels of other projects against the emulated device.

    python tools/foreign_kernels.py PATH... [--target gfx950] [--option=-I/a/folder] [--json FILE]
                                    [--device-part] [--drop HEADER]

A path is a file or a folder. Source (``.hip``, ``.cpp``, ``.cu``) is compiled with the emulated
device's headers, its kernels only. Of each kernel of a code object (``.co``, ``.hsaco``, or what
was compiled), all instructions that execution can reach are decoded and bound to the unit that
executes them. The result of a file is one of

    ready         every kernel can be executed
    instructions  an instruction is not emulated; the first is named
    source        the source does not compile; the first error is named
    other target  the code object is for a target that is not emulated
    damaged       the file is no code object

``--device-part`` drops the host's part of source files before they are compiled: functions without
an attribute of the device, and the headers that ``--drop`` names. Templates of kernels are compiled
as the dropped part launches them, where that can be read off.

Nothing is executed: that needs a kernel's arguments (``cupygemm.emulator.launch``).
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from cupygemm._build.toolchain import CompileError
from cupygemm.emulator import code_object
from cupygemm.emulator.code_object.control_flow import graph
from cupygemm.emulator.errors import EmulatorError, UnsupportedInstruction
from cupygemm.emulator.memory.allocations import Memory
from cupygemm.emulator.runtime.compile import compile_program
from cupygemm.emulator.targets import TARGETS
from cupygemm.emulator.units import bind

SOURCES, CODE = (".hip", ".cpp", ".cu"), (".co", ".hsaco")
_CONTROL = ("s_waitcnt", "s_barrier", "s_endpgm")

_OPAQUE = re.compile(
    r"//[^\n]*|/\*.*?\*/"  # comments, then literals
    r'|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"]+)[>\"][^\n]*", re.MULTILINE)
_OF_DEVICE = re.compile(r"__global__|__device__|constexpr")
_SCOPE = re.compile(r"\b(namespace|struct|class|union|enum)\b[^()=;]*$|^\s*extern\s*$")
_LAUNCHED = re.compile(r"\b(\w+\s*<[^<>;{}()]+>)\s*(?=<<<|\)\s*,)")


def check(
    path: Path,
    target: str,
    options: Sequence[str],
    dropped: Collection[str] | None = None,
) -> tuple[str, str]:
    """Return the result for a file, and the reason.

    Parameters
    ----------
    path : Path
    target : str
    options : sequence of str
        Compiler options.
    dropped : collection of str, optional
        Headers to drop together with the host part of source; by default, nothing is dropped.
    """
    if path.suffix in CODE:
        return _check_code(path.read_bytes())
    text, launched = path.read_text(encoding="utf-8", errors="replace"), [[]]
    if dropped is not None:
        # A launch may name a variable of the dropped part: the next attempt omits the launches.
        launched.insert(0, sorted(set(_LAUNCHED.findall(text))))
        text = device_part(text, dropped)
    for names in launched:
        try:
            compiled = compile_program(
                text,
                path.name,
                target_name=target,
                options=[f"-I{path.parent}", "-w", *options],
                expressions=names,
                rtc=False,
            )
            return _check_code(compiled.code)
        except CompileError as err:
            errors = [line for line in err.log.splitlines() if "error" in line]
            result = "source", (errors or [err.log.strip() or "no message"])[0]
        except ValueError as err:
            result = "source", str(err)
    return result


def device_part(source: str, dropped: Collection[str]) -> str:
    """Return source without functions of the host and without some headers; lines stay in place.

    Preprocessor lines, types, variables and functions with an attribute of the device or
    ``constexpr`` stay.
    """

    def kept_include(each: re.Match[str]) -> str:
        return "" if each[2] in dropped else each[0]

    source = _INCLUDE.sub(kept_include, source)
    # The same text, in which comments, literals and directives have no braces.
    plain = _DIRECTIVE.sub(_blank, _OPAQUE.sub(_blank, source))
    kept, start = [], 0
    while (brace := plain.find("{", start)) >= 0:
        head = plain[start:brace]
        first = max(head.rfind(";"), head.rfind("}")) + 1
        head = head[first:]
        end = brace + 1 if _SCOPE.search(head) else _closing(plain, brace)
        if "(" in head and "=" not in head.partition("(")[0] and not _OF_DEVICE.search(head):
            kept.append(source[start : start + first])
            kept.append("\n" * source.count("\n", start + first, end))
        else:
            kept.append(source[start:end])
        start = end
    return "".join(kept) + source[start:]


def _blank(each: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", each[0])


def _closing(plain: str, brace: int) -> int:
    """Return the position after the matching closing brace."""
    depth = 0
    for each in re.finditer(r"[{}]", plain[brace:]):
        depth += 1 if each[0] == "{" else -1
        if depth == 0:
            return brace + each.end()
    return len(plain)


def _check_code(data: bytes) -> tuple[str, str]:
    try:
        name = code_object.target_of(data)
        if name not in TARGETS:
            return "other target", name
        kernels = code_object.load(data, Memory(1 << 30), name).kernels
    except (EmulatorError, ValueError) as err:
        return "damaged", str(err)
    if not kernels:
        return "ready", "no kernels"
    for kernel in kernels.values():
        try:
            for node in graph(kernel).values():
                if node.inst.mnemonic not in _CONTROL:
                    bind(node.inst, TARGETS[name])
        except UnsupportedInstruction as err:
            return "instructions", f"{kernel.name}: {err}"
    return "ready", ", ".join(kernels)


def files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files to check, in order."""
    for path in paths:
        if path.is_dir():
            found = (each for each in path.rglob("*") if each.suffix in SOURCES + CODE)
            yield from sorted(each for each in found if each.is_file())
        else:
            yield path


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--target", default="gfx942", choices=tuple(TARGETS))
    parser.add_argument("--option", action="append", default=[], help="of the compiler")
    parser.add_argument("--device-part", action="store_true", help="drop the host's part of source")
    parser.add_argument("--drop", action="append", default=[], help="with it, a header to drop")
    parser.add_argument("--json", type=Path, help="write the results of all files there")
    parser.add_argument("--quiet", action="store_true", help="print the sums only")
    given = parser.parse_args()
    missing = [path for path in given.paths if not path.exists()]
    if missing:
        parser.error(f"{missing[0]} does not exist")
    results = {}
    for path in files(given.paths):
        results[str(path)] = kind, why = check(
            path, given.target, given.option, given.drop if given.device_part else None
        )
        if not given.quiet:
            print(f"{kind:<13} {path}: {why}", flush=True)
    counts = collections.Counter(kind for kind, _ in results.values())
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()) or "no files")
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))
    return 0 if set(counts) <= {"ready", "other target"} else 1


if __name__ == "__main__":
    sys.exit(main())
