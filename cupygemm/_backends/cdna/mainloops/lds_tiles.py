"""Tiles in LDS, for the mainloops that have them: layout, limits and records.

A tile has rows of 128 bytes along k. A deeper tile consists of several slabs of such rows
(``kernels/cdna/tile.hpp``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cupygemm._backends.cdna.arch import SCALED_TYPES, Arch
from cupygemm._backends.cdna.config import (
    DWORD_BYTES,
    VECTOR_BYTES,
    WAVE_SIZE,
    GemmConfig,
    MmaShape,
)
from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import GemmProblem

SLAB_BYTES = 128
"""The bytes along k of a row in LDS."""
ROW_BLOCK = 32
"""Rows of an operand tile within which their order in LDS is permuted."""


def lds_bytes(config: GemmConfig, itemsize: int) -> int:
    """Return the LDS of a workgroup for operands of `itemsize` bytes."""
    return config.num_stages * (config.tile_m + config.tile_n) * config.tile_k * itemsize


def lds_traffic(config: GemmConfig, itemsize: int) -> int:
    """Return the LDS bytes of a step: tiles are written once, and each wave reads its share."""
    read = config.tile_m * config.waves_n + config.tile_n * config.waves_m
    return (read + config.tile_m + config.tile_n) * config.tile_k * itemsize


def check_tile(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    """Return why no mainloop with tiles in LDS can have these tiles and waves, or None."""
    itemsize = ITEMSIZE[problem.a_dtype]
    slab_k = SLAB_BYTES // itemsize
    if config.tile_k % slab_k:
        return f"tile_k = {config.tile_k} is not a multiple of {slab_k} ({SLAB_BYTES} bytes of k)"
    for axis in ("m", "n"):
        tile, waves = getattr(config, f"tile_{axis}"), getattr(config, f"waves_{axis}")
        mma = getattr(config, f"mma_{axis}")
        if tile % ROW_BLOCK or tile & (tile - 1):
            return f"tile_{axis} = {tile} is not a power of two from {ROW_BLOCK}"
        if tile % waves or (tile // waves) % mma:
            return f"tile_{axis} = {tile} is not {waves} waves of whole fragments of {mma}"
    if config.tile_n // config.waves_n % ROW_BLOCK:
        return f"a wave's {config.tile_n // config.waves_n} columns are not blocks of {ROW_BLOCK}"
    if config.num_threads > 1024:
        return f"{config.num_threads} threads: a workgroup holds 1024"
    lds = lds_bytes(config, itemsize)
    if lds > arch.lds_bytes:
        return f"the tiles take {lds} bytes of LDS, and {arch.name} has {arch.lds_bytes}"
    waves = arch.lds_bytes // lds * config.num_threads // WAVE_SIZE // arch.simds_per_cu
    if waves < config.waves_per_simd <= arch.max_waves_per_simd:
        room = f"{waves} wave{'s' * (waves != 1)}"
        return f"waves_per_simd = {config.waves_per_simd}: LDS has room for {room} on a SIMD"
    return None


def transposed_by_reads(major: str, mma: int, itemsize: int, align: int, arch: Arch) -> bool:
    """Whether a row-major tile has the order of memory in LDS, and reads transpose it."""
    narrow = itemsize <= 2 and align >= DWORD_BYTES
    return arch.transposing_reads and major != "k" and mma == 16 and narrow


def check_staging(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    """Return why the tiles cannot be staged through registers, or None if they can."""
    itemsize = ITEMSIZE[problem.a_dtype]
    per_vector = VECTOR_BYTES // itemsize
    for name, rows, major, mma, align in (
        ("A", config.tile_m, problem.a_major, config.mma_m, problem.a_align),
        ("B", config.tile_n, problem.b_major, config.mma_n, problem.b_align),
    ):
        vectors, rest = divmod(rows * config.tile_k // per_vector, config.num_threads)
        least = 1 if major == "k" else max(1, DWORD_BYTES // itemsize)
        if transposed_by_reads(major, mma, itemsize, align, arch):
            least = 2  # the two differ in the order of their halves
        if vectors < least or rest:
            return (
                f"a {major}-major tile of {name}, {rows} x {config.tile_k}, does not give each of "
                f"{config.num_threads} threads at least {least} whole vectors of {per_vector}"
            )
    return None


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A row of a mainloop's table.

    Attributes
    ----------
    tile_m, tile_n, tile_k : int
        Workgroup tile, elements. `tile_k` is for 16-bit types; other types have the same number of
        bytes.
    waves_m, waves_n, num_stages, waves_per_simd : int
        See `GemmConfig`.
    largest_mma : {16, 32}
        The tile is built with the 16x16 instruction and, if this is 32, also with the 32x32 one.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    waves_m: int
    waves_n: int
    num_stages: int
    waves_per_simd: int
    largest_mma: int = 16

    def config(self, mainloop: str, mma: MmaShape, dtype: DType) -> GemmConfig:
        """Return the configuration of a mainloop with this tile, for inputs of a type."""
        return GemmConfig(
            mainloop=mainloop,
            tile_m=self.tile_m,
            tile_n=self.tile_n,
            tile_k=self.tile_k * 2 // ITEMSIZE[dtype],
            waves_m=self.waves_m,
            waves_n=self.waves_n,
            mma_m=mma.m,
            mma_n=mma.n,
            mma_k=mma.k,
            num_stages=self.num_stages,
            waves_per_simd=self.waves_per_simd,
        )


def configs_of(
    mainloop: str, tiles: Iterable[Tile], dtype: DType, arch: Arch
) -> tuple[GemmConfig, ...]:
    """Return the configurations of tiles, with each instruction that a type has.

    Each is the deepest instruction whose operands are at most one vector per lane, since a mainloop
    reads vectors from LDS.
    """
    if dtype in SCALED_TYPES:
        return ()
    rows = tuple(tiles)
    found = (arch.deepest_mma(dtype, extent, operand_bytes=VECTOR_BYTES) for extent in (16, 32))
    return tuple(
        tile.config(mainloop, mma, dtype)
        for mma in found
        if mma is not None
        for tile in rows
        if mma.m <= tile.largest_mma
    )
