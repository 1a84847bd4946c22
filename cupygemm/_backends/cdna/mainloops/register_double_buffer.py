"""The mainloop that holds one tile in LDS and the next in registers: what it can do, and its tiles.

The device code is ``kernels/cdna/mainloop_register_double_buffer.hpp``. It takes every type and
every major, which makes it the one that any problem can fall back on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cupygemm._backends.cdna.arch import ARCHS, Arch
from cupygemm._backends.cdna.config import VECTOR_BYTES, WAVE_SIZE, GemmConfig
from cupygemm._backends.cdna.mainloops import lds_tiles
from cupygemm._backends.cdna.mainloops.lds_tiles import Tile
from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import GemmProblem

NAME = "register_double_buffer"
ROW_PARTS = 1
TAKES_BLOCK_SCALES = False

lds_bytes = lds_tiles.lds_bytes
lds_traffic = lds_tiles.lds_traffic


def check(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    """Return why the mainloop cannot run the configuration, or None if it can."""
    if config.num_stages not in (1, 2):
        return f"num_stages = {config.num_stages}: LDS holds one tile or two"
    return (
        _check_instruction(config, problem)
        or lds_tiles.check_tile(config, problem, arch)
        or lds_tiles.check_staging(config, problem, arch)
    )


def _check_instruction(config: GemmConfig, problem: GemmProblem) -> str | None:
    operand_bytes = config.mma_m * config.mma_k // WAVE_SIZE * ITEMSIZE[problem.a_dtype]
    if operand_bytes > VECTOR_BYTES:
        return (
            f"a lane of the {config.mma_m}x{config.mma_n}x{config.mma_k} instruction takes "
            f"{operand_bytes} bytes, and a step has {VECTOR_BYTES}"
        )
    return None


# -- The configurations that are built -------------------------------------------------------------

# tile_m, tile_n, tile_k, waves_m, waves_n, num_stages, waves_per_simd. LDS of 64 KiB: the large
# tiles share a CU by being two workgroups or eight waves, the skinny ones overlap their own steps.
_TILES_64K: tuple[Tile, ...] = (
    Tile(256, 128, 64, 4, 2, 1, 2),
    Tile(128, 256, 64, 2, 4, 1, 2),
    Tile(128, 128, 64, 2, 2, 1, 2),
    Tile(128, 64, 64, 2, 2, 1, 2),
    Tile(64, 128, 64, 2, 2, 1, 2),
    Tile(64, 64, 64, 2, 2, 1, 4),
    Tile(64, 64, 128, 2, 2, 1, 2),
    Tile(64, 32, 128, 4, 1, 2, 1),
    Tile(32, 64, 128, 2, 2, 2, 1),
    Tile(32, 32, 128, 2, 1, 2, 1),
)
# LDS of 160 KiB holds two stages of every tile.
_TILES_160K: tuple[Tile, ...] = (
    Tile(256, 128, 64, 4, 2, 2, 2),
    Tile(128, 256, 64, 2, 4, 2, 2),
    Tile(128, 128, 64, 2, 2, 2, 2),
    Tile(128, 64, 64, 2, 2, 2, 3),
    Tile(64, 128, 64, 2, 2, 2, 3),
    Tile(64, 64, 64, 2, 2, 2, 4),
    Tile(64, 64, 128, 2, 2, 2, 2),
    Tile(64, 32, 128, 4, 1, 2, 3),
    Tile(32, 64, 128, 2, 2, 2, 3),
    Tile(32, 32, 128, 2, 1, 2, 2),
)
# Above, tile_k is that of 16-bit types; other types have as many bytes of it. A transposed block of
# bytes is 4 vectors deep at least, so tiles of bytes have fewer threads, or twice the k; the first
# two of each list have it on the side of 256, and are for operands that need it on no other.
_BYTE_TILES_64K: tuple[Tile, ...] = (
    Tile(256, 128, 64, 4, 2, 1, 2),
    Tile(128, 256, 64, 2, 4, 1, 2),
    Tile(128, 128, 64, 2, 2, 1, 2),
    Tile(128, 64, 128, 2, 2, 1, 1),
    Tile(64, 128, 128, 2, 2, 1, 1),
    Tile(64, 64, 128, 2, 2, 1, 2),
    Tile(64, 32, 128, 2, 1, 1, 1),
    Tile(32, 64, 128, 1, 2, 1, 1),
    Tile(32, 32, 128, 2, 1, 2, 1),
)
_BYTE_TILES_160K: tuple[Tile, ...] = (
    Tile(256, 128, 64, 4, 2, 2, 2),
    Tile(128, 256, 64, 2, 4, 2, 2),
    Tile(128, 128, 64, 2, 2, 2, 2),
    Tile(128, 64, 128, 2, 2, 1, 2),
    Tile(64, 128, 128, 2, 2, 1, 2),
    Tile(64, 64, 128, 2, 2, 2, 2),
    Tile(64, 32, 128, 2, 1, 2, 1),
    Tile(32, 64, 128, 1, 2, 2, 1),
    Tile(32, 32, 128, 2, 1, 2, 2),
)


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


def _with_few_sums(tiles: Iterable[Tile]) -> Iterator[Tile]:
    """Yield the tiles whose waves have registers for sums of four dwords.

    A wave of 64x32 sums has 128 registers of them, which leaves room for two waves on a SIMD. Of
    32x32 sums three fit: with 128 registers each, four would spill.
    """
    for tile in tiles:
        waves = 2 * 64 * 32 * tile.waves_m * tile.waves_n // (tile.tile_m * tile.tile_n)
        if waves >= 2:
            yield tile._replace(waves_per_simd=min(waves, tile.waves_per_simd, 3))


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
    if dtype == "c128":
        tiles = tuple(_with_few_sums(tiles))
    return tuple(
        tile.config(NAME, mma, dtype)
        for mma in lds_tiles.MMA[arch].get(dtype, ())
        for tile in tiles
        if mma[0] == 16 or tile[:3] in large_mma_tiles
    )
