"""A product as a Hopper kernel computes it: its operands in the orders that wgmma reads.

With `transposed_c`, a kernel computes the transpose of C from B and A. There are two reasons for
this. First, wgmma reads 16-bit operands in any memory order and others only along k, but a 32-bit A
may come from registers, where it may be m-major. So a tf32 product in which only B is not k-major
is computed as its transpose. Second, if C has 16 bits, a tile of the transpose may have any
multiple of 8 rows of C (`tile_shapes`). Operands that TMA cannot read are described by their
copies.
"""

from __future__ import annotations

from dataclasses import replace

from cupygemm._backends.hopper.config import LINE_BYTES, TMA_BYTES
from cupygemm._backends.hopper.operands.copies import NUM_TERMS
from cupygemm._backends.hopper.operands.stack import TmaStack, copied_pitch
from cupygemm._records.dtypes import ITEMSIZE
from cupygemm._records.problem import GemmProblem


def as_computed(asked: GemmProblem, *, transposed_c: bool) -> GemmProblem:
    """Return the product that a kernel computes, from copies of the operands it cannot read."""
    given = problem = transposed(asked) if transposed_c else asked
    # mma.sync takes fp64 from registers, in any order.
    if ITEMSIZE[asked.a_dtype] != 2 and asked.a_dtype != "f64":
        problem = replace(problem, b_major="k")
        if asked.a_dtype != "tf32":
            problem = replace(problem, a_major="k")
    if asked.a_dtype == "tf32x3":
        row = TmaStack(
            dtype="tf32x3",
            adjacent=asked.k,
            rows=1,
            pitch=asked.k,
            batch=(1, 1, 1),
            strides=(0, 0, 0),
        )
        problem = replace(problem, k=row.widened(NUM_TERMS).adjacent)
    if given.a_align < TMA_BYTES or problem.a_major != given.a_major:
        problem = replace(problem, a_align=_copy_align(problem, problem.a_major, problem.m))
    if given.b_align < TMA_BYTES or problem.b_major != given.b_major:
        problem = replace(problem, b_align=_copy_align(problem, problem.b_major, problem.n))
    return problem


def _copy_align(problem: GemmProblem, major: str, rows: int) -> int:
    """Return the alignment of a copy's rows in bytes, at most a cache line."""
    adjacent = problem.k if major == "k" else rows
    pitch = copied_pitch(adjacent * ITEMSIZE[problem.a_dtype])
    return LINE_BYTES if pitch % LINE_BYTES == 0 else TMA_BYTES


def transposed(problem: GemmProblem) -> GemmProblem:
    """Return the product of the exchanged operands, whose result is the transpose."""
    p = problem
    return GemmProblem(  # `replace` takes twice as long
        m=p.n,
        n=p.m,
        k=p.k,
        batch=p.batch,
        a_dtype=p.b_dtype,
        b_dtype=p.a_dtype,
        out_dtype=p.out_dtype,
        a_major="k" if p.b_major == "k" else "m",
        b_major="k" if p.a_major == "k" else "n",
        a_align=p.b_align,
        b_align=p.a_align,
        c_align=p.c_align,
        a_span=p.b_span,
        b_span=p.a_span,
        c_span=p.c_span,
        epilogue=p.epilogue,
        block_scaled=p.block_scaled,
    )
