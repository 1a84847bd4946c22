"""The mainloop of two groups of waves that take turns at the matrix unit: its limits and tiles.

The device code is ``kernels/cdna/mainloop_ping_pong.hpp``. A workgroup occupies a whole CU: all 64
KiB of LDS, and 256 registers per lane. It is for large products, whose tiles fill the CUs.
"""

from __future__ import annotations

from cupygemm._backends.cdna.arch import ARCHS, SCALED_TYPES, Arch
from cupygemm._backends.cdna.config import DWORD_BYTES, GemmConfig
from cupygemm._backends.cdna.mainloops import lds_tiles
from cupygemm._records.dtypes import FLOAT8_NAMES, ITEMSIZE, DType
from cupygemm._records.problem import GemmProblem

NAME = "ping_pong"
ROW_BANDS = 2
TAKES_BLOCK_SCALES = True


lds_bytes = lds_tiles.lds_bytes
lds_traffic = lds_tiles.lds_traffic


def check(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    """Return why the mainloop cannot run the configuration, or None if it can."""
    return (
        _check_groups(config, problem, arch)
        or lds_tiles.check_tile(config, problem, arch)
        or lds_tiles.check_staging(config, problem, arch)
    )


def _check_groups(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    if (config.waves_m, config.waves_n) != (2, 4):
        return f"{config.waves_m}x{config.waves_n} waves: two groups that take turns are 2x4"
    if config.num_stages != 1:
        return f"num_stages = {config.num_stages}: the halves of one tile take turns in LDS"
    tile_bytes = config.tile_k * ITEMSIZE[problem.a_dtype]
    for name in ("a", "b"):
        align = getattr(problem, f"{name}_align")
        if align < DWORD_BYTES:
            return (
                f"{name} is aligned to {align} bytes: no register is left to shift rows that start "
                f"within {DWORD_BYTES}"
            )
    if tile_bytes != lds_tiles.SLAB_BYTES:
        return f"a tile is {tile_bytes} bytes deep, not {lds_tiles.SLAB_BYTES}"
    itemsize = ITEMSIZE[problem.a_dtype]
    transposes = any(
        major != "k" and not lds_tiles.transposed_by_reads(major, mma, itemsize, align, arch)
        for major, mma, align in (
            (problem.a_major, config.mma_m, problem.a_align),
            (problem.b_major, config.mma_n, problem.b_align),
        )
    )
    if config.stream_k and config.tile_m == 256 and transposes:
        return (
            f"a persistent grid of {config.tile_m}x{config.tile_n} tiles leaves no scalar register "
            f"to transpose A that is {problem.a_major}-major or B that is {problem.b_major}-major"
        )
    return None


# -- The configurations that are built -------------------------------------------------------------

# Sums in f64 and complex sums would need more registers than a wave has.
_TYPES: tuple[DType, ...] = ("bf16", "f16", "f32", "i8", *FLOAT8_NAMES, *SCALED_TYPES)


def idle_cycles(config: GemmConfig) -> int:
    """Return the idle cycles of a step: the release of its four barriers.

    8-wave kernels of this shape lose 0.6 to 3.3 % of 4096 cycles on an MI300X (AMD's Gluon
    tutorials, see `cupygemm.emulator.calibration.figures`).
    """
    del config
    return 80


def tiles_ahead(config: GemmConfig) -> int:
    """Return the tiles in flight while one is multiplied."""
    del config
    return 1


def configs(dtype: DType, arch: str) -> tuple[GemmConfig, ...]:
    """Return the configurations that are built for inputs of a type.

    With 64 KiB of LDS there is a tile of half the rows too. Where the MFMA rate is twice as high,
    the phases of such a tile would be too short to hide the reads of LDS.
    """
    if dtype not in _TYPES:
        return ()
    mma = ARCHS[arch].deepest_mma(dtype, 16)
    if mma is None:
        return ()
    tiles_m = (256, 128) if ARCHS[arch].lds_bytes == 64 << 10 else (256,)
    return tuple(
        GemmConfig(
            mainloop=NAME,
            tile_m=tile_m,
            tile_n=256,
            tile_k=lds_tiles.SLAB_BYTES // ITEMSIZE[dtype],
            waves_m=2,
            waves_n=4,
            mma_m=mma.m,
            mma_n=mma.n,
            mma_k=mma.k,
            num_stages=1,
            waves_per_simd=2,
        )
        for tile_m in tiles_m
    )
