"""Convert the layout of a request to products that cuBLASLt launches.

The library's matrices are column-major, so it computes the transpose of C from B and A. It supports
stacks with one axis; the host loops over the other axes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from cupygemm._backends.cublaslt.library import (
    COMPUTE_32F,
    COMPUTE_64F,
    OP_N,
    OP_T,
    Algorithm,
    Launch,
    LtProduct,
    Matrices,
)
from cupygemm._backends.workspace import with_workspace
from cupygemm._records.dtypes import ELEMENT_TYPES
from cupygemm._request.layout import Layout

COMPUTE = MappingProxyType(
    {"f32": COMPUTE_32F, "f64": COMPUTE_64F, "c64": COMPUTE_32F, "c128": COMPUTE_64F}
)
"""The supported types, with the type of their sums, a ``cublasComputeType_t``."""


@dataclass(frozen=True)
class Stack:
    """The batch axis that one launch computes, and the offsets along the other axes.

    Attributes
    ----------
    axis : int or None
        The number of the longest of three axes; None without a batch.
    offsets : tuple of (int, int, int)
        The elements from the first matrices of A, B and C to those of each launch.
    """

    axis: int | None
    offsets: tuple[tuple[int, int, int], ...]


def stack_of(layout: Layout) -> Stack:
    """Return how launches divide the batch of a layout."""
    extents = layout.problem.batch
    if not extents:
        return Stack(None, tuple((each.a, each.b, each.c) for each in layout.launches))
    first = 3 - len(extents)
    longest = max(range(len(extents)), key=lambda axis: extents[axis])
    return Stack(first + longest, tuple(_offsets(layout, first, longest)))


def _offsets(layout: Layout, first: int, longest: int) -> Iterator[tuple[int, int, int]]:
    extents = layout.problem.batch
    looped = [axis for axis in range(len(extents)) if axis != longest]
    strides = layout.a_stride, layout.b_stride, layout.c_stride
    for start in layout.launches:
        for index in itertools.product(*(range(extents[axis]) for axis in looped)):
            a, b, c = (
                base + sum(i * stride[first + axis] for i, axis in zip(index, looped, strict=True))
                for base, stride in zip((start.a, start.b, start.c), strides, strict=True)
            )
            yield a, b, c


def describe(layout: Layout, stack: Stack, device: int) -> LtProduct:
    """Return the product of one launch."""
    p = layout.problem
    dtype = ELEMENT_TYPES[p.a_dtype].array
    assert dtype is not None
    name, count = dtype.name, 1
    a_stride = b_stride = c_stride = 0
    if stack.axis is not None:
        count = p.batch[stack.axis - (3 - len(p.batch))]
        a_stride, b_stride, c_stride = (
            each[stack.axis] for each in (layout.a_stride, layout.b_stride, layout.c_stride)
        )
    a_shape = (p.k, p.m) if p.a_major == "k" else (p.m, p.k)
    b_shape = (p.n, p.k) if p.b_major == "n" else (p.k, p.n)
    return LtProduct(
        Matrices(name, *b_shape, layout.ldb, count=count, stride=b_stride),
        Matrices(name, *a_shape, layout.lda, count=count, stride=a_stride),
        Matrices(name, p.n, p.m, layout.ldc, count=count, stride=c_stride),
        operations=(OP_N if p.b_major == "n" else OP_T, OP_N if p.a_major == "k" else OP_T),
        compute=COMPUTE[p.a_dtype],
        scale=np.dtype(dtype),
        alignments=(p.b_align, p.a_align, p.c_align),
        device=device,
    )


def launch_of(
    product: LtProduct, algorithm: Algorithm, workspace_bytes: int, stack: Stack, itemsize: int
) -> Callable[[int, int, int], None]:
    """Return the function that enqueues all launches, given the addresses of A, B and C."""
    from cupy.cuda import get_current_stream

    launch = Launch(product, algorithm)
    places = [tuple(itemsize * offset for offset in each) for each in stack.offsets]
    if len(places) == 1 and not any(places[0]) and not workspace_bytes:
        return lambda a, b, c: launch(b, a, c, 0, 0, get_current_stream().ptr)

    def enqueue(a: int, b: int, c: int, workspace: int = 0) -> None:
        stream = get_current_stream().ptr
        for of_a, of_b, of_c in places:
            launch(b + of_b, a + of_a, c + of_c, workspace, workspace_bytes, stream)

    if not workspace_bytes:
        return enqueue
    return lambda a, b, c: with_workspace(workspace_bytes, lambda at: enqueue(a, b, c, at))
