"""The mainloop for at most 16 rows or columns: the long operand is loaded to registers once.

The device code is ``kernels/cdna/mainloop_direct_to_register.hpp``. The tile is 32 along the short
side, of which 16 are computed, and 128 or 256 along the long side. Each wave computes a slice of k.
"""

from __future__ import annotations

from cupygemm._backends.cdna.arch import ARCHS, SCALED_TYPES, Arch
from cupygemm._backends.cdna.config import VECTOR_BYTES, GemmConfig
from cupygemm._records.dtypes import COMPLEX_NAMES, ITEMSIZE, DType
from cupygemm._records.problem import GemmProblem

NAME = "direct_to_register"
ROW_BANDS = 1
TAKES_BLOCK_SCALES = False
SHORT = 16
"""The largest extent of the short side."""
SHORT_TILE = 32
STEP_BYTES = 64
"""The bytes of a row along k that one load of a wave reads."""
NUM_WAVES = 4
_LDS_PITCH = SHORT + 1


def check(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    """Return why the mainloop cannot run the configuration, or None if it can."""
    if problem.a_dtype in COMPLEX_NAMES:
        return f"{NAME} has no sums of two parts, as those of complex numbers"
    short = _short_side(config)
    if short is None:
        return (
            f"a tile of {config.tile_m} x {config.tile_n} with {config.waves_m} x {config.waves_n} "
            f"waves: {SHORT_TILE} and one wave on one side, {NUM_WAVES} waves on the other"
        )
    long = "n" if short == "m" else "m"
    if getattr(problem, short) > SHORT:
        return f"{short} = {getattr(problem, short)}: {NAME} is for at most {SHORT}"
    if (config.mma_m, config.mma_n) != (SHORT, SHORT):
        return f"a {config.mma_m}x{config.mma_n} instruction: the short side is {SHORT}"
    for name in ("a", "b"):
        align = getattr(problem, f"{name}_align")
        if align < 4:
            return f"{name} is aligned to {align} bytes: {NAME} reads rows that start at dwords"
    itemsize = ITEMSIZE[problem.a_dtype]
    if config.mma_k * itemsize > STEP_BYTES:
        return (
            f"a {config.mma} instruction takes "
            f"{config.mma_k * itemsize} bytes of a row, and a step has {STEP_BYTES}"
        )
    if config.tile_k * itemsize % (NUM_WAVES * STEP_BYTES):
        return f"tile_k = {config.tile_k} is not {NUM_WAVES} slices of steps of {STEP_BYTES} bytes"
    tile = getattr(config, f"tile_{long}")
    major = problem.a_major if long == "m" else problem.b_major
    rows = SHORT if major == "k" else SHORT * VECTOR_BYTES // itemsize
    if tile % max(rows, NUM_WAVES * SHORT_TILE):
        return f"tile_{long} = {tile} is not whole vectors of {rows} rows for {NUM_WAVES} waves"
    if lds_bytes(config, itemsize) > arch.lds_bytes:
        return f"the sums take {lds_bytes(config, itemsize)} bytes of LDS"
    return None


def _short_side(config: GemmConfig) -> str | None:
    if (config.tile_m, config.waves_m, config.waves_n) == (SHORT_TILE, 1, NUM_WAVES):
        return "m"
    if (config.tile_n, config.waves_n, config.waves_m) == (SHORT_TILE, 1, NUM_WAVES):
        return "n"
    return None


def lds_bytes(config: GemmConfig, itemsize: int) -> int:
    """Return the LDS of a workgroup: the sums of half its waves."""
    long = max(config.tile_m, config.tile_n)
    return NUM_WAVES // 2 * long * _LDS_PITCH * max(4, itemsize)


def lds_traffic(config: GemmConfig, itemsize: int) -> int:
    """Return 0: LDS is used only after the last step."""
    del config, itemsize
    return 0


def idle_cycles(config: GemmConfig) -> int:
    """Return the idle cycles of a step: the latency of a load that the next step does not hide."""
    del config
    return 350


def tiles_ahead(config: GemmConfig) -> int:
    """Return the tiles in flight while one is multiplied."""
    del config
    return 1


def configs(dtype: DType, arch: str) -> tuple[GemmConfig, ...]:
    """Return the configurations that are built for inputs of a type.

    The tile is 128 along the long side, with slices of two steps, which are lines of 128 bytes of
    k-major rows. For bytes there is a tile of 256 as well: 16 lanes read 256 bytes of one k.
    """
    # The deepest instruction that a step feeds. A deeper one may have a higher rate, but this one
    # is already faster than memory: a CU reads 128 bytes of the long operand per clock.
    mma = ARCHS[arch].deepest_mma(dtype, SHORT, operand_bytes=VECTOR_BYTES)
    if mma is None or dtype in (*COMPLEX_NAMES, *SCALED_TYPES):
        return ()
    found = []
    for long, steps in ((128, 2), (256, 1)):
        if long == 256 and ITEMSIZE[dtype] != 1:
            continue
        rows = _config(dtype, mma.k, steps, tile_m=SHORT_TILE, tile_n=long, waves_n=NUM_WAVES)
        columns = _config(dtype, mma.k, steps, tile_m=long, tile_n=SHORT_TILE, waves_m=NUM_WAVES)
        found += [rows, columns]
    return tuple(found)


def _config(
    dtype: DType,
    mma_k: int,
    steps: int,
    *,
    tile_m: int,
    tile_n: int,
    waves_m: int = 1,
    waves_n: int = 1,
) -> GemmConfig:
    itemsize = ITEMSIZE[dtype]
    return GemmConfig(
        mainloop=NAME,
        tile_m=tile_m,
        tile_n=tile_n,
        tile_k=NUM_WAVES * steps * STEP_BYTES // itemsize,
        waves_m=waves_m,
        waves_n=waves_n,
        mma_m=SHORT,
        mma_n=SHORT,
        mma_k=mma_k,
        num_stages=2,
        waves_per_simd=2 if itemsize in (2, 4) else 1,
    )
