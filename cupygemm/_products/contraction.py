"""Plan the contraction of two arrays with labelled axes as one batched matrix product of views.

The module works on labels, extents and strides alone; it touches neither arrays nor devices. The
labels fall into four groups: batch (in both operands and the result), contracted (in both operands
only), and left and right (in one operand and the result). A group becomes one axis of a matrix if
its axes nest in memory in every array that has them. Axes of a left or right group that do not nest
become batch axes, along which the other operand is broadcast, so that nothing is copied. An operand
is copied only if the contracted axes do not nest alike in both operands, or if the product would
fall into slivers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cupygemm._records.shapes import Label, Labels

Sizes = Mapping[Label, int]
Strides = Mapping[Label, int]

MAX_BATCH_AXES = 3
"""Batch axes that one launch supports."""
SLIVER = 32
"""Number of rows or columns below which a product wastes most of the smallest tile."""


@dataclass(frozen=True)
class View:
    """Shape and strides (in bytes) of a view of an array's memory."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class LabelledAxes:
    """The axes of an array.

    Attributes
    ----------
    labels : tuple of labels
        One for each axis, without duplicates.
    strides : tuple of int or None
        Strides in bytes; None for a new result, which may have any order in memory.
    """

    labels: Labels
    strides: tuple[int, ...] | None

    def strides_by_label(self) -> dict[Label, int]:
        """Return the stride of each label; none for a new result."""
        return dict(zip(self.labels, self.strides or (), strict=self.strides is not None))


@dataclass(frozen=True, kw_only=True)
class ItemSizes:
    """Bytes of one element of each array."""

    x1: int
    x2: int
    out: int


@dataclass(frozen=True, kw_only=True)
class Contraction:
    """One pair of operands as a matrix product.

    Attributes
    ----------
    x1_copy, x2_copy : tuple of labels or None
        The order of axes in which the operand is first copied to C order; None without a copy.
    x1, x2, product : View
        The factors, (..., m, k) and (..., k, n), and the memory of the product, (..., m, n).
    storage : tuple of labels
        The order of axes in which a new result is C-contiguous.
    result : View
        The result as the caller sees it.
    """

    x1_copy: Labels | None
    x2_copy: Labels | None
    x1: View
    x2: View
    product: View
    storage: Labels
    result: View


@dataclass(frozen=True)
class _Chain:
    """Labels that form one axis in memory in all arrays that have them."""

    labels: Labels
    size: int


@dataclass(frozen=True, kw_only=True)
class _Groups:
    """The labels by the arrays that have them."""

    batch: Labels
    contracted: Labels
    left: Labels
    right: Labels


@dataclass(frozen=True, kw_only=True)
class _ArrayStrides:
    """Strides of both operands and of the result."""

    x1: Strides
    x2: Strides
    out: Strides


@dataclass(frozen=True, kw_only=True)
class _MatrixAxes:
    """Matrix axes and batch axes for given strides.

    ``outer`` has the batch group, and the axes of the left and right groups that become batch axes.
    """

    m: _Chain
    n: _Chain
    k: _Chain
    outer: tuple[_Chain, ...]


_NO_AXIS = _Chain((), 1)


