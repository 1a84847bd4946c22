"""Computed: the size of the wheel, where the environment has built one (`history.environment`)."""

from __future__ import annotations

import os
from pathlib import Path


class Wheel:
    """What a user downloads, without dependencies."""

    version = "1"

    def track_size(self) -> int:
        if "CUPYGEMM_WHEEL" not in os.environ:
            raise NotImplementedError("the package was not installed from a wheel")
        return Path(os.environ["CUPYGEMM_WHEEL"]).stat().st_size

    track_size.unit = "bytes"
    track_size.pretty_name = "Computed: size of the wheel"
