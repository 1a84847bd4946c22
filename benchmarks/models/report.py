"""Summarise the times of `benchmarks.models`: ratios to each peer, by number of tokens.

A ratio is a peer's time divided by ours. "fastest" is the fastest peer for each product and cache
state.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.models.layers import ROWS, row_of
from benchmarks.models.measure import STATES
from benchmarks.models.peers import OURS

FASTEST = "fastest"
ALL = "all"
RANDOM_SHAPES = 1.17
"""The README's mean ratio to torch for shapes drawn at random, which is printed beside these."""

Record = dict[str, Any]


def ratios(record: Record, state: str) -> dict[str, float]:
    """Return the ratio of each peer of a record, and of the fastest of them."""
    times = record["us"][state]
    peers = {name: time / times[OURS] for name, time in times.items() if name != OURS}
    return {**peers, FASTEST: min(peers.values())} if peers else {}


def summary(
    records: Sequence[Record], state: str
) -> dict[str, dict[str, tuple[float, float, int]]]:
    """Return (geometric mean, minimum, count) of the ratios by row of tokens and by peer."""
    found: dict[str, dict[str, list[float]]] = {}
    for record in records:
        for row in (row_of(record["m"]), ALL):
            for peer, ratio in ratios(record, state).items():
                found.setdefault(row, {}).setdefault(peer, []).append(ratio)
    rows = [row for row in (*ROWS, ALL) if row in found]
    return {
        row: {
            peer: (geometric_mean(values), min(values), len(values))
            for peer, values in found[row].items()
        }
        for row in rows
    }


def geometric_mean(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def tables(records: Sequence[Record]) -> list[str]:
    """Return the lines of a Markdown table for each type, order of W and cache state."""
    lines = []
    for kind in dict.fromkeys((record["dtype"], record["order"]) for record in records):
        chosen = [each for each in records if (each["dtype"], each["order"]) == kind]
        for state in STATES:
            found = summary(chosen, state)
            peers = list(dict.fromkeys(peer for row in found.values() for peer in row))
            peers.sort(key=lambda peer: peer == FASTEST)
            lines += ["", f"{kind[0]}, W stored {kind[1]}, {state}:", ""]
            lines.append("| tokens | products | " + " | ".join(peers) + " |")
            lines.append("|---" * (len(peers) + 2) + "|")
            for row, of_peers in found.items():
                cells = [_cell(of_peers.get(peer)) for peer in peers]
                count = max(each[2] for each in of_peers.values())
                lines.append(f"| {row} | {count} | " + " | ".join(cells) + " |")
    return lines


def _cell(found: tuple[float, float, int] | None) -> str:
    return "\N{EN DASH}" if found is None else f"{found[0]:.2f} ({found[1]:.2f})"


def beside_random_shapes(records: Sequence[Record]) -> list[str]:
    """Return lines that compare the mean of torch's ratio with that on random shapes."""
    lines = []
    for state in STATES:
        found = [each for record in records if (each := ratios(record, state).get("torch"))]
        if found:
            lines.append(
                f"torch's time over ours, {state}: {geometric_mean(found):.2f} on these "
                f"{len(found)} products; the README's {RANDOM_SHAPES} is of random shapes"
            )
    return lines


def worst(records: Sequence[Record], count: int = 12) -> list[str]:
    """Return lines for the products with the smallest ratios to the fastest peer."""
    found = []
    for record in records:
        for state in STATES:
            every = ratios(record, state)
            if every:
                peers = {peer: ratio for peer, ratio in every.items() if peer != FASTEST}
                found.append((every[FASTEST], min(peers, key=peers.__getitem__), state, record))
    found.sort(key=lambda each: each[0])
    return [
        f"{ratio:.2f}  {record['case']:18s} {record['dtype']} {record['order']} {state}: "
        f"{record['us'][state][OURS]:.1f} us, {peer} {record['us'][state][peer]:.1f} us "
        f"({record['model']}, {record['layer']}; {record['config']})"
        for ratio, peer, state, record in found[:count]
    ]
