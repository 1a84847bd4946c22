"""Published speeds of bf16 and fp16 products on MI300X and MI325X (products.csv).

    products.csv ─► kernel (turns.hip) and order of tiles ─► estimate ─► Figure

Every kernel of the table has a tile of 256 x 256 for each compute unit and tiles of k of 64 in one
stage. HipKittens' and the tutorial's kernels are in the form of turns.hip, with their own order of
tiles. For hipBLASLt the same kernel stands in, in row-major order: which kernel the library chose
is not published. A speed for fp16 is that of bf16 at the clock of fp16: their instructions take the
same cycles.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.calibration.figures import SOURCES, Figure
from cupygemm.emulator.calibration.sample import Product, estimate
from cupygemm.emulator.profiling.kernel_profile import KernelProfile
from cupygemm.emulator.profiling.timing.tile_order import Tiling, grouped, row_major
from cupygemm.emulator.targets import TARGETS

TILE, TILE_K, TARGET = 256, 64, "gfx942"
SINE = ("MAF",)  # sources whose operands are a sine's values; those of others are normal
Pair = tuple[KernelProfile, KernelProfile]


def rows() -> list[dict[str, str]]:
    """Return the published products."""
    with Path(__file__).with_name("products.csv").open() as file:
        return list(csv.DictReader(file))


def product_of(row: Mapping[str, str]) -> Product:
    """Return the product of a row, with the order of its tiles."""
    m, n, k = (int(row[name]) for name in "mnk")
    tile_bytes = 2 * TILE * TILE_K
    tiling = Tiling(
        order=_order(row["order"], m // TILE, n // TILE),
        a_bytes=tile_bytes,
        b_bytes=tile_bytes,
        steps=-(-k // TILE_K),
    )
    return Product(
        m=m,
        n=n,
        k=k,
        tiling=tiling,
        board=row["board"],
        dtype=row["dtype"],
        operands="sine" if row["source"] in SINE else "normal",
    )


def _order(name: str, tile_rows: int, columns: int) -> NDArray[np.int64]:
    """Return the order called ``rows``, or ``HEIGHT by CHUNK``."""
    if name == "rows":
        return row_major(tile_rows, columns)
    height, chunk = (int(word) for word in name.split(" by "))
    xcds = TARGETS[TARGET].num_xcds
    return grouped(tile_rows, columns, height=height, chunk=chunk, num_xcds=xcds)


def figures(profiles: Mapping[int, Pair], depths: tuple[int, int]) -> Iterator[Figure]:
    """Yield the figures of all products.

    Parameters
    ----------
    profiles : mapping of int to (KernelProfile, KernelProfile)
        By the number of waves: profiles of a workgroup at two depths.
    depths : (int, int)
    """
    for row in rows():
        product = product_of(row)
        found = estimate(profiles[int(row["waves"])], depths, product)
        shape = f"{product.m}x{product.n}x{product.k}"
        yield Figure(
            group=f"{row['library']}, {row['board']}, {row['dtype']}",
            name=shape,
            unit="TFLOP/s",
            published=float(row["published"]),
            source=SOURCES[row["source"]],
            modelled=found.tflops,
            clock_mhz=found.clock_mhz,
        )
