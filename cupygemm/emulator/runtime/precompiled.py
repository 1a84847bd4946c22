"""Precompile the headers that CuPy's programs begin with: HIP's implicit one and CuPy's own.

To parse them takes two thirds of the time of compiling one of CuPy's kernels. They are parsed once
for each target and set of options, and kept in the cache. A program takes part if its text, with
all includes expanded, begins with exactly theirs; otherwise, and where the compiler refuses what is
precompiled, it is compiled in full, so its code and its diagnostics do not depend on this module.
"""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cupygemm._build.cache import get_or_build
from cupygemm._build.toolchain import CompileError, Toolchain

# The option for HIP's implicit header, which the precompiled one replaces.
IMPLICIT = ("-include", "device/hip.h")
RTC_MACRO = "-D__HIPCC_RTC__=1"
# Programs with macros of their own hardly share them, and debug information would name other files.
_UNSHARED = ("-D", "-U", "-g")
_CUPY_HEADERS = re.compile(r"(?:#include <cupy/[^>\n]+>\n)*")


class _Headers(NamedTuple):
    """Precompiled headers, and their preprocessed text."""

    file: Path
    text: str


def compile_to_assembly(
    toolchain: Toolchain,
    file: Path,
    assembly: Path,
    *,
    target_name: str,
    arguments: Sequence[str],
    preprocessed: str,
    version: str,
) -> str:
    """Compile a program to assembly, with precompiled headers if they apply.

    Parameters
    ----------
    toolchain : Toolchain
    file, assembly : pathlib.Path
        The program, in a folder of its own, and what to write.
    target_name : str
        LLVM's name of the processor.
    arguments : sequence of str
        The compiler's, which begin with `IMPLICIT`.
    preprocessed : str
        The program's text with all includes expanded.
    version : str
        Identifies the emulator's own headers.

    Returns
    -------
    str
        The compiler's warnings.

    Raises
    ------
    CompileError
        With the compiler's log.
    """
    beginning = _CUPY_HEADERS.match(file.read_text())
    assert beginning is not None
    shared = tuple(argument for argument in arguments if str(file.parent) not in argument)
    headers = _precompile(toolchain, beginning[0], target_name, shared, version)
    if headers is not None and preprocessed.startswith(headers.text):
        options = ["-include-pch", str(headers.file), *arguments[len(IMPLICIT) :]]
        try:
            return toolchain.compile_to_assembly(
                file, assembly, target=target_name, options=options
            )
        except CompileError:
            pass  # if it is the program's fault, the diagnostics below say so
    return toolchain.compile_to_assembly(file, assembly, target=target_name, options=arguments)


@functools.lru_cache(maxsize=64)
def _precompile(
    toolchain: Toolchain,
    includes: str,
    target_name: str,
    arguments: tuple[str, ...],
    version: str,
) -> _Headers | None:
    """Return the precompiled headers; None if they are not worth it or do not compile."""
    if any(option.startswith(_UNSHARED) and option != RTC_MACRO for option in arguments):
        return None
    with tempfile.TemporaryDirectory(prefix="cupygemm-headers-") as folder:
        file = Path(folder, "headers.hpp")
        file.write_text(includes)
        try:
            text = toolchain.preprocess(file, target=target_name, options=arguments).rstrip()
            path = get_or_build(
                "headers",
                [toolchain.version, version, target_name, includes, text, *arguments],
                ".pch",
                lambda output: toolchain.precompile(
                    file, output, target=target_name, options=arguments
                ),
            )
        except CompileError:
            return None
    return _Headers(path, text)
