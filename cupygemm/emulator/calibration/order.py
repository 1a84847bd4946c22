"""Hit rates of L2 and of the last-level cache for orders of tiles, on MI355X.

HipKittens' paper gives them for a bf16 kernel with tiles of 192 x 256 x 64. Its orders have windows
of W rows of tiles, and chunks of C tiles that stay on an XCD; row-major order has neither. With
C = 542 each XCD takes one chunk, which is 541 whole tiles here.
"""

from __future__ import annotations

from collections.abc import Iterator

from cupygemm.emulator.calibration.figures import HK_PAPER, MI355X, Figure
from cupygemm.emulator.profiling.timing.tile_order import Tiling, derive, grouped, row_major
from cupygemm.emulator.targets import TARGETS

TILE_M, TILE_N, TILE_K = 192, 256, 64

# Extent, window, chunk: hits in L2 and in the last-level cache, %.
PUBLISHED = {
    (9216, 0, 0): (55, 95),
    (9216, 7, 216): (79, 24),
    (9216, 5, 25): (75, 93),
    (14592, 0, 0): (36, 76),
    (14592, 8, 541): (79, 7),
    (14592, 8, 64): (78, 55),
}


def hit_rates(extent: int, window: int, chunk: int) -> tuple[float, float]:
    """Return the derived hit rates of L2 and of the last-level cache, in %."""
    rows, columns = extent // TILE_M, extent // TILE_N
    xcds = TARGETS[MI355X].num_xcds
    order = row_major(rows, columns)
    if window:
        order = grouped(rows, columns, height=window, chunk=chunk, num_xcds=xcds)
    tiling = Tiling(
        order=order,
        a_bytes=2 * TILE_M * TILE_K,
        b_bytes=2 * TILE_N * TILE_K,
        steps=extent // TILE_K,
    )
    shares = derive(tiling, MI355X)
    return 100 * shares.l2_hits, 100 * shares.last_hits


def figures() -> Iterator[Figure]:
    """Yield the calibration's hit rates."""
    for (extent, window, chunk), published in PUBLISHED.items():
        derived = hit_rates(extent, window, chunk)
        order = f"W{window}/C{chunk}" if window else "row-major"
        for level, rate, found in zip(("L2", "last level"), published, derived, strict=True):
            yield Figure(
                group="Cache hits by the order of tiles, bf16, MI355X",
                name=f"{extent}, {order}, {level}",
                unit="%",
                published=rate,
                source=HK_PAPER,
                modelled=found,
            )
