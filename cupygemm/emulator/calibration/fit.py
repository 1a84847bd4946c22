"""Fit the constants of the power limit to published speeds, and with one source left out.

    speeds ─► constants with the least mean error ─► `timing.power.FITTED`
    speeds of all sources but one ─► constants ─► errors of that source's speeds
                                                  (or publisher's, or product's)

A model with as many constants as figures would fit anything. The errors for sources left out of the
fit show whether it predicts the next board and product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from cupygemm.emulator.calibration.figures import Figure
from cupygemm.emulator.profiling.timing.power import FITTED, Fitted

_STEPS = {"base": 0.08, "memory": 0.08, "elsewhere": 0.02}  # step of the search, halved four times
_HALVINGS = 4


def mean_error(figures: Sequence[Figure], fitted: Fitted) -> float:
    """Return the mean absolute error of speeds, relative to the published ones.

    Parameters
    ----------
    figures : sequence of Figure
        Figures with an estimate.
    fitted : Fitted
    """
    errors = [
        abs(figure.estimate.tflops_at(fitted) / figure.published - 1)
        for figure in figures
        if figure.estimate
    ]
    return sum(errors) / len(errors)


def fit(figures: Iterable[Figure], start: Fitted = FITTED) -> Fitted:
    """Return the constants with the least mean error, by a search along one constant at a time.

    Parameters
    ----------
    figures : iterable of Figure
        Figures without an estimate are ignored.
    start : Fitted
    """
    speeds = [figure for figure in figures if figure.estimate]
    best, least = start, mean_error(speeds, start)
    for halving in range(_HALVINGS + 1):
        improved = True
        while improved:
            improved = False
            for name, step in _STEPS.items():
                for change in (step / 2**halving, -step / 2**halving):
                    found = replace(best, **{name: max(0.0, getattr(best, name) + change)})
                    error = mean_error(speeds, found)
                    if error < least - 1e-9:
                        best, least, improved = found, error, True
    return best


def source(figure: Figure) -> str:
    """Return the name of the file or page that published a figure."""
    return figure.source


def publisher(figure: Figure) -> str:
    """Return the repository or the series of pages that published a figure."""
    return figure.source.partition(",")[0]


def product(figure: Figure) -> str:
    """Return the extents of a figure's product, or the name of a step of the ladder."""
    return figure.name


def held_out(figures: Iterable[Figure], key: Callable[[Figure], str]) -> dict[str, float]:
    """Return the mean error of each source's speeds, with constants fitted to the others'.

    Parameters
    ----------
    figures : iterable of Figure
        Figures without an estimate are ignored.
    key : callable
        `source`, `publisher` or `product`: figures with equal keys are left out together.

    Returns
    -------
    dict of str to float
    """
    speeds = [figure for figure in figures if figure.estimate]
    found = {}
    for name in dict.fromkeys(map(key, speeds)):
        others = [figure for figure in speeds if key(figure) != name]
        own = [figure for figure in speeds if key(figure) == name]
        if others:
            found[name] = mean_error(own, fit(others))
    return found


def held_out_mean(figures: Iterable[Figure], key: Callable[[Figure], str]) -> float:
    """Return the mean of the errors of `held_out` over all speeds.

    Parameters
    ----------
    figures : iterable of Figure
    key : callable
    """
    speeds = [figure for figure in figures if figure.estimate]
    errors = held_out(speeds, key)
    counted = [errors[key(figure)] for figure in speeds if key(figure) in errors]
    return sum(counted) / len(counted)
