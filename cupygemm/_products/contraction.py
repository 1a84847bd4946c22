"""How two arrays with labelled axes are contracted: as one batched matrix product on views.

Works on records alone: labels, extents and strides, no array and no device. The labels fall into
four groups: in both operands and the result (batch), in both operands only (contracted), and in one
operand and the result (left, right). A group whose labels nest in memory, in every array that has
them, is one axis of a matrix; where a left or right group does not nest, the part that does not is
batched over, with the other operand broadcast, so nothing is copied. Only contracted labels that do
not nest in both operands alike, or products that would be slivers, take a copy of an operand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cupygemm._records.shapes import Label, Labels

Strides = Mapping[Label, int]

MAX_BATCH_AXES = 3
"""Axes that one launch batches over."""
SLIVER = 32
"""Rows or columns below which a product wastes most of the smallest tile."""


@dataclass(frozen=True)
class View:
    """A view of an array's memory: shape, and strides in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Contraction:
    """One pair of operands as a matrix product.

    Attributes
    ----------
    x1_copy, x2_copy : tuple of labels or None
        The axes in the order in which the operand is copied to C order first, if it is.
    x1, x2, product : View
        What is multiplied, (..., m, k) and (..., k, n), and where the product goes, (..., m, n).
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
    """Labels that are one axis in memory, in all arrays that have them."""

    labels: Labels
    size: int


@dataclass(frozen=True)
class _Groups:
    batch: Labels
    contracted: Labels
    left: Labels
    right: Labels


@dataclass(frozen=True)
class _Plan:
    """Matrix axes and batch axes for given strides."""

    m: _Chain
    n: _Chain
    k: _Chain
    outer: tuple[_Chain, ...]  # of the batch group, and what of left and right is batched over


_NONE = _Chain((), 1)


def plan_contraction(
    x1: tuple[Labels, tuple[int, ...]],
    x2: tuple[Labels, tuple[int, ...]],
    out: tuple[Labels, tuple[int, ...] | None],
    sizes: Mapping[Label, int],
    itemsizes: tuple[int, int, int],
) -> Contraction:
    """Return how a pair is contracted.

    Parameters
    ----------
    x1, x2 : (labels, strides)
        Each label once; strides in bytes. Labels along which an operand is broadcast are absent. A
        label of one operand must be in the other operand, or in the result, or both.
    out : (labels, strides or None)
        Of the result; None for a new one, which may then lie in any order.
    sizes : mapping of label to int
    itemsizes : (int, int, int)
        Bytes of an element of x1, x2 and the result.
    """
    trivial = {label for label, size in sizes.items() if size == 1}
    strides1, strides2 = (
        {label: s for label, s in zip(*x, strict=True) if label not in trivial} for x in (x1, x2)
    )
    out_labels = tuple(label for label in out[0] if label not in trivial)
    size1, size2, size_out = itemsizes
    for label in out_labels:  # ``out`` may repeat the product along an axis that neither has
        if label not in strides1 and label not in strides2:
            strides1[label] = strides2[label] = 0
    groups = _group(strides1, strides2, out_labels)
    if 0 in sizes.values():  # no element is multiplied, so the simplest strides will do
        strides1 = c_strides((*groups.batch, *groups.left, *groups.contracted), sizes, size1)
        strides2 = c_strides((*groups.batch, *groups.right, *groups.contracted), sizes, size2)
    copy1, copy2 = _copies_to_nest(groups.contracted, strides1, strides2, sizes)
    given = None if out[1] is None else dict(zip(out[0], out[1], strict=True))

    while True:
        order1 = _copied_order(groups.batch, groups.left, groups.contracted, strides1, strides2)
        order2 = _copied_order(groups.batch, groups.right, groups.contracted, strides2, strides1)
        if copy1 and copy2:  # neither has an order of its own: let both have that of x1
            k_order = order1[len(order1) - len(groups.contracted) :]
            order2 = (*order2[: len(order2) - len(k_order)], *k_order)
        now1 = c_strides(order1, sizes, size1) if copy1 else strides1
        now2 = c_strides(order2, sizes, size2) if copy2 else strides2
        storage, plan = _place(groups, now1, now2, out_labels, given, sizes, itemsizes)
        more1 = not copy1 and _needs_copy(plan, plan.m, groups.left, now1, sizes)
        more2 = not copy2 and _needs_copy(plan, plan.n, groups.right, now2, sizes)
        if not (more1 or more2):
            break
        copy1, copy2 = copy1 or more1, copy2 or more2

    target = given or c_strides(storage, sizes, size_out)
    return Contraction(
        order1 if copy1 else None,
        order2 if copy2 else None,
        _view((*plan.outer, plan.m, plan.k), now1, size1),
        _view((*plan.outer, plan.k, plan.n), now2, size2),
        _view((*plan.outer, plan.m, plan.n), target, size_out),
        storage,
        View(
            tuple(sizes[label] for label in out[0]),
            tuple(target.get(label, size_out) for label in out[0]),
        ),
    )


def _group(strides1: Strides, strides2: Strides, out: Labels) -> _Groups:
    return _Groups(
        tuple(label for label in out if label in strides1 and label in strides2),
        tuple(label for label in strides1 if label in strides2 and label not in out),
        tuple(label for label in out if label not in strides2),
        tuple(label for label in out if label not in strides1),
    )


def c_strides(order: Labels, sizes: Mapping[Label, int], itemsize: int) -> dict[Label, int]:
    """Return the strides of an array that is C-contiguous in an order of axes."""
    strides, step = {}, itemsize
    for label in reversed(order):
        strides[label] = step
        step *= max(sizes[label], 1)
    return strides


def _chains(
    labels: Labels, arrays: Sequence[Strides], sizes: Mapping[Label, int]
) -> tuple[_Chain, ...]:
    """Return labels as the fewest axes that every one of the arrays has, outermost first."""
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
    contracted: Labels, strides1: Strides, strides2: Strides, sizes: Mapping[Label, int]
) -> tuple[bool, bool]:
    """Return which operands are copied so that the contracted labels are one axis in both."""
    if len(_chains(contracted, (strides1, strides2), sizes)) <= 1:
        return False, False
    nests1 = len(_chains(contracted, (strides1,), sizes)) == 1
    nests2 = len(_chains(contracted, (strides2,), sizes)) == 1
    if nests1 and nests2:  # in different orders: copy the smaller
        smaller = _elements(strides1, sizes) <= _elements(strides2, sizes)
        return smaller, not smaller
    return not nests1, not nests2


def _copied_order(
    batch: Labels, kept: Labels, contracted: Labels, own: Strides, other: Strides
) -> Labels:
    """Return the axes of a copy, in the order in which it is contiguous: contracted ones last.

    They take the other operand's order, which is not copied, or is copied to the same order.
    """
    nested = sorted(contracted, key=lambda label: -abs(other[label]))
    return (*batch, *sorted(kept, key=lambda label: -abs(own[label])), *nested)


def _elements(strides: Strides, sizes: Mapping[Label, int]) -> int:
    return math.prod(sizes[label] for label, stride in strides.items() if stride)


def _place(
    groups: _Groups,
    strides1: Strides,
    strides2: Strides,
    out: Labels,
    given: Strides | None,
    sizes: Mapping[Label, int],
    itemsizes: tuple[int, int, int],
) -> tuple[Labels, _Plan]:
    """Return the order in which a new result lies, and the plan that writes it.

    C order if that batches over no more axes and the product can be written in place; else the
    order that suits the operands, of which the result is a transposed view.
    """

    def plan(target: Strides) -> _Plan:
        return _plan(groups, (strides1, strides2, target), sizes, itemsizes)

    if given is not None:
        return out, plan(given)

    def cost(plan: _Plan, target: Strides) -> tuple[bool, int]:
        writable = any(
            chain.labels and target[chain.labels[-1]] == itemsizes[2] for chain in (plan.m, plan.n)
        )
        return not writable and bool(out), len(plan.outer)

    in_c_order = c_strides(out, sizes, itemsizes[2])
    first = plan(in_c_order)
    own1 = {label: strides1[label] for label in (*groups.batch, *groups.left)}
    own2 = {label: strides2[label] for label in (*groups.batch, *groups.right)}
    free = plan({**own2, **own1})  # as if the result lay like the operands
    matrix = sorted(
        (free.m, free.n), key=lambda chain: out.index(chain.labels[-1]) if chain.labels else -1
    )
    inner = tuple(label for chain in matrix for label in chain.labels)
    storage = (*(label for chain in free.outer for label in chain.labels), *inner)
    in_own_order = c_strides(storage, sizes, itemsizes[2])
    second = plan(in_own_order)
    if cost(second, in_own_order) < cost(first, in_c_order):
        return storage, second
    return out, first


def _plan(
    groups: _Groups,
    arrays: tuple[Strides, Strides, Strides],
    sizes: Mapping[Label, int],
    itemsizes: tuple[int, int, int],
) -> _Plan:
    """Return the axes of the product for strides of both operands and the result."""
    strides1, strides2, target = arrays
    (k,) = _chains(groups.contracted, (strides1, strides2), sizes) or (_NONE,)
    m, rest1 = _matrix_axis(groups.left, k, strides1, target, sizes, (itemsizes[0], itemsizes[2]))
    n, rest2 = _matrix_axis(groups.right, k, strides2, target, sizes, (itemsizes[1], itemsizes[2]))
    batch = _chains(groups.batch, (target, strides1, strides2), sizes)
    return _Plan(m, n, k, (*batch, *rest1, *rest2))


def _matrix_axis(
    kept: Labels,
    k: _Chain,
    strides: Strides,
    target: Strides,
    sizes: Mapping[Label, int],
    itemsizes: tuple[int, int],
) -> tuple[_Chain, tuple[_Chain, ...]]:
    """Return which of an operand's kept axes is the matrix axis, and the others.

    Where the contracted axis is not the adjacent one, a kept axis has to be, or the operand would
    be copied; else an axis that is adjacent in the result, then the longest.
    """
    chains = _chains(kept, (strides, target), sizes)
    if not chains:
        return _NONE, ()
    k_is_adjacent = bool(k.labels) and strides[k.labels[-1]] == itemsizes[0]

    def rank(chain: _Chain) -> tuple[bool, bool, int]:
        inner = chain.labels[-1]
        return (
            not k_is_adjacent and strides[inner] == itemsizes[0],
            target[inner] == itemsizes[1] and chain.size >= SLIVER,
            chain.size,
        )

    axis = max(chains, key=rank)
    return axis, tuple(chain for chain in chains if chain is not axis)


def _needs_copy(
    plan: _Plan, axis: _Chain, kept: Labels, strides: Strides, sizes: Mapping[Label, int]
) -> bool:
    """Whether to copy an operand to a layout in which its kept axes are one."""
    if len(_chains(kept, (strides,), sizes)) <= 1:
        return False
    total = math.prod(sizes[label] for label in kept)
    tiles = -(-total // SLIVER)
    slivers = axis.size < SLIVER and total >= 8 * tiles * axis.size
    return slivers or len(plan.outer) > MAX_BATCH_AXES


def _view(chains: tuple[_Chain, ...], strides: Strides, itemsize: int) -> View:
    """Return an array's view with one axis for each chain, of extent 1 where it lacks the chain."""
    inner = [chain.labels[-1] if chain.labels else None for chain in chains]
    return View(
        tuple(
            chain.size if label in strides else 1
            for chain, label in zip(chains, inner, strict=True)
        ),
        tuple(strides.get(label, itemsize) for label in inner),
    )
