"""The mainloop whose loads go from global memory to LDS directly: its limits and its tiles.

The device code is ``kernels/cdna/mainloop_direct_to_lds.hpp``. Tiles do not pass through registers,
so LDS can hold a ring of several tiles, and the waves have registers for the largest tiles. The
mainloop is meant for architectures that load 16 bytes a lane and transpose as they read LDS. On
other architectures, which load a dword and do not transpose, it serves k-major operands with few
tiles, for which the long ring hides latency. Complex numbers would gain nothing: they need four
times the MFMA, and the loop of register_double_buffer reaches 95 % issue efficiency and more for
them.
"""

from __future__ import annotations

from cupygemm._backends.cdna.arch import ARCHS, Arch
from cupygemm._backends.cdna.config import VECTOR_BYTES, WAVE_SIZE, GemmConfig
from cupygemm._backends.cdna.mainloops import lds_tiles
from cupygemm._backends.cdna.mainloops.lds_tiles import Tile
from cupygemm._backends.config_table import ConfigTable
from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import GemmProblem

NAME = "direct_to_lds"
ROW_BANDS = 1
TAKES_BLOCK_SCALES = False
LOADS_IN_FLIGHT = 63
"""The most loads of a wave in flight: the counter vmcnt has 6 bits."""
lds_bytes = lds_tiles.lds_bytes
lds_traffic = lds_tiles.lds_traffic  # loads to LDS write as much as LDS instructions would
PERSISTENT_LOADS = 6
"""The most loads of a thread for a tile that leave registers for the state of a persistent grid."""
_COMPLEX = ("c64", "c128")


