"""Decide which operands of a request a kernel reads in place or as copies, and where it writes.

`place` is a pure function of shapes, strides, types and addresses. Backends whose kernels take
addresses and pitches call it first. A backend that takes whole arrays does not need it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from cupygemm._records.dtypes import ELEMENT_OF
from cupygemm._records.formats import Precision
from cupygemm._records.shapes import ProductShape
from cupygemm._request.copies import ROW_BYTES, Copy, row_elements
from cupygemm._request.epilogue_arrays import EpilogueArrays, place_arrays
from cupygemm._request.layout import (
    Layout,
    MatrixStack,
    Operand,
    contiguous,
    make_layout,
    matrix_stack,
)
from cupygemm._request.promotion import ProductTypes
from cupygemm._request.request import Request


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The arrays of a request as a kernel sees them, and the copies that are made.

    Attributes
    ----------
    layout : Layout
        The problem that the kernel solves, and its launches.
    x1_copy, x2_copy : Copy or None
        The copy of an operand that is made first, if any.
    temporary : str or None
        Why the kernel writes a temporary that is copied to ``out``; None if it does not.
    sources : EpilogueArrays or None
        The arrays that the epilogue reads; None without an epilogue.
    """

    layout: Layout
    x1_copy: Copy | None = None
    x2_copy: Copy | None = None
    temporary: str | None = None
    sources: EpilogueArrays | None = None

    @property
    def is_in_place(self) -> bool:
        """Whether the kernel reads and writes the caller's arrays themselves."""
        return not self.notes

    @property
    def notes(self) -> tuple[str, ...]:
        """Return sentences that describe the copies."""
        notes = [
            f"{name} is copied: {copy.reason}"
            for name, copy in (("x1", self.x1_copy), ("x2", self.x2_copy))
            if copy is not None
        ]
        if self.sources is not None:
            notes += self.sources.notes
        if self.temporary is not None:
            notes.append(f"the product is written to a temporary, then to out: {self.temporary}")
        return tuple(notes)


def place(
    request: Request, *, precision: Precision = "ieee", row_bytes: int = ROW_BYTES
) -> Placement:
    """Return the arrays of a request as a kernel sees them.

    Parameters
    ----------
    request : Request
        A request with elements to multiply: its result is not empty, and k is at least 1.
    precision : {"ieee", "tf32", "tf32x3"}
        The precision in which the backend multiplies float32.
    row_bytes : int
        Operands with one-byte elements are copied unless their rows start at multiples of this.
    """
    shape, types = request.shape, request.types
    a, x1_copy = _as_matrices(request.x1, "x1", shape, types.x1, row_bytes)
    b, x2_copy = _as_matrices(request.x2, "x2", shape, types.x2, row_bytes)
    c, temporary = _target(request.out, shape, types, aliased=request.aliased)
    sources = None
    if request.epilogue is not None:
        sources = place_arrays(request.epilogue, shape, types, swapped=c.order == "column")
    stacks = {} if sources is None else sources.stacks
    layout = make_layout(a, b, c, shape.batch, precision=precision, sources=stacks)
    if sources is not None:
        # With an epilogue, unsigned bytes saturate; without one, they wrap as signed ones do.
        problem = replace(
            layout.problem, out_dtype=ELEMENT_OF[types.stored], epilogue=sources.epilogue
        )
        layout = replace(layout, problem=problem)
    return Placement(
        layout=layout, x1_copy=x1_copy, x2_copy=x2_copy, temporary=temporary, sources=sources
    )


def _as_matrices(
    operand: Operand,
    role: Literal["x1", "x2"],
    shape: ProductShape,
    dtype: np.dtype[Any],
    row_bytes: int,
) -> tuple[MatrixStack, Copy | None]:
    """Return an operand as the kernel reads it, in a `dtype`, and the necessary copy, if any."""
    index = tuple(
        slice(0, 1) if stride == 0 and axis < len(operand.shape) - 2 else slice(None)
        for axis, stride in enumerate(operand.strides)
    )
    kept = replace(
        operand,
        shape=tuple(
            1 if part.stop else extent for part, extent in zip(index, operand.shape, strict=True)
        ),
    )
    stack = matrix_stack(kept, shape.batch, role, shape)
    if operand.dtype != dtype:
        reason = f"converted from {operand.dtype} to {dtype}"
    elif stack is None or operand.address % operand.dtype.itemsize:
        reason = f"its strides {operand.strides} or its address are not whole elements"
    elif stack.order is None or stack.is_far_apart:
        reason = _why_not_in_place(stack)
    elif operand.dtype.itemsize == 1 and stack.alignment(shape.batch) < row_bytes:
        reason = f"its rows, of single bytes, do not start at multiples of {row_bytes} bytes"
    else:
        return stack, None
    copied = replace(
        contiguous((*kept.shape[:-1], row_elements(kept.shape[-1], dtype)), dtype),
        shape=kept.shape,
    )
    stack = matrix_stack(copied, shape.batch, role, shape)
    assert stack is not None
    return stack, Copy(index, dtype, reason)


def _why_not_in_place(stack: MatrixStack) -> str:
    strides = (stack.row_stride, stack.column_stride)
    if min(strides) < 0:
        what = "a negative stride"
    elif stack.order is not None:
        what = "rows too far apart"
    elif 1 in strides:
        what = "rows that overlap"
    else:
        what = "no axis of adjacent elements"
    return f"its matrices have {what} (strides {strides[0]} and {strides[1]} elements)"


def _target(
    out: Operand | None, shape: ProductShape, types: ProductTypes, *, aliased: bool
) -> tuple[MatrixStack, str | None]:
    """Return the array that the kernel writes, and why if it is a temporary."""
    reason = None
    if out is not None:
        stack = matrix_stack(out, shape.batch, "out", shape)
        if aliased:
            reason = "out overlaps an operand"
        elif out.dtype != types.stored:
            reason = f"the product is rounded to {types.stored} first, as dtype or out asks"
        elif stack is None or out.address % out.dtype.itemsize:
            reason = f"its strides {out.strides} or its address are not whole elements"
        elif stack.order is None or stack.is_far_apart:
            reason = _why_not_in_place(stack)
        else:
            return stack, None
    stack = matrix_stack(contiguous(shape.result, types.stored), shape.batch, "out", shape)
    assert stack is not None
    return stack, reason
