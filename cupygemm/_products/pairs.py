"""Contract two CuPy arrays with labelled axes: the product that `contraction` plans, run and kept.

A repeated contraction of equal shapes, strides, types and alignment is one look-up in the table of
plans and a launch; one that copies an operand first is a call of `cupygemm.matmul` on views.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm._plan.keys import array_key
from cupygemm._plan.plan import Plan
from cupygemm._plan.table import PLANS, Key
from cupygemm._products.contraction import Contraction, View, c_strides, plan_contraction
from cupygemm._products.matmul import matmul, plan_for
from cupygemm._records.shapes import Label, Labels
from cupygemm._request.arrays import may_overlap
from cupygemm._request.copies import assign
from cupygemm._request.promotion import product_types

Array = Any
Term = tuple[Labels, tuple[int, ...]]  # labels, strides
Lie = tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any]]  # shape, strides, dtype


def contract(
    x1: Array,
    labels1: Labels,
    x2: Array,
    labels2: Labels,
    labels_out: Labels,
    out: Array = None,
    *,
    dtype: np.dtype[Any] | None = None,
    casting: str = "same_kind",
    any_order: bool = False,
) -> Array:
    """Return the sum of products over the labels that are not in the result.

    Every label of an operand is in the other or in the result; labels of one operand differ; equal
    labels have equal extents, or extent 1 in an operand, which is broadcast. Every label of the
    result is in an operand. A new result is C-contiguous, or a transposed view with `any_order`,
    where that suits the operands.
    """
    # array_key, spelled out: every call builds this key.
    m1, m2 = x1.data, x2.data
    key: Key = (
        "contract",
        labels1,
        labels2,
        labels_out,
        dtype,
        casting,
        any_order,
        x1.shape,
        x1.strides,
        x1.dtype,
        m1.ptr & 15,
        m1.device_id,
        x2.shape,
        x2.strides,
        x2.dtype,
        m2.ptr & 15,
        m2.device_id,
    )
    if out is not None:
        key = (*key, *array_key(out))
    plan = PLANS.get(key)
    if plan is not None and (out is None or not plan.overlaps(x1, x2, out)):
        return plan(x1, x2, out)
    run = _plan_pair(
        _lie(x1),
        labels1,
        _lie(x2),
        labels2,
        labels_out=labels_out,
        lie_out=None if out is None else _lie(out),
        dtype=dtype,
        casting=casting,
        any_order=any_order,
    )
    result = run(x1, x2, out)
    PLANS.keep(key, run.bound(x1, x2, result) if isinstance(run, _Product) else run)
    return result


def _lie(x: Array) -> Lie:
    return x.shape, x.strides, x.dtype


def _plan_pair(
    lie1: Lie,
    labels1: Labels,
    lie2: Lie,
    labels2: Labels,
    *,
    labels_out: Labels,
    lie_out: Lie | None,
    dtype: np.dtype[Any] | None,
    casting: str,
    any_order: bool,
) -> _Product | _Multiply:
    """Return what computes contractions of arrays that lie so."""
    out_dtype = None if lie_out is None else lie_out[2]
    types = product_types(lie1[2], lie2[2], out=out_dtype, dtype=dtype, casting=casting)
    sizes: dict[Label, int] = {}
    for (shape, _, _), labels in ((lie1, labels1), (lie2, labels2)):
        for label, extent in zip(labels, shape, strict=True):
            if sizes.get(label, 1) == 1:
                sizes[label] = extent
    if lie_out is not None:  # it may broadcast the product
        sizes |= zip(labels_out, lie_out[0], strict=True)
    term1, term2 = _term(lie1, labels1, sizes), _term(lie2, labels2, sizes)
    if all(label in labels_out for label in (*term1[0], *term2[0])):
        shape = tuple(sizes[label] for label in labels_out)
        view1, view2 = _spread(term1, labels_out, sizes), _spread(term2, labels_out, sizes)
        return _Multiply(x1=view1, x2=view2, shape=shape, stored=types.stored, result=types.result)
    strides = None if lie_out is None else lie_out[1]
    if lie_out is None and not any_order:
        in_c_order = c_strides(labels_out, sizes, types.result.itemsize)
        strides = tuple(in_c_order[label] for label in labels_out)
    plan = plan_contraction(
        term1,
        term2,
        (labels_out, strides),
        sizes,
        (lie1[2].itemsize, lie2[2].itemsize, types.result.itemsize),
    )
    storage = tuple(sizes[label] for label in plan.storage)
    copies = (_copied_view(plan.x1_copy, term1, sizes), _copied_view(plan.x2_copy, term2, sizes))
    return _Product(
        plan=plan,
        copies=copies,
        storage=storage,
        result=types.result,
        dtype=dtype,
        casting=casting,
    )


def _term(lie: Lie, labels: Labels, sizes: Mapping[Label, int]) -> Term:
    """Return the axes of an operand without those along which it is broadcast."""
    axes = [
        (label, stride)
        for label, extent, stride in zip(labels, lie[0], lie[1], strict=True)
        if extent == sizes[label]
    ]
    return tuple(label for label, _ in axes), tuple(stride for _, stride in axes)


def _copied_view(order: Labels | None, term: Term, sizes: Mapping[Label, int]) -> View | None:
    """Return an operand as the view that is copied, if it is."""
    if order is None:
        return None
    strides = dict(zip(*term, strict=True))
    return View(tuple(sizes[label] for label in order), tuple(strides[label] for label in order))


def _spread(term: Term, labels_out: Labels, sizes: Mapping[Label, int]) -> View:
    """Return an operand broadcast to the axes of the result."""
    strides = dict(zip(*term, strict=True))
    return View(
        tuple(sizes[label] for label in labels_out),
        tuple(strides.get(label, 0) for label in labels_out),
    )


@dataclass(frozen=True)
class _Product:
    """A contraction by one call of `matmul`."""

    plan: Contraction
    copies: tuple[View | None, View | None]
    storage: tuple[int, ...]
    result: np.dtype[Any]
    dtype: np.dtype[Any] | None
    casting: str

    def __call__(self, x1: Array, x2: Array, out: Array) -> Array:
        plan = self.plan
        copy1, copy2 = self.copies
        if copy1 is not None:
            x1 = contiguous_copy(viewed(x1, copy1))
        if copy2 is not None:
            x2 = contiguous_copy(viewed(x2, copy2))
        if out is None:
            out = viewed(ndarray_type()(self.storage, self.result), plan.result)
        x1, x2, product = viewed(x1, plan.x1), viewed(x2, plan.x2), viewed(out, plan.product)
        matmul(x1, x2, product, dtype=self.dtype, casting=self.casting)
        return out

    def overlaps(self, x1: Array, x2: Array, out: Array) -> bool:
        """Return False: `matmul` finds overlaps itself, and works around them."""
        return False

    def bound(self, x1: Array, x2: Array, result: Array) -> _Product | _Bound:
        """Return the call without the views that its arrays do not need, once it has run."""
        if self.copies != (None, None):
            return self
        plan = plan_for(
            viewed(x1, self.plan.x1),
            viewed(x2, self.plan.x2),
            viewed(result, self.plan.product),
            dtype=self.dtype,
            casting=self.casting,
        )
        if plan is None or not plan.by_address:
            return self
        return _Bound(plan, self.storage, self.result, self.plan.result)


@dataclass(frozen=True, slots=True)
class _Bound:
    """A contraction whose kernel takes the operands where they lie."""

    plan: Plan
    storage: tuple[int, ...]
    dtype: np.dtype[Any]
    result: View

    def overlaps(self, x1: Array, x2: Array, out: Array) -> bool:
        """Whether the memory of ``out`` may overlap that of an operand."""
        return self.plan.overlaps(x1, x2, out)

    def __call__(self, x1: Array, x2: Array, out: Array) -> Array:
        if out is not None:
            return self.plan.run(x1, x2, out)
        out = ndarray_type()(self.storage, self.dtype)
        self.plan.run(x1, x2, out)
        return viewed(out, self.result)


@dataclass(frozen=True)
class _Multiply:
    """A product of elements, with nothing to add up: CuPy's own kernel."""

    x1: View
    x2: View
    shape: tuple[int, ...]
    stored: np.dtype[Any]
    result: np.dtype[Any]

    def overlaps(self, x1: Array, x2: Array, out: Array) -> bool:
        """Return False: a call looks for overlaps itself."""
        return False

    def __call__(self, x1: Array, x2: Array, out: Array) -> Array:
        import cupy

        x1, x2 = viewed(x1, self.x1), viewed(x2, self.x2)
        direct = out is not None and not (may_overlap(out, x1) or may_overlap(out, x2))
        target = out if direct else cupy.ndarray(self.shape, self.result)
        cupy.multiply(x1, x2, target, dtype=self.stored, casting="unsafe")
        if out is None:
            return target
        if not direct:
            assign(out, target)
        return out


def viewed(array: Array, view: View) -> Array:
    """Return another view of the memory from an array's first element on."""
    if array.shape == view.shape and array.strides == view.strides:
        return array
    return ndarray_type()(view.shape, array.dtype, array.data, view.strides)


@functools.cache
def ndarray_type() -> Any:
    """Return CuPy's array type; whoever calls has imported CuPy."""
    from cupy import ndarray

    return ndarray


def contiguous_copy(array: Array) -> Array:
    """Return a copy in C order."""
    import cupy

    copy = cupy.ndarray(array.shape, array.dtype)
    assign(copy, array)
    return copy
