"""Derive the problem that a kernel solves from the strides of the operands.

This module uses records of shapes, strides and addresses, but no arrays and no device. Each operand
becomes a stack of matrices, in which one axis has adjacent elements and the other one has a pitch.
C must be row-major, so a column-major result is computed as its transpose, C^T = B^T A^T. Batch
axes are merged where the strides of all operands allow it. If more than three axes remain, the host
loops over the others, with one launch for each index.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from cupygemm._records.dtypes import ELEMENT_OF, DType
from cupygemm._records.formats import Precision
from cupygemm._records.problem import GemmProblem
from cupygemm._records.shapes import ProductShape
from cupygemm._request.batch import MAX_BATCH_AXES, BatchAxis, Offsets, merged, offsets, split

VECTOR_BYTES = 16  # the widest global load
TILE_BYTES, TILE_ROWS = 1 << 31, 256  # range of offsets within a tile; its rows at most
Order = Literal["row", "column"]


@dataclass(frozen=True)
class Operand:
    """The place of an array in memory.

    Attributes
    ----------
    shape : tuple of int
    strides : tuple of int
        In bytes.
    dtype : numpy.dtype
    address : int
        The address of the first element. A plan depends only on its remainder by 16.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    address: int = 0

    def extent(self) -> tuple[int, int]:
        """Return the range of bytes that the elements cover, as offsets from `address`."""
        if 0 in self.shape:
            return 0, 0
        reaches = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        start = sum(reach for reach in reaches if reach < 0)
        return start, sum(reach for reach in reaches if reach > 0) + self.dtype.itemsize


