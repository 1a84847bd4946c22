"""The options ``--error``, ``--warn`` and ``--off`` of commands that run kernels."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Annotated

import typer

_NAMES = "The name of a check or a group, as in the documentation's table of checks"
Names = list[str] | None
Error = Annotated[Names, typer.Option(help=f"{_NAMES}, to be an error. Repeatable.")]
Warn = Annotated[Names, typer.Option(help=f"{_NAMES}, to be a warning. Repeatable.")]
Off = Annotated[Names, typer.Option(help=f"{_NAMES}, to switch off. Repeatable.")]


@contextlib.contextmanager
def severities(error: Names, warn: Names, off: Names) -> Iterator[None]:
    """Add severities to those of the environment, which processes of a program inherit.

    Parameters
    ----------
    error, warn, off : list of str or None
        Names of checks and groups.

    Raises
    ------
    ValueError
        A check is unknown, or the environment's value is invalid.
    """
    from cupygemm.emulator.diagnostics import checking, table

    before = os.environ.get(checking.VARIABLE)
    chosen = {"error": error, "warn": warn, "off": off}
    checking.policy()  # raises an error if the environment's value is invalid
    for severity, names in chosen.items():
        try:
            checking.Policy().changed(dict.fromkeys(names or (), severity))
        except ValueError as err:
            raise ValueError(f"--{severity}: {err}") from None
    words = [f"{name}={severity}" for severity, names in chosen.items() for name in names or ()]
    switched_off = [f"{name}=off" for name in table.UNCHECKED] if before == "0" else []
    kept = [before] if before and before not in ("0", "1") else switched_off
    os.environ[checking.VARIABLE] = ",".join([*kept, *words])
    try:
        yield
    finally:
        if before is None:
            del os.environ[checking.VARIABLE]
        else:
            os.environ[checking.VARIABLE] = before
