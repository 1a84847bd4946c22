"""Precompile the headers at the start of CuPy's programs: HIP's implicit one and CuPy's own.

Parsing them takes two thirds of the time of compiling one of CuPy's kernels. They are parsed once
for each target and set of options, and kept in the cache. A program uses them if nothing makes its
headers differ from those of other programs. Otherwise, or if the compiler rejects the precompiled
headers, it is compiled in full. So its code and its diagnostics do not depend on this module.

A program's key in the cache is its text with all includes expanded, which costs a run of the
preprocessor. A program that includes nothing after these headers needs no such run: its key is the
headers' text, including their macros, and its own text.
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

# The option for HIP's implicit header, which the precompiled header replaces.
IMPLICIT = ("-include", "device/hip.h")
# Programs with macros of their own hardly share headers, debug information would name other files,
# and other kinds of folders and further implicit headers are rare.
_UNSHARED = ("-D", "-U", "-g", "-i")
_CUPY_HEADERS = re.compile(r'(?:\s*#include (?:<cupy/[^>\n]+>|"cupy/[^"\n]+")[ \t]*\n)*')
# Text that may include a file or depend on the time, in every spelling that preprocessors accept.
_NEEDS_EXPANSION = re.compile(r"include|import|embed|__(?:DATE|TIME|TIMESTAMP)__|\\\s*\n|\?\?/")


class Headers(NamedTuple):
    """The precompiled headers at the start of a program.

    Attributes
    ----------
    file : pathlib.Path
    text : str
        Their text with all includes expanded and the definitions of macros.
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
    """Return a program's headers, precompiled; None if it does not share them.

    Parameters
    ----------
    toolchain : Toolchain
    file : pathlib.Path
        The program, in its own folder.
    target_name : str
        LLVM's name of the processor.
    options : sequence of str
        Those that distinguish the program from others.
    arguments : sequence of str
        All options of the compiler, beginning with `IMPLICIT`.
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
    """Return the text that determines a program's code; None if it includes more files."""
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
    """Compile a program to an object file, with precompiled headers if available.

    Parameters
    ----------
    toolchain : Toolchain
    file, output : pathlib.Path
        The program, in its own folder, and the file to write.
    target_name : str
        LLVM's name of the processor.
    arguments : sequence of str
        The compiler's arguments, beginning with `IMPLICIT`.
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
        # If the program is at fault, the diagnostics below say so.
        with contextlib.suppress(CompileError):
            return toolchain.compile_to_object(file, output, target=target_name, options=options)
    return toolchain.compile_to_object(file, output, target=target_name, options=whole)


def ways(headers: Headers | None, arguments: Sequence[str]) -> list[list[str]]:
    """Return lists of options to try in order: with precompiled headers, if any, then without."""
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
