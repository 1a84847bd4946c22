"""Contract two CuPy arrays with labelled axes by the product that `contraction` plans.

A repeated contraction (equal shapes, strides, types and alignment) takes one look-up in the table
of plans and one launch. A contraction that first copies an operand calls `cupygemm.matmul` on
views.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cupygemm._plan.keys import array_key
from cupygemm._plan.plan import Plan
from cupygemm._plan.table import PLANS, Key
from cupygemm._products.contraction import (
    Contraction,
    ItemSizes,
    LabelledAxes,
    Sizes,
    View,
    c_strides,
    plan_contraction,
)
from cupygemm._products.matmul import matmul, plan_for
from cupygemm._records.dtypes import FLOAT8_DTYPES
from cupygemm._records.shapes import Label, Labels
from cupygemm._request.arrays import may_overlap
from cupygemm._request.copies import assign
from cupygemm._request.promotion import product_types

Array = Any


class ArrayLayout(NamedTuple):
    """The properties of an array that the plan of a contraction depends on."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]


def layout_of(x: Array) -> ArrayLayout:
    """Return the layout of a CuPy array."""
    return ArrayLayout(shape=x.shape, strides=x.strides, dtype=x.dtype)


def contract(
    x1: Array,
    x2: Array,
    out: Array = None,
    *,
    labels1: Labels,
    labels2: Labels,
    labels_out: Labels,
    dtype: np.dtype[Any] | None = None,
    casting: str = "same_kind",
    any_order: bool = False,
) -> Array:
    """Return the sum of products over the labels that the result lacks.

    Parameters
    ----------
    x1, x2 : cupy.ndarray
        Operands.
    out : cupy.ndarray, optional
        Array for the result.
    labels1, labels2, labels_out : tuple of labels
        Labels of the axes of each array, without duplicates within an array. Each label of an
        operand must be in the other operand or in the result, and each label of the result in an
        operand. The extents of a label must be equal, or 1 in an operand that is broadcast.
    dtype : numpy.dtype, optional
        Type of the result.
    casting : str
        Which conversions are allowed.
    any_order : bool
        Whether a new result may be a transposed view, if that suits the operands. Otherwise it is
        C-contiguous.
    """
    # This is array_key, inlined because every call builds the key.
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
        LabelledLayout(labels1, layout_of(x1)),
        LabelledLayout(labels2, layout_of(x2)),
        labels_out=labels_out,
        layout_out=None if out is None else layout_of(out),
        dtype=dtype,
        casting=casting,
        any_order=any_order,
    )
    result = run(x1, x2, out)
    PLANS.keep(key, run.bound(x1, x2, result) if isinstance(run, _Product) else run)
    return result


class LabelledLayout(NamedTuple):
    """Labels of an operand's axes, and its layout."""

    labels: Labels
    layout: ArrayLayout


def _plan_pair(
    x1: LabelledLayout,
    x2: LabelledLayout,
    *,
    labels_out: Labels,
    layout_out: ArrayLayout | None,
    dtype: np.dtype[Any] | None,
    casting: str,
    any_order: bool,
) -> _Product | _Multiply:
    """Return the computation of a contraction of arrays with these layouts."""
    types = product_types(
        x1.layout.dtype,
        x2.layout.dtype,
        out=None if layout_out is None else layout_out.dtype,
        dtype=dtype,
        casting=casting,
    )
    if layout_out is None:
        check_new_result(types.result)
    sizes: dict[Label, int] = {}
    for labels, layout in ((x1.labels, x1.layout), (x2.labels, x2.layout)):
        for label, extent in zip(labels, layout.shape, strict=True):
            if sizes.get(label, 1) == 1:
                sizes[label] = extent
    if layout_out is not None:  # it may broadcast the product
        sizes |= zip(labels_out, layout_out.shape, strict=True)
    axes1 = _axes(x1.labels, x1.layout, sizes)
    axes2 = _axes(x2.labels, x2.layout, sizes)
    if all(label in labels_out for label in (*axes1.labels, *axes2.labels)):
        return _Multiply(
            x1=_broadcast_view(axes1, labels_out, sizes),
            x2=_broadcast_view(axes2, labels_out, sizes),
            shape=tuple(sizes[label] for label in labels_out),
            stored=types.stored,
            result=types.result,
        )
    strides = None if layout_out is None else layout_out.strides
    if layout_out is None and not any_order:
        in_c_order = c_strides(labels_out, sizes, types.result.itemsize)
        strides = tuple(in_c_order[label] for label in labels_out)
    plan = plan_contraction(
        axes1,
        axes2,
        LabelledAxes(labels_out, strides),
        sizes=sizes,
        itemsizes=ItemSizes(
            x1=x1.layout.dtype.itemsize,
            x2=x2.layout.dtype.itemsize,
            out=types.result.itemsize,
        ),
    )
    return _Product(
        plan=plan,
        x1_copy=_view_to_copy(plan.x1_copy, axes1, sizes),
        x2_copy=_view_to_copy(plan.x2_copy, axes2, sizes),
        storage=tuple(sizes[label] for label in plan.storage),
        result=types.result,
        dtype=dtype,
        casting=casting,
    )


