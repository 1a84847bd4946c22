"""The mainloop that holds one tile in LDS and the next in registers: what it can do, and its tiles.

The device code is ``kernels/cdna/mainloop_register_double_buffer.hpp``. It takes every type and
every major, which makes it the one that any problem can fall back on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cupygemm._arch import ARCHS, Arch, MmaShape
from cupygemm._config import DWORD_BYTES, VECTOR_BYTES, WAVE_SIZE, GemmConfig
from cupygemm._problem import ITEMSIZE, DType, GemmProblem

NAME = "register_double_buffer"
ROW_PARTS = 1
SLAB_BYTES = 128
"""Bytes of k in a row of LDS."""
ROW_BLOCK = 32
"""Rows of an operand tile within which their order in LDS is permuted."""


def check(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    """Return why the mainloop cannot run the configuration, or None if it can."""
    if config.num_stages not in (1, 2):
        return f"num_stages = {config.num_stages}: LDS holds one tile or two"
    return (
        _check_instruction(config, problem)
        or check_tile(config, problem, arch)
        or check_staging(config, problem, arch)
    )


def _check_instruction(config: GemmConfig, problem: GemmProblem) -> str | None:
    operand_bytes = config.mma_m * config.mma_k // WAVE_SIZE * ITEMSIZE[problem.a_dtype]
    if operand_bytes > VECTOR_BYTES:
        return (
            f"a lane of the {config.mma_m}x{config.mma_n}x{config.mma_k} instruction takes "
            f"{operand_bytes} bytes, and a step has {VECTOR_BYTES}"
        )
    return None


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
    lds = config.lds_bytes(itemsize)
    if lds > arch.lds_bytes:
        return f"the tiles take {lds} bytes of LDS, and {arch.name} has {arch.lds_bytes}"
    waves = arch.lds_bytes // lds * config.num_threads // WAVE_SIZE // arch.simds_per_cu
    if waves < config.waves_per_simd <= arch.max_waves_per_simd:
        return f"waves_per_simd = {config.waves_per_simd}: LDS has room for {waves} waves on a SIMD"
    return None


def transposed_by_reads(major: str, mma: int, itemsize: int, arch: Arch) -> bool:
    """Whether a tile lies in LDS in the order of memory: row-major bytes, where reads transpose."""
    return arch.transposing_reads and (major != "k", mma, itemsize) == (True, 16, 1)


def check_staging(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    """Return why the tiles cannot be staged through registers, or None if they can."""
    itemsize = ITEMSIZE[problem.a_dtype]
    per_vector = VECTOR_BYTES // itemsize
    for name, rows, major, mma in (
        ("A", config.tile_m, problem.a_major, config.mma_m),
        ("B", config.tile_n, problem.b_major, config.mma_n),
    ):
        vectors, rest = divmod(rows * config.tile_k // per_vector, config.num_threads)
        least = 1 if major == "k" else max(1, DWORD_BYTES // itemsize)
        if transposed_by_reads(major, mma, itemsize, arch):
            least = 2  # which differ in the order of their halves
        if vectors < least or rest:
            return (
                f"a {major}-major tile of {name}, {rows} x {config.tile_k}, does not give each of "
                f"{config.num_threads} threads at least {least} whole vectors of {per_vector}"
            )
    return None


# -- The configurations that are built -------------------------------------------------------------

_Tile = tuple[int, int, int, int, int, int, int]

# tile_m, tile_n, tile_k, waves_m, waves_n, num_stages, waves_per_simd. LDS of 64 KiB: the large
# tiles share a CU by being two workgroups or eight waves, the skinny ones overlap their own steps.
_TILES_64K: tuple[_Tile, ...] = (
    (256, 128, 64, 4, 2, 1, 2),
    (128, 256, 64, 2, 4, 1, 2),
    (128, 128, 64, 2, 2, 1, 2),
    (128, 64, 64, 2, 2, 1, 2),
    (64, 128, 64, 2, 2, 1, 2),
    (64, 64, 64, 2, 2, 1, 4),
    (64, 64, 128, 2, 2, 1, 2),
    (64, 32, 128, 4, 1, 2, 1),
    (32, 64, 128, 2, 2, 2, 1),
    (32, 32, 128, 2, 1, 2, 1),
)
# LDS of 160 KiB holds two stages of every tile.
_TILES_160K: tuple[_Tile, ...] = (
    (256, 128, 64, 4, 2, 2, 2),
    (128, 256, 64, 2, 4, 2, 2),
    (128, 128, 64, 2, 2, 2, 2),
    (128, 64, 64, 2, 2, 2, 3),
    (64, 128, 64, 2, 2, 2, 3),
    (64, 64, 64, 2, 2, 2, 4),
    (64, 64, 128, 2, 2, 2, 2),
    (64, 32, 128, 4, 1, 2, 3),
    (32, 64, 128, 2, 2, 2, 3),
    (32, 32, 128, 2, 1, 2, 2),
)
# Above, tile_k is that of 16-bit types; other types have as many bytes of it. A transposed block of
# bytes is 4 vectors deep at least, so tiles of bytes have fewer threads, or twice the k; the first
# two of each list have it on the side of 256, and are for operands that need it on no other.
_BYTE_TILES_64K: tuple[_Tile, ...] = (
    (256, 128, 64, 4, 2, 1, 2),
    (128, 256, 64, 2, 4, 1, 2),
    (128, 128, 64, 2, 2, 1, 2),
    (128, 64, 128, 2, 2, 1, 1),
    (64, 128, 128, 2, 2, 1, 1),
    (64, 64, 128, 2, 2, 1, 2),
    (64, 32, 128, 2, 1, 1, 1),
    (32, 64, 128, 1, 2, 1, 1),
    (32, 32, 128, 2, 1, 2, 1),
)
_BYTE_TILES_160K: tuple[_Tile, ...] = (
    (256, 128, 64, 4, 2, 2, 2),
    (128, 256, 64, 2, 4, 2, 2),
    (128, 128, 64, 2, 2, 2, 2),
    (128, 64, 128, 2, 2, 1, 2),
    (64, 128, 128, 2, 2, 1, 2),
    (64, 64, 128, 2, 2, 2, 2),
    (64, 32, 128, 2, 1, 2, 1),
    (32, 64, 128, 1, 2, 2, 1),
    (32, 32, 128, 2, 1, 2, 2),
)
# The 16x16 and the 32x32 instruction of each type; for complex numbers, that of their parts.
_F32_MMA: tuple[MmaShape, ...] = ((16, 16, 4), (32, 32, 2))
_F64_MMA: tuple[MmaShape, ...] = ((16, 16, 4),)
_CDNA3_HALF_MMA: tuple[MmaShape, ...] = ((16, 16, 16), (32, 32, 8))
_CDNA4_HALF_MMA: tuple[MmaShape, ...] = ((16, 16, 32), (32, 32, 16))
_FLOAT8_MMA: tuple[MmaShape, ...] = ((16, 16, 32), (32, 32, 16))
MMA: dict[str, dict[DType, tuple[MmaShape, ...]]] = {
    "gfx90a": {
        "bf16": _CDNA3_HALF_MMA,
        "f16": _CDNA3_HALF_MMA,
        "f32": _F32_MMA,
        "f64": _F64_MMA,
        "c64": _F32_MMA,
        "c128": _F64_MMA,
        "i8": ((16, 16, 16), (32, 32, 8)),
    },
    "gfx942": {
        "bf16": _CDNA3_HALF_MMA,
        "f16": _CDNA3_HALF_MMA,
        "f32": _F32_MMA,
        "f64": _F64_MMA,
        "c64": _F32_MMA,
        "c128": _F64_MMA,
        "i8": ((16, 16, 32), (32, 32, 16)),
        "e4m3fnuz": _FLOAT8_MMA,
        "e5m2fnuz": _FLOAT8_MMA,
        "tf32": ((16, 16, 8), (32, 32, 4)),
    },
    "gfx950": {
        "bf16": _CDNA4_HALF_MMA,
        "f16": _CDNA4_HALF_MMA,
        "f32": _F32_MMA,
        "f64": _F64_MMA,
        "c64": _F32_MMA,
        "c128": _F64_MMA,
        "i8": ((16, 16, 64), (32, 32, 32)),
        "e4m3fn": _FLOAT8_MMA,
        "e5m2": _FLOAT8_MMA,
    },
}


def idle_cycles(config: GemmConfig) -> int:
    """Return the idle cycles of a step: its barriers and the latency of LDS behind them.

    About what 4-wave kernels of this shape lose on an MI300X, 10 to 13 % of 2048 cycles
    (ROCm/gfx950-gluon-tutorials), and a share for tiles that have less to hide it behind.
    """
    del config
    return 350


def tiles_ahead(config: GemmConfig) -> int:
    """Return the tiles on their way while one is multiplied: what the registers hold."""
    del config
    return 1


def _with_few_sums(tiles: Iterable[_Tile]) -> Iterator[_Tile]:
    """Yield the tiles whose waves have registers for sums of four dwords.

    A wave of 64x32 sums has 128 registers of them, which leaves room for two waves on a SIMD. Of
    32x32 sums three fit: with 128 registers each, four would spill.
    """
    for tile_m, tile_n, tile_k, waves_m, waves_n, num_stages, waves_per_simd in tiles:
        waves = 2 * 64 * 32 * waves_m * waves_n // (tile_m * tile_n)
        if waves >= 2:
            waves = min(waves, waves_per_simd, 3)
            yield tile_m, tile_n, tile_k, waves_m, waves_n, num_stages, waves


def configs(dtype: DType, arch: str) -> tuple[GemmConfig, ...]:
    """Return the configurations that are built for inputs of a type.

    Every tile with the 16x16 instruction, and two with the 32x32 one.
    """
    small_lds = ARCHS[arch].lds_bytes == 64 << 10
    if ITEMSIZE[dtype] == 1:
        tiles = _BYTE_TILES_64K if small_lds else _BYTE_TILES_160K
        large_mma_tiles = ((128, 128, 64), (64, 64, 128))
    else:
        tiles = _TILES_64K if small_lds else _TILES_160K
        large_mma_tiles = ((128, 128, 64), (64, 64, 64))
    configs = []
    if dtype == "c128":
        tiles = tuple(_with_few_sums(tiles))
    for mma_m, mma_n, mma_k in MMA[arch].get(dtype, ()):
        for tile_m, tile_n, tile_k, waves_m, waves_n, num_stages, waves_per_simd in tiles:
            if mma_m == 32 and (tile_m, tile_n, tile_k) not in large_mma_tiles:
                continue
            configs.append(
                GemmConfig(
                    NAME,
                    tile_m,
                    tile_n,
                    tile_k * 2 // ITEMSIZE[dtype],
                    waves_m,
                    waves_n,
                    mma_m,
                    mma_n,
                    mma_k,
                    num_stages,
                    waves_per_simd,
                )
            )
    return tuple(configs)
