"""What mainloops that hold tiles in LDS have in common: their layout, its limits, and tables.

A tile is rows of 128 bytes along k, "slabs" of them where it is deeper (``kernels/cdna/tile.hpp``).
"""

from __future__ import annotations

from typing import NamedTuple

from cupygemm._backends.cdna.arch import ARCHS, Arch, MmaShape
from cupygemm._backends.cdna.config import (
    BLOCK_SCALED_MMA_K,
    DWORD_BYTES,
    VECTOR_BYTES,
    WAVE_SIZE,
    GemmConfig,
)
from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import GemmProblem

SLAB_BYTES = 128
"""Bytes of k in a row of LDS."""
ROW_BLOCK = 32
"""Rows of an operand tile within which their order in LDS is permuted."""


def lds_bytes(config: GemmConfig, itemsize: int) -> int:
    """Return the LDS of a workgroup for operands of `itemsize` bytes."""
    return config.num_stages * (config.tile_m + config.tile_n) * config.tile_k * itemsize


def lds_traffic(config: GemmConfig, itemsize: int) -> int:
    """Return the bytes of a step: each wave reads its rows and columns of what is staged once."""
    read = config.tile_m * config.waves_n + config.tile_n * config.waves_m
    return (read + config.tile_m + config.tile_n) * config.tile_k * itemsize


def check_tile(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    """Return what is wrong with the tiles and the waves, for any mainloop of slabs in LDS."""
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
        return f"waves_per_simd = {config.waves_per_simd}: LDS has room for {waves} waves on a SIMD"
    return None


def transposed_by_reads(major: str, mma: int, itemsize: int, align: int, arch: Arch) -> bool:
    """Whether a row-major tile lies in LDS in the order of memory, and reads transpose it."""
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
            least = 2  # which differ in the order of their halves
        if vectors < least or rest:
            return (
                f"a {major}-major tile of {name}, {rows} x {config.tile_k}, does not give each of "
                f"{config.num_threads} threads at least {least} whole vectors of {per_vector}"
            )
    return None


class Tile(NamedTuple):
    """A tile of a mainloop's table; `tile_k` is that of 16-bit types.

    Other types have as many bytes of it.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    waves_m: int
    waves_n: int
    num_stages: int
    waves_per_simd: int

    def config(self, mainloop: str, mma: MmaShape, dtype: DType) -> GemmConfig:
        """Return the configuration of a mainloop with this tile, for inputs of a type."""
        return GemmConfig(
            mainloop,
            self.tile_m,
            self.tile_n,
            self.tile_k * 2 // ITEMSIZE[dtype],
            self.waves_m,
            self.waves_n,
            *mma,
            self.num_stages,
            self.waves_per_simd,
        )


def _deepest(arch: Arch, dtype: DType) -> tuple[MmaShape, ...]:
    """Return the 16x16 and the 32x32 instruction with the longest k, block-scaled ones left out."""
    shapes = [shape for shape in arch.mfma_cycles[dtype] if shape[2] < BLOCK_SCALED_MMA_K]
    tiles = dict.fromkeys((m, n) for m, n, _ in shapes)
    return tuple(max(shape for shape in shapes if shape[:2] == tile) for tile in tiles)


MMA: dict[str, dict[DType, tuple[MmaShape, ...]]] = {
    arch.name: {dtype: _deepest(arch, dtype) for dtype in arch.mfma_cycles if dtype != "e2m1x2"}
    for arch in ARCHS.values()
}
"""By target and type, the instructions that configurations are built with."""
