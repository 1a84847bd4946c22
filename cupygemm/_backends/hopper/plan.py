"""Choose the kernels that compute a product on Hopper.

TMA reads an operand in place if its rows begin at multiples of 16 bytes; a kernel first copies
other operands to such rows. A result that TMA cannot write is stored without it. If there are too
few tiles for the SMs, k is split, and a second kernel adds the parts in their order. If the tiles
fill the SMs unevenly, some of them are split along k. A kernel may compute the transpose of the
result from the exchanged operands. No sum depends on timing.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from cupygemm._backends.hopper.choice import fp64, tf32x3
from cupygemm._backends.hopper.choice.by_sm import can_repeat, runs_by_sm
from cupygemm._backends.hopper.choice.early_start import starts_early
from cupygemm._backends.hopper.choice.orientation import as_computed, transposed
from cupygemm._backends.hopper.choice.select import HopperSelection, select
from cupygemm._backends.hopper.compilation.compile import Cubin, compile_cubin
from cupygemm._backends.hopper.compilation.source import (
    BlockScales,
    RowGrouping,
    generate,
    parts_dtype,
)
from cupygemm._backends.hopper.config import HopperArch, HopperConfig
from cupygemm._backends.hopper.cost.shapes import shapes_of
from cupygemm._backends.hopper.launch import Geometry
from cupygemm._backends.hopper.operands.copies import NUM_TERMS, OperandCopy
from cupygemm._backends.hopper.operands.stack import TmaStack, Triple
from cupygemm._records.dtypes import DType
from cupygemm._records.problem import GemmProblem
from cupygemm._request.layout import Layout

GEMM_ENTRY = "cupygemm_gemm"
_TRANSPOSED = "wgmma takes operands of {} bits with adjacent elements along k, so it is transposed"
_SPLIT = "fp32 is split into tf32 terms, of which three products make one of fp32"


@dataclass(frozen=True, kw_only=True)
class HopperChoice:
    """The kernels for a product.

    Attributes
    ----------
    selection : HopperSelection
    asked, problem : GemmProblem
        The requested product, and the product that the kernel computes from the copies.
    a, b, c : TmaStack
        The kernel's operands and result in the caller's arrays.
    a_copy, b_copy : OperandCopy or None
        How an operand is copied first; None if it is read in place.
    c_direct : str or None
        Why the result is stored without TMA; None if TMA stores it.
    num_sms : int
    starts_early : bool
        The GEMM may start before the previous work has ended, see `early_start`.
    by_sm : bool
        Each SM computes the tile of its number, see `by_sm`.
    lower_triangle : bool
        The kernel computes the lower triangle of C, and a second kernel mirrors it.
    block_scales : BlockScales or None
        The kernel scales sums along k, see `generate`.
    row_groups : {"shared", "masked"} or None
        The kernel computes groups of rows, see `generate`.
    """

    selection: HopperSelection
    asked: GemmProblem
    problem: GemmProblem
    a: TmaStack
    b: TmaStack
    c: TmaStack
    a_copy: OperandCopy | None
    b_copy: OperandCopy | None
    c_direct: str | None
    num_sms: int
    starts_early: bool = True
    by_sm: bool = False
    lower_triangle: bool = False
    block_scales: BlockScales | None = None
    row_groups: RowGrouping | None = None

    @property
    def config(self) -> HopperConfig:
        """Return the configuration."""
        return self.selection.config

    @property
    def finishes(self) -> bool:
        """Whether another kernel finishes both triangles: the epilogue's c is not symmetric."""
        epilogue = self.asked.epilogue
        return self.lower_triangle and epilogue is not None and epilogue.c is not None

    @functools.cached_property
    def gemm(self) -> Cubin:
        """Return the compiled GEMM kernel for one product."""
        return self.gemm_of(0)

    def gemm_of(self, group_capacity: int) -> Cubin:
        """Return the compiled GEMM kernel for up to `group_capacity` products, or for one if 0."""
        text = generate(
            self.problem,
            self.config,
            tma_store=self.c_direct is None,
            group_capacity=group_capacity,
            lower_triangle=self.lower_triangle,
            block_scales=self.block_scales,
            row_groups=self.row_groups,
            sums_only=self.finishes,
            by_sm=self.by_sm and group_capacity == 0,
        )
        return compile_cubin(text, GEMM_ENTRY)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the copies and the slower stores, as sentences."""
        notes = [
            f"{name} is copied for TMA: {copy.reason}"
            for name, copy in zip(
                "BA" if self.config.transposed_c else "AB", (self.a_copy, self.b_copy), strict=True
            )
            if copy is not None
        ]
        if self.c_direct is not None and self.config.split_k == 1:
            notes.append(f"C is stored without TMA: {self.c_direct}")
        return tuple(notes)

    def geometry(self) -> Geometry:
        """Return the GEMM kernel's operands and result, including padding and workspace."""
        problem, result = self.problem, self.c
        batch = _triple(problem.batch)
        if self.config.split_k > 1 or self.finishes:
            m, n = result.rows, result.adjacent
            pitch = -(-n // 4) * 4
            parts = self.config.split_k * problem.num_batches
            result = TmaStack(
                dtype=parts_dtype(problem),
                adjacent=n,
                rows=m,
                pitch=pitch,
                batch=(1, 1, parts),
                strides=(0, 0, m * pitch),
            )
        return Geometry(
            a=self.a if self.a_copy is None else self.a_copy.target(self.a),
            b=self.b if self.b_copy is None else self.b_copy.target(self.b),
            c=result,
            m=problem.m,
            n=problem.n,
            k=problem.k,
            batch=batch,
            a_major=problem.a_major,
            b_major=problem.b_major,
            rank=3 if len(problem.batch) < 2 else 5,
            tma_store=self.c_direct is None or result is not self.c,
        )


def choose(
    layout: Layout, arch: HopperArch, config: HopperConfig | None = None, *, reason: str = ""
) -> HopperChoice:
    """Return the kernels for the launches of a layout, by the given or the best configuration.

    Parameters
    ----------
    layout : Layout
    arch : HopperArch
    config : HopperConfig, optional
        The configuration; by default the one that the cost model prefers.
    reason : str
        Why that configuration was chosen.

    Raises
    ------
    ValueError
        No configuration can run, or another library is faster.
    """
    asked = layout.problem
    selection = select(asked, arch) if config is None else HopperSelection(config, reason)
    transposed_c = selection.config.transposed_c
    stacks = [
        _stack_of(asked, "a", layout.lda, layout.a_stride),
        _stack_of(asked, "b", layout.ldb, layout.b_stride),
    ]
    a, b = reversed(stacks) if transposed_c else stacks
    c = _stack_of(asked, "c", layout.ldc, layout.c_stride)
    given = transposed(asked) if transposed_c else asked
    problem = as_computed(asked, transposed_c=transposed_c)
    if config is None and asked.a_dtype == "tf32x3":
        tf32x3.require(asked, selection, arch)
    if config is None and asked.a_dtype == "f64":
        fp64.require(asked, selection, arch)
    a_transposes = given.a_major != problem.a_major
    b_transposes = given.b_major != problem.b_major
    return HopperChoice(
        selection=selection,
        asked=asked,
        problem=problem,
        a=a,
        b=b,
        c=c,
        a_copy=_copy(a, given.a_dtype, given.a_align, transposes=a_transposes, low_term=0),
        b_copy=_copy(b, given.b_dtype, given.b_align, transposes=b_transposes, low_term=1),
        c_direct=c.why_not_stored(problem.c_align),
        num_sms=arch.num_sms,
        starts_early=starts_early(
            selection.config, problem, num_sms=arch.num_sms, l2_bytes=arch.l2_bytes
        ),
        by_sm=can_repeat(asked) and bool(runs_by_sm(selection.config, shapes_of(problem), arch)),
    )


def _copy(
    stack: TmaStack, dtype: DType, alignment: int, *, transposes: bool, low_term: int
) -> OperandCopy | None:
    """Return the copy of an operand that the kernel needs, or None."""
    if dtype == "tf32x3":
        return OperandCopy(_SPLIT, transposes, num_terms=NUM_TERMS, low_term=low_term)
    if transposes:
        return OperandCopy(_TRANSPOSED.format(8 * stack.itemsize), transposes)
    reason = stack.why_not_tma(alignment)
    return None if reason is None else OperandCopy(reason)


def _stack_of(problem: GemmProblem, name: str, pitch: int, strides: Triple) -> TmaStack:
    m, n, k = problem.m, problem.n, problem.k
    if name == "a":
        adjacent, rows = (k, m) if problem.a_major == "k" else (m, k)
    elif name == "b":
        adjacent, rows = (k, n) if problem.b_major == "k" else (n, k)
    else:
        adjacent, rows = n, m
    dtype = {"a": problem.a_dtype, "b": problem.b_dtype, "c": problem.out_dtype}[name]
    batch = _triple(
        1 if stride == 0 else extent
        for extent, stride in zip(_triple(problem.batch), strides, strict=True)
    )
    return TmaStack(
        dtype=dtype, adjacent=adjacent, rows=rows, pitch=pitch, batch=batch, strides=strides
    )


def _triple(extents: Any) -> Triple:
    values = tuple(extents)
    first, second, third = (1,) * (3 - len(values)) + values
    return first, second, third
