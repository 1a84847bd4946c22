"""Computed: the size of the wheel, if the environment has one (`benchmarks.history.install`)."""

from __future__ import annotations

import math
import os
from pathlib import Path


class Wheel:
    """The size of a user's download, without dependencies."""

    version = "1"

    def track_size(self) -> float:
        if "CUPYGEMM_WHEEL" not in os.environ:
            return math.nan  # a checkout, which asv shows as n/a
        return Path(os.environ["CUPYGEMM_WHEEL"]).stat().st_size

    track_size.unit = "bytes"
    track_size.pretty_name = "Computed: size of the wheel"