def plan_contraction(
    x1: LabelledAxes, x2: LabelledAxes, out: LabelledAxes, *, sizes: Sizes, itemsizes: ItemSizes
) -> Contraction:
    """Return how to contract a pair.

    Parameters
    ----------
    x1, x2 : LabelledAxes
        Axes of the operands, without those along which the operand is broadcast. A label of one
        operand must be in the other operand, in the result, or in both.
    out : LabelledAxes
        Axes of the result.
    sizes : mapping of label to int
        Extents.
    itemsizes : ItemSizes
    """
    trivial = {label for label, size in sizes.items() if size == 1}
    strides1, strides2 = (
        {label: s for label, s in x.strides_by_label().items() if label not in trivial}
        for x in (x1, x2)
    )
    out_labels = tuple(label for label in out.labels if label not in trivial)
    for label in out_labels:  # ``out`` may repeat the product along an axis that no operand has
        if label not in strides1 and label not in strides2:
            strides1[label] = strides2[label] = 0
    groups = _group(strides1, strides2, out_labels)
    if 0 in sizes.values():  # no element is multiplied, so use the simplest strides
        order1 = (*groups.batch, *groups.left, *groups.contracted)
        order2 = (*groups.batch, *groups.right, *groups.contracted)
        strides1 = c_strides(order1, sizes, itemsizes.x1)
        strides2 = c_strides(order2, sizes, itemsizes.x2)
    copy1, copy2 = _copies_to_nest(groups.contracted, strides1, strides2, sizes)
    given = None if out.strides is None else out.strides_by_label()

    while True:
        order1 = _copied_order(groups, groups.left, own=strides1, other=strides2)
        order2 = _copied_order(groups, groups.right, own=strides2, other=strides1)
        if copy1 and copy2:  # give both copies the order of x1
            k_order = order1[len(order1) - len(groups.contracted) :]
            order2 = (*order2[: len(order2) - len(k_order)], *k_order)
        now1 = c_strides(order1, sizes, itemsizes.x1) if copy1 else strides1
        now2 = c_strides(order2, sizes, itemsizes.x2) if copy2 else strides2
        storage, axes = _place(
            groups,
            strides1=now1,
            strides2=now2,
            out=out_labels,
            given=given,
            sizes=sizes,
            itemsizes=itemsizes,
        )
        more1 = not copy1 and _needs_copy(axes, axes.m, groups.left, strides=now1, sizes=sizes)
        more2 = not copy2 and _needs_copy(axes, axes.n, groups.right, strides=now2, sizes=sizes)
        if not (more1 or more2):
            break
        copy1, copy2 = copy1 or more1, copy2 or more2

    target = given or c_strides(storage, sizes, itemsizes.out)
    return Contraction(
        x1_copy=order1 if copy1 else None,
        x2_copy=order2 if copy2 else None,
        x1=_view((*axes.outer, axes.m, axes.k), now1, itemsizes.x1),
        x2=_view((*axes.outer, axes.k, axes.n), now2, itemsizes.x2),
        product=_view((*axes.outer, axes.m, axes.n), target, itemsizes.out),
        storage=storage,
        result=View(
            shape=tuple(sizes[label] for label in out.labels),
            strides=tuple(target.get(label, itemsizes.out) for label in out.labels),
        ),
    )


def _group(strides1: Strides, strides2: Strides, out: Labels) -> _Groups:
    return _Groups(
        batch=tuple(label for label in out if label in strides1 and label in strides2),
        contracted=tuple(label for label in strides1 if label in strides2 and label not in out),
        left=tuple(label for label in out if label not in strides2),
        right=tuple(label for label in out if label not in strides1),
    )


def c_strides(order: Labels, sizes: Sizes, itemsize: int) -> dict[Label, int]:
    """Return the strides of an array that is C-contiguous in an order of axes."""
    strides, step = {}, itemsize
    for label in reversed(order):
        strides[label] = step
        step *= max(sizes[label], 1)
    return strides


def _chains(labels: Labels, arrays: Sequence[Strides], sizes: Sizes) -> tuple[_Chain, ...]:
    """Merge labels into as few axes as all of the arrays allow, outermost first."""
    chains: list[_Chain] = []
    for label in sorted(labels, key=lambda label: -abs(arrays[0][label])):
        size = sizes[label]
        if chains:
            last = chains[-1]
            inner = last.labels[-1]
            if all(array[inner] == array[label] * max(size, 1) for array in arrays):
                chains[-1] = _Chain((*last.labels, label), last.size * size)
                continue
        chains.append(_Chain((label,), size))
    return tuple(chains)


def _copies_to_nest(
    contracted: Labels, strides1: Strides, strides2: Strides, sizes: Sizes
) -> tuple[bool, bool]:
    """Return which operands to copy so that the contracted labels are one axis in both."""
    if len(_chains(contracted, (strides1, strides2), sizes)) <= 1:
        return False, False
    nests1 = len(_chains(contracted, (strides1,), sizes)) == 1
    nests2 = len(_chains(contracted, (strides2,), sizes)) == 1
    if nests1 and nests2:  # in different orders: copy the smaller
        smaller = _elements(strides1, sizes) <= _elements(strides2, sizes)
        return smaller, not smaller
    return not nests1, not nests2


def _copied_order(groups: _Groups, kept: Labels, *, own: Strides, other: Strides) -> Labels:
    """Return the order of axes in which a copy is contiguous, contracted axes last.

    The contracted axes take the order of the other operand, which either is not copied or is copied
    to the same order.
    """
    nested = sorted(groups.contracted, key=lambda label: -abs(other[label]))
    return (*groups.batch, *sorted(kept, key=lambda label: -abs(own[label])), *nested)


def _elements(strides: Strides, sizes: Sizes) -> int:
    return math.prod(sizes[label] for label, stride in strides.items() if stride)


