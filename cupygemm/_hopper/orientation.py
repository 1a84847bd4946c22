"""A product as a Hopper kernel computes it: its operands in the orders that wgmma reads.

A kernel that is turned computes the transpose of C, from B and A. wgmma reads 16-bit operands in
any memory order, and others along k only; an A of 32 bits may come from registers, whose rows may
be k. So a product of tf32 of which B alone lies across k is computed as its transpose.
"""

from __future__ import annotations

from dataclasses import replace

from cupygemm._hopper.config import (
    SLAB_BYTES,
    TMA_BYTES,
    HopperConfig,
    configs_for,
    of_shapes,
)
from cupygemm._hopper.copies import SPLIT_PARTS
from cupygemm._hopper.stack import Stack, copied_pitch
from cupygemm._problem import ITEMSIZE, GemmProblem

# tile_m, tile_n, tile_k, consumers, stages, epilogue buffers, cluster_m, cluster_n
_SHAPES = (
    (64, 16, 64, 1, 13, 2, 1, 1),
    (64, 32, 64, 1, 13, 2, 4, 1),
    (64, 64, 64, 1, 13, 2, 4, 1),
    (64, 96, 64, 1, 10, 2, 4, 1),
    (64, 192, 64, 1, 6, 2, 1, 2),
    (64, 192, 64, 1, 6, 2, 4, 1),
    (128, 96, 64, 2, 6, 2, 1, 2),
    (128, 96, 64, 2, 6, 2, 1, 4),
    (128, 112, 64, 2, 6, 2, 1, 2),
    (128, 112, 64, 2, 6, 2, 1, 4),
    (128, 144, 64, 2, 5, 2, 1, 2),
    (128, 144, 64, 2, 5, 2, 2, 1),
    (128, 160, 64, 2, 5, 2, 1, 2),
    (128, 160, 64, 2, 5, 2, 2, 1),
    (128, 176, 64, 2, 5, 2, 2, 1),
    (128, 208, 64, 2, 4, 2, 1, 2),
    (128, 208, 64, 2, 4, 2, 2, 1),
    (128, 224, 64, 2, 4, 2, 2, 1),
    (192, 80, 64, 3, 5, 2, 1, 2),
    (192, 96, 64, 3, 4, 2, 1, 1),
    (192, 96, 64, 3, 4, 2, 1, 2),
    (192, 112, 64, 3, 4, 2, 1, 1),
    (192, 112, 64, 3, 4, 2, 1, 2),
    (192, 144, 64, 3, 4, 2, 1, 1),
    (192, 144, 64, 3, 4, 2, 1, 2),
    (192, 144, 64, 3, 4, 2, 2, 1),
    (192, 160, 64, 3, 4, 1, 1, 1),
    (192, 160, 64, 3, 4, 1, 1, 2),
    (256, 80, 64, 2, 4, 2, 1, 2),
)
TURNED_CONFIGS = tuple(replace(config, c_turned=True) for config in of_shapes(_SHAPES))
"""The configurations of 16-bit operands that are turned, for widths between those of `CONFIGS`."""


def as_computed(asked: GemmProblem, *, c_turned: bool) -> GemmProblem:
    """Return the product that a kernel computes, from copies of operands where it needs them."""
    given = problem = transposed(asked) if c_turned else asked
    # mma.sync takes fp64 from registers.
    if ITEMSIZE[asked.a_dtype] != 2 and asked.a_dtype != "f64":
        problem = replace(problem, b_major="k")
        if asked.a_dtype != "tf32":
            problem = replace(problem, a_major="k")
    if asked.a_dtype == "tf32x3":
        row = Stack("tf32x3", asked.k, 1, asked.k, (1, 1, 1), (0, 0, 0))
        problem = replace(problem, k=row.widened(SPLIT_PARTS).adjacent)
    if given.a_align < TMA_BYTES or problem.a_major != given.a_major:
        problem = replace(problem, a_align=_copy_align(problem, problem.a_major, problem.m))
    if given.b_align < TMA_BYTES or problem.b_major != given.b_major:
        problem = replace(problem, b_align=_copy_align(problem, problem.b_major, problem.n))
    return problem


def _copy_align(problem: GemmProblem, major: str, rows: int) -> int:
    """Return what divides the pitch of a copy, in bytes, up to a line of the caches."""
    adjacent = problem.k if major == "k" else rows
    pitch = copied_pitch(adjacent * ITEMSIZE[problem.a_dtype])
    return SLAB_BYTES if pitch % SLAB_BYTES == 0 else TMA_BYTES


def transposed(problem: GemmProblem) -> GemmProblem:
    """Return the product whose result is the transpose, its operands exchanged."""
    p = problem
    return replace(
        p,
        m=p.n, n=p.m,
        a_dtype=p.b_dtype, b_dtype=p.a_dtype,
        a_major="k" if p.b_major == "k" else "m", b_major="k" if p.a_major == "k" else "n",
        a_align=p.b_align, b_align=p.a_align,
        a_span=p.b_span, b_span=p.a_span,
    )  # fmt: skip


def configs_of(asked: GemmProblem) -> tuple[HopperConfig, ...]:
    """Return the configurations that come into question for a product.

    Where B alone lies across k, those of tf32 are turned, lest it be copied. Those of 16 bits may
    be, if both the result has as many and A lies along k.
    """
    configs = configs_for(asked.a_dtype)
    majors = (asked.a_major, asked.b_major)
    if (asked.a_dtype, *majors, asked.out_dtype) == ("tf32", "k", "n", "f32"):
        return tuple(replace(config, c_turned=True) for config in configs)
    halves = ITEMSIZE[asked.a_dtype] == 2 and ITEMSIZE[asked.out_dtype] == 2
    if halves and asked.a_major == "k" and asked.epilogue is None:
        return configs + TURNED_CONFIGS
    return configs
