"""Products with scales that change along k, in one launch on Hopper.

The tensor cores sum over 128 bytes of k, which belong to one block of each operand's scales. These
sums are scaled as they are added in fp32. Blocks are multiples of 128 elements of 8 bits along k.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

from cupygemm._backends.hopper.choice.select import HopperCandidate, HopperSelection, select
from cupygemm._backends.hopper.choice.tile_shapes import SCALED_CONFIGS
from cupygemm._backends.hopper.compilation.source import BlockScales
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
from cupygemm._backends.protocol import Runner
from cupygemm._backends.runners import BlockScaledLaunch, around
from cupygemm._backends.scales_and_groups import BlockScaling
from cupygemm._request.layout import Layout
from cupygemm._request.request import Request

BLOCK = SLAB_BYTES
"""The number of elements along k that share a scale is a multiple of this."""
SCALE_ARGS = struct.Struct("=QQqqiiiiIIII")
"""The struct ``BlockScaleArgs``.

In order: a, b, a_batch, b_batch, a_row, a_k, b_column, b_k, a_rows, b_columns, inverse, padding.
"""

_CORRECTED = "k is divided, since a single consumer scales while the tensor cores wait (modelled)"
_INVERSE = 1 << 31  # resolution of the inverse by which the kernel divides


def choose_scaled(layout: Layout, arch: HopperArch, scaling: BlockScaling) -> HopperChoice | None:
    """Return the kernels for a product with scales along k, or None.

    Raises
    ------
    ValueError
        No configuration can run.
    """
    if layout.problem.a_dtype not in FLOAT8 or layout.problem.batch:
        return None
    choice = choose(layout, arch)
    how, configs = scaled_configs(scaling)
    selection = select(choice.asked, arch, configs)
    best = min(selection.candidates, key=_scaled_cycles)
    if best.config != selection.config:
        selection = HopperSelection(best.config, _CORRECTED, selection.ranking)
    return replace(choice, by_sm=False, selection=selection, block_scales=how)


def _scaled_cycles(candidate: HopperCandidate) -> float:
    """Return the modelled cycles of a kernel with scales along k.

    The model describes kernels without such scales. A lone consumer leaves the tensor cores idle
    while it scales, so it is best to divide k a little more. With several consumers, a tile takes
    longer if fewer than 64 of its columns share a scale, and one of 256 rows also if the staging
    buffers do not hold its results (measured on an H200, 2026-11-29).
    """
    config, factor = candidate.config, 1.0
    if config.num_consumers == 1:
        divided = config.split_k > 1 or config.stream_k > 0
        return candidate.cycles * (0.94 if divided else 1.0)
    if config.tile_n % BLOCK_ROWS:
        factor += 0.06
    if config.tile_m == 256 and 2 * config.tile_m * config.tile_n > config.staging_bytes:
        factor += 0.02
    return candidate.cycles * factor


def scaled_configs(scaling: BlockScaling) -> tuple[BlockScales, tuple[HopperConfig, ...]]:
    """Return how the kernel reads scales, and its configurations."""
    how = BlockScales(by_column=scaling.columns % BLOCK_ROWS != 0, each_step=scaling.block == BLOCK)
    return how, tuple(SCALED_CONFIGS)


def make_block_scaled(request: Request, scaling: BlockScaling, arch: HopperArch) -> Runner | None:
    """Return the runner for operands with fp32 scales; None if no kernel supports them."""
    if not takes_scaling(scaling, request.shape.k) or not supports_types(request):
        return None
    placement = place_request(request)
    layout = placement.layout
    if layout.swapped:
        scaling = replace(scaling, rows=scaling.columns, columns=scaling.rows)
    try:
        choice = choose_scaled(layout, arch, scaling)
    except ValueError:  # no configuration can run
        return None
    if choice is None:
        return None
    product = make_product(choice)

    def launch(a: int, b: int, c: int, epilogue: bytes, of_a: Any, of_b: Any) -> None:
        product(a, b, c, epilogue, pack_scales(scaling, of_a, of_b))

    return around(request, placement, BlockScaledLaunch(placement, launch))


def takes_scaling(scaling: BlockScaling, k: int) -> bool:
    """Whether the kernels read scales of this kind for a product of extent k."""
    steps = scaling.block // BLOCK
    divides = min(steps, k // BLOCK) * (k // BLOCK) < _INVERSE  # exactly
    return scaling.kind == "float32" and scaling.block % BLOCK == 0 and divides


def pack_scales(scaling: BlockScaling, of_a: Any, of_b: Any) -> bytes:
    """Return ``BlockScaleArgs`` for scales, (rows or columns, blocks), or stacks of them."""
    (batch_a, *a), (batch_b, *b) = (_pitches(scale) for scale in (of_a, of_b))
    inverse = -(-_INVERSE // (scaling.block // BLOCK))
    return SCALE_ARGS.pack(
        of_a.data.ptr,
        of_b.data.ptr,
        batch_a,
        batch_b,
        *a,
        *b,
        scaling.rows,
        scaling.columns,
        inverse,
        0,
    )


def _pitches(scale: Any) -> tuple[int, int, int]:
    """Return the strides of scales along the batch, rows and blocks in elements; 0 for length 1."""
    shape, strides = (1, *scale.shape)[-3:], (0, *scale.strides)[-3:]
    batch, row, block = (s // 4 if n > 1 else 0 for n, s in zip(shape, strides, strict=True))
    return batch, row, block
