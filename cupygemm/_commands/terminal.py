"""Shared by all commands: ``--json``, starting the device, and writing to the terminal."""

from __future__ import annotations

import contextlib
import threading
from typing import Annotated

import typer
from rich.console import Console

from cupygemm._commands import detect as _detect

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
_WIDEST = 130  # columns of the widest table


def start_device(target: str | None = None, *, build_ahead: bool = False) -> str:
    """Make CuPy usable, on the emulated device if there is no GPU; return the device's name.

    Parameters
    ----------
    target : str, optional
        Emulate this target, even if there is a GPU.
    build_ahead : bool
        Compile the emulated device's native code, if it is not in the cache, while CuPy is
        imported. On a new machine, the first product then starts some seconds earlier.

    Raises
    ------
    RuntimeError
        There is no device, or CuPy already uses another one.
    ValueError
        The target is unknown.
    """
    from cupygemm import emulator

    if target is None and not emulator.is_enabled() and _detect.best_device().kind == "emulated":
        target = _detect.DEFAULT_TARGET
    if target is not None:
        if build_ahead:
            threading.Thread(target=_build_native_code, daemon=True).start()
        emulator.enable(target)
    from cupygemm._backends.device import device

    return device(0).name


def _build_native_code() -> None:
    """Compile the C library in which the emulated device executes instructions."""
    from cupygemm._build.toolchain import CompileError, ToolchainError
    from cupygemm.emulator import native

    with contextlib.suppress(CompileError, ToolchainError, OSError):  # raised again at first use
        native.library()


def console(*, stderr: bool = False) -> Console:
    """Return a console; if it is not a terminal, it is as wide as the widest table."""
    found = Console(stderr=stderr)
    return found if found.is_terminal else Console(stderr=stderr, width=_WIDEST)


def line_width() -> int:
    """Return the number of columns for a table of text, which depends on the terminal."""
    return max(80, min(console().width, _WIDEST))
