"""Compare published speeds of products on MI355X with modelled ones, without a fit.

    python -m benchmarks.cdna4_speeds

One workgroup of this package's kernel is emulated at two depths, and the time of each product is
estimated from them as in the calibration (`cupygemm.emulator.calibration.sample`). The calibration
itself covers MI300X and MI325X. No clock of an MI355X under load is published, so the clock here is
the boost clock. The ratio of published to modelled speed, times that clock, is the clock that the
board would have had if the modelled cycles are right.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

BOOST_MHZ = 2400.0
TILE, SHALLOW, DEEP, LARGE = 256, 512, 1024, 8192
BYTES_ALONG_K = 128  # extent of a step of k
GROUP, CHUNK = 4, 64  # order of the tiles; other orders change a speed by at most 1 %
# HazyResearch/HipKittens, analysis/bf16_gemm/mi350x/mi355x_bf16_gemm.json and
# analysis/fp8_gemm/mi350x/mi355x_fp8_gemm.json, in TFLOP/s
PUBLISHED = {
    "bf16": {
        "HipKittens": {4096: 1412.85, 8192: 1610.49, 16384: 1571.49},
        "PyTorch": {4096: 1138.53, 8192: 1521.25, 16384: 1559.81},
        "AITER": {4096: 1113.60, 8192: 1590.79, 16384: 1564.07},
    },
    "fp8": {
        "HipKittens": {4096: 2741.41, 8192: 3327.46, 16384: 3377.75},
        "hipBLASLt": {4096: 2748.78, 8192: 3233.19, 16384: 3293.23},
    },
}


@dataclass(frozen=True)
class Speed:
    """A published speed and the modelled one, in TFLOP/s."""

    dtype: str
    library: str
    extent: int
    published: float
    modelled: float

    @property
    def error(self) -> float:
        """The error of the modelled speed."""
        return self.modelled / self.published - 1

    @property
    def clock_mhz(self) -> float:
        """The clock at which the modelled speed would be the published one."""
        return BOOST_MHZ * self.published / self.modelled


def one_workgroup(dtype: str, depth: int) -> Any:
    """Return the profile of one workgroup of the kernel for large products."""
    import cupy as cp
    import ml_dtypes

    import cupygemm
    from cupygemm import emulator

    shape = LARGE, depth
    if dtype == "bf16":
        a, b = (cp.zeros(shape, np.uint16).view(ml_dtypes.bfloat16) for _ in range(2))
        formats = {}
    else:
        a, b = (cp.zeros(shape, np.uint8) for _ in range(2))
        formats = {"format_a": "e4m3fn", "format_b": "e4m3fn"}
    with emulator.profile(sample=1) as profile:
        cupygemm.matmul(a, b.T, **formats)
    (kernel,) = (each for each in profile.kernels if each.matrix_flop)
    whole = kernel.timing.workload
    one = replace(whole, workgroups=1, l2_bytes=whole.l2_bytes // int(np.prod(kernel.grid)))
    return replace(kernel, timing=replace(kernel.timing, workload=one))


def speeds(dtype: str) -> Iterator[Speed]:
    """Yield the speeds of a type."""
    from cupygemm.emulator.calibration.sample import Product, estimate
    from cupygemm.emulator.profiling.timing.tile_order import Tiling, grouped

    profiles = one_workgroup(dtype, SHALLOW), one_workgroup(dtype, DEEP)
    tile_bytes = TILE * BYTES_ALONG_K
    for library, published in PUBLISHED[dtype].items():
        for extent, speed in published.items():
            tiles = extent // TILE
            tiling = Tiling(
                order=grouped(tiles, tiles, height=GROUP, chunk=CHUNK, num_xcds=8),
                a_bytes=tile_bytes,
                b_bytes=tile_bytes,
                steps=extent * (2 if dtype == "bf16" else 1) // BYTES_ALONG_K,
            )
            product = Product(m=extent, n=extent, k=extent, tiling=tiling)
            found = estimate(profiles, (SHALLOW, DEEP), product, clock_mhz=BOOST_MHZ)
            yield Speed(dtype, library, extent, speed, found.tflops)


def main() -> None:
    from cupygemm import emulator

    emulator.enable("gfx950")
    lines = ["type  library     extent  published  modelled   error  clock, MHz"]
    lines += [
        f"{each.dtype:4}  {each.library:10}  {each.extent:6}  {each.published:9.0f}"
        f"  {each.modelled:8.0f}  {each.error:+6.1%}  {each.clock_mhz:10.0f}"
        for dtype in PUBLISHED
        for each in speeds(dtype)
    ]
    sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
