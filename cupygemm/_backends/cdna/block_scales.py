"""Products with exponents for blocks of 32 along k, by the scaled MFMA (OCP Microscaling).

The instruction multiplies 8-bit floats of any two formats, and 4-bit floats. It reads the exponents
from registers in a special order, so a small kernel packs those of each operand first
(`packed_factors`; ``kernels/cdna/block_scales.hpp`` reads them).
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from cupygemm._backends.cdna.arch import Arch
from cupygemm._backends.cdna.compile import compile_kernel
from cupygemm._backends.cdna.config import BLOCK_SCALED_MMA_K, WAVE_SIZE
from cupygemm._backends.cdna.kernel import Kernel, load
from cupygemm._backends.cdna.launch import BLOCK_SCALE_ARGS
from cupygemm._backends.cdna.requests import place_request, supports_types
from cupygemm._backends.cdna.select import select
from cupygemm._backends.protocol import Runner
from cupygemm._backends.runners import BlockScaledLaunch, around
from cupygemm._backends.scales_and_groups import BlockScaling
from cupygemm._request.microscaling import BLOCK
from cupygemm._request.request import Request

PACKED_ROWS = 64
"""Rows whose factors are packed together; a dword holds the factors of four rows."""
_ONE = 127

# Lane l has rows l % 16 of four fragments, which are LDS rows 16 apart (RowOrder, layout.hpp), and
# block l / 16 of the instruction's blocks.
_PACK = f"""
const int lane = i % {WAVE_SIZE}, step = i / {WAVE_SIZE} % steps, group = i / {WAVE_SIZE} / steps;
const int block = step * {BLOCK_SCALED_MMA_K // BLOCK} + lane / 16;
packed = 0;
for (int fragment = 0; fragment < 4; ++fragment) {{
    const int lds_row = 16 * fragment + lane % 16;
    const int row = group * {PACKED_ROWS} +
                    (lds_row & ~31 | (lds_row & 12) << 1 | lds_row >> 2 & 4 | lds_row & 3);
    ptrdiff_t at[2] = {{row, block}};
    const unsigned factor = row < rows && block < blocks ? factors[at] : {_ONE};
    packed |= factor << 8 * fragment;
}}
"""


def make_block_scaled(request: Request, scaling: BlockScaling, arch: Arch) -> Runner | None:
    """Return the runner for operands with exponents; None if no kernel supports them."""
    known = scaling.kind == "e8m0" and scaling.block == BLOCK and arch.block_scales
    if not known or not supports_types(request, arch):
        return None
    placement = place_request(request, arch)
    problem = replace(placement.layout.problem, block_scaled=True)
    if scaling.pairs:
        problem = replace(problem, a_dtype="e2m1x2", b_dtype="e2m1x2")
    try:
        config = select(problem, arch, reproducible=request.reproducible).config
    except ValueError:  # a limit, such as rows that are gigabytes apart
        return None
    placement = replace(placement, layout=replace(placement.layout, problem=problem))
    compiled = compile_kernel(problem, config, arch.name)
    kernel = Kernel(placement, config, compiled)
    (gemm,) = load(kernel)
    depth = BLOCK_SCALED_MMA_K // (2 if scaling.pairs else 1)  # bytes along k of an instruction
    steps = config.num_steps(problem) * (config.tile_k // depth)

    def launch(a: int, b: int, c: int, epilogue: bytes, rows: Any, columns: Any) -> None:
        packed = (
            packed_factors(rows, config.tile_m, steps),
            packed_factors(columns, config.tile_n, steps),
        )
        scales = np.zeros(1, BLOCK_SCALE_ARGS)
        scales["a"], scales["b"] = (x.data.ptr for x in packed)
        gemm(a, b, c, epilogue + scales.tobytes())

    return around(request, placement, BlockScaledLaunch(placement, launch))


@functools.cache
def _packer() -> Any:
    from cupy import ElementwiseKernel

    return ElementwiseKernel(
        "raw uint8 factors, int32 rows, int32 blocks, int32 steps",
        "uint32 packed",
        _PACK,
        "cupygemm_pack_factors",
    )


def packed_factors(factors: Any, tile_rows: int, steps: int) -> Any:
    """Return factors of shape (rows, blocks), with any strides, in the order that kernels read.

    Parameters
    ----------
    factors : cupy.ndarray
        The exponents, uint8.
    tile_rows : int
        The rows of a workgroup's tile. The result has factors for whole tiles.
    steps : int
        The number of instructions along k, for whole tiles.
    """
    import cupy

    rows, blocks = factors.shape
    groups = -(-rows // tile_rows) * tile_rows // PACKED_ROWS
    packed = cupy.empty(groups * steps * WAVE_SIZE, np.uint32)
    return _packer()(factors, rows, blocks, steps, packed)