def _place(
    groups: _Groups,
    *,
    strides1: Strides,
    strides2: Strides,
    out: Labels,
    given: Strides | None,
    sizes: Sizes,
    itemsizes: ItemSizes,
) -> tuple[Labels, _MatrixAxes]:
    """Return the order of a new result in memory, and the axes of the product that writes it.

    The order is C order if this needs no further batch axes and the product can be written in
    place. Otherwise the order suits the operands, and the result is a transposed view.
    """

    def axes_for(target: Strides) -> _MatrixAxes:
        arrays = _ArrayStrides(x1=strides1, x2=strides2, out=target)
        return _matrix_axes(groups, arrays, sizes, itemsizes)

    if given is not None:
        return out, axes_for(given)

    def cost(axes: _MatrixAxes, target: Strides) -> tuple[bool, int]:
        writable = any(
            chain.labels and target[chain.labels[-1]] == itemsizes.out for chain in (axes.m, axes.n)
        )
        return not writable and bool(out), len(axes.outer)

    in_c_order = c_strides(out, sizes, itemsizes.out)
    first = axes_for(in_c_order)
    own1 = {label: strides1[label] for label in (*groups.batch, *groups.left)}
    own2 = {label: strides2[label] for label in (*groups.batch, *groups.right)}
    free = axes_for({**own2, **own1})  # as if the result had the operands' strides
    matrix = sorted(
        (free.m, free.n), key=lambda chain: out.index(chain.labels[-1]) if chain.labels else -1
    )
    inner = tuple(label for chain in matrix for label in chain.labels)
    storage = (*(label for chain in free.outer for label in chain.labels), *inner)
    in_own_order = c_strides(storage, sizes, itemsizes.out)
    second = axes_for(in_own_order)
    if cost(second, in_own_order) < cost(first, in_c_order):
        return storage, second
    return out, first


def _matrix_axes(
    groups: _Groups, arrays: _ArrayStrides, sizes: Sizes, itemsizes: ItemSizes
) -> _MatrixAxes:
    """Return the axes of the product for the strides of both operands and the result."""
    (k,) = _chains(groups.contracted, (arrays.x1, arrays.x2), sizes) or (_NO_AXIS,)
    chains1 = _chains(groups.left, (arrays.x1, arrays.out), sizes)
    chains2 = _chains(groups.right, (arrays.x2, arrays.out), sizes)
    m, rest1 = _matrix_axis(
        chains1,
        k,
        strides=arrays.x1,
        itemsize=itemsizes.x1,
        target=arrays.out,
        target_itemsize=itemsizes.out,
    )
    n, rest2 = _matrix_axis(
        chains2,
        k,
        strides=arrays.x2,
        itemsize=itemsizes.x2,
        target=arrays.out,
        target_itemsize=itemsizes.out,
    )
    batch = _chains(groups.batch, (arrays.out, arrays.x1, arrays.x2), sizes)
    return _MatrixAxes(m=m, n=n, k=k, outer=(*batch, *rest1, *rest2))


def _matrix_axis(
    chains: tuple[_Chain, ...],
    k: _Chain,
    *,
    strides: Strides,
    itemsize: int,
    target: Strides,
    target_itemsize: int,
) -> tuple[_Chain, tuple[_Chain, ...]]:
    """Return which of an operand's kept axes is the matrix axis, and the others.

    If the contracted axis does not have unit stride, a kept axis must have it, or the operand would
    be copied. Otherwise an axis with unit stride in the result is preferred, then the longest.
    """
    if not chains:
        return _NO_AXIS, ()
    k_is_adjacent = bool(k.labels) and strides[k.labels[-1]] == itemsize

    def rank(chain: _Chain) -> tuple[bool, bool, int]:
        inner = chain.labels[-1]
        return (
            not k_is_adjacent and strides[inner] == itemsize,
            target[inner] == target_itemsize and chain.size >= SLIVER,
            chain.size,
        )

    axis = max(chains, key=rank)
    return axis, tuple(chain for chain in chains if chain is not axis)


def _needs_copy(
    axes: _MatrixAxes, axis: _Chain, kept: Labels, *, strides: Strides, sizes: Sizes
) -> bool:
    """Whether to copy an operand to a layout in which its kept axes are one."""
    if len(_chains(kept, (strides,), sizes)) <= 1:
        return False
    total = math.prod(sizes[label] for label in kept)
    tiles = -(-total // SLIVER)
    slivers = axis.size < SLIVER and total >= 8 * tiles * axis.size
    return slivers or len(axes.outer) > MAX_BATCH_AXES


def _view(chains: tuple[_Chain, ...], strides: Strides, itemsize: int) -> View:
    """Return an array's view with one axis per chain, of extent 1 if the array lacks the chain."""
    inner = [chain.labels[-1] if chain.labels else None for chain in chains]
    return View(
        shape=tuple(
            chain.size if label in strides else 1
            for chain, label in zip(chains, inner, strict=True)
        ),
        strides=tuple(strides.get(label, itemsize) for label in inner),
    )
