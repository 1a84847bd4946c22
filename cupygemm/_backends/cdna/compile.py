"""Compile the kernel of a problem and a configuration to a code object in the cache.

The source is one flattened translation unit, so the cache's key is complete: the text, the options,
the compiler and its version, and the target. The compiler is a clang
(`cupygemm._build.toolchain`); on a machine with a ROCm runtime and no clang, it is hiprtc, through
CuPy's binding.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cupygemm._backends.cdna.config import GemmConfig
from cupygemm._backends.cdna.resources import Resources, read_resources
from cupygemm._backends.cdna.source import ENTRY, generate
from cupygemm._build.cache import get_or_build
from cupygemm._build.source_text import write_source
from cupygemm._build.toolchain import CompileError, Toolchain, ToolchainError, find_toolchain
from cupygemm._records.problem import GemmProblem

# A user's compiler may be newer than ours and warn about more. Without the identifier that clang
# derives from the file's path, the same source always gives the same code object.
OPTIONS = ("-w", "-fuse-cuid=none")
HIPRTC_OPTIONS = ("-O3", "-std=c++17", "-w")


@dataclass(frozen=True, kw_only=True)
class CompiledKernel:
    """A code object in the cache.

    Attributes
    ----------
    name : str
        The name of its entry.
    path : pathlib.Path
    target : str
        The name of the architecture, one of `ARCHS`.
    compiler : str
        The compiler's name and version.
    resources : Resources
    """

    name: str
    path: Path
    target: str
    compiler: str
    resources: Resources


def compile_kernel(problem: GemmProblem, config: GemmConfig, target: str) -> CompiledKernel:
    """Return the kernel that solves `problem` by `config` on `target`, compiled at most once.

    Raises
    ------
    cupygemm._build.toolchain.CompileError
        The source does not compile; the error has the compiler's log.
    cupygemm._build.toolchain.ToolchainError
        No compiler was found.
    """
    return compile_source(generate(problem, config, target), target)


@functools.lru_cache(maxsize=1024)
def compile_source(text: str, target: str, entry: str = ENTRY) -> CompiledKernel:
    """Compile a translation unit; see `compile_kernel`."""
    compiler, options, build = _compiler(text, target)
    path = get_or_build(
        "hsaco",
        (text, *options, compiler, target),
        ".hsaco",
        build,
        check=functools.partial(_is_code_object, name=entry),
    )
    return CompiledKernel(
        name=entry,
        path=path,
        target=target,
        compiler=compiler,
        resources=read_resources(path, entry),
    )


def _compiler(text: str, target: str) -> tuple[str, tuple[str, ...], Callable[[Path], None]]:
    """Return the compiler's name and version, its options, and the function that runs it."""
    try:
        toolchain = find_toolchain()
    except ToolchainError as missing:
        hiprtc = _hiprtc()
        if hiprtc is None:
            raise
        try:
            major, minor = hiprtc.getVersion()
        except (OSError, RuntimeError):
            raise missing from None
        options = (f"--offload-arch={target}", *HIPRTC_OPTIONS)
        build = functools.partial(_build_with_hiprtc, hiprtc, text, options)
        return f"hiprtc {major}.{minor}", options, build
    build = functools.partial(_build_with_clang, toolchain, text, target)
    return f"{toolchain.name}: {toolchain.version}", OPTIONS, build


def _build_with_clang(toolchain: Toolchain, text: str, target: str, output: Path) -> None:
    source = output.with_suffix(".hip")
    write_source(source, text)
    toolchain.compile_hip(source, output, target=target, options=OPTIONS)


def _build_with_hiprtc(hiprtc: Any, text: str, options: tuple[str, ...], output: Path) -> None:
    program = hiprtc.createProgram(text, "cupygemm.hip", (), ())
    try:
        try:
            hiprtc.compileProgram(program, options)
        except hiprtc.NVRTCError as err:
            log = hiprtc.getProgramLog(program)
            raise CompileError(
                "hiprtc cannot compile the kernel", log, ("hiprtc", *options)
            ) from err
        # The binding drops the last byte, which is a NUL only of PTX text. An ELF ends in its
        # section headers, whose last field is small, so that byte is a NUL as well.
        output.write_bytes(hiprtc.getPTX(program) + b"\0")
    finally:
        hiprtc.destroyProgram(program)


def _hiprtc() -> Any:
    """Return CuPy's binding of hiprtc, or None if CuPy is not built for ROCm."""
    try:
        import cupy
        from cupy_backends.cuda.libs import nvrtc
    except ImportError:
        return None
    return nvrtc if cupy.cuda.runtime.is_hip else None


def _is_code_object(path: Path, name: str) -> bool:
    try:
        read_resources(path, name)
    except ValueError:
        return False
    return True
