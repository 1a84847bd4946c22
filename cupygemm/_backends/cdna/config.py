"""How a kernel computes a product: its configuration, and the grid of its launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from cupygemm._records.problem import GemmProblem

WAVE_SIZE = 64
VECTOR_BYTES = 16
"""Bytes of a global load, of an LDS read and of a chunk of a row of LDS."""
DWORD_BYTES = 4
"""Bytes of the narrowest LDS write, and the least alignment of rows of 8-bit elements."""
BLOCK_SCALED_MMA_K = 128
"""The k of the instruction that takes a scale for each 32 elements along k."""
BATCH_GRID_Y = 32768
"""The most matrices of a batch along y of the grid; further ones are along z."""


class MmaShape(NamedTuple):
    """The shape of a matrix instruction: a product of m x k by k x n elements."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


@dataclass(frozen=True, kw_only=True)
class GemmConfig:
    """Compile-time configuration of a CDNA GEMM kernel.

    Attributes
    ----------
    mainloop : str
        The name of the mainloop. Its device code is ``kernels/cdna/mainloop_<name>.hpp``, and its
        limits are stated in ``cupygemm._backends.cdna.mainloops.<name>``.
    tile_m, tile_n, tile_k : int
        Workgroup tile, elements.
    waves_m, waves_n : int
        Waves of the workgroup along each axis of the tile.
    mma_m, mma_n, mma_k : int
        The MFMA instruction.
    num_stages : int
        The number of tiles that LDS holds. With two, the next tile is written while the last one
        is still read, which saves one of the two barriers of a step. With one, LDS may have room
        for another workgroup.
    waves_per_simd : int
        The number of waves that must fit on a SIMD. The compiler limits the registers of a lane to
        512 divided by it.
    group_m : int
        The tile rows that the grouped raster walks before it advances by a tile column.
    xcd_remap : bool
        Assign workgroups to XCDs so that neighbouring tiles share an L2.
    split_k : int
        The number of parts of k that different workgroups sum. A second kernel adds them in their
        order.
    stream_k : int
        The number of workgroups of a persistent grid, or 0 for one workgroup for each tile or part
        of a tile. Tiles that do not fill the grid evenly are split along k so that all workgroups
        have equal shares. A second kernel adds the parts in their order.
    atomic : bool
        Atomic instructions add the parts of `split_k`, in the order in which they complete.
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
    def mma(self) -> MmaShape:
        """Return the shape of the MFMA instruction."""
        return MmaShape(self.mma_m, self.mma_n, self.mma_k)

    @property
    def partition(self) -> Literal["tiles", "split_k", "stream_k"]:
        """Return how the work is divided among workgroups."""
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
        waves = f"w{self.waves_m}x{self.waves_n}"
        text = f"{self.mainloop}_{tile}_{waves}_s{self.num_stages}_mma{self.mma}"
        if self.partition == "tiles":
            return text
        text += f"_{self.partition}{self.stream_k or self.split_k}"
        return text + ("_atomic" if self.atomic else "")

    @property
    def brief(self) -> str:
        """Return tile, waves and instruction."""
        tile = f"{self.tile_m}x{self.tile_n}x{self.tile_k}"
        return f"{tile} w{self.waves_m}x{self.waves_n} mma{self.mma}"

    @property
    def summary(self) -> str:
        """Return a readable description: mainloop, tile, waves, instruction and parts of k."""
        text = (
            f"{self.mainloop}: tile {self.tile_m}x{self.tile_n}x{self.tile_k}, "
            f"waves {self.waves_m}x{self.waves_n}, MFMA {self.mma}"
        )
        if self.stream_k:
            return f"{text}, stream-k over {self.stream_k} workgroups"
        if self.split_k > 1:
            return f"{text}, k in {self.split_k} parts" + (", added atomically" * self.atomic)
        return text

    def num_tiles(self, problem: GemmProblem) -> tuple[int, int]:
        """Return the number of tiles of one matrix of C along m and along n."""
        return -(-problem.m // self.tile_m), -(-problem.n // self.tile_n)

    def num_steps(self, problem: GemmProblem) -> int:
        """Return the number of steps of `tile_k` along k; the last one may be shorter."""
        return -(-problem.k // self.tile_k)


def grid(config: GemmConfig, problem: GemmProblem) -> tuple[int, int, int]:
    """Return the workgroups of a launch: tiles and parts along x, the batch along y and z.

    The y and z of a grid are at most 65535, so the batch index is ``y + BATCH_GRID_Y * z``, and
    workgroups past the end of the batch return immediately. A persistent grid has one axis.
    """
    if config.stream_k:
        return config.stream_k, 1, 1
    tiles_m, tiles_n = config.num_tiles(problem)
    return tiles_m * tiles_n * config.split_k, *batch_grid(problem)


def batch_grid(problem: GemmProblem) -> tuple[int, int]:
    """Return the y and z of a grid with the batch along them."""
    batch = problem.num_batches
    return min(batch, BATCH_GRID_Y), -(-batch // BATCH_GRID_Y)
