"""The message of a failed comparison: how many elements are wrong, and which is the worst."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def report(actual: Array, reference: Array, wrong: Array, error: Array, bound: Array) -> str:
    """Return how many elements are wrong, where they are, and which is the worst."""
    places = np.argwhere(wrong)
    ranges = ", ".join(
        f"{low}..{high}" for low, high in zip(places.min(0), places.max(0), strict=True)
    )
    with np.errstate(invalid="ignore"):
        excess = np.where(wrong, np.nan_to_num(error - bound, nan=np.inf), -np.inf)
    worst = tuple(int(index) for index in np.unravel_index(np.argmax(excess), excess.shape))
    number = complex if actual.dtype.kind == "c" else float
    return (
        f"{len(places)} of {wrong.size} elements of the {actual.dtype} product are wrong, "
        f"all within [{ranges}]\n"
        f"  worst at {worst}: {number(actual[worst])!r}, not {number(reference[worst])!r}; "
        f"error {float(error[worst]):.3g}, bound {float(bound[worst]):.3g}"
    )
