"""The published ladder: bf16, 4096 x 4096 x 4096 on MI300X, step by step (ladder.hip)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cupygemm.emulator.calibration.figures import GT, LADDER, MI300X, Figure
from cupygemm.emulator.calibration.kernels import build, profile_workgroup
from cupygemm.emulator.calibration.sample import Estimate, Product, estimate
from cupygemm.emulator.profiling.timing.tile_order import Tiling, row_major

TARGET, EXTENT, TILE = MI300X, 4096, 128
DEPTHS = (256, 512)

PUBLISHED = {
    "tile": 122.21,
    "padded": 244.72,
    "swizzled": 369.57,
    "buffered": 421.10,
    "wide": 454.12,
}
"""TFLOP/s of each step."""

SHALLOW = 400 / 476
"""Published speed of tiles 32 deep, two of them in LDS, relative to tiles 64 deep, one at a time.
These are not kernels of the ladder."""


def step(name: str) -> Estimate:
    """Return the modelled time of a step."""
    path = build("ladder.hip", TARGET)
    profiles = []
    for depth in DEPTHS:
        operand, result = np.zeros(TILE * depth, np.uint16), np.zeros(TILE * EXTENT, np.uint16)
        extents = [np.array(extent, np.int32) for extent in (EXTENT, EXTENT, depth)]
        arguments: list[Any] = [operand, operand, result, *extents]
        profiles.append(profile_workgroup(path, f"ladder_{name}", 256, arguments))
    tiles = EXTENT // TILE
    tiling = Tiling(
        order=row_major(tiles, tiles),
        a_bytes=2 * TILE * 64,
        b_bytes=2 * TILE * 64,
        steps=EXTENT // 64,
    )
    product = Product(m=EXTENT, n=EXTENT, k=EXTENT, tiling=tiling)
    return estimate((profiles[0], profiles[1]), DEPTHS, product)


def figures() -> Iterator[Figure]:
    """Yield the calibration's figures of the ladder."""
    group, found = f"bf16 {EXTENT}^3, MI300X, steps of a ladder", {}
    for name, published in PUBLISHED.items():
        found[name] = step(name)
        yield Figure(
            group=group,
            name=name,
            unit="TFLOP/s",
            published=published,
            source=LADDER,
            modelled=found[name].tflops,
            estimate=found[name],
        )
    ratio = step("shallow").tflops / found["wide"].tflops
    yield Figure(
        group="K tile of 32 in two stages over 64 in one, MI300X",
        name="shallow over wide",
        unit="%",
        published=100 * SHALLOW,
        source=GT,
        modelled=100 * ratio,
    )
