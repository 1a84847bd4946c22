"""Device code on this machine: the headers that are plain arithmetic, compiled for the host."""

import ctypes
from pathlib import Path

from cupygemm._build.cache import get_or_build
from cupygemm._build.flatten import flatten
from cupygemm._build.host_compiler import host_compiler_version, host_shared_library

# zig would first compile its own runtime libraries, which takes six seconds of processor time.
WITHOUT_RUNTIME = ("-nostdlib", "-lm", "-lc")


def compile_for_host(header: str, code: str, *, defines: tuple[str, ...] = ()) -> ctypes.CDLL:
    """Return a library of the header, flattened, followed by `code`, which exports C functions."""
    text = "#pragma clang optimize off\n"  # many small functions, each of which runs once
    text += "#define __device__\n" + "".join(f"#define {name} 1\n" for name in defines)
    # What rounds to 8-bit floats and what activations take is declared beside the layouts, and this
    # machine has none of it.
    for instruction in ("cvt_pk_fp8_f32", "cvt_pk_bf8_f32", "exp2f", "rcpf"):
        text += f"#define __builtin_amdgcn_{instruction}(...) 0\n"
    text += flatten(header, {}) + code

    def build(output: Path) -> None:
        source = output.with_suffix(".cpp")
        source.write_text(text)
        host_shared_library(
            [source], output, options=("-O1", "-g0", "-std=c++17", *WITHOUT_RUNTIME)
        )

    return ctypes.CDLL(str(get_or_build("test", (text, host_compiler_version()), ".so", build)))
