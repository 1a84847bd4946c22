"""The evaluation of one call of `einsum`, computed once for all arrays of the same layouts.

A call with one operand and no sum is a `LoneView`. Every other call is a `Program`, which
simplifies each operand by a `Reduction` and then contracts pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm._products.contraction import View
from cupygemm._products.pairs import contract, viewed
from cupygemm._products.paths import Step
from cupygemm._records.shapes import Labels
from cupygemm._request.arrays import Array, may_overlap
from cupygemm._request.copies import assign


@dataclass(frozen=True, kw_only=True)
class LoneView:
    """A call with one operand and no sum: a view of it, whatever type and order are requested.

    Attributes
    ----------
    labels, output : tuple of labels
        Labels of the axes of the operand and of the result.
    shape : tuple of int
        Shape of the result.
    """

    labels: Labels
    output: Labels
    shape: tuple[int, ...]

    def __call__(self, arrays: Sequence[Array], _out: None) -> Array:
        """Return the view, with diagonals in place of repeated labels."""
        x, labels = arrays[0], list(self.labels)
        if not x.size:  # CuPy's diagonal copies empty arrays
            return x.reshape(self.shape)
        while len(labels) > len(self.output):
            label = next(each for each in labels if labels.count(each) > 1)
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = x.diagonal(axis1=first, axis2=second)  # becomes the last axis
            labels = [*labels[:first], *labels[first + 1 : second], *labels[second + 1 :], label]
        return x.transpose([labels.index(label) for label in self.output])


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """How one operand is simplified before it is multiplied.

    Attributes
    ----------
    view : View
        Its diagonals, without broadcast axes.
    summed : tuple of int
        The axes of the view that are summed.
    """

    view: View
    summed: tuple[int, ...]

    def __call__(self, x: Array, dtype: np.dtype[Any]) -> Array:
        """Return the simplified operand."""
        x = viewed(x, self.view)
        return x.sum(axis=self.summed, dtype=dtype) if self.summed else x


@dataclass(frozen=True, kw_only=True)
class Program:
    """The evaluation of one call, for any arrays of the same layouts.

    Attributes
    ----------
    reductions : tuple of Reduction
        One for each operand.
    steps : tuple of Step
        The contractions of pairs; none for a single operand.
    transposition : tuple of int
        The axes of a single operand in the order of the result's.
    shape : tuple of int
        Shape of the result.
    dtype : numpy.dtype
        Type of the calculation.
    layout : {"K", "C", "F"}
        Memory order of a new result.
    """

    reductions: tuple[Reduction, ...]
    steps: tuple[Step, ...]
    transposition: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    layout: str

    def __call__(self, arrays: Sequence[Array], out: Array | None) -> Array:
        """Return the result."""
        terms = [reduce(x, self.dtype) for reduce, x in zip(self.reductions, arrays, strict=True)]
        if not self.steps:
            return self._transposed(terms[0], out)
        if out is None and self.layout != "K":
            from cupy import ndarray

            out = ndarray(self.shape, self.dtype, order=self.layout)
        for step in self.steps:
            first, second = step.positions
            x2, x1 = terms.pop(second), terms.pop(first)
            result = contract(
                x1,
                x2,
                None if terms else out,
                labels1=step.x1,
                labels2=step.x2,
                labels_out=step.out,
                dtype=self.dtype,
                casting="unsafe",
                any_order=True,
            )
            terms.append(result)
        return terms[0]

    def _transposed(self, x: Array, out: Array | None) -> Array:
        """Return a single operand with its axes in the order of the result's."""
        x = x.transpose(self.transposition)
        if out is not None:
            assign(out, x.copy() if may_overlap(out, x) else x)
            return out
        return cast_to(x, self.dtype, "A" if self.layout == "K" else self.layout)


def cast_to(x: Array, dtype: np.dtype[Any], layout: str) -> Array:
    """Return an array in a type and a memory order; the array itself if it has them."""
    import cupy

    x = x.astype(dtype, copy=False)
    return x if layout == "A" else cupy.asarray(x, order=layout)
