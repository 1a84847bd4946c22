"""The clock to which a board's power limits a kernel; busier matrix units lower it.

Power is proportional to the clock and to the square of the voltage, and the voltage is proportional
to the clock. So the cube of the clock times the work per cycle stays the same on a board, where

    work = base + share of busy matrix units * (1 + memory * bytes from HBM per cycle of a CU)

One published product fixes it: AMD gives the speed and the median clock of its fastest products
(MAF).

MAF
    AMD, "Measuring Max-Achievable FLOPs, Part 2" (ROCm blogs, 2025-02-28): hipBLASLt, operands of
    a sine's values, rotating buffers, products of 4096 x 4864 x 32896, for fp8 4096 x 3648 x 32896.
    The clock is the median of the slowest XCD.
TAF
    AMD, "Understanding TAF Alongside Peak FLOPs and MAF" (ROCm blogs, 2026-10-06): the same
    products on MI325X with normally distributed operands, whose bits change more often, at 831.40
    (bf16), 787.25 (fp16) and 1408.06 TFLOP/s (fp8). The clock is assumed to fall in the same
    proportion on MI300X, for which no figures are published.

Three constants are *fitted* to the speeds of the calibration (`calibration.fit`, which also gives
the model's errors for sources that were left out of the fit).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The fitted constants.

    Attributes
    ----------
    base : float
        The constant work, relative to that of busy matrix units.
    memory : float
        The work of a byte from HBM per cycle of each CU, relative to that of the matrix units that
        it feeds. It covers more than HBM's energy: everything that slows products with much HBM
        traffic. It is 0 for kernels that keep no matrix unit busy.
    elsewhere : float
        The clock of a board measured by others, relative to AMD's own in MAF and TAF.
    """

    base: float
    memory: float
    elsewhere: float


FITTED = Fitted(base=0.12, memory=0.485, elsewhere=0.936)

_MAF_MEMORY = 0.87
"""Bytes from HBM per cycle of a CU in the products of MAF: modelled, by `tile_order`."""

_MOST_MEMORY = 1.4
"""The most bytes from HBM per cycle of a CU among the products of the fit; more count as these."""


@dataclass(frozen=True, kw_only=True)
class Power:
    """A board and a type of operands.

    Attributes
    ----------
    boost_mhz : float
        No kernel gets a higher clock.
    published_mhz, published_share, published_memory : float
        A published clock under sustained load, the share of cycles with busy matrix units, and the
        bytes from HBM per cycle of a CU.
    by_amd : bool
        Whether the board is AMD's own.
    """

    boost_mhz: float
    published_mhz: float
    published_share: float
    published_memory: float = _MAF_MEMORY
    by_amd: bool = True

    def clock_mhz(self, matrix_share: float, memory: float = 0.0, fitted: Fitted = FITTED) -> float:
        """Return the clock at which the power suffices for a share of busy matrix cycles.

        Parameters
        ----------
        matrix_share : float
        memory : float
            Bytes from HBM per cycle of a CU.
        fitted : Fitted
        """
        clock = self.published_mhz * (1 if self.by_amd else fitted.elsewhere)
        ratio = _work(self.published_share, self.published_memory, fitted) / max(
            _work(matrix_share, memory, fitted), 1e-9
        )
        return min(self.boost_mhz, clock * math.cbrt(ratio))


def _work(matrix_share: float, memory: float, fitted: Fitted) -> float:
    """Return the work per cycle; 1 is that of busy matrix units."""
    return fitted.base + matrix_share * (1 + fitted.memory * min(memory, _MOST_MEMORY))


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
"""AMD's boards by name, type of the operands, and distribution of their values, ``"sine"`` or
``"normal"``."""

ELSEWHERE = {key: replace(power, by_amd=False) for key, power in POWER.items()}
"""The same for boards that others measured."""
