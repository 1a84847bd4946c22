"""The configurations of Hopper's kernels that are built: tiles, rings and clusters.

One table is of 16-bit operands, whose configurations take as many bytes of k for operands of 8 and
32 bits. Two are of widths between those of the first, the second of these of kernels that compute
the transpose, and a fourth of fp64. The selector ranks them, and cuts k.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from cupygemm._backends.hopper.config import FLOAT8, HopperConfig, check_registers
from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import GemmProblem

PROMOTED: tuple[DType, ...] = (*FLOAT8, "tf32x3")
"""Operands whose sums the tensor cores would keep less exactly than is asked for: in 14 bits, or,
where fp32 is asked for, without rounding."""
Shape = tuple[int, int, int, int, int, int, int, int]
# tile_m, tile_n, tile_k, consumers, stages, epilogue buffers, cluster_m, cluster_n
_SHAPES: tuple[Shape, ...] = (
    (128, 256, 64, 2, 4, 2, 1, 1),
    (128, 256, 64, 2, 4, 2, 2, 1),
    (256, 128, 64, 2, 4, 2, 1, 1),
    (256, 128, 64, 2, 4, 2, 1, 2),
    (128, 128, 64, 2, 6, 2, 2, 1),
    (128, 128, 64, 2, 6, 2, 1, 2),
    (128, 128, 64, 2, 6, 2, 1, 1),
    (128, 128, 64, 2, 6, 2, 1, 4),
    (128, 128, 64, 2, 6, 2, 4, 1),
    (128, 128, 64, 2, 6, 2, 2, 4),
    (128, 192, 64, 2, 4, 2, 1, 1),
    (128, 192, 64, 2, 4, 2, 2, 1),
    (128, 192, 64, 2, 4, 2, 1, 2),
    (192, 128, 64, 3, 4, 2, 1, 1),
    (192, 128, 64, 3, 4, 2, 2, 1),
    (192, 192, 64, 3, 4, 1, 2, 1),
    (64, 128, 64, 1, 8, 2, 2, 1),
    (64, 128, 64, 1, 8, 2, 1, 1),
    (64, 128, 64, 1, 8, 2, 4, 1),
    (64, 128, 64, 1, 8, 2, 4, 2),
    (128, 64, 64, 2, 8, 2, 1, 1),
    (128, 64, 64, 2, 8, 2, 2, 1),
    (128, 64, 64, 2, 8, 2, 1, 4),
    (64, 64, 64, 1, 13, 1, 1, 1),
    (64, 64, 64, 1, 13, 1, 2, 4),
    (64, 64, 64, 1, 12, 2, 4, 1),
    (64, 64, 128, 1, 6, 1, 1, 1),
    (64, 64, 128, 1, 6, 1, 1, 2),
    (64, 64, 128, 1, 6, 1, 1, 4),
)
_NARROW_SHAPES: tuple[Shape, ...] = (
    (64, 32, 64, 1, 13, 2, 1, 1),
    (64, 32, 64, 1, 13, 2, 1, 2),
    (64, 32, 64, 1, 13, 2, 1, 4),
    (64, 96, 64, 1, 8, 2, 1, 4),
    (64, 96, 64, 1, 8, 2, 2, 1),
    (64, 96, 64, 1, 8, 2, 2, 4),
    (64, 96, 64, 1, 8, 2, 4, 1),
    (64, 160, 64, 1, 6, 2, 4, 1),
    (64, 224, 64, 1, 5, 2, 4, 1),
    (128, 96, 64, 2, 6, 2, 1, 4),
    (128, 160, 64, 2, 5, 1, 1, 2),
    (128, 160, 64, 2, 5, 1, 1, 4),
    (128, 160, 64, 2, 5, 1, 2, 1),
    (128, 160, 64, 2, 5, 1, 2, 4),
    (128, 160, 64, 2, 5, 1, 4, 1),
    (128, 224, 64, 2, 4, 2, 1, 2),
    (128, 224, 64, 2, 4, 2, 2, 1),
    (192, 96, 64, 3, 5, 1, 1, 1),
    (192, 96, 64, 3, 5, 1, 1, 4),
    (192, 160, 64, 3, 4, 1, 1, 2),
    (192, 160, 64, 3, 4, 1, 2, 1),
    (256, 160, 64, 2, 3, 2, 1, 1),
)
_TURNED_SHAPES: tuple[Shape, ...] = (
    (64, 16, 64, 1, 13, 2, 1, 1),
    (64, 32, 64, 1, 13, 2, 4, 1),
    (64, 48, 64, 1, 13, 2, 4, 1),
    (64, 64, 64, 1, 12, 2, 1, 4),
    (64, 80, 64, 1, 11, 2, 4, 1),
    (64, 96, 64, 1, 10, 2, 1, 2),
    (64, 96, 64, 1, 10, 2, 4, 1),
    (64, 112, 64, 1, 9, 2, 1, 4),
    (64, 152, 64, 1, 7, 2, 4, 1),
    (128, 80, 64, 2, 7, 2, 1, 4),
    (128, 96, 64, 2, 6, 2, 1, 2),
    (128, 96, 64, 2, 6, 2, 1, 4),
    (128, 96, 64, 2, 6, 2, 4, 2),
    (128, 104, 64, 2, 6, 2, 1, 4),
    (128, 112, 64, 2, 6, 2, 1, 2),
    (128, 112, 64, 2, 6, 2, 1, 4),
    (128, 120, 64, 2, 6, 2, 1, 2),
    (128, 136, 64, 2, 6, 1, 1, 2),
    (128, 144, 64, 2, 5, 2, 1, 2),
    (128, 144, 64, 2, 6, 1, 2, 2),
    (128, 152, 64, 2, 6, 1, 1, 2),
    (128, 160, 64, 2, 5, 2, 1, 2),
    (128, 160, 64, 2, 5, 2, 2, 1),
    (128, 160, 64, 2, 5, 2, 2, 4),
    (128, 160, 64, 2, 5, 2, 4, 1),
    (128, 168, 64, 2, 5, 2, 1, 2),
    (128, 168, 64, 2, 5, 2, 2, 1),
    (128, 176, 64, 2, 5, 2, 2, 1),
    (128, 184, 64, 2, 5, 1, 1, 2),
    (128, 200, 64, 2, 5, 1, 2, 1),
    (128, 208, 64, 2, 4, 2, 2, 1),
    (128, 216, 64, 2, 4, 2, 1, 1),
    (128, 224, 64, 2, 4, 2, 2, 1),
    (192, 88, 64, 3, 5, 2, 1, 4),
    (192, 136, 64, 3, 4, 2, 1, 2),
    (192, 144, 64, 3, 4, 2, 1, 2),
    (192, 152, 64, 3, 4, 2, 1, 2),
    (192, 160, 64, 3, 4, 1, 1, 2),
    (192, 176, 64, 3, 4, 1, 1, 2),
    (256, 136, 64, 2, 4, 1, 1, 2),
    (256, 152, 64, 2, 4, 1, 1, 2),
    (256, 160, 64, 2, 4, 1, 1, 2),
)
# Sums of fp64 take two registers each, so tiles are half as large.
_F64_SHAPES: tuple[Shape, ...] = (
    (128, 128, 32, 2, 3, 1, 1, 1),
    (192, 64, 32, 3, 3, 1, 1, 1),
    (128, 64, 32, 2, 4, 1, 1, 1),
    (64, 64, 32, 1, 5, 2, 1, 1),
)
_GROUP_ROWS = 2048  # of C that the raster walks down: about as many columns are then in flight


def _of_shapes(shapes: tuple[Shape, ...]) -> tuple[HopperConfig, ...]:
    """Return the configurations of shapes; the raster follows from them."""
    return tuple(
        HopperConfig(*shape, group_m=_GROUP_ROWS // (shape[0] * shape[6])) for shape in shapes
    )


CONFIGS = _of_shapes(_SHAPES)
"""Of 16-bit operands, and results as they lie."""
NARROW_CONFIGS = _of_shapes(_NARROW_SHAPES)
"""Of 16-bit operands, with last boxes of B and C that are narrower than others."""
TURNED_CONFIGS = tuple(replace(config, c_turned=True) for config in _of_shapes(_TURNED_SHAPES))
"""Of 16-bit operands, and the transpose of results."""


@functools.cache
def configs_for(dtype: DType) -> tuple[HopperConfig, ...]:
    """Return the configurations for operands of a type: as many bytes of k in a tile."""
    if dtype == "f64":
        return tuple(replace(config, mma_sync=True) for config in _of_shapes(_F64_SHAPES))
    size = ITEMSIZE[dtype]
    configs = tuple(
        replace(c, tile_k=c.tile_k * 2 // size)
        for c in CONFIGS
        if size < 4 or c.num_consumers < 3  # A may have to come from registers
    )
    if dtype not in PROMOTED:
        return configs
    promoted = (replace(config, promote=True) for config in configs)
    return tuple(config for config in promoted if check_registers(config) is None)


def configs_for_product(asked: GemmProblem) -> tuple[HopperConfig, ...]:
    """Return the configurations that come into question for a product.

    Where B alone lies across k, those of tf32 are turned, lest it be copied. Those of 16 bits may
    be narrower, and turned if both the result has as many and A lies along k.
    """
    configs = configs_for(asked.a_dtype)
    majors = (asked.a_major, asked.b_major)
    if (asked.a_dtype, *majors, asked.out_dtype) == ("tf32", "k", "n", "f32"):
        return tuple(replace(config, c_turned=True) for config in configs)
    if ITEMSIZE[asked.a_dtype] == 2:
        configs += NARROW_CONFIGS
        if ITEMSIZE[asked.out_dtype] == 2 and asked.a_major == "k" and asked.epilogue is None:
            configs += TURNED_CONFIGS
    return configs
