"""The mainloop that holds one tile in LDS and the next in registers: its limits and its tiles.

The device code is ``kernels/cdna/mainloop_register_double_buffer.hpp``. It supports every type and
major, so any problem can fall back on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from cupygemm._backends.cdna.arch import ARCHS, Arch
from cupygemm._backends.cdna.config import VECTOR_BYTES, WAVE_SIZE, GemmConfig
from cupygemm._backends.cdna.mainloops import lds_tiles
from cupygemm._backends.cdna.mainloops.lds_tiles import Tile
from cupygemm._backends.config_table import ConfigTable
from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import GemmProblem

NAME = "register_double_buffer"
ROW_BANDS = 1
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
            f"a lane of the {config.mma} instruction takes "
            f"{operand_bytes} bytes, and a step has {VECTOR_BYTES}"
        )
    return None


# -- The configurations that are built -------------------------------------------------------------

# For 64 KiB of LDS. Two workgroups with large tiles share a CU, or one of eight waves occupies it
# alone. Skinny tiles overlap their own steps.
_TILES_64K = ConfigTable(
    "register_double_buffer._TILES_64K",
    Tile,
    """
    tile_m  tile_n  tile_k  waves_m  waves_n  num_stages  waves_per_simd  largest_mma
       256     128      64        4        2           1               2           16
       128     256      64        2        4           1               2           16
       128     128      64        2        2           1               2           32
       128      64      64        2        2           1               2           16
        64     128      64        2        2           1               2           16
        64      64      64        2        2           1               4           32
        64      64     128        2        2           1               2           16
        64      32     128        4        1           2               1           16
        32      64     128        2        2           2               1           16
        32      32     128        2        1           2               1           16
    """,
)
# For 160 KiB of LDS, which hold two stages of every tile.
_TILES_160K = ConfigTable(
    "register_double_buffer._TILES_160K",
    Tile,
    """
    tile_m  tile_n  tile_k  waves_m  waves_n  num_stages  waves_per_simd  largest_mma
       256     128      64        4        2           2               2           16
       128     256      64        2        4           2               2           16
       128     128      64        2        2           2               2           32
       128      64      64        2        2           2               3           16
        64     128      64        2        2           2               3           16
        64      64      64        2        2           2               4           32
        64      64     128        2        2           2               2           16
        64      32     128        4        1           2               3           16
        32      64     128        2        2           2               3           16
        32      32     128        2        1           2               2           16
    """,
)
# For types of one byte. A transposed block of bytes is at least four vectors deep, so these tiles
# have fewer threads, or twice the k. The first two tiles of each table are deep enough only along
# their side of 256, so they require an operand without transposition along the other side.
_BYTE_TILES_64K = ConfigTable(
    "register_double_buffer._BYTE_TILES_64K",
    Tile,
    """
    tile_m  tile_n  tile_k  waves_m  waves_n  num_stages  waves_per_simd  largest_mma
       256     128      64        4        2           1               2           16
       128     256      64        2        4           1               2           16
       128     128      64        2        2           1               2           32
       128      64     128        2        2           1               1           16
        64     128     128        2        2           1               1           16
        64      64     128        2        2           1               2           32
        64      32     128        2        1           1               1           16
        32      64     128        1        2           1               1           16
        32      32     128        2        1           2               1           16
    """,
)
_BYTE_TILES_160K = ConfigTable(
    "register_double_buffer._BYTE_TILES_160K",
    Tile,
    """
    tile_m  tile_n  tile_k  waves_m  waves_n  num_stages  waves_per_simd  largest_mma
       256     128      64        4        2           2               2           16
       128     256      64        2        4           2               2           16
       128     128      64        2        2           2               2           32
       128      64     128        2        2           1               2           16
        64     128     128        2        2           1               2           16
        64      64     128        2        2           2               2           32
        64      32     128        2        1           2               1           16
        32      64     128        1        2           2               1           16
        32      32     128        2        1           2               2           16
    """,
)


def idle_cycles(config: GemmConfig) -> int:
    """Return the idle cycles of a step: its barriers, and the LDS latency after them.

    4-wave kernels of this shape lose 10 to 13 % of 2048 cycles on an MI300X (AMD's Gluon tutorials,
    see `cupygemm.emulator.calibration.figures`). The figure is increased for tiles that hide less
    of the latency.
    """
    del config
    return 350


def tiles_ahead(config: GemmConfig) -> int:
    """Return the tiles in flight while one is multiplied: the one in registers."""
    del config
    return 1


def _with_few_sums(tiles: Iterable[Tile]) -> Iterator[Tile]:
    """Yield the tiles whose waves have enough registers for sums of four dwords.

    A wave with 64x32 sums needs 128 registers for them, which leaves room for two waves on a SIMD.
    With 32x32 sums three waves fit; four would have 128 registers each and spill.
    """
    for tile in tiles:
        waves = 2 * 64 * 32 * tile.waves_m * tile.waves_n // (tile.tile_m * tile.tile_n)
        if waves >= 2:
            yield replace(tile, waves_per_simd=min(waves, tile.waves_per_simd, 3))


def configs(dtype: DType, arch: str) -> tuple[GemmConfig, ...]:
    """Return the configurations that are built for inputs of a type.

    All tiles come with the 16x16 instruction, and two of them with the 32x32 one as well.
    """
    small_lds = ARCHS[arch].lds_bytes == 64 << 10
    tiles: Iterable[Tile]
    if ITEMSIZE[dtype] == 1:
        tiles = _BYTE_TILES_64K if small_lds else _BYTE_TILES_160K
    else:
        tiles = _TILES_64K if small_lds else _TILES_160K
    if dtype == "c128":
        tiles = _with_few_sums(tiles)
    return lds_tiles.configs_of(NAME, tiles, dtype, ARCHS[arch])
