"""Run a Python program inside this process as ``python program.py`` runs it."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from cupygemm._commands.detect import DEFAULT_TARGET

_VARIABLE = "CUPYGEMM_EMULATE"
_OURS = (__file__, runpy.__file__, "<frozen runpy>")


def run_program(program: str, arguments: list[str], *, module: bool = False) -> int:
    """Run a program to its end and return its exit status.

    An exception that the program does not catch is printed as Python prints it. As in Python, the
    program ends after its non-daemon threads.

    Parameters
    ----------
    program : str
        The path of a script, or the name of a module.
    arguments : list of str
        The program's own arguments.
    module : bool
        Whether `program` is a module.

    Raises
    ------
    FileNotFoundError
        The script does not exist.
    """
    if not module and not Path(program).exists():
        raise FileNotFoundError(f"{program} does not exist")
    if not module and Path(program).is_dir() and not (Path(program) / "__main__.py").exists():
        raise FileNotFoundError(f"{program} is a directory without a __main__.py")
    status = 0
    before = set(threading.enumerate())
    with program_arguments(program, arguments, module=module):
        try:
            if module:
                runpy.run_module(program, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(program, run_name="__main__")
        except SystemExit as end:
            status = _status(end.code)
        except BaseException as err:  # noqa: BLE001  # as the interpreter itself does
            traceback.print_exception(type(err), err, _of_the_program(err.__traceback__))
            status = 130 if isinstance(err, KeyboardInterrupt) else 1
        for thread in set(threading.enumerate()) - before:
            if not thread.daemon:
                thread.join()
        sys.stdout.flush()
    return status


@contextlib.contextmanager
def program_arguments(
    program: str, arguments: Sequence[str], *, module: bool = False
) -> Iterator[None]:
    """Set the program's `sys.argv` and the first entry of `sys.path`, as Python does."""
    before = sys.argv, sys.path[:]
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path.cwd() if module else Path(program).resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before


def target_of_program(asked: str | None) -> str:
    """Return the target to emulate: the requested one, else the environment's, else the default."""
    return asked or os.environ.get(_VARIABLE) or DEFAULT_TARGET


@contextlib.contextmanager
def emulated_children(target: str) -> Iterator[None]:
    """Emulate a target also in processes that the program starts."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = target
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


def _status(code: object) -> int:
    """Return the exit status that results from ``sys.exit(code)``."""
    if code is None or isinstance(code, int):
        return int(code or 0)
    print(code, file=sys.stderr)  # noqa: T201
    return 1


def _of_the_program(place: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins in the program."""
    inner = place
    while inner is not None and inner.tb_frame.f_code.co_filename in _OURS:
        inner = inner.tb_next
    return inner or place
