"""The order in which `einsum` contracts operands: a given path, or one that opt_einsum finds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cupygemm._records.shapes import Label, Labels

Positions = tuple[int, ...]
PATH_MARK = "einsum_path"


@dataclass(frozen=True)
class Step:
    """The contraction of one pair.

    Attributes
    ----------
    positions : (int, int)
        Positions of the operands in the list of operands. Both are removed from the list, and the
        result is appended to it.
    x1, x2, out : tuple of labels
        Labels of the operands and of the result.
    """

    positions: tuple[int, int]
    x1: Labels
    x2: Labels
    out: Labels

    def describe(self, sizes: Mapping[Label, int]) -> str:
        """Return a human-readable description."""
        terms = ["".join(map(str, labels)) for labels in (self.x1, self.x2, self.out)]
        multiplications = math.prod(sizes[label] for label in {*self.x1, *self.x2})
        what = "product" if {*self.x1, *self.x2} - {*self.out} else "element-wise product"
        return (
            f"{self.positions}: {terms[0]},{terms[1]}->{terms[2]}: {what}, "
            f"{multiplications:,} multiplications"
        )


def plan_path(
    inputs: Sequence[Labels], output: Labels, sizes: Mapping[Label, int], optimize: Any
) -> tuple[Step, ...]:
    """Return the steps that contract all operands to the result.

    Parameters
    ----------
    inputs : sequence of tuple of labels
        Labels of each operand. Each of them must be in another operand or in the result.
    output : tuple of labels
        Labels of the result.
    sizes : mapping of label to int
        Extents.
    optimize : bool, str, (str, int) or path
        As for `cupygemm.einsum`.
    """
    terms = list(inputs)
    steps = []
    for positions in _pairs(_path(terms, output, sizes, optimize), len(terms)):
        first, second = positions
        x1, x2 = terms[first], terms[second]
        terms = [term for index, term in enumerate(terms) if index not in positions]
        needed = {*output, *(label for term in terms for label in term)}
        out = output if not terms else _merged(x1, x2, needed)
        terms.append(out)
        steps.append(Step(positions, x1, x2, out))
    return tuple(steps)


def _merged(x1: Labels, x2: Labels, needed: set[Label]) -> Labels:
    """Return the labels of an intermediate result, the shared ones first: they are its batch."""
    shared = [label for label in x1 if label in x2]
    rest = [label for label in (*x1, *x2) if label not in shared]
    return tuple(label for label in (*shared, *rest) if label in needed)


def _path(
    inputs: Sequence[Labels], output: Labels, sizes: Mapping[Label, int], optimize: Any
) -> list[Positions]:
    """Return the operands of each step, by their positions in the list of remaining operands."""
    count = len(inputs)
    if isinstance(optimize, tuple) and optimize[:1] == (PATH_MARK,):
        return _given_path(optimize[1:], count)
    limit = None
    if isinstance(optimize, tuple) and len(optimize) == 2 and isinstance(optimize[0], str):
        optimize, limit = optimize[0], int(optimize[1])
    if isinstance(optimize, tuple):
        return _given_path(optimize, count)
    if optimize is None or optimize is False or count <= 2:
        if not (optimize is None or isinstance(optimize, bool)):
            _strategy(optimize)
        return [(0, count - 1 - step) if step else (0, 1) for step in range(count - 1)]
    find = _strategy("auto" if optimize is True else optimize)
    sets = [frozenset(labels) for labels in inputs]
    return [tuple(step) for step in find(sets, frozenset(output), dict(sizes), limit)]


def _strategy(name: Any) -> Any:
    """Return opt_einsum's function for a strategy.

    Raises
    ------
    ValueError
        If opt_einsum has no strategy of this name.
    """
    from opt_einsum.paths import get_path_fn

    try:
        return get_path_fn(name)
    except (AttributeError, KeyError) as err:
        raise ValueError(
            f"einsum: optimize={name!r}; it must be True, False, a strategy of opt_einsum such as "
            "'greedy', 'optimal' or 'auto', or a path such as einsum_path returns"
        ) from err


def _given_path(path: Sequence[Any], count: int) -> list[Positions]:
    """Validate a path and return it.

    Raises
    ------
    ValueError
        If it does not contract all operands to one.
    """
    left, steps = count, []
    for entry in path:
        positions = tuple(int(position) for position in entry)
        if not positions or len(set(positions)) < len(positions):
            raise ValueError(f"einsum: step {entry} of the path must name different operands")
        if not all(0 <= position < left for position in positions):
            raise ValueError(
                f"einsum: step {entry} of the path is out of range; {left} operands are left"
            )
        left -= len(positions) - 1
        steps.append(positions)
    if left != 1:
        raise ValueError(
            f"einsum: the path {list(path)} leaves {left} of {count} operands; it must leave one"
        )
    return steps


def _pairs(path: Sequence[Positions], count: int) -> list[tuple[int, int]]:
    """Split the steps of a path into pairs.

    In a step of several operands, each operand is contracted with the product of the previous ones.
    Steps of one operand, which NumPy's paths may have, are dropped.
    """
    pairs = []
    for positions in path:
        names = list(range(count))  # the positions of the operands before this step
        product, *others = sorted(positions)
        for other in others:
            first, second = sorted((names.index(product), names.index(other)))
            pairs.append((first, second))
            names = [name for name in names if name not in (product, other)] + [product]
        if not others:  # a single operand moves to the end
            names.remove(product)
            names.append(product)
        count = len(names)
    return pairs
