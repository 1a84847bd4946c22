"""Sentences about misses in vL1D: their causes, the stride that leads to them, the remedy."""

from __future__ import annotations

import math

from cupygemm.emulator.profiling.caches import Traffic
from cupygemm.emulator.profiling.parts import PARTS


def best_hit_rate(traffic: Traffic) -> float | None:
    """Return the hit rate of a fully associative vL1D of the same size."""
    if not traffic.l1_reads:
        return None
    return 1 - (traffic.l1_compulsory + traffic.l1_capacity) / traffic.l1_reads


def causes_sentence(traffic: Traffic, target: str) -> str:
    """Return a sentence with the number of misses by cause, and its consequence."""
    missed = traffic.l1_reads - traffic.l1_hits
    if not missed:
        return ""
    size = PARTS[target].l1.size >> 10
    parts = [
        f"{count:,} {name}"
        for name, count in (
            ("compulsory", traffic.l1_compulsory),
            ("capacity", traffic.l1_capacity),
            ("conflict", traffic.l1_conflict),
        )
        if count
    ]
    text = f"Misses in vL1D: {', '.join(parts)} of {traffic.l1_reads:,} requests."
    if traffic.l1_compulsory == missed:
        return f"{text} Each CU asks for each line for the first time: no cache could hold it."
    if traffic.l1_capacity > missed / 2:
        return f"{text} A CU's data do not fit its {size} KiB."
    return text


def has_stride(traffic: Traffic) -> bool:
    """Tell whether most lanes begin lines at one stride; two alone may do so by chance."""
    return traffic.stride_votes > 1


def stride_sentence(traffic: Traffic, target: str) -> str:
    """Return why the lines of a load share sets: the stride of its rows, and the sets used."""
    geometry = PARTS[target].l1
    stride, sets = abs(traffic.stride), geometry.sets
    if not has_stride(traffic) or not traffic.l1_sets_possible or stride < geometry.line:
        return ""
    used = traffic.l1_sets_used / traffic.l1_sets_possible
    line = geometry.line
    if stride % line:
        return (
            f"Its rows are {stride:,} bytes apart, {stride / line:.2f} lines of {line} bytes, and "
            f"the lines of a wave use {used:.0%} of the {sets} sets that they could."
        )
    rows = stride // line
    reached = sets // math.gcd(rows, sets)
    why = f"a multiple of {math.gcd(rows, sets)}" if reached < sets else "odd"
    return (
        f"Its rows are {stride:,} bytes apart, which is {rows} lines of {line} bytes, {why}: they "
        f"fall into {reached} of the {sets} sets, and a set holds {geometry.ways} lines."
    )


def stride_remedy(traffic: Traffic, target: str) -> str:
    """Return the remedy for rows that share sets."""
    geometry = PARTS[target].l1
    stride, line = abs(traffic.stride), geometry.line
    if has_stride(traffic) and stride >= line:
        rows = -(-stride // line)
        padded = line * (rows + 1 if rows % 2 == 0 else rows + 2 * (rows * line == stride))
        return (
            f"pad the rows from {stride:,} to {padded:,} bytes, an odd number of lines, so that "
            "they use all sets; or use a line up (all its bytes) before going on to the next row."
        )
    return "pad the rows to an odd number of lines, or use a line up before going on to the next."
