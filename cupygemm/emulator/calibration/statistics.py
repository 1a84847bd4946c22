"""Errors of modelled figures, and their agreement in rank with the published ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from statistics import geometric_mean

from cupygemm.emulator.calibration import fit
from cupygemm.emulator.calibration.figures import Figure

APART = 0.05  # published figures that differ by less are not ranked


def mean_error(figures: Iterable[Figure]) -> float:
    """Return the mean absolute error, relative to the published figures."""
    errors = [abs(figure.error) for figure in figures]
    return sum(errors) / len(errors)


def error_within_sources(figures: Iterable[Figure]) -> float:
    """Return the mean absolute error after fitting one factor for each group and source.

    A source measures on its own boards, with its own operands, on which power and so the clock
    depend. The factor removes that; the error between products remains.
    """
    found = list(figures)
    ratios: dict[tuple[str, str], list[float]] = {}
    for figure in found:
        ratios.setdefault((figure.group, figure.source), []).append(1 + figure.error)
    left = [
        abs(ratio / geometric_mean(same) - 1)
        for same in ratios.values()
        if len(same) > 1
        for ratio in same
    ]
    return sum(left) / len(left)


def ordered(figures: Iterable[Figure], *, within_sources: bool = False) -> tuple[int, int]:
    """Return the number of pairs that the model ranks as published, and of all pairs.

    Parameters
    ----------
    figures : iterable of Figure
        The figures of a pair differ by at least `APART`, with the same board name and type.
    within_sources : bool
        Whether both are from the same source, which measured them on one board.
    """
    alike = total = 0
    for a, b in combinations(figures, 2):
        same_board = a.group.partition(", ")[2] == b.group.partition(", ")[2]
        if not same_board or abs(a.published / b.published - 1) < APART:
            continue
        if within_sources and a.source != b.source:
            continue
        total += 1
        alike += (a.modelled > b.modelled) == (a.published > b.published)
    return alike, total


def repeated(figures: Iterable[Figure]) -> list[float]:
    """Return the spread of published speeds of one library, board and product, by product."""
    found: dict[tuple[str, str], list[float]] = {}
    for figure in figures:
        found.setdefault((figure.group, figure.name), []).append(figure.published)
    return [max(each) / min(each) - 1 for each in found.values() if len(each) > 1]


def summary(figures: Iterable[Figure]) -> Iterator[str]:
    """Yield sentences about the hit rates and the speeds among some figures."""
    found = list(figures)
    hits = [figure for figure in found if figure.group.startswith("Cache hits")]
    if hits:
        points = sum(abs(figure.modelled - figure.published) for figure in hits) / len(hits)
        yield f"{len(hits)} hit rates: mean error {points:.1f} points."
    speeds = [figure for figure in found if figure.unit == "TFLOP/s"]
    if not speeds:
        return
    yield f"{len(speeds)} speeds: mean error {mean_error(speeds):.1%}, of which"
    yield f"  {error_within_sources(speeds):.1%} remain after one factor for each source's board."
    if len({fit.publisher(figure) for figure in speeds if figure.estimate}) > 1:
        sources, publishers = (
            fit.held_out_mean(speeds, key) for key in (fit.source, fit.publisher)
        )
        yield f"  With constants fitted on all other sources' speeds: {sources:.1%};"
        yield f"  on all other publishers' speeds: {publishers:.1%}."
    for name, within in (("boards of one name", False), ("one source's board", True)):
        alike, total = ordered(speeds, within_sources=within)
        yield f"  Of {total} pairs on {name} that differ by 5 % or more, {alike} rank as published."
    spread = repeated(speeds)
    if spread:
        yield f"  {len(spread)} products were published twice or more; those figures differ by"
        yield f"  {sum(spread) / len(spread):.1%} on average, and by {max(spread):.1%} at most."