def check_new_result(dtype: np.dtype[Any]) -> None:
    """Raise TypeError if CuPy has no arrays of the type of a new result."""
    if dtype in FLOAT8_DTYPES:
        raise TypeError(
            f"matmul: dtype is {dtype}; this function does not round to 8-bit floats, "
            "cupygemm.matmul, gemm and linear do"
        )


def _axes(labels: Labels, layout: ArrayLayout, sizes: Sizes) -> LabelledAxes:
    """Return the axes of an operand without those along which it is broadcast."""
    strides = {
        label: stride
        for label, extent, stride in zip(labels, layout.shape, layout.strides, strict=True)
        if extent == sizes[label]
    }
    return LabelledAxes(tuple(strides), tuple(strides.values()))


def _view_to_copy(order: Labels | None, axes: LabelledAxes, sizes: Sizes) -> View | None:
    """Return the view of an operand that is copied; None if the operand is not copied."""
    if order is None:
        return None
    strides = axes.strides_by_label()
    return View(
        shape=tuple(sizes[label] for label in order),
        strides=tuple(strides[label] for label in order),
    )


def _broadcast_view(axes: LabelledAxes, labels_out: Labels, sizes: Sizes) -> View:
    """Return the view of an operand that is broadcast to the axes of the result."""
    strides = axes.strides_by_label()
    return View(
        shape=tuple(sizes[label] for label in labels_out),
        strides=tuple(strides.get(label, 0) for label in labels_out),
    )


@dataclass(frozen=True, kw_only=True)
class _Product:
    """A contraction by one call of `matmul`.

    Attributes
    ----------
    plan : Contraction
    x1_copy, x2_copy : View or None
        The view of the operand that is copied first; None without a copy.
    storage : tuple of int
        Shape of a new result in memory.
    result : numpy.dtype
        Type of the result.
    dtype : numpy.dtype or None
    casting : str
    """

    plan: Contraction
    x1_copy: View | None
    x2_copy: View | None
    storage: tuple[int, ...]
    result: np.dtype[Any]
    dtype: np.dtype[Any] | None
    casting: str

    def __call__(self, x1: Array, x2: Array, out: Array) -> Array:
        plan = self.plan
        if self.x1_copy is not None:
            x1 = contiguous_copy(viewed(x1, self.x1_copy))
        if self.x2_copy is not None:
            x2 = contiguous_copy(viewed(x2, self.x2_copy))
        if out is None:
            out = viewed(ndarray_type()(self.storage, self.result), plan.result)
        x1, x2, product = viewed(x1, plan.x1), viewed(x2, plan.x2), viewed(out, plan.product)
        matmul(x1, x2, product, dtype=self.dtype, casting=self.casting)
        return out

    def overlaps(self, x1: Array, x2: Array, out: Array) -> bool:
        """Return False: `matmul` detects overlaps itself and works around them."""
        return False

    def bound(self, x1: Array, x2: Array, result: Array) -> _Product | _Bound:
        """Return a callable that, after the first call, omits the views that are not needed."""
        if self.x1_copy is not None or self.x2_copy is not None:
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
        return _Bound(plan=plan, storage=self.storage, dtype=self.result, result=self.plan.result)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    """A contraction whose kernel reads the operands in place."""

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


@dataclass(frozen=True, kw_only=True)
class _Multiply:
    """An element-wise product, without a sum, by CuPy's own kernel."""

    x1: View
    x2: View
    shape: tuple[int, ...]
    stored: np.dtype[Any]
    result: np.dtype[Any]

    def overlaps(self, x1: Array, x2: Array, out: Array) -> bool:
        """Return False: each call checks for overlaps itself."""
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
    """Return another view of an array's memory, starting at its first element."""
    if array.shape == view.shape and array.strides == view.strides:
        return array
    return ndarray_type()(view.shape, array.dtype, array.data, view.strides)


def ndarray_type() -> Any:
    """Return CuPy's array type; the caller has CuPy arrays, so CuPy is loaded."""
    return sys.modules["cupy"].ndarray


def contiguous_copy(array: Array) -> Array:
    """Return a copy in C order."""
    import cupy

    copy = cupy.ndarray(array.shape, array.dtype)
    assign(copy, array)
    return copy
