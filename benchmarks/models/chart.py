"""Draw what `benchmarks.models` measured: ``python -m benchmarks.models.chart FIGURES CHART``.

Each product is a point: its number of tokens, and the fastest peer's time divided by ours. Above 1,
ours is faster than every peer. The mean of each row of tokens is a line. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.models.layers import ROWS
from benchmarks.models.measure import STATES
from benchmarks.models.report import ALL, FASTEST, ratios, summary

COLORS = {"torch": "#8f9aa8", FASTEST: "#3b6ea5"}


def draw(document: dict[str, Any], output: Path) -> None:
    """Write the chart: one panel for warm operands, one for cold ones."""
    from matplotlib.figure import Figure

    records = document["records"]
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    for axes, state in zip(figure.subplots(1, 2, sharey=True), STATES, strict=True):
        for peer, color in COLORS.items():
            points = [
                (record["m"], found[peer])
                for record in records
                if peer in (found := ratios(record, state))
            ]
            if not points:
                continue
            axes.scatter(*zip(*points, strict=True), s=9, color=color, alpha=0.5, linewidths=0)
            for row, of_peers in summary(records, state).items():
                if row != ALL and peer in of_peers:
                    ends = _ends(records, row)
                    axes.plot(ends, [of_peers[peer][0]] * 2, color=color, linewidth=2)
            axes.plot([], [], color=color, linewidth=2, label=f"{peer}'s time over ours")
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("tokens")
        axes.set_title(f"{state} operands")
        axes.legend(fontsize=8)
    machine = document["environment"]
    figure.suptitle(
        f"linear layers of public models, {machine['device']}, {machine['date']}; "
        "lines are geometric means",
        fontsize=9,
    )
    figure.savefig(output, dpi=110)


def _ends(records: Sequence[dict[str, Any]], row: str) -> tuple[float, float]:
    least, most = ROWS[row]
    tokens = [record["m"] for record in records if least <= record["m"] <= most]
    return 0.85 * min(tokens), 1.18 * max(tokens)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the chart."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models.chart", description=__doc__)
    parser.add_argument("figures", type=Path)
    parser.add_argument("chart", type=Path)
    options = parser.parse_args(arguments)
    draw(json.loads(options.figures.read_text()), options.chart)


if __name__ == "__main__":
    main()
