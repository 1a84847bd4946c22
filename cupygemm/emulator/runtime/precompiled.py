"""Precompile the headers that CuPy's programs begin with: HIP's implicit one and CuPy's own.

To parse them takes two thirds of the time of compiling one of CuPy's kernels. They are parsed once
for each target and set of options, and kept in the cache. A program takes part if nothing makes its
headers differ from those of other programs; otherwise, and where the compiler refuses what is
precompiled, it is compiled in full, so its code and its diagnostics do not depend on this module.

The cache's key of a program is its text with all includes expanded, which costs a run of the
preprocessor. Those that include nothing after these headers do without: the key is the headers'
text, including their macros, and the program's own.
"""

from __future__ import annotations

import contextlib
import functools
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cupygemm._build.cache import get_or_build
from cupygemm._build.source_text import read_source, write_source
from cupygemm._build.toolchain import CompileError, Toolchain

# The option for HIP's implicit header, which the precompiled one replaces.
IMPLICIT = ("-include", "device/hip.h")
# Programs with macros of their own hardly share headers, debug information would name other files,
# and other kinds of folders and further implicit headers are rare.
_UNSHARED = ("-D", "-U", "-g", "-i")
_CUPY_HEADERS = re.compile(r'(?:\s*#include (?:<cupy/[^>\n]+>|"cupy/[^"\n]+")[ \t]*\n)*')
# Text that may include a file or depend on the time, in every spelling that a preprocessor takes.
_NEEDS_EXPANSION = re.compile(r"include|import|embed|__(?:DATE|TIME|TIMESTAMP)__|\\\s*\n|\?\?/")


class Headers(NamedTuple):
    """The precompiled headers that a program begins with.

    Attributes
    ----------
    file : pathlib.Path
    text : str
        Their text with all includes expanded, with the definitions of macros.
    rest : str
        The program after them.
    """

    file: Path
    text: str
    rest: str


def headers_of(
    toolchain: Toolchain,
    file: Path,
    *,
    target_name: str,
    options: Sequence[str],
    arguments: Sequence[str],
    version: str,
) -> Headers | None:
    """Return the headers that a program begins with, precompiled; None if it does not share them.

    Parameters
    ----------
    toolchain : Toolchain
    file : pathlib.Path
        The program, in a folder of its own.
    target_name : str
        LLVM's name of the processor.
    options : sequence of str
        Those that distinguish the program from others.
    arguments : sequence of str
        All options of the compiler, which begin with `IMPLICIT`.
    version : str
        Identifies the emulator's own headers.
    """
    folders = [Path(option[2:], "cupy") for option in options if option.startswith("-I")]
    if (
        any(option.startswith(_UNSHARED) or option == "-I" for option in options)
        or sum(folder.exists() for folder in folders) > 1
        or (file.parent / "include").exists()
    ):
        return None
    program = read_source(file)
    beginning = _CUPY_HEADERS.match(program)
    assert beginning is not None
    shared = tuple(argument for argument in arguments if str(file.parent) not in argument)
    found = _precompile(toolchain, beginning[0].strip(), target_name, shared, version)
    return found and Headers(*found, program[beginning.end() :])


def key_text(headers: Headers, name: str) -> str | None:
    """Return what decides a program's code beside the options; None if it includes more files."""
    if _NEEDS_EXPANSION.search(headers.rest):
        return None
    return f"{headers.text}\0{name}\0{headers.rest}"


def compile_to_object(
    toolchain: Toolchain,
    file: Path,
    output: Path,
    *,
    target_name: str,
    arguments: Sequence[str],
    headers: Headers | None,
) -> str:
    """Compile a program to an object file, with precompiled headers if there are any.

    Parameters
    ----------
    toolchain : Toolchain
    file, output : pathlib.Path
        The program, in a folder of its own, and what to write.
    target_name : str
        LLVM's name of the processor.
    arguments : sequence of str
        The compiler's, which begin with `IMPLICIT`.
    headers : Headers, optional

    Returns
    -------
    str
        The compiler's warnings.

    Raises
    ------
    CompileError
        With the compiler's log.
    """
    *shared, whole = ways(headers, arguments)
    for options in shared:
        # If it is the program's fault, the diagnostics below say so.
        with contextlib.suppress(CompileError):
            return toolchain.compile_to_object(file, output, target=target_name, options=options)
    return toolchain.compile_to_object(file, output, target=target_name, options=whole)


def ways(headers: Headers | None, arguments: Sequence[str]) -> list[list[str]]:
    """Return options to try in this order: with precompiled headers, if there are any; without."""
    whole = list(arguments)
    if headers is None:
        return [whole]
    return [["-include-pch", str(headers.file), *whole[len(IMPLICIT) :]], whole]


@functools.lru_cache(maxsize=64)
def _precompile(
    toolchain: Toolchain,
    includes: str,
    target_name: str,
    arguments: tuple[str, ...],
    version: str,
) -> tuple[Path, str] | None:
    """Return the precompiled headers and their text; None if they do not compile."""
    with tempfile.TemporaryDirectory(prefix="cupygemm-headers-") as folder:
        file = Path(folder, "headers.hpp")
        write_source(file, includes + "\n")
        try:
            text = toolchain.preprocess(file, target=target_name, options=[*arguments, "-dD"])
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
    return path, text
