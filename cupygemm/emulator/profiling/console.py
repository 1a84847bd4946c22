"""Where tables are written as plain text."""

from __future__ import annotations

from typing import IO

from rich.console import Console

WIDTH = 130
"""Columns of a line of text, where nothing else is asked for."""


def plain_console(file: IO[str], width: int = WIDTH) -> Console:
    """Return a console that writes text to a file, whatever Python runs in.

    rich takes a notebook to want its output shown there, and would leave the file empty.

    Parameters
    ----------
    file : text file
    width : int, optional
        Columns of a line.
    """
    return Console(
        file=file, width=width, force_terminal=False, force_jupyter=False, color_system=None
    )
