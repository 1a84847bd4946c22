"""Which of the configurations in `tile_shapes` are built for a product.

`transposed_widths` has every width of some tiles, so that one of them fills the SMs evenly. The
selector ranks the configurations, and splits k.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from cupygemm._backends.hopper.choice.check import (
    check_registers,
    check_tall_tiles,
    ends_at_units,
)
from cupygemm._backends.hopper.choice.tile_shapes import (
    CONFIGS,
    F64_CONFIGS,
    NARROW_CONFIGS,
    PART_CONFIGS,
    PING_PONG_CONFIGS,
    SHORT_RANGES,
    TRANSPOSED_CONFIGS,
    TRANSPOSED_PART_CONFIGS,
    TRANSPOSED_PING_PONG_CONFIGS,
    TRANSPOSED_RANGES,
    TRANSPOSED_SHORT_RANGES,
)
from cupygemm._backends.hopper.config import FLOAT8, HopperConfig
from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import GemmProblem

_PROMOTED: tuple[DType, ...] = (*FLOAT8, "tf32x3")
"""Operands whose sums in the tensor cores would be less accurate than requested: of 14 bits or, if
fp32 is requested, truncated."""


@functools.cache
def transposed_widths() -> tuple[HopperConfig, ...]:
    """Return the configurations of `TRANSPOSED_RANGES` whose tiles the other tables lack."""
    present = {_tile_of(config) for config in (*TRANSPOSED_CONFIGS, *TRANSPOSED_PART_CONFIGS)}
    every = (config for row in TRANSPOSED_RANGES for config in row)
    return tuple(config for config in every if _tile_of(config) not in present)


@functools.cache
def short_widths() -> tuple[HopperConfig, ...]:
    """Return the configurations of `SHORT_RANGES` and `TRANSPOSED_SHORT_RANGES`."""
    return tuple(config for row in (*SHORT_RANGES, *TRANSPOSED_SHORT_RANGES) for config in row)


def _tile_of(config: HopperConfig) -> tuple[int, ...]:
    c = config
    tile = c.tile_m, c.tile_n, c.tile_k, c.cluster_m, c.cluster_n, c.cluster_k
    return *tile, c.transposed_c, c.ping_pong


@functools.cache
def configs_for(dtype: DType) -> tuple[HopperConfig, ...]:
    """Return the configurations for operands of a type; all types have the same bytes of tile_k."""
    if dtype == "f64":
        return tuple(F64_CONFIGS)
    size = ITEMSIZE[dtype]
    configs = tuple(
        replace(c, tile_k=c.tile_k * 2 // size)
        for c in CONFIGS
        if size < 4 or c.num_consumers < 3  # A may have to come from registers
    )
    if dtype not in _PROMOTED:
        return configs
    promoted = (replace(config, promote=True) for config in configs)
    return tuple(config for config in promoted if check_registers(config) is None)


@functools.cache
def in_turns(dtype: DType) -> tuple[HopperConfig, ...]:
    """Return the configurations whose consumers take turns, with the same bytes of k in a tile."""
    return tuple(
        replace(c, tile_k=c.tile_k * 2 // ITEMSIZE[dtype])
        for c in PING_PONG_CONFIGS
        if c.tile_n % 16 == 0
    )


def configs_for_product(asked: GemmProblem) -> tuple[HopperConfig, ...]:
    """Return the configurations that the selector considers for a product.

    For tf32 with a k-major A and a B that is not k-major, they compute the transpose of C, so that
    B need not be copied. For 16-bit operands, tiles may be narrower. If the result has 16 bits too,
    they may also compute the transpose, where A is k-major and in batches. Consumers may take turns
    in 16 bits, tf32 and int8, except for the tf32 products above.
    """
    configs = configs_for(asked.a_dtype)
    majors = (asked.a_major, asked.b_major)
    if (asked.a_dtype, *majors, asked.out_dtype) == ("tf32", "k", "n", "f32"):
        return tuple(
            replace(config, transposed_c=True)
            for config in configs
            if check_tall_tiles(config) is None  # the A of the transpose is in registers
        )
    if asked.a_dtype in ("tf32", "i8"):
        configs = (*configs, *in_turns(asked.a_dtype))
    if ITEMSIZE[asked.a_dtype] == 2:
        configs = (*configs, *NARROW_CONFIGS, *PING_PONG_CONFIGS, *PART_CONFIGS)
    if has_transposed_widths(asked):
        configs = (
            *configs,
            *TRANSPOSED_CONFIGS,
            *transposed_widths(),
            *TRANSPOSED_PING_PONG_CONFIGS,
            *TRANSPOSED_PART_CONFIGS,
        )
    if has_short_widths(asked):
        present = set(map(_tile_of, configs))
        by_tma = ends_at_units(asked)  # without it, tiles of the transpose are stored slowly
        configs += tuple(
            config
            for config in short_widths()
            if _tile_of(config) not in present and (by_tma or not config.transposed_c)
        )
    return configs


def has_short_widths(asked: GemmProblem) -> bool:
    """Return whether `short_widths` are among the configurations for a product."""
    return ITEMSIZE[asked.a_dtype] == 2 and bool(asked.batch)


def has_transposed_widths(asked: GemmProblem) -> bool:
    """Return whether `transposed_widths` are among the configurations for a product."""
    halves = ITEMSIZE[asked.a_dtype] == ITEMSIZE[asked.out_dtype] == 2
    return halves and asked.a_major == "k" and asked.epilogue is None
