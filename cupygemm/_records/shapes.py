"""The shape of a matrix product, by NumPy's rules: which axes are multiplied, which broadcast.

A 1-D first operand is a row, and a 1-D second operand is a column. The added axis is removed from
the result. Leading axes broadcast against each other and against those of ``out``, but ``out``
itself is not broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace

Shape = tuple[int, ...]
Label = Hashable
"""Names an axis; axes of one label are multiplied with each other."""
Labels = tuple[Label, ...]


@dataclass(frozen=True, kw_only=True)
class ProductShape:
    """Extents of one (stacked) matrix product.

    Attributes
    ----------
    m, n, k : int
        Extents, 0 allowed.
    batch : tuple of int
        Broadcast leading axes.
    row, column : bool
        Whether the result has the m axis, and the n axis.
    """

    m: int
    n: int
    k: int
    batch: Shape
    row: bool
    column: bool

    @property
    def result(self) -> Shape:
        """Return the shape of the result."""
        return self.batch + (self.m,) * self.row + (self.n,) * self.column

    @property
    def size(self) -> int:
        """Return the number of elements of the result."""
        return math.prod(self.result)


def product_shape(x1: Shape, x2: Shape, out: Shape | None = None) -> ProductShape:
    """Return the extents of ``matmul(x1, x2, out)`` from the operands' shapes.

    Raises
    ------
    ValueError
        As in NumPy: a 0-d operand, inner extents that differ, leading axes that do not broadcast,
        or an ``out`` of another shape.
    """
    for name, shape in (("x1", x1), ("x2", x2)):
        if not shape:
            raise ValueError(
                f"matmul: {name} is 0-d, shape (); it needs an axis: use multiply for scalars"
            )
    m, k = x1[-2:] if len(x1) > 1 else (1, x1[0])
    inner, n = x2[-2:] if len(x2) > 1 else (x2[0], 1)
    if k != inner:
        raise ValueError(
            f"matmul: the inner extents differ: x1 of shape {x1} has k = {k} (its last axis); "
            f"x2 of shape {x2} has k = {inner} (its {'only' if len(x2) == 1 else 'last but one'})"
        )
    batch = _broadcast(x1[:-2], x2[:-2])
    if batch is None:
        raise ValueError(
            f"matmul: the leading axes of x1, shape {x1}, and x2, shape {x2}, "
            f"could not be broadcast together: {x1[:-2]} and {x2[:-2]}"
        )
    product = ProductShape(m=m, n=n, k=k, batch=batch, row=len(x1) > 1, column=len(x2) > 1)
    if out is None or out == product.result:
        return product
    core = product.result[len(batch) :]
    leading = out[: len(out) - len(core)]
    missing = batch[: max(0, len(batch) - len(leading))]  # as in NumPy, these may have extent 1
    if (
        out[len(leading) :] != core
        or any(extent != 1 for extent in missing)
        or _broadcast(batch[len(missing) :], leading) != leading
    ):
        raise ValueError(
            f"matmul: out has shape {out}, but x1 of shape {x1} and x2 of shape {x2} "
            f"give a result of shape {product.result}"
        )
    return replace(product, batch=leading)


def _broadcast(first: Shape, second: Shape) -> Shape | None:
    """Return the common shape, or None where there is none."""
    count = max(len(first), len(second))
    pairs = zip(_padded(first, count), _padded(second, count), strict=True)
    extents = []
    for left, right in pairs:
        if left != right and 1 not in (left, right):
            return None
        extents.append(right if left == 1 else left)
    return tuple(extents)


def _padded(shape: Shape, count: int) -> Shape:
    return (1,) * (count - len(shape)) + shape
