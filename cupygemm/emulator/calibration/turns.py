"""Compare eight waves that take turns at the matrix units with four that interleave (turns.hip).

Both have a tile of 256 x 256 x 64 for each compute unit. Speeds of such kernels are in
products.csv.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cupygemm.emulator.calibration import products
from cupygemm.emulator.calibration.figures import GT, MI300X, Figure
from cupygemm.emulator.calibration.kernels import build, profile_workgroup
from cupygemm.emulator.profiling.kernel_profile import KernelProfile

TARGET, TILE = MI300X, products.TILE
DEPTHS = (256, 512)

KERNELS = {8: "ping_pong", 4: "interleaved"}
"""Name of the kernel by the number of waves of a workgroup."""

EFFICIENCY = {8: (0.967, 0.994), 4: (0.87, 0.90)}
"""Published share of the loop's cycles in which the matrix units are busy: least and most."""


def profile_tile(waves: int, depth: int) -> KernelProfile:
    """Return the profile of one workgroup, whose tile is the whole product."""
    operand, result = np.zeros(TILE * depth, np.uint16), np.zeros(TILE * TILE, np.uint16)
    extents = [np.array(extent, np.int32) for extent in (TILE, TILE, depth)]
    arguments: list[Any] = [operand, operand, result, *extents]
    return profile_workgroup(build("turns.hip", TARGET), KERNELS[waves], 64 * waves, arguments)


def efficiency(profiles: tuple[KernelProfile, KernelProfile]) -> float:
    """Return the share of the loop's modelled cycles in which the matrix units are busy."""
    cycles, matrix = [], []
    for profile in profiles:
        if profile.timing is None:
            raise RuntimeError(f"{profile.kernel}: no modelled time")
        cycles.append(profile.timing.cu_cycles)
        matrix.append(profile.timing.cu_cycles * profile.timing.utilisation["MFMA"])
    return (matrix[1] - matrix[0]) / (cycles[1] - cycles[0])


def figures() -> Iterator[Figure]:
    """Yield the calibration's figures of ping-pong and interleaving."""
    profiles = {
        waves: (profile_tile(waves, DEPTHS[0]), profile_tile(waves, DEPTHS[1])) for waves in KERNELS
    }
    for waves, (low, high) in EFFICIENCY.items():
        yield Figure(
            group="Busy matrix units in the loop, MI300X",
            name=f"{waves} waves",
            unit="%",
            published=50 * (low + high),
            source=GT,
            modelled=100 * efficiency(profiles[waves]),
        )
    yield from products.figures(profiles, DEPTHS)
