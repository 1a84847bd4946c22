"""Parse the subscripts of `einsum`, a string or lists of labels, into labels for each axis.

A label is a letter, or any integer in the interleaved form. The axes of an ellipsis are labelled by
their distance from its end, so that they broadcast from the last axis on, as in NumPy.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cupygemm._records.shapes import Label, Labels
from cupygemm._request.arrays import type_of

ELLIPSIS = "..."
Term = tuple[Label, ...]
"""The labels of one operand or of the result as written, with at most one ELLIPSIS."""


@dataclass(frozen=True)
class Broadcast:
    """The label of an axis of an ellipsis, by its distance from the end; 1 is the last axis."""

    from_end: int

    def __repr__(self) -> str:
        return f"...[-{self.from_end}]"


@dataclass(frozen=True)
class Subscripts:
    """Labels of the axes of all arrays of a call.

    Attributes
    ----------
    inputs : tuple of tuple of labels
        A label for each axis of each operand.
    output : tuple of labels
        A label for each axis of the result.
    """

    inputs: tuple[Labels, ...]
    output: Labels


def split_call(operands: Sequence[Any]) -> tuple[str | tuple[Term, ...], tuple[Any, ...]]:
    """Split the arguments of a call into subscripts and arrays.

    The subscripts are a string, or the terms of the interleaved form ``x1, labels1, x2, labels2,
    ..., [labels_out]``, the last of which belongs to the result if there is one more than arrays.

    Raises
    ------
    ValueError
        If there are no arrays.
    TypeError
        If a list of labels holds anything but integers and Ellipsis.
    """
    if not operands:
        raise ValueError("einsum: no arguments; pass subscripts and arrays, e.g. 'ij,jk', a, b")
    if isinstance(operands[0], str):
        if len(operands) < 2:
            raise ValueError("einsum: no arrays; pass one for each term of the subscripts")
        return operands[0], tuple(operands[1:])
    if len(operands) < 2:
        raise ValueError("einsum: an array needs a list of labels, e.g. a, [0, 1]")
    arrays = tuple(operands[0 : len(operands) // 2 * 2 : 2])
    lists = [*operands[1::2], *(operands[-1:] if len(operands) % 2 else ())]
    return tuple(_listed(labels) for labels in lists), arrays


def _listed(labels: Any) -> Term:
    """Return the term of a list of labels."""
    try:
        return tuple(ELLIPSIS if lb is Ellipsis else operator.index(lb) for lb in labels)
    except TypeError as err:
        what = repr(labels) if isinstance(labels, (list, tuple)) else type_of(labels)
        raise TypeError(
            f"einsum: a term is {what}, not a list of integers and Ellipsis; "
            "call einsum('ij,jk', a, b) or einsum(a, [0, 1], b, [1, 2])"
        ) from err


def parse(written: str | tuple[Term, ...], ndims: tuple[int, ...]) -> Subscripts:
    """Return the labels of every axis.

    Parameters
    ----------
    written : str or tuple of terms
        The subscripts as `split_call` returns them.
    ndims : tuple of int
        The number of axes of each operand.

    Raises
    ------
    ValueError
        If the subscripts are malformed or do not match the numbers of axes.
    """
    terms, result = _terms(written, len(ndims))
    inputs = tuple(
        _expanded(term, ndim, index)
        for index, (term, ndim) in enumerate(zip(terms, ndims, strict=True))
    )
    counts = collections.Counter(label for labels in inputs for label in labels)
    most = max((lb.from_end for lb in counts if isinstance(lb, Broadcast)), default=0)
    broadcast = tuple(Broadcast(distance) for distance in range(most, 0, -1))
    if result is None:
        once = [lb for lb, count in counts.items() if count == 1 and not isinstance(lb, Broadcast)]
        return Subscripts(inputs, (*broadcast, *sorted(once)))  # type: ignore[type-var]
    if broadcast and ELLIPSIS not in result:
        raise ValueError(
            f"einsum: the operands have {most} axes in '...', which the result must have too; add "
            "'...' to its subscripts"
        )
    if result.count(ELLIPSIS) > 1:
        raise ValueError(
            f"einsum: the result has '...' {result.count(ELLIPSIS)} times; it may have it once"
        )
    output: list[Label] = []
    for label in result:
        output += broadcast if label == ELLIPSIS else (label,)
    for label in output:
        if output.count(label) > 1:
            raise ValueError(f"einsum: the result has the subscript {label!r} more than once")
        if label not in counts:
            raise ValueError(f"einsum: the result's subscript {label!r} is in no operand")
    return Subscripts(inputs, tuple(output))


def _terms(written: str | tuple[Term, ...], count: int) -> tuple[tuple[Term, ...], Term | None]:
    """Return a term for each operand, and the term of the result if it is given."""
    result: Term | None = None
    if isinstance(written, str):
        text = "".join(written.split())
        left, arrow, right = text.partition("->")
        if arrow:
            if "," in right:
                raise ValueError(f"einsum: the result in {written!r} has a comma")
            result = _spelled(right, written)
        terms = tuple(_spelled(part, written) for part in left.split(","))
    else:
        terms = written[:count]
        result = written[count] if len(written) > count else None
    if len(terms) != count:
        raise ValueError(
            f"einsum: the number of terms in {written!r} is {len(terms)}, that of operands {count}"
        )
    return terms, result


def _spelled(text: str, written: str) -> Term:
    """Return the term that a string spells."""
    before, dots, after = text.partition(ELLIPSIS)
    letters = before + after
    for letter in letters:
        if not (letter.isascii() and letter.isalpha()):
            raise ValueError(
                f"einsum: {letter!r} in {written!r}: subscripts are letters, ',', '...' and '->'"
            )
    return (*before, ELLIPSIS, *after) if dots else tuple(before)


def _expanded(term: Term, ndim: int, index: int) -> Labels:
    """Return a label for each axis of an operand."""
    ellipses = term.count(ELLIPSIS)
    named = len(term) - ellipses
    text = "".join(map(str, term))
    if ellipses > 1:
        raise ValueError(f"einsum: operand {index}, {text!r}, has more than one '...'")
    if named > ndim or (not ellipses and named != ndim):
        raise ValueError(
            f"einsum: operand {index} has {ndim} axes, but its subscripts {text!r} name {named}"
        )
    spread = tuple(Broadcast(distance) for distance in range(ndim - named, 0, -1))
    labels: list[Label] = []
    for label in term:
        labels += spread if label == ELLIPSIS else (label,)
    return tuple(labels)
