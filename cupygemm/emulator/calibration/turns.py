"""Compare eight waves that take turns at the matrix units with four that interleave (turns.hip).

The published figures are bf16 products on MI300X by kernels of these forms, with a tile of
256 x 256 x 64 for each compute unit: products of 4096 x 4864 x k, which are 304 tiles, and squares.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cupygemm.emulator.calibration.figures import GT, HK, MI300X, Figure
from cupygemm.emulator.calibration.kernels import build, profile_workgroup
from cupygemm.emulator.calibration.sample import Product, estimate
from cupygemm.emulator.profiling.kernel_profile import KernelProfile

TARGET, M, N, TILE = MI300X, 4096, 4864, 256
DEPTHS = (256, 512)

KERNELS = {8: "ping_pong", 4: "interleaved"}
"""Name of the kernel by the number of waves of a workgroup."""

PUBLISHED: dict[int, dict[int, float]] = {
    8: {2112: 644, 4160: 658, 8256: 647, 16448: 690},
    4: {2112: 613, 4160: 643, 8256: 638, 16448: 679},
}
"""TFLOP/s by waves and k: kernel time, rotating buffers."""

SQUARES = {1024: 59, 2048: 219, 4096: 561, 8192: 636, 16384: 639}
"""TFLOP/s of n x n x n by HipKittens' eight waves on tiles of 256 x 256."""

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
    for waves, published in PUBLISHED.items():
        for k, speed in published.items():
            found = estimate(profiles[waves], DEPTHS, _product(M, N, k))
            yield Figure(
                group=f"bf16 {M} x {N} x k, MI300X",
                name=f"{waves} waves, k = {k}",
                unit="TFLOP/s",
                published=speed,
                source=GT,
                modelled=found.tflops,
                clock_mhz=found.clock_mhz,
            )
    for extent, speed in SQUARES.items():
        found = estimate(profiles[8], DEPTHS, _product(extent, extent, extent))
        yield Figure(
            group="bf16 squares, MI300X",
            name=f"8 waves, {extent}",
            unit="TFLOP/s",
            published=speed,
            source=HK,
            modelled=found.tflops,
            clock_mhz=found.clock_mhz,
        )


def _product(m: int, n: int, k: int) -> Product:
    return Product(m=m, n=n, k=k, workgroups=(m // TILE) * (n // TILE))
