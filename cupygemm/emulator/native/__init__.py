"""The C parts of the execution units: every ``*.c`` of this folder, as one shared object.

It is compiled on first use for this machine's processor and kept in the cache under a key made of
the sources, the compiler and the processor: an edited source or another machine causes a new build.
Each unit declares ``argtypes`` and ``restype`` of its own functions.

The C is plain C11 (with GNU vector extensions where they help) and calls nothing but libc and libm.
Contraction of a*b+c is off: a unit that means a fused multiply-add says ``fma``.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from pathlib import Path

_IS_X86 = platform.machine() in ("x86_64", "AMD64")
# AVX-512 holds 64 lanes in four registers; by default, clang uses half of its width.
_WIDE = ("-mprefer-vector-width=512",) if _IS_X86 else ()
# A gather takes longer than separate loads on many processors (AMD's, and Intel's since the fix of
# a flaw in it). zig ignores -mno-gather, and gcc has no such option.
_FEATURES = ("+prefer-no-gather", "+prefer-no-scatter") if _IS_X86 else ()
_WITHOUT_GATHERS = tuple(
    word for each in _FEATURES for word in ("-Xclang", "-target-feature", "-Xclang", each)
)
OPTIONS = (
    "-std=gnu11",
    "-O3",
    "-g0",
    "-march=native",
    *_WIDE,
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-Wall",
    "-Wextra",
)
# zig would first compile its own runtime library, which takes as long as half of these sources.
_WITHOUT_RUNTIME = ("-nostdlib", "-lm", "-lc", "-Wl,-z,defs")
_WITH_RUNTIME = ("-lm", "-pthread")


@functools.cache
def library() -> ctypes.CDLL:
    """Build (or find in the cache) and load the shared object of all ``native/*.c``.

    Raises
    ------
    CompileError
        The C compiler refuses a source.
    """
    from cupygemm._build.cache import get_or_build
    from cupygemm._build.host_compiler import host_compiler_version, host_shared_library
    from cupygemm._build.toolchain import CompileError

    sources, compiler = _sources("*.c"), host_compiler_version()
    options = OPTIONS
    if compiler.startswith("zig"):
        options += _WITHOUT_GATHERS
    key: list[str | bytes] = [*options, compiler, _processor()]
    for path in [*sources, *_sources("*.h")]:
        key += [path.name, path.read_bytes()]

    def build(output: Path) -> None:
        try:
            host_shared_library(sources, output, options=options, link_options=_WITHOUT_RUNTIME)
        except CompileError:  # a processor whose half-precision conversions are functions
            host_shared_library(sources, output, options=options, link_options=_WITH_RUNTIME)

    built = get_or_build("native", key, ".so", build)
    return ctypes.CDLL(str(built))


def _sources(pattern: str) -> list[Path]:
    return sorted(Path(__file__).parent.glob(pattern))


def _processor() -> str:
    """Return the processor's model and features, on which ``-march=native`` depends."""
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")
    lines = (line for line in info.split("\n\n", 1)[0].splitlines() if line.startswith(wanted))
    return "\n".join([platform.machine(), *lines])