def check(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    """Return why the mainloop cannot run the configuration, or None if it can."""
    return (
        lds_tiles.check_tile(config, problem, arch)
        or _check_ring(config, problem, arch)
        or _check_operands(config, problem, arch)
    )


def num_loads(config: GemmConfig, itemsize: int, arch: Arch) -> int:
    """Return the number of loads of a thread for one tile of each operand."""
    stage = lds_bytes(config, itemsize) // config.num_stages
    return stage // (config.num_threads * arch.direct_load_bytes)


def _check_ring(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    itemsize = ITEMSIZE[problem.a_dtype]
    if config.num_stages < 2:
        return f"num_stages = {config.num_stages}: {NAME} needs 2 or more"
    if problem.a_dtype in _COMPLEX:
        return f"{problem.a_dtype} operands are staged in registers"
    if itemsize > arch.direct_load_bytes:
        return (
            f"{problem.a_dtype} has {itemsize} bytes, and a lane loads {arch.direct_load_bytes} "
            f"straight to LDS on {arch.name}"
        )
    if arch.direct_load_bytes != VECTOR_BYTES and itemsize == 1:
        return (
            f"{problem.a_dtype}: the ragged tile of bytes, a dword at a time, takes more scalar "
            f"registers than there are on {arch.name}"
        )
    unit = config.num_threads * arch.direct_load_bytes
    for name, rows in (("A", config.tile_m), ("B", config.tile_n)):
        if rows * config.tile_k * itemsize % unit:
            return f"a tile of {name}, {rows} x {config.tile_k}, is not whole loads of all threads"
    if config.num_threads < 2 * WAVE_SIZE:
        return f"{config.num_threads} threads: a tile is loaded by two waves at least"
    sums = config.tile_m * config.tile_n // config.num_threads * max(itemsize // 4, 1)
    if 2 * sums * config.waves_per_simd > arch.registers_per_simd:
        return f"the sums of a lane take {sums} registers, and leave too few for anything else"
    loads = num_loads(config, itemsize, arch)
    in_flight = (config.num_stages - 1) * loads
    if in_flight > LOADS_IN_FLIGHT:
        return f"{in_flight} loads on their way: a wave counts to {LOADS_IN_FLIGHT}"
    if config.stream_k and loads > PERSISTENT_LOADS:
        return (
            f"{loads} loads of a tile, each with an offset in a scalar register: a persistent grid "
            f"leaves {PERSISTENT_LOADS}"
        )
    chunks = config.tile_k * itemsize // VECTOR_BYTES
    if chunks // (WAVE_SIZE // config.mma_m) % 2:
        return f"tile_k = {config.tile_k} is an odd number of steps of the instruction"
    return None


def _check_operands(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    itemsize = ITEMSIZE[problem.a_dtype]
    need = arch.direct_load_bytes
    for name, major, align, wave_rows in (
        ("A", problem.a_major, problem.a_align, config.tile_m // config.waves_m),
        ("B", problem.b_major, problem.b_align, config.tile_n // config.waves_n),
    ):
        if align < need:
            return (
                f"{name} is aligned to {align} bytes: loads straight to LDS take {need} on "
                f"{arch.name}"
            )
        if major == "k":
            continue
        if need != VECTOR_BYTES or itemsize != 2:
            return (
                f"{name} is {major}-major: {NAME} cannot transpose elements of {itemsize} bytes as "
                f"it reads them from LDS on {arch.name}"
            )
        if wave_rows % lds_tiles.ROW_BLOCK:
            return (
                f"{name} is {major}-major, and a wave's {wave_rows} rows are not blocks of "
                f"{lds_tiles.ROW_BLOCK}"
            )
    return None


def idle_cycles(config: GemmConfig) -> int:
    """Return the idle cycles of a step: its barrier and, if a SIMD has one wave, LDS latency.

    They were computed from the instructions of the loops (`cupygemm.emulator.profile_loop`).
    """
    return 100 if config.num_threads >= 2 * 4 * WAVE_SIZE else 200


def tiles_ahead(config: GemmConfig) -> int:
    """Return the tiles in flight while one is multiplied: the rest of the ring."""
    return config.num_stages - 1


# -- The configurations that are built -------------------------------------------------------------

# For 160 KiB of LDS: one workgroup of eight waves or two or three of four, with the longest rings
# that fit. 256x256 has no 32x32 instruction because it would spill under a full epilogue.
_TILES_160K = ConfigTable(
    "direct_to_lds._TILES_160K",
    Tile,
    """
    tile_m  tile_n  tile_k  waves_m  waves_n  num_stages  waves_per_simd  largest_mma
       256     256      64        2        4           2               2           16
       256     128      64        4        2           3               2           16
       128     256      64        2        4           3               2           16
       128     128      64        2        2           2               2           32
       128      64      64        2        2           3               2           16
        64     128      64        2        2           3               2           16
        64      64      64        2        2           3               3           16
        64      64      64        2        2           5               2           16
        64      32     128        4        1           3               2           16
        32      64     128        1        2           3               1           16
        32      32     128        2        1           5               1           16
    """,
)
# For 64 KiB: one workgroup, for problems with at most one workgroup per CU.
_TILES_64K = ConfigTable(
    "direct_to_lds._TILES_64K",
    Tile,
    """
    tile_m  tile_n  tile_k  waves_m  waves_n  num_stages  waves_per_simd  largest_mma
        64      64      64        2        2           4               1           16
    """,
)


def configs(dtype: DType, arch: str) -> tuple[GemmConfig, ...]:
    """Return the configurations that are built for inputs of a type."""
    wide = ARCHS[arch].direct_load_bytes == VECTOR_BYTES
    if dtype in _COMPLEX or (not wide and ITEMSIZE[dtype] not in (2, 4)):
        return ()
    tiles = tuple(_TILES_160K if wide else _TILES_64K)
    if dtype == "f64":  # the sums of 256x256 would fill all registers
        tiles = tuple(tile for tile in tiles if (tile.tile_m, tile.tile_n) != (256, 256))
    return lds_tiles.configs_of(NAME, tiles, dtype, ARCHS[arch])