def contiguous(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Operand:
    """Return a new C-contiguous array, aligned as CuPy's allocations are."""
    strides, step = [], dtype.itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return Operand(shape, tuple(reversed(strides)), dtype)


def overlaps_itself(operand: Operand) -> bool:
    """Whether two elements of the array share a byte of memory."""
    axes = sorted((abs(s), n) for n, s in zip(operand.shape, operand.strides, strict=True) if n > 1)
    covered = operand.dtype.itemsize
    if 0 in operand.shape or not axes:
        return False
    if axes[0][0] == 0:
        return True
    nested = True
    for stride, extent in axes:
        nested = nested and stride >= covered
        covered += (extent - 1) * stride
    if nested:
        return False
    offsets = np.zeros((), np.int64)
    for stride, extent in axes:
        offsets = np.add.outer(offsets, np.arange(extent, dtype=np.int64) * stride)
    return bool(np.diff(np.sort(offsets, axis=None)).min() < operand.dtype.itemsize)


@dataclass(frozen=True, kw_only=True)
class MatrixStack:
    """A stack of matrices, with strides in elements.

    Attributes
    ----------
    rows, columns : int
    row_stride, column_stride : int
    batch_strides : tuple of int
        One for each axis of the broadcast batch; 0 along axes in which the operand is broadcast.
    dtype : numpy.dtype
    address : int
    """

    rows: int
    columns: int
    row_stride: int
    column_stride: int
    batch_strides: tuple[int, ...]
    dtype: np.dtype[Any]
    address: int

    @property
    def transposed(self) -> MatrixStack:
        """Return the stack of the transposed matrices."""
        return replace(
            self,
            rows=self.columns,
            columns=self.rows,
            row_stride=self.column_stride,
            column_stride=self.row_stride,
        )

    @property
    def order(self) -> Order | None:
        """Return the order of the matrices: "row" if columns are adjacent (C order), else "column".

        Strides of length-1 axes are ignored. If both orders fit, the longer axis is the adjacent
        one. The order is None if no axis has adjacent elements, or if rows overlap.
        """
        by_row = (self.column_stride == 1 or self.columns == 1) and (
            self.rows == 1 or self.row_stride >= self.columns
        )
        by_column = (self.row_stride == 1 or self.rows == 1) and (
            self.columns == 1 or self.column_stride >= self.rows
        )
        if by_row and by_column:
            return "column" if self.rows > self.columns else "row"
        return "row" if by_row else "column" if by_column else None

    @property
    def extents(self) -> tuple[int, int]:
        """Return the extents of the adjacent axis and of the other axis."""
        return (self.columns, self.rows) if self.order == "row" else (self.rows, self.columns)

    @property
    def pitch(self) -> int:
        """Return the stride of the other axis; if its length is 1, a stride that aligns vectors."""
        adjacent, count = self.extents
        if count > 1:
            return self.row_stride if self.order == "row" else self.column_stride
        vector = VECTOR_BYTES // self.dtype.itemsize
        return -(-adjacent // vector) * vector

    @property
    def is_far_apart(self) -> bool:
        """Whether a tile's rows exceed the range of its offsets, but those of a copy would not."""
        adjacent, count = self.extents
        reach = min(count, TILE_ROWS) * self.pitch * self.dtype.itemsize
        return count > 1 and self.pitch >= 2 * adjacent and reach >= TILE_BYTES

    @property
    def span(self) -> int:
        """Return the number of bytes from the first element of a matrix to the end of the last."""
        adjacent, count = self.extents
        return ((count - 1) * self.pitch + adjacent) * self.dtype.itemsize

    def alignment(self, batch: Sequence[int]) -> int:
        """Return the power of two, at most 16, that divides address and strides in bytes."""
        strides = [s for s, extent in zip(self.batch_strides, batch, strict=True) if extent > 1]
        bytes_ = [self.dtype.itemsize * stride for stride in (self.pitch, *strides)]
        return math.gcd(VECTOR_BYTES, self.address, *bytes_)


def matrix_stack(
    operand: Operand, batch: tuple[int, ...], role: Literal["x1", "x2", "out"], shape: ProductShape
) -> MatrixStack | None:
    """View an operand as matrices over the broadcast batch.

    Returns None where its strides are not multiples of its element size.
    """
    size = operand.dtype.itemsize
    if any(s % size for n, s in zip(operand.shape, operand.strides, strict=True) if n > 1):
        return None
    strides = [s // size for s in operand.strides]
    if role == "x1":
        core, leading = (shape.m, shape.k), 2 if shape.row else 1
        missing_row, missing_column = not shape.row, False
    elif role == "x2":
        core, leading = (shape.k, shape.n), 2 if shape.column else 1
        missing_row, missing_column = False, not shape.column
    else:
        core, leading = (shape.m, shape.n), shape.row + shape.column
        missing_row, missing_column = not shape.row, not shape.column
    split = len(strides) - leading
    core_strides = iter(strides[split:])
    row_stride = 0 if missing_row else next(core_strides)
    column_stride = 0 if missing_column else next(core_strides)
    # An operand may have leading axes of length 1 that ``out``, and so the batch, lacks.
    first = max(0, split - len(batch))
    batch_strides = [0] * (len(batch) - split)
    batch_strides += [
        0 if n == 1 else s
        for n, s in zip(operand.shape[first:split], strides[first:split], strict=True)
    ]
    return MatrixStack(
        rows=core[0],
        columns=core[1],
        row_stride=row_stride,
        column_stride=column_stride,
        batch_strides=tuple(batch_strides),
        dtype=operand.dtype,
        address=operand.address,
    )


@dataclass(frozen=True)
class ArrayLayout:
    """The layout of an array that an epilogue reads, in terms of the problem.

    Attributes
    ----------
    name : str
        The option of `matmul`.
    itemsize : int
        Bytes of an element.
    pitch : int
        Elements from one row of C to the next; 0 if all rows share their elements.
    stride : tuple of int
        Strides of the three batch axes, as for C.
    """

    name: str
    itemsize: int
    pitch: int
    stride: tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The launches of one product.

    Attributes
    ----------
    problem : GemmProblem
        The problem that every launch solves.
    swapped : bool
        Whether the problem is the transposed one: its A is x2, and its B is x1.
    lda, ldb, ldc : int
        Pitches in elements.
    a_stride, b_stride, c_stride : tuple of int
        Strides of three batch axes in elements, outermost first; 0 if absent or broadcast.
    launches : tuple of Offsets
        One entry for each launch.
    sources : tuple of ArrayLayout
        The arrays that an epilogue reads.
    """

    problem: GemmProblem
    swapped: bool
    lda: int
    ldb: int
    ldc: int
    a_stride: tuple[int, int, int]
    b_stride: tuple[int, int, int]
    c_stride: tuple[int, int, int]
    launches: tuple[Offsets, ...]
    sources: tuple[ArrayLayout, ...] = ()


def make_layout(
    x1: MatrixStack,
    x2: MatrixStack,
    out: MatrixStack,
    batch: tuple[int, ...],
    *,
    precision: Precision,
    sources: Mapping[str, MatrixStack] = MappingProxyType({}),
) -> Layout:
    """Return the launches of a product, as problems with a row-major C.

    All three stacks must have an `order`, and no extent may be 0. With a `precision` other than
    ``"ieee"``, float32 operands are multiplied in that precision. The stacks of `sources`, the
    arrays that an epilogue reads, must be transposed already if `out` is column-major.
    """
    swapped = out.order == "column"
    a, b, c = (x2.transposed, x1.transposed, out.transposed) if swapped else (x1, x2, out)
    axes = [
        BatchAxis(
            extent=extent,
            a=a.batch_strides[axis],
            b=b.batch_strides[axis],
            c=c.batch_strides[axis],
            sources=tuple(source.batch_strides[axis] for source in sources.values()),
        )
        for axis, extent in enumerate(batch)
    ]
    looped, kept = split(merged(axes))
    problem = GemmProblem(
        m=c.rows,
        n=c.columns,
        k=a.columns,
        batch=tuple(axis.extent for axis in kept),
        a_dtype=_multiplied_as(a.dtype, precision),
        b_dtype=_multiplied_as(b.dtype, precision),
        out_dtype=_element(c.dtype),
        a_major="k" if a.order == "row" else "m",
        b_major="n" if b.order == "row" else "k",
        a_align=a.alignment(batch),
        b_align=b.alignment(batch),
        c_align=c.alignment(batch),
        a_span=a.span,
        b_span=b.span,
        c_span=c.span,
    )
    absent = BatchAxis(extent=1, a=0, b=0, c=0, sources=(0,) * len(sources))
    three = [absent] * (MAX_BATCH_AXES - len(kept)) + kept
    return Layout(
        problem=problem,
        swapped=swapped,
        lda=a.pitch,
        ldb=b.pitch,
        ldc=c.pitch,
        a_stride=_triple(axis.a for axis in three),
        b_stride=_triple(axis.b for axis in three),
        c_stride=_triple(axis.c for axis in three),
        launches=tuple(offsets(looped)),
        sources=tuple(
            ArrayLayout(
                name=name,
                itemsize=source.dtype.itemsize,
                pitch=source.row_stride,
                stride=_triple(axis.sources[index] for axis in three),
            )
            for index, (name, source) in enumerate(sources.items())
        ),
    )


def _multiplied_as(dtype: np.dtype[Any], precision: Precision) -> DType:
    """Return the element type in which kernels multiply an operand."""
    name = _element(dtype)
    return precision if name == "f32" and precision != "ieee" else name


def _element(dtype: np.dtype[Any]) -> DType:
    """Return the element type in a kernel; unsigned bytes become signed ones, as products wrap."""
    name = ELEMENT_OF[dtype]
    return "i8" if name == "u8" else name


def _triple(values: Any) -> tuple[int, int, int]:
    first, second, third = values
    return first, second, third
