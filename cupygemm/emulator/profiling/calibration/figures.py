"""A published figure beside the modelled one, and who published it."""

from __future__ import annotations

from dataclasses import dataclass

SH = "nod-ai/amd-shark-ai, docs/empirical-lds"
LADDER = "gau-nernst/learn-cuda, 02d_matmul_cdna3"
GT = "ROCm/gfx950-gluon-tutorials"
HK = "HazyResearch/HipKittens, branch fp6_experimental"


@dataclass(frozen=True)
class Figure:
    """One case of the calibration.

    Attributes
    ----------
    group, name : str
    unit : {"cycles", "TFLOP/s", "%"}
    published : float
        Measured by others.
    source : str
    modelled : float
    clock_mhz : float
        At which it is modelled; of no account for cycles.
    """

    group: str
    name: str
    unit: str
    published: float
    source: str
    modelled: float
    clock_mhz: float = 0

    @property
    def error(self) -> float:
        """Return how far the modelled figure is off, as a share of the published one."""
        return self.modelled / self.published - 1
