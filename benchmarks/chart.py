"""Draw what `benchmarks.compare` measured: ``python -m benchmarks.chart figures.json chart.png``.

Bars are torch's device time divided by ours: longer is better, and 1 means equally fast. bf16, fp16
and the other types have a panel each. The rows of the documentation's tables are printed. Needs
matplotlib.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

PANELS = (("bf16",), ("fp16",), ("int8", "fp8", "tf32", "tf32x3", "fp64"))
TIMES, NONE = "\N{MULTIPLICATION SIGN}", "\N{EN DASH}"
COLORS = ("#3b6ea5", "#b0503c")  # at least as fast, slower


def ratios(records: list[dict[str, Any]], dtypes: tuple[str, ...]) -> dict[str, float]:
    """Return torch's device time divided by ours, by case, and by type if there are several."""
    found = {}
    for record in records:
        times = record["seconds"]
        if record["dtype"] in dtypes and "torch" in times:
            name = record["case"].replace("x", TIMES)
            label = name if len(dtypes) == 1 else f"{record['dtype']} {name}"
            found[label] = times["torch"]["device"] / times["cupygemm"]["device"]
    return found


def draw(document: dict[str, Any], output: Path) -> None:
    """Write the chart."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    for axes, dtypes in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        found = ratios(document["records"], dtypes)
        values = list(found.values())
        bars = axes.barh(list(found), values, color=[COLORS[value < 1] for value in values])
        axes.bar_label(bars, [f"{value:.2f}" for value in values], fontsize=7, padding=2)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xlim(0, 1.15 * max([*values, 1]))
        axes.invert_yaxis()
        axes.tick_params(labelsize=7)
        axes.set_title("other types" if len(dtypes) > 1 else dtypes[0])
    machine = document["environment"]
    figure.suptitle(
        f"times as fast as torch {machine['torch']} (cuBLAS): {machine['device']}, "
        f"{machine['date']}",
        fontsize=9,
    )
    figure.savefig(output, dpi=110)


def rows(records: list[dict[str, Any]], dtype: str) -> list[str]:
    """Return the table of a type: case, TFLOP/s of each contender, ratio to torch."""
    lines = []
    for record in records:
        if record["dtype"] != dtype:
            continue
        times = record["seconds"]
        rates = [
            f"{record['flops'] / times[name]['device'] / 1e12:.0f}" if name in times else NONE
            for name in dict.fromkeys(["cupygemm", "torch", "cupy", *times])
        ]
        ratio = times["torch"]["device"] / times["cupygemm"]["device"]
        lines.append(", ".join([record["case"].replace("x", TIMES), *rates, f"{ratio:.2f}"]))
    return lines


def main() -> None:
    """Draw the chart and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chart", description=__doc__)
    parser.add_argument("figures", type=Path)
    parser.add_argument("chart", type=Path)
    options = parser.parse_args()
    document = json.loads(options.figures.read_text())
    draw(document, options.chart)
    for dtype in dict.fromkeys(record["dtype"] for record in document["records"]):
        sys.stdout.write("\n".join([dtype, *rows(document["records"], dtype), ""]) + "\n")


if __name__ == "__main__":
    main()
