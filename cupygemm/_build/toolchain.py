"""The compilers that make code objects from HIP C++ or AMDGPU assembly.

There are three toolchains, tried in this order: ROCm's own clang, the clang in PyPI's ziglang, and
a clang of version 22 or later with the AMDGPU target on PATH. `CUPYGEMM_TOOLCHAIN` selects one.
ziglang's comes before the one on PATH: this package pins its version, so code is the same on each
machine. It is also one static program, which starts in less than half of the time of Debian's.

They need none of ROCm's headers or device libraries, because the kernels' sources include all that
they need. The toolchains differ only in the number of commands: ziglang's clang cannot start its
linker, so linking is a separate command.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cupygemm._build.cache import get_or_build, writable_dir
from cupygemm._build.private_dir import check_of_the_system
from cupygemm._build.source_text import read_source

MINIMUM_CLANG = 22
ToolchainName = Literal["rocm", "clang", "zig"]

# LLVM's CodeGenPrepare starts again after each change, unless a function is "huge", by default of
# 10,000 blocks. The code is the same; a Cholesky panel of complex64 takes 2 instead of 17 s.
_HUGE = ("-mllvm", "-cgpp-huge-func=1")
_COMPILE = (
    *("-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-O3", "-std=c++17"),
    *_HUGE,
)
_BACKEND = (*_HUGE, "-mllvm", "-amdgpu-internalize-symbols")
_ASSEMBLE = ("--target=amdgcn-amd-amdhsa",)


class ToolchainError(RuntimeError):
    """No usable compiler was found."""


class CompileError(RuntimeError):
    """A compiler refused its input.

    Attributes
    ----------
    log : str
        The compiler's output.
    command : tuple of str
        The command that failed.
    """

    def __init__(self, what: str, log: str, command: Sequence[str]) -> None:
        self.log = log
        self.command = tuple(command)
        super().__init__(f"{what}\n{log.rstrip()}\ncommand: {shlex.join(self.command)}")


@dataclass(frozen=True)
class Toolchain:
    """A compiler that makes code objects for CDNA.

    Attributes
    ----------
    name : {"rocm", "clang", "zig"}
    version : str
        Identifies the compiler in a cache key, e.g. ``"clang 22.1.8 (zig 0.17.0)"``.
    path : pathlib.Path
        The executable.
    """

    name: ToolchainName
    version: str
    path: Path

    def compile_hip(
        self, source: Path, output: Path, *, target: str, options: Sequence[str] = ()
    ) -> str:
        """Compile HIP C++ to a code object.

        Parameters
        ----------
        source : pathlib.Path
            A translation unit that includes no ROCm header.
        output : pathlib.Path
            The code object to write.
        target : str
            The name of the processor, as the compiler's ``-mcpu`` takes it.
        options : sequence of str, optional
            Options after the defaults, such as ``-O3 -std=c++17``.

        Returns
        -------
        str
            The compiler's warnings.

        Raises
        ------
        CompileError
            The compiler failed; the error has its log.
        """
        if self.name != "zig":
            what = f"{source.name} does not compile for {target}"
            arguments = self._hip_arguments(target, options)
            arguments += ["--no-gpu-bundle-output", str(source), "-o", str(output)]
            return run(what, self._clang(), arguments)
        with _scratch(output) as scratch:
            object_file = scratch / "kernel.o"
            log = self.compile_to_object(source, object_file, target=target, options=options)
            return log + self.link([object_file], output, target=target)

    def compile_to_object(
        self, source: Path, output: Path, *, target: str, options: Sequence[str] = ()
    ) -> str:
        """Compile HIP C++ to a file for `link`; parameters and errors are as in `compile_hip`."""
        # For a device, clang's driver links even with -c, but not with -S.
        arguments = [*self._hip_arguments(target, options), "-S", "-Xclang", "-emit-obj"]
        arguments += [str(source), "-o", str(output)]
        return run(f"{source.name} does not compile for {target}", self._clang(), arguments)

    def compile_to_assembly(
        self, source: Path, output: Path, *, target: str, options: Sequence[str] = ()
    ) -> str:
        """Compile HIP C++ to assembly text; parameters and errors are those of `compile_hip`."""
        arguments = self._hip_arguments(target, options)
        arguments += ["-S", str(source), "-o", str(output)]
        what = f"{source.name} does not compile for {target}"
        return run(what, self._clang(), arguments)

    def compile_to_ir(
        self, source: Path, output: Path, *, target: str, options: Sequence[str] = ()
    ) -> None:
        """Compile HIP C++ to unoptimised LLVM IR; parameters and errors are as in `compile_hip`."""
        arguments = [*self._hip_arguments(target, options), "-S", "-emit-llvm"]
        arguments += ["-Xclang", "-disable-llvm-passes", str(source), "-o", str(output)]
        run(f"{source.name} does not compile for {target}", self._clang(), arguments)

    def compile_ir(
        self, source: Path, output: Path, *, target: str, options: Sequence[str] = ()
    ) -> None:
        """Compile the IR of `compile_to_ir` to an object file for `link`."""
        arguments = [*_ASSEMBLE, f"-mcpu={target}", "-nogpulib", "-O3", *options, *_BACKEND]
        arguments += ["-x", "ir", "-S", "-Xclang", "-emit-obj", str(source), "-o", str(output)]
        run(f"{source.name} does not compile for {target}", self._clang(), arguments)

    def precompile(
        self, source: Path, output: Path, *, target: str, options: Sequence[str] = ()
    ) -> None:
        """Compile a header for ``-include-pch``; parameters and errors are as in `compile_hip`."""
        arguments = self._hip_arguments(target, options)
        # Then the header and those that it includes need not exist; templates that they use are
        # instantiated once, and not by each program.
        for option in (
            "-fno-pch-timestamp",
            "-fmodules-embed-all-files",
            "-fpch-instantiate-templates",
        ):
            arguments += ["-Xclang", option]
        arguments += ["-emit-ast", str(source), "-o", str(output)]
        run(f"{source.name} does not compile for {target}", self._clang(), arguments)

    def preprocess(self, source: Path, *, target: str, options: Sequence[str] = ()) -> str:
        """Return a translation unit with its includes expanded, without line markers.

        The parameters and errors are those of `compile_hip`.
        """
        with _scratch(source) as scratch:
            output = scratch / "preprocessed.hip"
            arguments = self._hip_arguments(target, options)
            arguments += ["-E", "-P", str(source), "-o", str(output)]
            what = f"{source.name} does not compile for {target}"
            run(what, self._clang(), arguments)
            return read_source(output)

    def assemble(self, source: Path, output: Path, *, target: str, link: bool = True) -> str:
        """Assemble assembly text to a code object.

        Parameters
        ----------
        source, output : pathlib.Path
        target : str
            The name of the processor, as the compiler's ``-mcpu`` takes it.
        link : bool, optional
            Whether to link it; otherwise, `output` is a file for `link`.

        Returns
        -------
        str
            The assembler's and the linker's warnings.

        Raises
        ------
        CompileError
            The assembler or the linker failed; the error has its log.
        """
        if link:
            with _scratch(output) as scratch:
                object_file = scratch / "kernel.o"
                log = self.assemble(source, object_file, target=target, link=False)
                return log + self.link([object_file], output, target=target)
        what = f"{source.name} does not assemble for {target}"
        arguments = ["-x", "assembler", *_ASSEMBLE, f"-mcpu={target}", str(source)]
        return run(what, self._clang(), [*arguments, "-c", "-o", str(output)])

    def link(self, objects: Sequence[Path], output: Path, *, target: str) -> str:
        """Link object files to a code object; parameters and errors are as in `assemble`."""
        if self.name == "zig":
            linker, arguments = [str(self.path), "ld.lld"], ["-shared"]
        else:
            linker, arguments = self._clang(), [*_ASSEMBLE, f"-mcpu={target}"]
        arguments += [*map(str, objects), "-o", str(output)]
        return run(f"{objects[0].name} does not link for {target}", linker, arguments)

    def _clang(self) -> list[str]:
        return [str(self.path), "clang"] if self.name == "zig" else [str(self.path)]

    @staticmethod
    def _hip_arguments(target: str, options: Sequence[str]) -> list[str]:
        return [*_COMPILE, f"--offload-arch={target}", *options]


def find_toolchain(name: ToolchainName | None = None) -> Toolchain:
    """Return the toolchain to use: ROCm's, else ziglang's, else a clang on PATH.

    The environment variable ``CUPYGEMM_TOOLCHAIN`` (``rocm``, ``clang`` or ``zig``) selects one.

    Parameters
    ----------
    name : {"rocm", "clang", "zig"}, optional
        Return this one and ignore the environment variable.

    Returns
    -------
    Toolchain

    Raises
    ------
    ToolchainError
        No toolchain was found, or the selected one is missing; the message says what to install.
    """
    return _find_toolchain(name or os.environ.get("CUPYGEMM_TOOLCHAIN", ""))


@functools.cache
def _find_toolchain(forced: str) -> Toolchain:
    finders = {
        "rocm": _rocm_toolchain,
        "zig": _zig_toolchain,
        "clang": _clang_toolchain,
    }
    if forced and forced not in finders:
        raise ToolchainError(
            f"CUPYGEMM_TOOLCHAIN is {forced!r}; it must be one of {', '.join(finders)}"
        )
    for name, finder in finders.items():
        if forced in ("", name):
            found = finder()
            if found is not None:
                return found
    missing = {
        "rocm": "ROCm's clang is not under ROCM_HOME, ROCM_PATH or /opt/rocm",
        "zig": "the package ziglang is not installed: pip install ziglang",
        "clang": f"no clang of version {MINIMUM_CLANG} or later with the AMDGPU target is on PATH",
    }
    raise ToolchainError(
        f"CUPYGEMM_TOOLCHAIN is {forced!r}, but {missing[forced]}"
        if forced
        else "no compiler for CDNA code objects: " + "; ".join(missing.values())
    )


def _rocm_toolchain() -> Toolchain | None:
    roots = [os.environ.get("ROCM_HOME"), os.environ.get("ROCM_PATH"), "/opt/rocm"]
    for root in filter(None, roots):
        path = Path(root) / "llvm" / "bin" / "clang++"
        version = _clang_version(path) if path.is_file() else None
        if version is not None:
            return Toolchain("rocm", version[1], path)
    return None


def _clang_toolchain() -> Toolchain | None:
    for name in (
        "clang++",
        *(f"clang++-{major}" for major in range(40, MINIMUM_CLANG - 1, -1)),
    ):
        where = shutil.which(name)
        version = _clang_version(Path(where)) if where else None
        if where and version is not None and version[0] >= MINIMUM_CLANG:
            # Debian has separate packages for the linker and the compiler.
            lld = Path(where).resolve().parent / "ld.lld"
            if lld.exists() or shutil.which("ld.lld"):
                return Toolchain("clang", version[1], Path(where))
    return None


def _zig_toolchain() -> Toolchain | None:
    path = find_zig()
    if path is None:
        return None
    version, clang = zig_versions(path)
    return Toolchain("zig", f"{clang} (zig {version})", path)


def find_zig() -> Path | None:
    """Return the path of ziglang's compiler, or None if the package is not installed."""
    spec = importlib.util.find_spec("ziglang")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "zig"
        if path.is_file():
            return path
    return None


