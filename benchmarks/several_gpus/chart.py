"""Draw what `benchmarks.several_gpus` measured: ``python -m benchmarks.several_gpus.chart``.

Its arguments are the files of figures, one for each number of GPUs, and the file of the chart. Each
function has a panel, with the efficiency of square matrices: the ideal time divided by a
contender's. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.several_gpus.cases import FUNCTIONS
from benchmarks.several_gpus.report import Record, efficiencies, fastest_of_ours

CONTENDERS = {
    "cupygemm": "#3b6ea5",
    "NCCL and cuBLAS": "#8f9aa8",
    "torch fused": "#b0503c",
}
STYLES = {1: ":", 2: "--", 4: "-", 8: "-."}
"""Lines by the number of GPUs."""


def curve(records: Sequence[Record], contender: str) -> list[tuple[int, float]]:
    """Return (size, efficiency) of a contender for square matrices."""
    points = []
    for record in records:
        if len({record["m"], record["n"], record["k"]}) > 1:
            continue
        found = efficiencies(record)
        found["cupygemm"] = found[fastest_of_ours(record)]
        if contender in found:
            points.append((record["m"], found[contender]))
    return sorted(points)


def draw(documents: Sequence[dict[str, Any]], output: Path) -> None:
    """Write the chart."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = figure.subplots(1, len(FUNCTIONS), sharey=True)
    for axes, function in zip(panels, FUNCTIONS, strict=True):
        for document in documents:
            records = [each for each in document["records"] if each["function"] == function]
            size = records[0]["ranks"]
            for contender, color in CONTENDERS.items():
                points = curve(records, contender)
                if points:
                    axes.plot(
                        *zip(*points, strict=True),
                        STYLES.get(size, "-"),
                        color=color,
                        marker="o",
                        markersize=3,
                        label=f"{contender}, {size} GPUs",
                    )
        axes.axhline(1, color="black", linewidth=0.8, linestyle=STYLES[1], label="1 GPU")
        axes.set_xscale("log", base=2)
        axes.set_xlabel("m = n = k")
        axes.set_title(function)
    panels[0].set_ylabel("one GPU's time / GPUs / time")
    panels[0].legend(fontsize=7)
    machine = documents[0]["environment"]
    figure.suptitle(f"{machine['device']}, bfloat16, measured {machine['date']}", fontsize=9)
    figure.savefig(output, dpi=110)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the chart of some files of figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.several_gpus.chart", description=__doc__
    )
    parser.add_argument("figures", type=Path, nargs="+")
    parser.add_argument("chart", type=Path)
    options = parser.parse_args(arguments)
    draw([json.loads(each.read_text()) for each in options.figures], options.chart)


if __name__ == "__main__":
    main()
