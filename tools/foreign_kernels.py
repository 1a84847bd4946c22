"""Check kernels of other projects against the emulated device.

    python tools/foreign_kernels.py PATH... [--target gfx950] [--option=-I/a/folder] [--json FILE]

A path is a file or a folder. Source (``.hip``, ``.cpp``, ``.cu``) is compiled with the emulated
device's headers, its kernels only. Of each kernel of a code object (``.co``, ``.hsaco``, or what
was compiled), all instructions that execution can reach are decoded and bound to the unit that
executes them. The result of a file is one of

    ready         every kernel can be executed
    instructions  an instruction is not emulated; the first is named
    source        the source does not compile; the first error is named
    other target  the code object is for a target that is not emulated
    damaged       the file is no code object

Nothing is executed: that needs a kernel's arguments (``cupygemm.emulator.launch``).
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cupygemm._build.toolchain import CompileError
from cupygemm.emulator import code_object
from cupygemm.emulator.allocations import Memory
from cupygemm.emulator.errors import EmulatorError, UnsupportedInstruction
from cupygemm.emulator.profiling.control_flow import graph
from cupygemm.emulator.runtime.compile import compile_program
from cupygemm.emulator.targets import TARGETS
from cupygemm.emulator.units import bind

SOURCES, CODE = (".hip", ".cpp", ".cu"), (".co", ".hsaco")
_CONTROL = ("s_waitcnt", "s_barrier", "s_endpgm")


def check(path: Path, target: str, options: Sequence[str]) -> tuple[str, str]:
    """Return the result for a file, and what it follows from."""
    if path.suffix in CODE:
        return _check_code(path.read_bytes())
    try:
        words = [f"-I{path.parent}", "-w", *options]
        text = path.read_text(errors="replace")
        compiled = compile_program(text, path.name, target_name=target, options=words)
    except CompileError as err:
        errors = [line for line in err.log.splitlines() if "error" in line]
        return "source", (errors or [err.log.strip() or "no message"])[0]
    except ValueError as err:
        return "source", str(err)
    return _check_code(compiled.code)


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
    parser.add_argument("--json", type=Path, help="write the results of all files there")
    parser.add_argument("--quiet", action="store_true", help="print the sums only")
    given = parser.parse_args()
    missing = [path for path in given.paths if not path.exists()]
    if missing:
        parser.error(f"{missing[0]} does not exist")
    results = {}
    for path in files(given.paths):
        results[str(path)] = kind, why = check(path, given.target, given.option)
        if not given.quiet:
            print(f"{kind:<13} {path}: {why}", flush=True)
    counts = collections.Counter(kind for kind, _ in results.values())
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()) or "no files")
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))
    return 0 if set(counts) <= {"ready", "other target"} else 1


if __name__ == "__main__":
    sys.exit(main())
