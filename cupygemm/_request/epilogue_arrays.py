"""The arrays that an epilogue reads, as a kernel addresses them: by rows and columns of its C.

Along a row of C, the elements of an array must be adjacent, or one element must serve all columns.
C is the result, or its transpose if the kernel computes that. Other arrays are copied first, and so
are arrays of types that kernels do not read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cupygemm._records.dtypes import ELEMENT_OF, ELEMENT_TYPES
from cupygemm._records.problem import Along, Epilogue, Source
from cupygemm._records.shapes import ProductShape, Shape
from cupygemm._request.copies import bits, converted
from cupygemm._request.epilogue import ARRAYS, EpilogueArguments, EpilogueRequest, as_result_shape
from cupygemm._request.layout import MatrixStack, Operand, contiguous
from cupygemm._request.promotion import F32, F64, ProductTypes

READ = {
    computed: tuple(
        dtype
        for dtype, name in ELEMENT_OF.items()
        if ELEMENT_OF[computed] in ELEMENT_TYPES[name].read_in
    )
    for computed in (F32, F64)
}
"""The types of the arrays that an epilogue's kernel reads, by the type that it computes in."""
PITCH_LIMIT = 1 << 22
"""Bound on the bytes between rows, so that the rows of a tile, at most 256, span below 2 GiB."""


@dataclass(frozen=True)
class ArrayCopy:
    """A copy of an option's array, made before the product.

    Attributes
    ----------
    shape : tuple of int
        As many axes as the result has.
    dtype : numpy.dtype
    transposed : bool
        Whether the copy has the last two axes exchanged.
    reason : str
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    transposed: bool
    reason: str

    def __call__(self, array: Any) -> Any:
        """Return the copy."""
        array = array.reshape(self.shape)
        if self.transposed:
            array = array.swapaxes(-1, -2)
        if array.dtype != self.dtype:
            return converted(array, self.dtype)
        return bits(array).copy(order="C").view(self.dtype)


@dataclass(frozen=True)
class EpilogueArrays:
    """The arrays that a product's epilogue reads.

    Attributes
    ----------
    stacks : dict of str to MatrixStack
        The arrays by option; transposed if the problem is.
    copies : dict of str to ArrayCopy
    epilogue : Epilogue
    """

    stacks: dict[str, MatrixStack]
    copies: dict[str, ArrayCopy]
    epilogue: Epilogue

    @property
    def notes(self) -> tuple[str, ...]:
        """Return sentences that describe the copies."""
        return tuple(f"{name} is copied: {copy.reason}" for name, copy in self.copies.items())

    def arrays(self, arguments: EpilogueArguments) -> tuple[Any, ...]:
        """Return the arrays of a call in the order of `ARRAYS`, after the necessary copies."""
        if not self.copies:
            return arguments.arrays
        return tuple(
            self.copies[name](array) if name in self.copies else array
            for name, array in zip(ARRAYS, arguments.arrays, strict=True)
        )


def place_arrays(
    request: EpilogueRequest, shape: ProductShape, types: ProductTypes, *, swapped: bool
) -> EpilogueArrays:
    """Return the arrays of a request as the kernel reads them.

    `swapped` is true if the kernel's C is the transposed result.
    """
    stacks, copies, found = {}, {}, {}
    for name, operand in request.arrays():
        whole = as_result_shape(name, operand.shape, shape)
        assert whole is not None
        stack = _stack(operand, whole, shape, swapped=swapped)
        reason = _why_copied(operand, stack, types.computed)
        if stack is None or reason is not None:
            transposed = swapped and shape.row and shape.column
            dtype = operand.dtype if operand.dtype in READ[types.computed] else types.computed
            copies[name] = ArrayCopy(
                shape=whole, dtype=dtype, transposed=transposed, reason=reason or ""
            )
            copy = _copied(whole, dtype, transposed=transposed)
            stack = _stack(copy, whole, shape, swapped=swapped)
            assert stack is not None
        stacks[name] = stack
        along = _along(stack, varies=name == "c")
        found[name] = Source(ELEMENT_OF[stack.dtype], along, _align(stack))
    epilogue = Epilogue(
        alpha=request.alpha,
        activation=request.activation,
        scale=request.scale,
        clamp=request.clamp,
        **found,
    )
    return EpilogueArrays(stacks, copies, epilogue)


def _stack(
    operand: Operand, whole: Shape, shape: ProductShape, *, swapped: bool
) -> MatrixStack | None:
    """View an option as matrices of C, with stride 0 along axes that are broadcast.

    `whole` is its shape with as many axes as the result. Returns None if a stride or the address is
    not a multiple of the element size.
    """
    size = operand.dtype.itemsize
    given = [s for s, n in zip(operand.strides, operand.shape, strict=True) if n > 1]
    if operand.address % size or any(stride % size for stride in given):
        return None
    # `whole` may have other axes of length 1 than the array; the longer axes are in the same order.
    remaining = iter(given)
    strides = [next(remaining) // size if extent > 1 else 0 for extent in whole]
    core = len(strides) - shape.row - shape.column
    stack = MatrixStack(
        rows=shape.m,
        columns=shape.n,
        row_stride=strides[core] if shape.row else 0,
        column_stride=strides[-1] if shape.column else 0,
        batch_strides=tuple(strides[:core]),
        dtype=operand.dtype,
        address=operand.address,
    )
    return stack.transposed if swapped else stack


def _copied(whole: tuple[int, ...], dtype: np.dtype[Any], *, transposed: bool) -> Operand:
    """Return the operand that describes a copy, with as many axes as the result."""
    if not transposed:
        return contiguous(whole, dtype)
    copy = contiguous((*whole[:-2], whole[-1], whole[-2]), dtype)
    return replace(
        copy, shape=whole, strides=(*copy.strides[:-2], copy.strides[-1], copy.strides[-2])
    )


def _why_copied(operand: Operand, stack: MatrixStack | None, computed: np.dtype[Any]) -> str | None:
    if operand.dtype not in READ[computed]:
        return f"converted from {operand.dtype} to {computed}"
    if stack is None:
        return f"its strides {operand.strides} or its address are not whole elements"
    if stack.column_stride not in (0, 1):
        return f"its elements are {stack.column_stride} apart along the rows of the result"
    if not 0 <= stack.row_stride * stack.dtype.itemsize < PITCH_LIMIT:
        return f"its rows are {stack.row_stride} elements apart"
    return None


def _along(stack: MatrixStack, *, varies: bool) -> Along:
    """Return the axes along which an option changes; with `varies`, also axes of length 1.

    ``c`` may be ``out``. If it were treated as one value for all rows, every lane would read it,
    including lanes whose rows are outside C, while the lane of the only row overwrites it. An
    element of a full axis is read only by the lane that then writes it.
    """
    by_row = stack.row_stride != 0 or (varies and stack.rows == 1)
    by_column = stack.column_stride != 0 or (varies and stack.columns == 1)
    if by_column:
        return "matrix" if by_row else "column"
    return "row" if by_row else "one"


def _align(stack: MatrixStack) -> int:
    """Return the power of two, at most 16, that divides the address of every row."""
    strides = [stack.row_stride, *stack.batch_strides]
    return math.gcd(16, stack.address, *(stride * stack.dtype.itemsize for stride in strides))
