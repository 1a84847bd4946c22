"""Published speeds of bf16 and fp16 products on MI300X and MI325X (products.csv).

    products.csv ─► kernel (turns.hip), tile and order of tiles ─► estimate ─► Figure

Every kernel of the table loads 64 elements of k per stage. HipKittens' and the tutorial's kernels
have the form of turns.hip, with a tile of 256 x 256 for each compute unit and their own order of
tiles. A speed for fp16 is that of bf16 at the clock of fp16, because their instructions take the
same cycles.

The figures do not say which kernel hipBLASLt chose. The kernel of eight waves replaces it, with
these published properties of the library:

- It has kernels with tiles of 256 x 224 x 64 as well (a revision of the README of
  xytpai/flydsl-examples shows one, chosen for 8192 x 8192 x 8192 in fp16). The faster tile is used.
  A smaller tile has less work per step, and proportionally fewer cycles.
- Eight rows of tiles at a time are walked column by column, and workgroups are not remapped to
  XCDs: ``WorkGroupMapping`` 8 and ``WorkGroupMappingXCC`` 1, the defaults of TensileLite
  (ROCm/hipBLASLt, tensilelite/Tensile/Common/GlobalParameters.py). Its columns are rows here.
- Its fastest products keep the matrix units busy for 94.2 % of the cycles (`power`, MAF).
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
from cupygemm.emulator.profiling.timing.power import ELSEWHERE, POWER
from cupygemm.emulator.profiling.timing.tile_order import Tiling, grouped
from cupygemm.emulator.targets import TARGETS

TILE, TILE_K, TARGET = 256, 64, "gfx942"
LIBRARY, HEIGHTS = "hipBLASLt", (256, 224)
"""The library whose kernel is not published, and the heights of its tiles, 256 wide."""

SLOWDOWN = 1.045
"""Cycles of hipBLASLt's kernel over those of the one that stands in for the same work: busy matrix
units for 98.5 % of the cycles over 94.2 %, for 4096 x 4864 x 32896."""

BY_AMD, SINE = ("MAF", "TAF"), ("MAF",)
"""Sources that measured AMD's own boards, and that have a sine's values; those of others are
normally distributed."""

Pair = tuple[KernelProfile, KernelProfile]


def rows() -> list[dict[str, str]]:
    """Return the published products."""
    with Path(__file__).with_name("products.csv").open() as file:
        return list(csv.DictReader(file))


def products_of(row: Mapping[str, str]) -> Iterator[Product]:
    """Yield the candidate products of a row, one for each tile, with the order of the tiles."""
    m, n, k = (int(row[name]) for name in "mnk")
    other = row["library"] == LIBRARY
    boards = POWER if row["source"] in BY_AMD else ELSEWHERE
    for height in HEIGHTS if other else (TILE,):
        tiling = Tiling(
            order=_order(row["order"], -(-m // height), n // TILE),
            a_bytes=2 * height * TILE_K,
            b_bytes=2 * TILE * TILE_K,
            steps=-(-k // TILE_K),
        )
        yield Product(
            m=m,
            n=n,
            k=k,
            tiling=tiling,
            power=boards[row["board"], row["dtype"], "sine" if row["source"] in SINE else "normal"],
            work=height / TILE,
            slowdown=SLOWDOWN if other else 1.0,
        )


def _order(name: str, tile_rows: int, columns: int) -> NDArray[np.int64]:
    """Return the order called ``HEIGHT by CHUNK``."""
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
        found = max(
            (estimate(profiles[int(row["waves"])], depths, each) for each in products_of(row)),
            key=lambda each: each.tflops,
        )
        yield Figure(
            group=f"{row['library']}, {row['board']}, {row['dtype']}",
            name=f"{row['m']}x{row['n']}x{row['k']}",
            unit="TFLOP/s",
            published=float(row["published"]),
            source=SOURCES[row["source"]],
            modelled=found.tflops,
            estimate=found,
        )