@functools.cache
def zig_versions(path: Path) -> tuple[str, str]:
    """Return the versions of zig and of its clang; empty strings if it cannot run.

    The result is cached on disk until the file changes, so that not every process runs zig.
    """
    status = path.stat()
    state = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def ask(output: Path) -> None:
        lines = [first_line([str(path), *words]) for words in (["version"], ["clang", "--version"])]
        if not all(lines):
            raise ToolchainError(f"{path} does not say its version")
        output.write_text("\n".join(lines), encoding="utf-8")

    try:
        answer = get_or_build("versions", [str(path), *map(str, state)], ".txt", ask)
    except ToolchainError:
        return "", ""
    version, clang = answer.read_text(encoding="utf-8").split("\n")
    return version, clang


def _clang_version(path: Path) -> tuple[int, str] | None:
    """Return the major version and the version line of a clang with AMDGPU support, or None."""
    line = first_line([str(path), "--version"])
    match = re.search(r"clang version (\d+)", line)
    if match is None:
        return None
    targets = subprocess.run(
        [str(path), "--print-targets"], capture_output=True, text=True, check=False
    )
    if "amdgcn" not in targets.stdout:
        return None
    return int(match[1]), line


def first_line(command: Sequence[str]) -> str:
    """Return the first line that a command prints; an empty string if it cannot run."""
    try:
        done = subprocess.run(command, capture_output=True, check=False, env=_environment())
    except OSError as err:
        check_of_the_system(err)
        return ""
    return done.stdout.decode(errors="replace").split("\n", 1)[0].strip()


def _environment(zig_cache: Path | None = None) -> dict[str, str]:
    """Return the environment, with zig's caches in this library's cache, or in another folder."""
    folder = str(zig_cache or writable_dir() / "zig")
    caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), folder)
    return caches | os.environ if zig_cache is None else os.environ | caches


@contextlib.contextmanager
def _scratch(output: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=f"cupygemm-{output.stem[:40]}-") as folder:
        yield Path(folder)


def run(
    what: str, compiler: Sequence[str], arguments: Sequence[str], zig_cache: Path | None = None
) -> str:
    """Run a compiler and return its output; a `CompileError` begins with `what`."""
    command = [*compiler, *arguments]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
        env=_environment(zig_cache),
    )
    if done.returncode != 0:
        raise CompileError(what, done.stdout, command)
    return done.stdout
