"""How one call is posed: from the records of its operands to launches and copies.

A pure function of shapes, strides, types and addresses. It decides which operands are multiplied
where they lie and which are copied first, and whether the kernel writes ``out`` itself or a
temporary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from cupygemm._epilogue.options import EpilogueRequest, check_request
from cupygemm._epilogue.sources import Sources, make_sources
from cupygemm._records.shapes import ProductShape, product_shape
from cupygemm._request.copies import ROW_BYTES, Copy, row_elements
from cupygemm._request.layout import (
    Layout,
    MatrixStack,
    Operand,
    contiguous,
    make_layout,
    matrix_stack,
    overlaps_itself,
)
from cupygemm._request.options import Options
from cupygemm._request.promotion import (
    CDNA_EPILOGUE_PRODUCTS,
    CDNA_PRODUCTS,
    U8,
    Products,
    ProductTypes,
    product_types,
)

Work = Literal["empty", "zeros", "kernel", "fallback", "sums"]
PLAIN = Options()


@dataclass(frozen=True)
class Posed:
    """One call, ready but for the kernel.

    Attributes
    ----------
    shape : ProductShape
    types : ProductTypes
    work : {"empty", "zeros", "kernel", "fallback", "sums"}
        What is to be done: nothing, fill with zeros, launch a kernel, hand over to ``cupy.matmul``,
        or compute the sums first and the epilogue from them.
    layout : Layout or None
        The launches, of ``"kernel"``.
    x1_copy, x2_copy : Copy or None
    temporary : str or None
        Why the kernel writes a temporary that is copied to ``out``, if it does.
    epilogue : EpilogueRequest or None
    sums : Posed or None
        How the sums are computed, of ``"sums"``.
    reproducible : bool
        No sum may depend on the order in which workgroups run.
    """

    shape: ProductShape
    types: ProductTypes
    work: Work
    layout: Layout | None = None
    x1_copy: Copy | None = None
    x2_copy: Copy | None = None
    temporary: str | None = None
    epilogue: EpilogueRequest | None = None
    sums: Posed | None = None
    sources: Sources | None = None
    reproducible: bool = True

    @property
    def copies(self) -> tuple[str, ...]:
        """Return the copies that are made, as sentences."""
        notes = [
            f"{name} is copied: {copy.reason}"
            for name, copy in (("x1", self.x1_copy), ("x2", self.x2_copy))
            if copy is not None
        ]
        if self.sources is not None:
            notes += self.sources.notes
        if self.sums is not None:
            notes += self.sums.copies
        if self.temporary is not None:
            notes.append(f"the product is written to a temporary, then to out: {self.temporary}")
        return tuple(notes)


def pose(
    x1: Operand,
    x2: Operand,
    out: Operand | None = None,
    options: Options = PLAIN,
    *,
    products: Products = CDNA_PRODUCTS,
    epilogue_products: Products = CDNA_EPILOGUE_PRODUCTS,
    row_bytes: int = ROW_BYTES,
    aliased: bool = False,
) -> Posed:
    """Decide how ``matmul(x1, x2, out, **options)`` is computed.

    Parameters
    ----------
    x1, x2, out : Operand
    options : Options
        Its precision is one that the device has.
    products : mapping of numpy.dtype to tuple of numpy.dtype
        What the kernels for the device multiply; empty where there are none.
    epilogue_products : mapping of numpy.dtype to tuple of numpy.dtype
        The same for those with an epilogue.
    row_bytes : int
        Rows of operands of single bytes that start elsewhere than at multiples of it are copied.
    aliased : bool
        The memory of ``out`` overlaps that of an operand.

    Raises
    ------
    ValueError
        The shapes do not fit, or the elements of ``out`` overlap.
    TypeError
        The types do not fit.
    """
    shape = product_shape(x1.shape, x2.shape, None if out is None else out.shape)
    epilogue = options.epilogue
    types = product_types(
        x1.dtype,
        x2.dtype,
        None if out is None else out.dtype,
        options.dtype,
        options.casting,
        epilogue=epilogue is not None,
    )
    if epilogue is not None:
        check_request(epilogue, shape, types)
    if out is not None and overlaps_itself(out):
        raise ValueError(
            f"matmul: several elements of out, shape {out.shape} and strides {out.strides} bytes, "
            "lie at one address; pass an array that is not broadcast"
        )
    if shape.size == 0:
        return Posed(shape, types, "empty")
    fused = epilogue is not None and shape.k > 0 and types.are_among(epilogue_products)
    if epilogue is not None and not fused:
        sums = pose(
            x1,
            x2,
            None,
            Options(
                types.accumulator,
                "unsafe",
                options.precision,
                reproducible=options.reproducible,
            ),
            products=products,
            row_bytes=row_bytes,
        )
        return Posed(shape, types, "sums", epilogue=epilogue, sums=sums)
    if shape.k == 0:
        return Posed(shape, types, "zeros")
    if not fused and not types.are_among(products):
        return Posed(shape, types, "fallback")
    a, x1_copy = _as_matrices(x1, "x1", shape, types.x1, row_bytes)
    b, x2_copy = _as_matrices(x2, "x2", shape, types.x2, row_bytes)
    c, temporary = _target(out, shape, types, aliased=aliased)
    sources = None
    if epilogue is not None:
        sources = make_sources(epilogue, shape, types, swapped=c.order == "column")
    layout = make_layout(
        a, b, c, shape.batch, options.precision, {} if sources is None else sources.stacks
    )
    if sources is not None:
        unsigned = types.stored == U8  # which saturates elsewhere than the bytes that wrap
        problem = replace(
            layout.problem,
            out_dtype="u8" if unsigned else layout.problem.out_dtype,
            epilogue=sources.epilogue,
        )
        layout = replace(layout, problem=problem)
    return Posed(
        shape,
        types,
        "kernel",
        layout,
        x1_copy,
        x2_copy,
        temporary,
        epilogue,
        sources=sources,
        reproducible=options.reproducible,
    )


def _as_matrices(
    operand: Operand,
    role: Literal["x1", "x2"],
    shape: ProductShape,
    dtype: np.dtype[Any],
    row_bytes: int,
) -> tuple[MatrixStack, Copy | None]:
    """Return an operand as the kernel reads it, of a `dtype`, and the copy that this takes."""
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
    """Return where the kernel writes, and why that is a temporary, if it is."""
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
