"""Products with scales that change along k, in one launch on Hopper.

The tensor cores sum over 128 bytes of k, which lie in one block of each operand's scales. These
sums are scaled as they are added in fp32. Blocks are multiples of 128 elements of 8 bits along k.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

from cupygemm._backends.hopper.config import (
    BLOCK_ROWS,
    FLOAT8,
    SLAB_BYTES,
    HopperArch,
    HopperConfig,
)
from cupygemm._backends.hopper.plan import HopperChoice, choose
from cupygemm._backends.hopper.product import make_product
from cupygemm._backends.hopper.requests import place_request, supports_types
from cupygemm._backends.hopper.select import select
from cupygemm._backends.hopper.source import BlockScaling
from cupygemm._backends.hopper.tile_shapes import configs_for
from cupygemm._backends.protocol import BlockScaling as Scaling
from cupygemm._backends.protocol import Runner
from cupygemm._backends.runners import BlockScaledLaunch, around
from cupygemm._records.problem import GemmProblem
from cupygemm._request.layout import Layout
from cupygemm._request.request import Request

BLOCK = SLAB_BYTES
"""The number of elements along k that share a scale is a multiple of this."""
SCALE_ARGS = struct.Struct("=QQqqqqIIII")
"""The struct ``BlockScaleArgs``.

In order: a, b, a_row, a_k, b_column, b_k, a_rows, b_columns, steps, padding.
"""


def choose_scaled(layout: Layout, arch: HopperArch, columns: int) -> HopperChoice | None:
    """Return the kernels for a product in which `columns` columns of B share a scale, or None.

    Raises
    ------
    ValueError
        No configuration can run.
    """
    if layout.problem.a_dtype not in FLOAT8 or layout.problem.batch:
        return None
    choice = choose(layout, arch)
    how, configs = scaled_configs(choice.problem, columns)
    return replace(choice, selection=select(choice.asked, arch, configs), block_scales=how)


def scaled_configs(
    problem: GemmProblem, columns: int
) -> tuple[BlockScaling, tuple[HopperConfig, ...]]:
    """Return how the kernel reads scales that `columns` of B share, and its configurations."""
    how: BlockScaling = "columns" if columns % BLOCK_ROWS else "blocks"
    # The scales of each column are in registers. Larger blocks of sums leave too few registers for
    # them, and so do large clusters, whose blocks signal the end of a stage to more ranks.
    return how, tuple(
        config
        for config in configs_for(problem.a_dtype)
        if config.tile_k == BLOCK
        and (
            how == "blocks"
            or (
                config.tile_m == BLOCK_ROWS * config.num_consumers
                and config.tile_n <= 128
                and config.cluster_size <= 2
            )
        )
    )


def make_block_scaled(request: Request, scaling: Scaling, arch: HopperArch) -> Runner | None:
    """Return the runner for operands with scales of fp32; None if no kernel takes them."""
    if scaling.kind != "float32" or scaling.block % BLOCK or not supports_types(request):
        return None
    placement = place_request(request)
    layout = placement.layout
    shared = (scaling.rows, scaling.columns)
    rows_of_a, columns_of_b = shared[::-1] if layout.swapped else shared
    try:
        choice = choose_scaled(layout, arch, columns_of_b)
    except ValueError:  # no configuration can run
        return None
    if choice is None:
        return None
    product, steps = make_product(choice), scaling.block // BLOCK

    def launch(a: int, b: int, c: int, epilogue: bytes, of_a: Any, of_b: Any) -> None:
        places = of_a.data.ptr, of_b.data.ptr, *_pitches(of_a), *_pitches(of_b)
        scales = SCALE_ARGS.pack(*places, rows_of_a, columns_of_b, steps, 0)
        product(a, b, c, epilogue, scales)

    return around(request, placement, BlockScaledLaunch(placement, launch))


def _pitches(scale: Any) -> tuple[int, int]:
    """Return the strides of an array of scales in elements; 0 along an axis of length 1."""
    (rows, blocks), (pitch, step) = scale.shape, scale.strides
    return pitch // 4 if rows > 1 else 0, step // 4 if blocks > 1 else 0
