"""Shared by all commands: starting the device and writing to the terminal."""

from __future__ import annotations

from rich.console import Console

from cupygemm._commands import detect as _detect


def start_device(target: str | None = None) -> str:
    """Make CuPy usable, on the emulated device if there is no GPU; return the device's name.

    Parameters
    ----------
    target : str, optional
        Emulate this target, even if there is a GPU.

    Raises
    ------
    RuntimeError
        There is no device, or CuPy runs on another one already.
    ValueError
        The target is unknown.
    """
    from cupygemm import emulator

    if target is not None:
        emulator.enable(target)
    elif not emulator.is_enabled() and _detect.best_device().kind == "emulated":
        emulator.enable(_detect.DEFAULT_TARGET)
    from cupygemm._backends.device import device

    return device(0).name


def console(*, stderr: bool = False) -> Console:
    """Return a console; if it is not a terminal, it is as wide as the widest table."""
    found = Console(stderr=stderr)
    return found if found.is_terminal else Console(stderr=stderr, width=130)
