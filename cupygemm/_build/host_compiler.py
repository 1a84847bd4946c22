"""The compiler of C for this machine, which makes the emulator's host libraries."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Sequence
from pathlib import Path

from cupygemm._build.toolchain import ToolchainError, find_zig, first_line, run


def host_shared_library(
    sources: Sequence[Path],
    output: Path,
    *,
    soname: str | None = None,
    version_script: Path | None = None,
    options: Sequence[str] = (),
) -> str:
    """Compile C to a shared library for this machine.

    Parameters
    ----------
    sources : sequence of pathlib.Path
    output : pathlib.Path
    soname : str, optional
    version_script : pathlib.Path, optional
        A version script of the GNU linker.
    options : sequence of str, optional

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
    arguments = ["-shared", "-fPIC", "-std=c11", "-fno-sanitize=all", *options]
    if soname is not None:
        arguments.append(f"-Wl,-soname,{soname}")
    if version_script is not None:
        arguments.append(f"-Wl,--version-script={version_script}")
    arguments += [*map(str, sources), "-o", str(output)]
    names = ", ".join(source.name for source in sources)
    return run(f"{names} does not compile for the host", list(_host_compiler()[0]), arguments)


def host_compiler_version() -> str:
    """Return the version of the C compiler of `host_shared_library`, for cache keys."""
    return _host_compiler()[1]


@functools.cache
def _host_compiler() -> tuple[tuple[str, ...], str]:
    zig = find_zig()
    if zig is not None:
        return (str(zig), "cc"), "zig " + first_line([str(zig), "version"])
    for name in ("cc", "gcc", "clang"):
        where = shutil.which(name)
        if where is not None:
            return (where,), first_line([where, "--version"])
    raise ToolchainError(
        "no C compiler for the emulator's host libraries: pip install ziglang "
        "(or have cc, gcc or clang on PATH)"
    )
