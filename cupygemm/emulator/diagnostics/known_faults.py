"""Known faults of CuPy's own kernels that do not change results.

A program that calls such a kernel cannot avoid the fault. So these findings are warnings, unless
the check is named as an error; the documentation has a section on each. A rule names a check, and a
kernel by its symbol, which contains the types of its arguments.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

CUPY = "14.2.0"
"""The version of CuPy whose kernels these are."""


class KnownFault(NamedTuple):
    """A fault of one of CuPy's kernels.

    Attributes
    ----------
    kernel : str
        A regular expression for its symbol.
    check : str
        The check that finds it.
    section : str
        Its section of the page "Found in CuPy".
    """

    kernel: str
    check: str
    section: str


_CARRIES = "Sums of the last block of a filter are computed from nothing"
_PERIODIC = "A search in a periodic box reads past the tree"
_DISTANCE = "A triangulation measures the distance to a point that is not there"
_MARKS = "A triangulation removes its outer triangles in any order"
_LABELS = "A labelling shortens its chains while they are followed"
_PEAKS = "The check of peaks reads and writes past its arrays"
_BARRIERS = "Waves of a filter leave a loop that has a barrier"
KNOWN_FAULTS = (
    KnownFault(r"_Z14first_pass_iirI.*Evi{5}PKT_PS\d*_S\d*_", "barriers", _BARRIERS),
    KnownFault(r"_Z18first_pass_iir_sosI.*Evi{3}PKT_PS\d*_S\d*_", "barriers", _BARRIERS),
    KnownFault(r"_Z15correct_carriesI.*Evi{5}PKT_PS\d*_", "uninitialised", _CARRIES),
    KnownFault(r"_Z19correct_carries_sosI.*Evi{4}PKT_PS\d*_", "uninitialised", _CARRIES),
    KnownFault("_Z12knn_periodiciiiidddPdPKdPKxS1_S1_S_Px", "bounds", _PERIODIC),
    KnownFault("_Z19query_ball_periodiciiidddiPdPKdPKxS1_S1_PxS4_", "bounds", _PERIODIC),
    KnownFault("_check_prominence_invalid", "bounds", _PEAKS),
    KnownFault("_Z18kerMarkInfinityTriP3TriiPcP6TriOppi", "global_races", _MARKS),
    KnownFault("cupyx_scipy_ndimage_label_count", "global_races", _LABELS),
    KnownFault("_Z17computeDistance2DPKdiPKxS2_Pi", "uninitialised", _DISTANCE),
)


@functools.lru_cache(maxsize=1 << 12)
def known_faults(kernel: str) -> dict[str, KnownFault]:
    """Return the known faults of a kernel, by the check that finds them.

    Parameters
    ----------
    kernel : str
        Its symbol.
    """
    return {fault.check: fault for fault in KNOWN_FAULTS if re.fullmatch(fault.kernel, kernel)}
