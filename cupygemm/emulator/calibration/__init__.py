"""Compare modelled figures with published ones: the errors of the timing model.

    figures of a group ─► Figure (published, source, modelled) ─► table

``python -m cupygemm profile --calibration`` prints them. Each group of figures is a module with its
published figures as data, next to its kernels. Three constants of the model, `timing.power.FITTED`,
are fitted to the speeds by `fit`. All others are from sources or assumed, as `timing.machine` and
`timing.power` state.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from cupygemm.emulator.calibration import ladder, lds, order, statistics, turns
from cupygemm.emulator.calibration.figures import Figure

__all__ = ["Figure", "figures", "figures_to_dict", "render", "to_csv"]

_NOTE = (
    "All figures are modelled, except the published ones, which others measured. Three constants "
    "of the power limit are fitted on the speeds; nothing else is fitted."
)


def figures() -> Iterator[Figure]:
    """Yield every figure of the calibration; it compiles and emulates kernels.

    Yields
    ------
    Figure
    """
    yield from lds.figures()
    yield from order.figures()
    yield from ladder.figures()
    yield from turns.figures()


def figures_to_dict(found: Iterable[Figure]) -> dict[str, Any]:
    """Return figures for JSON.

    Parameters
    ----------
    found : iterable of Figure

    Returns
    -------
    dict
    """
    return {
        "calibration": [
            {
                "group": figure.group,
                "name": figure.name,
                "unit": figure.unit,
                "published": figure.published,
                "source": figure.source,
                "modelled": figure.modelled,
                "clock_mhz": figure.clock_mhz or None,
                "error": figure.error,
            }
            for figure in found
        ]
    }


def to_csv(found: Iterable[Figure]) -> str:
    """Return figures as the table of docs/explanation/timing_model.rst.

    Parameters
    ----------
    found : iterable of Figure

    Returns
    -------
    str
    """
    output = io.StringIO()
    table = csv.writer(output, lineterminator="\n")
    table.writerow(["group", "figure", "unit", "published", "modelled", "error", "source"])
    for each in found:
        numbers = f"{each.published:.0f}", f"{each.modelled:.0f}", f"{each.error:+.1%}"
        table.writerow([each.group, each.name, each.unit, *numbers, each.source])
    return output.getvalue()


def render(found: Iterable[Figure]) -> str:
    """Return a table of each group of figures, with their errors.

    Parameters
    ----------
    found : iterable of Figure

    Returns
    -------
    str
    """
    from rich.table import Table

    from cupygemm.emulator.profiling.console import plain_console, text_of

    console = plain_console(100)
    shown = list(found)
    for (group, source), members in groupby(shown, key=lambda each: (each.group, each.source)):
        cases = list(members)
        title = f"{group}, {cases[0].unit}\n{source}"
        table = Table(box=None, pad_edge=False, title=title, title_justify="left")
        table.add_column("", min_width=30)
        for heading in ("published", "modelled", "error", "at MHz"):
            table.add_column(heading, justify="right")
        for case in cases:
            clock = f"{case.clock_mhz:.0f}" if case.clock_mhz else ""
            table.add_row(
                case.name,
                f"{case.published:.0f}",
                f"{case.modelled:.0f}",
                f"{case.error:+.1%}",
                clock,
            )
        mean = sum(abs(case.error) for case in cases) / len(cases)
        table.add_row("mean absolute error", "", "", f"{mean:.1%}", "")
        console.print(table)
        console.print()
    for line in statistics.summary(shown):
        console.print(line)
    console.print()
    console.print(_NOTE)
    return text_of(console)
