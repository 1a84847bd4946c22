"""A product as a Hopper kernel computes it: its operands in the orders that wgmma reads.

A kernel that is turned computes the transpose of C, from B and A. There are two reasons to. wgmma
reads 16-bit operands in any memory order, and others along k only; an A of 32 bits may come from
registers, whose rows may be k. So a product of tf32 of which B alone lies across k is computed as
its transpose. And where C has 16 bits, tiles of its transpose may be of any multiple of 8 rows of C
(`tile_shapes`). Operands that TMA cannot read are described as their copies are.
"""

from __future__ import annotations

from dataclasses import replace

from cupygemm._backends.hopper.config import LINE_BYTES, TMA_BYTES
from cupygemm._backends.hopper.copies import SPLIT_PARTS
from cupygemm._backends.hopper.stack import Stack, copied_pitch
from cupygemm._records.dtypes import ITEMSIZE
from cupygemm._records.problem import GemmProblem


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
    return LINE_BYTES if pitch % LINE_BYTES == 0 else TMA_BYTES


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
