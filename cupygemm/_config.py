"""How a kernel computes a product: its configuration, and the one statement of what it can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class GemmConfig:
    """Compile-time configuration of a CDNA GEMM kernel.

    Attributes
    ----------
    mainloop : str
        Name of the mainloop: the file is ``kernels/cdna/mainloop_<name>.hpp``.
    tile_m, tile_n, tile_k : int
        Workgroup tile, elements.
    waves_m, waves_n : int
        Waves of the workgroup along each axis of the tile.
    mma_m, mma_n, mma_k : int
        The MFMA instruction.
    group_m : int
        Tile rows that the grouped raster walks before it moves on by a tile column.
    xcd_remap : bool
        Deal workgroups so that neighbouring tiles share an XCD's L2.
    """

    mainloop: Literal["register_double_buffer"]
    tile_m: int
    tile_n: int
    tile_k: int
    waves_m: int
    waves_n: int
    mma_m: int
    mma_n: int
    mma_k: int
    group_m: int = 8
    xcd_remap: bool = True

    @property
    def num_threads(self) -> int:
        """Return the work-items of a workgroup."""
        return 64 * self.waves_m * self.waves_n
