"""How a kernel computes a product: its configuration, and the grid of its launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cupygemm._records.problem import GemmProblem

WAVE_SIZE = 64
VECTOR_BYTES = 16
"""Bytes of a global load, of an LDS read and of a chunk of a row of LDS."""
DWORD_BYTES = 4
"""Bytes of the narrowest LDS write, and what rows of 8-bit elements are aligned to."""
BLOCK_SCALED_MMA_K = 128
"""Depth of the instruction that takes a factor for each 32 k."""
BATCH_GRID_Y = 32768
"""Batch entries along y of the grid; the rest are along z."""


@dataclass(frozen=True)
class GemmConfig:
    """Compile-time configuration of a CDNA GEMM kernel.

    Attributes
    ----------
    mainloop : str
        Name of the mainloop: its device code is ``kernels/cdna/mainloop_<name>.hpp``, and what it
        asks of a configuration is stated in ``cupygemm._backends.cdna.mainloops.<name>``.
    tile_m, tile_n, tile_k : int
        Workgroup tile, elements.
    waves_m, waves_n : int
        Waves of the workgroup along each axis of the tile.
    mma_m, mma_n, mma_k : int
        The MFMA instruction.
    num_stages : int
        Tiles that LDS holds. With two, the next tile is written while the last is still read, which
        saves one of the two barriers of a step; with one, LDS may have room for another workgroup.
    waves_per_simd : int
        Waves that must fit on a SIMD: the compiler limits a lane's registers to 512 over this.
    group_m : int
        Tile rows that the grouped raster walks before it moves on by a tile column.
    xcd_remap : bool
        Deal workgroups so that neighbouring tiles share an XCD's L2.
    split_k : int
        Parts of k that different workgroups sum; a second kernel adds them, in their order.
    stream_k : int
        Workgroups of a persistent grid; 0 for one workgroup for each tile or part of it. Tiles that
        do not fill the grid evenly are cut along k wherever it makes the workgroups' shares equal;
        a second kernel adds the pieces, in their order.
    atomic : bool
        Parts of `split_k` are added by atomic instructions, in the order in which they come.
    """

    mainloop: str
    tile_m: int
    tile_n: int
    tile_k: int
    waves_m: int
    waves_n: int
    mma_m: int
    mma_n: int
    mma_k: int
    num_stages: int = 1
    waves_per_simd: int = 2
    group_m: int = 8
    xcd_remap: bool = True
    split_k: int = 1
    stream_k: int = 0
    atomic: bool = False

    @property
    def partition(self) -> Literal["tiles", "split_k", "stream_k"]:
        """Return how the products are dealt to workgroups."""
        if self.stream_k:
            return "stream_k"
        return "split_k" if self.split_k > 1 else "tiles"

    @property
    def num_threads(self) -> int:
        """Return the work-items of a workgroup."""
        return WAVE_SIZE * self.waves_m * self.waves_n

    @property
    def name(self) -> str:
        """Return a short name: tile, waves and instruction."""
        tile = f"{self.tile_m}x{self.tile_n}x{self.tile_k}"
        mma = f"{self.mma_m}x{self.mma_n}x{self.mma_k}"
        text = f"{self.mainloop}_{tile}_w{self.waves_m}x{self.waves_n}_s{self.num_stages}_mma{mma}"
        if self.partition == "tiles":
            return text
        text += f"_{self.partition}{self.stream_k or self.split_k}"
        return text + ("_atomic" if self.atomic else "")

    @property
    def brief(self) -> str:
        """Return tile, waves and instruction."""
        tile = f"{self.tile_m}x{self.tile_n}x{self.tile_k}"
        mma = f"{self.mma_m}x{self.mma_n}x{self.mma_k}"
        return f"{tile} w{self.waves_m}x{self.waves_n} mma{mma}"

    @property
    def summary(self) -> str:
        """Return mainloop, tile, waves, instruction and parts of k, for people."""
        text = (
            f"{self.mainloop}: tile {self.tile_m}x{self.tile_n}x{self.tile_k}, "
            f"waves {self.waves_m}x{self.waves_n}, MFMA {self.mma_m}x{self.mma_n}x{self.mma_k}"
        )
        if self.stream_k:
            return f"{text}, stream-k over {self.stream_k} workgroups"
        if self.split_k > 1:
            return f"{text}, k in {self.split_k} parts" + (", added atomically" * self.atomic)
        return text

    def num_tiles(self, problem: GemmProblem) -> tuple[int, int]:
        """Return the tiles of one matrix of C along m and along n."""
        return -(-problem.m // self.tile_m), -(-problem.n // self.tile_n)

    def num_steps(self, problem: GemmProblem) -> int:
        """Return the steps of k, each `tile_k` deep, the last perhaps less."""
        return -(-problem.k // self.tile_k)


def grid(config: GemmConfig, problem: GemmProblem) -> tuple[int, int, int]:
    """Return the workgroups of a launch: tiles and parts along x, the batch along y and then z.

    A grid's y and z end at 65535, so the batch index is ``y + BATCH_GRID_Y * z``; workgroups past
    the end of the batch return at once. A persistent grid has one axis.
    """
    if config.stream_k:
        return config.stream_k, 1, 1
    tiles_m, tiles_n = config.num_tiles(problem)
    return tiles_m * tiles_n * config.split_k, *batch_grid(problem)


def batch_grid(problem: GemmProblem) -> tuple[int, int]:
    """Return y and z of a grid that has the batch along them."""
    batch = problem.num_batches
    return min(batch, BATCH_GRID_Y), -(-batch // BATCH_GRID_Y)
