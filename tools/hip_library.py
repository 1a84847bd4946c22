"""Build a shared library from HIP source, including its host part, for the emulated device.

    python tools/hip_library.py SOURCE -o LIBRARY [--target gfx942] [--option=-I/a/folder]

The kernels are compiled as by hipcc, and the host part by the same clang, from the package ziglang,
for x86-64 and glibc. The library contains the code object and needs ``libamdhip64.so.7``, which the
emulated device provides after ``cupygemm.emulator.enable()`` and ``import cupy``. Then load it with
`ctypes.CDLL`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cupygemm.emulator.runtime import compile as programs
from cupygemm.emulator.runtime import cxx_library, precompiled

# Names in an object that uses the C++ library.
_CXX_NAMES = (b"_ZNSt3__1", b"_ZNKSt3__1", b"__cxa_", b"_Znwm", b"_ZdlPv")

# Functions in glibc's static part.
_GLIBC = """
extern int __cxa_atexit(void (*)(void *), void *, void *);
__attribute__((visibility("hidden"))) void *__dso_handle = &__dso_handle;
__attribute__((visibility("hidden"))) int atexit(void (*function)(void)) {
    return __cxa_atexit((void (*)(void *))function, 0, __dso_handle);
}
"""

# Conversions to bf16, which clang's own runtime library has but ziglang's lacks.
_BFLOAT = """
typedef float vector __attribute__((vector_size(16)));
static vector rounded(float value) {
    union { float value; unsigned word; } bits = {value};
    unsigned word = value != value ? bits.word | 0x400000
                                   : bits.word + 0x7FFF + (bits.word >> 16 & 1);
    bits.word = word >> 16;
    return (vector){bits.value};
}
__attribute__((visibility("hidden"))) vector __truncsfbf2(float value) { return rounded(value); }
"""


def build(
    source: Path, library: Path, *, target: str = "gfx942", options: Sequence[str] = ()
) -> None:
    """Build a library.

    Parameters
    ----------
    source : Path
    library : Path
        The file to write.
    target : str, optional
    options : sequence of str, optional
        Compiler options for both parts.

    Raises
    ------
    CompileError
        The device part does not compile.
    RuntimeError
        The host part does not compile or link, or ziglang is not installed.
    """
    options = [f"-I{source.parent}", *options]
    compiled = programs.compile_program(
        source.read_text(encoding="utf-8"),
        source.name,
        target_name=target,
        options=options,
        rtc=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        code, item = Path(folder, "code.hsaco"), Path(folder, "host.o")
        code.write_bytes(compiled.code)
        embedded = ("-Xclang", "-fcuda-include-gpubinary", "-Xclang", str(code))
        files = ("-c", str(source), "-o", str(item))
        _run("clang", *_host_options(target), *options, *embedded, *files)
        _link(item, library, Path(folder))


def _host_options(target: str) -> list[str]:
    full = cxx_library.full("gnu")
    if full is None:
        raise RuntimeError("the package ziglang, whose C++ library is used, is not installed")
    return [
        *("-x", "hip", f"--offload-arch={target}", "--offload-host-only", "-nogpulib", "-nogpuinc"),
        *("-nostdinc", "-fPIC", "-O1", "-D__HIPCC__=1", *precompiled.IMPLICIT),
        *full.options,
        *(f"-isystem{each}" for each in (*full.first, programs.HEADERS, *full.then)),
        "-idirafter",  # some projects write <hip_bf16.h>
        str(programs.HEADERS / "hip"),
    ]


def _link(item: Path, library: Path, work: Path) -> None:
    """Link an object; ziglang's C++ library is built only if the program uses it."""
    glibc, bfloat, hip = work / "glibc.o", work / "bfloat.o", work / "libamdhip64.so.7"
    for each, text in ((glibc, _GLIBC), (bfloat, _BFLOAT)):
        each.with_suffix(".c").write_text(text)
        _run("clang", "-O1", "-fPIC", "-c", str(each.with_suffix(".c")), "-o", str(each))
    _run("ld.lld", "-shared", "-soname", hip.name, "-o", str(hip), str(glibc))
    files = ("-o", str(library), str(item), str(bfloat))
    if any(name in item.read_bytes() for name in _CXX_NAMES):
        options = ("-target", "x86_64-linux-gnu", "-shared", "-Wl,--no-as-needed")
        _run("c++", *options, *files, str(hip))
    else:
        _run("ld.lld", "-shared", "--no-as-needed", *files, str(glibc), str(hip))


def _run(*arguments: str) -> None:
    command = [sys.executable, "-m", "ziglang", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{arguments[0]} failed:\n{done.stderr}")


def main() -> None:
    """Parse the command line and build."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("-o", dest="library", type=Path, required=True)
    parser.add_argument("--target", default="gfx942")
    parser.add_argument("--option", action="append", default=[], help="of the compiler")
    given = parser.parse_args()
    build(given.source, given.library, target=given.target, options=given.option)


if __name__ == "__main__":
    main()
