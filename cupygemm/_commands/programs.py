"""Other subjects of ``profile`` than products and code objects: HIP source, Python programs."""

from __future__ import annotations

import contextlib
import runpy
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cupygemm._commands import detect as _detect
from cupygemm._commands.scripts import emulated_children, program_arguments, target_of_program

if TYPE_CHECKING:
    from cupygemm.emulator.profiling import Profile

SOURCES = (".hip", ".cpp", ".cu", ".cc", ".cxx")


@contextlib.contextmanager
def code_object_of(path: Path, target: str | None, options: str | None) -> Any:
    """Yield the path of a code object: the file itself, or the one compiled from HIP source.

    Parameters
    ----------
    path : Path
        A source file has one of the suffixes `SOURCES`.
    target : str, optional
        The target to compile for; gfx942 by default.
    options : str, optional
        Compiler options, as in a shell.

    Raises
    ------
    ValueError
        The source does not compile; the compiler's messages are quoted. Or options were passed for
        a code object, which needs no compilation.
    """
    if path.suffix not in SOURCES:
        if options is not None:
            raise ValueError(f"--options are for the compiler, but {path} is already compiled")
        yield path
        return
    from cupygemm._build.source_text import read_source
    from cupygemm._build.toolchain import CompileError
    from cupygemm.emulator.runtime.compile import InvalidOption, compile_program

    folder = path.parent.resolve()
    words = ["-gline-tables-only", f"-fdebug-compilation-dir={folder}", f"-I{folder}"]
    try:
        compiled = compile_program(
            read_source(path),
            path.name,
            target_name=target or _detect.DEFAULT_TARGET,
            options=[*words, *shlex.split(options or "")],
            rtc=False,
        )
    except CompileError as err:
        raise ValueError(f"{path} does not compile:\n{err.log}") from err
    except InvalidOption as err:
        raise ValueError(str(err)) from err
    with tempfile.TemporaryDirectory(prefix="cupygemm-profile-") as built_in:
        built = Path(built_in, path.with_suffix(".hsaco").name)
        built.write_bytes(compiled.code)
        try:
            yield built
        except ValueError as err:  # so that messages name the user's file
            raise ValueError(str(err).replace(str(built), str(path))) from err


def profile_script(
    path: Path,
    arguments: Sequence[str],
    target: str | None,
    clock_mhz: float | None = None,
    sample: int | None = None,
) -> Profile:
    """Run a Python program on the emulated device, and return the profile of its launches.

    Parameters
    ----------
    path : Path
    arguments : sequence of str
        The program's arguments, ``sys.argv[1:]``.
    target : str, optional
    clock_mhz : float, optional
    sample : int, optional
        See `cupygemm.emulator.profile`.

    Raises
    ------
    ValueError
        The program launches no kernel, or ends with an error.
    """
    from cupygemm import emulator
    from cupygemm.emulator.diagnostics import findings
    from cupygemm.emulator.errors import EmulatorError

    name = target_of_program(target)
    if not emulator.is_enabled():
        emulator.enable(name)
    elif target not in (None, emulator.target()):
        raise ValueError(f"{emulator.target()} is already emulated in this process, not {target}")
    try:
        with (
            program_arguments(str(path), arguments),
            findings.observing() as seen,
            emulator.profile(clock_mhz=clock_mhz, sample=sample) as collected,
            emulated_children(name),
        ):
            runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise ValueError(f"{path} ended with exit status {end.code}") from end
    except EmulatorError:
        raise
    except Exception as err:
        if (fault := emulator.last_fault()) is not None and str(fault) in str(err):
            raise fault from err
        raise ValueError(f"{path} raised {type(err).__name__}: {err}") from err
    if seen.errors:  # the program caught the exceptions
        raise seen.errors[0]
    if not collected.launches:
        raise ValueError(f"{path} launches no kernel on the emulated device")
    return collected
