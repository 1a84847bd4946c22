"""Tables as plain text."""

from __future__ import annotations

import io

from rich.console import Console

WIDTH = 130
"""Columns of a line of text by default."""


def plain_console(width: int) -> Console:
    """Return a console whose output `text_of` returns, in a terminal or a notebook.

    In a notebook, rich would otherwise display the output and not record it.

    Parameters
    ----------
    width : int
        Columns of a line.
    """
    return Console(
        file=io.StringIO(),
        width=width,
        force_terminal=False,
        force_jupyter=False,
        color_system=None,
    )


def text_of(console: Console) -> str:
    """Return the text printed to a plain console, without trailing spaces."""
    output = console.file
    assert isinstance(output, io.StringIO)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines())
