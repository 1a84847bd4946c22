"""The mainloop whose loads go straight from global memory to LDS: what it can do, and its tiles.

The device code is ``kernels/cdna/mainloop_direct_to_lds.hpp``. No registers hold a tile on its way,
so LDS may be a ring of several, and the waves have registers for the largest of tiles. It is for
gfx950, which moves 16 bytes a lane and transposes what it reads from LDS. gfx90a and gfx942 move a
dword, and transpose nothing: there it serves K-major operands whose tiles are few, where the length
of the ring hides latency. Complex numbers would gain nothing: they take four times the MFMA, and
register_double_buffer's loop counts 95 % and more for them as it is.
"""

from __future__ import annotations

from cupygemm._backends.cdna.arch import ARCHS, Arch
from cupygemm._backends.cdna.config import VECTOR_BYTES, WAVE_SIZE, GemmConfig
from cupygemm._backends.cdna.mainloops import lds_tiles
from cupygemm._backends.cdna.mainloops.lds_tiles import Tile
from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import GemmProblem

NAME = "direct_to_lds"
ROW_PARTS = 1
TAKES_BLOCK_SCALES = False
LOADS_IN_FLIGHT = 63
"""Loads of a wave that it can tell apart when it waits: vmcnt has 6 bits."""
lds_bytes = lds_tiles.lds_bytes
lds_traffic = lds_tiles.lds_traffic  # loads to LDS write as much as LDS instructions would
PERSISTENT_LOADS = 6
"""Loads of a thread for a tile beside which a persistent grid's state has registers."""
_COMPLEX = ("c64", "c128")


def check(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    """Return why the mainloop cannot run the configuration, or None if it can."""
    return (
        lds_tiles.check_tile(config, problem, arch)
        or _check_ring(config, problem, arch)
        or _check_operands(config, problem, arch)
    )


def num_loads(config: GemmConfig, itemsize: int, arch: Arch) -> int:
    """Return the loads of a thread for a tile of both operands."""
    stage = lds_bytes(config, itemsize) // config.num_stages
    return stage // (config.num_threads * arch.direct_load_bytes)


def _check_ring(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    itemsize = ITEMSIZE[problem.a_dtype]
    if config.num_stages < 2:
        return f"num_stages = {config.num_stages}: one tile is read while another is loaded"
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
                f"{name} is {major}-major: only gfx950 transposes what it reads from LDS, and only "
                f"16-bit elements"
            )
        if wave_rows % lds_tiles.ROW_BLOCK:
            return (
                f"{name} is {major}-major, and a wave's {wave_rows} rows are not blocks of "
                f"{lds_tiles.ROW_BLOCK}"
            )
    return None


def idle_cycles(config: GemmConfig) -> int:
    """Return the idle cycles of a step: its barrier, and LDS latency where a SIMD has one wave.

    Computed from the instructions of the loops (`cupygemm.emulator.profile_loop`).
    """
    return 100 if config.num_threads >= 2 * 4 * WAVE_SIZE else 200


def tiles_ahead(config: GemmConfig) -> int:
    """Return the tiles on their way while one is multiplied: the rest of the ring."""
    return config.num_stages - 1


# -- The configurations that are built -------------------------------------------------------------

# tile_m, tile_n, tile_k, waves_m, waves_n, num_stages, waves_per_simd; tile_k is that of 16-bit
# types, and other types have as many bytes of it. Those of 160 KiB of LDS: one workgroup of eight
# waves, or two or three of four, and rings as long as fit.
_TILES_160K: tuple[Tile, ...] = (
    Tile(256, 256, 64, 2, 4, 2, 2),
    Tile(256, 128, 64, 4, 2, 3, 2),
    Tile(128, 256, 64, 2, 4, 3, 2),
    Tile(128, 128, 64, 2, 2, 2, 2),
    Tile(128, 64, 64, 2, 2, 3, 2),
    Tile(64, 128, 64, 2, 2, 3, 2),
    Tile(64, 64, 64, 2, 2, 3, 3),
    Tile(64, 64, 64, 2, 2, 5, 2),
    Tile(64, 32, 128, 4, 1, 3, 2),
    Tile(32, 64, 128, 1, 2, 3, 1),
    Tile(32, 32, 128, 2, 1, 5, 1),
)
# Of 64 KiB: one workgroup, for problems that have no second for each CU.
_TILES_64K: tuple[Tile, ...] = (Tile(64, 64, 64, 2, 2, 4, 1),)
# Tiles that come with the 32x32 instruction too. (256x256 would spill under a full epilogue.)
_LARGE_MMA_TILES = ((128, 128),)


def configs(dtype: DType, arch: str) -> tuple[GemmConfig, ...]:
    """Return the configurations that are built for inputs of a type."""
    wide = ARCHS[arch].direct_load_bytes == VECTOR_BYTES
    if dtype in _COMPLEX or (not wide and ITEMSIZE[dtype] not in (2, 4)):
        return ()
    tiles = _TILES_160K if wide else _TILES_64K
    if dtype == "f64":  # the sums of 256x256 fill all registers
        tiles = tuple(tile for tile in tiles if tile[:2] != (256, 256))
    return tuple(
        tile.config(NAME, mma, dtype)
        for mma in lds_tiles.MMA[arch].get(dtype, ())
        for tile in tiles
        if mma[0] == 16 or tile[:2] in _LARGE_MMA_TILES
    )
