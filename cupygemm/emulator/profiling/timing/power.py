"""The clock to which a board's power limits a kernel: it falls as the matrix units work more.

Power is proportional to the clock and to the square of the voltage, and the voltage is proportional
to the clock. So the cube of the clock times (constant work + work of the matrix units) stays the
same on a board. One published product fixes it: AMD gives the speed and the median clock of its
fastest products (MAF).

MAF
    AMD, "Measuring Max-Achievable FLOPs, Part 2" (ROCm blogs, 2025-02-28): hipBLASLt, operands of
    a sine's values, rotating buffers, products of 4096 x 4864 x 32896, for fp8 4096 x 3648 x 32896.
    The clock is the median of the slowest XCD.
TAF
    AMD, "Understanding TAF Alongside Peak FLOPs and MAF" (ROCm blogs, 2026-10-06): the same
    products on MI325X with normally distributed operands, whose bits change more often, in 831.40
    (bf16), 787.25 (fp16) and 1408.06 TFLOP/s (fp8). So the clock falls in that proportion, also on
    MI300X, for which the figures are not published.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

BASE = 0.19
"""The constant work, relative to that of busy matrix units. *Fitted*, on the steps of the
calibration's ladder, and on nothing else."""


@dataclass(frozen=True, kw_only=True)
class Power:
    """A board and a type of operands.

    Attributes
    ----------
    boost_mhz : float
        No kernel gets a higher clock.
    published_mhz, published_share : float
        A clock under sustained load, and the share of the cycles in which matrix units were busy.
    """

    boost_mhz: float
    published_mhz: float
    published_share: float

    def clock_mhz(self, matrix_share: float) -> float:
        """Return the clock at which the matrix units can be busy for a share of the cycles."""
        work = (BASE + self.published_share) / (BASE + matrix_share)
        return min(self.boost_mhz, self.published_mhz * math.cbrt(work))


def _cdna3(tflops: float, clock_mhz: float, flop_per_clock: int = 2048) -> Power:
    """Return the row of a board with 304 CUs."""
    peak = 304 * flop_per_clock * clock_mhz * 1e6
    return Power(boost_mhz=2100, published_mhz=clock_mhz, published_share=tflops * 1e12 / peak)


_SINE = {
    ("MI300X", "bf16"): _cdna3(708, 1207),
    ("MI300X", "fp16"): _cdna3(654, 1115),
    ("MI300X", "fp8"): _cdna3(1273, 1230, 4096),
    ("MI325X", "bf16"): _cdna3(843, 1447),
    ("MI325X", "fp16"): _cdna3(794, 1354),
    ("MI325X", "fp8"): _cdna3(1519, 1464, 4096),
}  # MAF
_NORMAL = {"bf16": 831.40 / 843, "fp16": 787.25 / 794, "fp8": 1408.06 / 1519}  # TAF over MAF

POWER = {(board, dtype, "sine"): power for (board, dtype), power in _SINE.items()} | {
    (board, dtype, "normal"): replace(power, published_mhz=power.published_mhz * _NORMAL[dtype])
    for (board, dtype), power in _SINE.items()
}
"""By board, type of the operands, and distribution of their values, ``"sine"`` or ``"normal"``."""
