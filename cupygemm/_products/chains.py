"""Products of several matrices: `multi_dot`, in the cheapest order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cupygemm._products.products import dot
from cupygemm._request.arrays import Array, as_array, one_device
from cupygemm._request.keywords import common_keywords


@common_keywords
def multi_dot(arrays: Sequence[Any], *, out: Any = None, stream: Any = None) -> Array:
    """Product of two or more arrays in the cheapest order, as `numpy.linalg.multi_dot`.

    Parameters
    ----------
    arrays : sequence of cupy.ndarray
        Matrices. The first and the last may be 1-D: a row and a column.
    out : cupy.ndarray, optional
        Array for the result, of the result's shape and type.
    stream : cupy.cuda.Stream, optional
        As for `matmul`.

    Returns
    -------
    cupy.ndarray
        The product; ``out`` if it was given.

    Raises
    ------
    ValueError
        If there are fewer than two arrays, or the inner extents of neighbours differ.
    numpy.linalg.LinAlgError
        If an array has a wrong number of axes.
    TypeError
        If an argument is not an array on a device, or the types have no product.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> a, b, c = cp.ones((2, 30)), cp.ones((30, 4)), cp.ones((4, 5))
    >>> cupygemm.linalg.multi_dot([a, b, c]).shape
    (2, 5)
    """
    names = [f"arrays[{index}]" for index in range(len(arrays))]
    if len(arrays) < 2:
        raise ValueError(f"multi_dot: the number of arrays is {len(arrays)}; it must be 2 or more")
    factors = [as_array("multi_dot", name, x) for name, x in zip(names, arrays, strict=True)]
    one_device("multi_dot", dict(zip(names, factors, strict=True)))
    for index, (name, x) in enumerate(zip(names, factors, strict=True)):
        inside = 0 < index < len(factors) - 1
        if x.ndim != 2 and (inside or x.ndim != 1):
            axes = "2" if inside else "1 or 2"
            raise np.linalg.LinAlgError(
                f"multi_dot: {name} has shape {x.shape}; it must have {axes} axes"
            )
    first = factors[0].shape if factors[0].ndim == 2 else (1, *factors[0].shape)
    extents = [*first, *(x.shape[1] if x.ndim == 2 else 1 for x in factors[1:])]
    for index, x in enumerate(factors[1:], 1):
        if x.shape[0] != extents[index]:
            raise ValueError(
                f"multi_dot: the inner extents differ: {names[index - 1]} of shape "
                f"{factors[index - 1].shape} and {names[index]} of shape {x.shape}"
            )
    if len(factors) == 2:
        return dot(factors[0], factors[1], out)
    splits = cheapest_order(extents)

    def product(start: int, end: int, target: Any = None) -> Array:
        if start == end:
            return factors[start]
        split = splits[start, end]
        return dot(product(start, split), product(split + 1, end), target)

    return product(0, len(factors) - 1, out)


def cheapest_order(extents: Sequence[int]) -> dict[tuple[int, int], int]:
    """Return where to split each chain of matrices for the fewest multiplications.

    Parameters
    ----------
    extents : sequence of int
        Matrix i has ``extents[i]`` rows and ``extents[i + 1]`` columns.

    Returns
    -------
    dict of (int, int) to int
        For the first and the last matrix of a chain, the last matrix of its left factor.

    References
    ----------
    T. H. Cormen et al., Introduction to Algorithms, 3rd edition, section 15.2.
    """
    count = len(extents) - 1
    costs = {(i, i): 0 for i in range(count)}
    splits: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for start in range(count - length):
            end = start + length
            outer = extents[start] * extents[end + 1]
            costs[start, end], splits[start, end] = min(
                (costs[start, s] + costs[s + 1, end] + outer * extents[s + 1], s)
                for s in range(start, end)
            )
    return splits
