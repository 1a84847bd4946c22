"""A published figure, its source, and the modelled figure."""

from __future__ import annotations

from dataclasses import dataclass

from cupygemm.emulator.calibration.sample import Estimate

MI300X, MI355X = "gfx942", "gfx950"  # targets, by the product that was measured

SH = "nod-ai/amd-shark-ai, docs/empirical-lds"
LADDER = "gau-nernst/learn-cuda, 02d_matmul_cdna3"
GT = "ROCm/gfx950-gluon-tutorials"
GT_OLD = f"{GT}, revision 81a011d"
HK_PAPER = "HipKittens, arXiv 2511.08083, table 4"
SOURCES = {
    "GT": GT,
    "GT-old": GT_OLD,
    "LADDER": LADDER,
    "HK": "HazyResearch/HipKittens, mi325x_bf16_gemm.json",
    "HK-again": "HazyResearch/HipKittens, mi325x/data_to_log.json",
    "HK-old": "HazyResearch/HipKittens, branch fp6_experimental",
    "HK-old-again": "HazyResearch/HipKittens, branch fp6_experimental, mi325x/data_to_log.json",
    "MAF": "ROCm blogs, Measuring Max-Achievable FLOPs, Part 2",
    "TAF": "ROCm blogs, Understanding TAF alongside Peak FLOPs and MAF",
}
"""The sources of published products, by the key in products.csv."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One case of the calibration.

    Attributes
    ----------
    group, name : str
    unit : {"cycles", "TFLOP/s", "%"}
    published : float
        The published measurement.
    source : str
    modelled : float
    estimate : Estimate, optional
        For a speed, the origin of `modelled`.
    """

    group: str
    name: str
    unit: str
    published: float
    source: str
    modelled: float
    estimate: Estimate | None = None

    @property
    def clock_mhz(self) -> float:
        """The clock at which a speed is modelled; 0 for figures that do not depend on it."""
        return self.estimate.clock_mhz if self.estimate else 0.0

    @property
    def error(self) -> float:
        """Return the error of the modelled figure, relative to the published one."""
        return self.modelled / self.published - 1
