"""The C compiler for this machine, which builds the emulator's host libraries."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cupygemm._build.cache import writable_dir
from cupygemm._build.toolchain import (
    CompileError,
    ToolchainError,
    find_zig,
    first_line,
    run,
    zig_versions,
)

_WITHOUT_SANITIZERS = ("-fno-sanitize=all",)  # by default, zig checks for undefined behaviour


def host_shared_library(
    sources: Sequence[Path],
    output: Path,
    *,
    soname: str | None = None,
    version_script: Path | None = None,
    options: Sequence[str] = (),
    link_options: Sequence[str] = (),
) -> str:
    """Compile C sources, in parallel, to a shared library for this machine.

    Parameters
    ----------
    sources : sequence of pathlib.Path
    output : pathlib.Path
    soname : str, optional
    version_script : pathlib.Path, optional
        A version script of the GNU linker.
    options : sequence of str, optional
        Options for compiling.
    link_options : sequence of str, optional
        Options for linking, such as libraries.

    Returns
    -------
    str
        The compiler's warnings.

    Raises
    ------
    ToolchainError
        No C compiler was found.
    CompileError
        The compiler failed; the error has its log.
    """
    compiling = ["-fPIC", "-std=c11", *_WITHOUT_SANITIZERS, *options]
    linking = ["-shared", *_WITHOUT_SANITIZERS, *link_options, "-o", str(output)]
    if soname is not None:
        linking.append(f"-Wl,-soname,{soname}")
    if version_script is not None:
        linking.append(f"-Wl,--version-script={version_script}")
    if len(sources) == 1:
        return _compile(sources[0], [*compiling, str(sources[0]), *linking])
    with tempfile.TemporaryDirectory(prefix=f"cupygemm-{output.stem[:40]}-") as folder:
        objects = [Path(folder, source.name).with_suffix(".o") for source in sources]
        logs = _compile_all(sources, objects, compiling)
        what = f"{output.name} does not link for the host"
        return logs + _run(what, [*map(str, objects), *linking])


def _compile_all(sources: Sequence[Path], objects: Sequence[Path], options: Sequence[str]) -> str:
    """Compile each source to an object, in parallel on all cores; return the warnings."""
    from concurrent.futures import ThreadPoolExecutor

    def compile_one(source: Path, made: Path) -> str:
        return _compile(source, [*options, "-c", str(source), "-o", str(made)])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return "".join(pool.map(compile_one, sources, objects))


def _compile(source: Path, arguments: Sequence[str]) -> str:
    return _run(f"{source.name} does not compile for the host", arguments)


def _run(what: str, arguments: Sequence[str]) -> str:
    """Run the compiler; if it fails, once more without what zig has cached.

    zig does not notice a cached object that is cut off, as after a crash or on a full disk. If the
    compiler succeeds without the cache, the cache is removed.
    """
    compiler, version = _host_compiler()
    try:
        return run(what, compiler, arguments)
    except CompileError:
        if not version.startswith("zig"):
            raise
        with tempfile.TemporaryDirectory(prefix="cupygemm-zig-") as empty:
            log = run(what, compiler, arguments, Path(empty))
        shutil.rmtree(writable_dir() / "zig", ignore_errors=True)
        return log


def host_compiler_version() -> str:
    """Return the version of the C compiler of `host_shared_library`, for cache keys."""
    return _host_compiler()[1]


@functools.cache
def _host_compiler() -> tuple[tuple[str, ...], str]:
    zig = find_zig()
    if zig is not None:
        return (str(zig), "cc"), "zig " + zig_versions(zig)[0]
    for name in ("clang", "cc"):
        where = shutil.which(name)
        version = "" if where is None else first_line([where, "--version"])
        if where is not None and "clang" in version:
            return (where,), version
    raise ToolchainError(
        "no C compiler for the emulator's host libraries: pip install ziglang (or have clang on "
        "PATH; gcc does not have all vector functions that they use)"
    )
