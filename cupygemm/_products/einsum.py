"""`einsum`: any number of operands, contracted pair by pair as matrix products of views.

Before anything is multiplied, each operand loses its repeated labels (a diagonal is a view), the
axes along which it is broadcast, and by a sum those that nothing else has. Then pairs are
contracted along a path, each by `contract`: by `cupygemm.matmul`, or by CuPy where nothing is added
up. What depends on shapes, strides and types alone is worked out once and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._plan.table import PLANS
from cupygemm._products.contraction import View
from cupygemm._products.pairs import Lie, contract, viewed
from cupygemm._products.paths import Step, plan_path
from cupygemm._products.subscripts import Subscripts, Term, parse, split_call
from cupygemm._records.formats import parse_dtype
from cupygemm._records.shapes import Label, Labels
from cupygemm._request.arrays import Array, as_array, is_scalar, may_overlap, one_device
from cupygemm._request.axes import parsed_order
from cupygemm._request.copies import assign
from cupygemm._request.keywords import common_keywords
from cupygemm._request.layout import contiguous
from cupygemm._request.promotion import CASTINGS


@common_keywords
def einsum(
    *operands: Any,
    out: Any = None,
    optimize: Any = "auto",
    dtype: DTypeLike | None = None,
    order: str = "K",
    casting: str = "safe",
    stream: Any = None,
) -> Array:
    """Evaluate Einstein's summation convention, as `numpy.einsum`.

    Parameters
    ----------
    *operands : str and arrays, or arrays and lists of labels
        ``"ij,jk->ik", a, b`` or ``a, [0, 1], b, [1, 2], [0, 2]``, with any number of arrays. An
        ellipsis stands for axes that broadcast.
    out : cupy.ndarray, optional
        Where to put the result. It may have any strides and may overlap the operands.
    optimize : bool, str, (str, int) or sequence, optional
        In which order three or more operands are contracted: a strategy of opt_einsum
        (``"greedy"``, ``"optimal"``, ``"dp"``, ...; ``"auto"`` chooses one by the number of
        operands, and so does True), with the largest number of elements of an intermediate as
        second entry; or a path, as of `einsum_path`. False contracts from left to right.
    dtype : dtype, optional
        What to calculate in, and the type of the result. 16-bit operands are not converted to
        float32, in which they are summed anyway, nor int8 ones to int32.
    order : {"K", "C", "F", "A"}
        The order in memory of a new result: ``"C"``, ``"F"``, ``"A"`` (``"F"`` if all operands are
        F-contiguous, else ``"C"``), or whichever needs no copy, ``"K"``.
    casting : {"safe", "no", "equiv", "same_kind", "unsafe"}
        Which conversions are allowed, as in NumPy.
    stream : cupy.cuda.Stream, optional
        As for `matmul`.

    Returns
    -------
    cupy.ndarray
        The result; a view of the operand where there is one operand, no sum and no ``out``,
        whatever ``dtype`` and ``order`` say, as in NumPy.

    Raises
    ------
    ValueError
        The subscripts are malformed or do not fit the shapes.
    TypeError
        An operand is no array of a device, or a conversion is not allowed.

    See Also
    --------
    einsum_path : Tell in which order the operands are contracted, and how.

    Notes
    -----
    Intermediate products of three or more operands are rounded to the type of the result.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> a = cp.arange(6, dtype="float32").reshape(2, 3)
    >>> cupygemm.einsum("ij,kj->ik", a, a)
    array([[ 5., 14.],
           [14., 50.]], dtype=float32)
    """
    written, given = split_call(operands)
    arrays = [_operand(index, x) for index, x in enumerate(given)]
    target = None if out is None else as_array("einsum", "out", out)
    names = {f"operand {index}": x for index, x in enumerate(arrays)}
    one_device("einsum", names | ({} if target is None else {"out": target}))
    lies = tuple((x.shape, x.strides, x.dtype) for x in arrays)
    lie_out = None if target is None else (target.shape, target.strides, target.dtype)
    key = (
        "einsum",
        written,
        lies,
        lie_out,
        _hashable(optimize),
        parse_dtype(dtype),
        order,
        casting,
    )
    program = PLANS.get(key)
    if program is None:
        program = _program(*key[1:4], optimize=key[4], dtype=key[5], order=order, casting=casting)
        PLANS.keep(key, program)
    result = program(arrays, target)
    return result if out is None else out


def einsum_path(*operands: Any, optimize: Any = "auto") -> tuple[list[Any], str]:
    """Return in which order `einsum` contracts operands, as `numpy.einsum_path`.

    Parameters
    ----------
    *operands : str and arrays, or arrays and lists of labels
        As for `einsum`.
    optimize : bool, str, (str, int) or sequence
        As for `einsum`.

    Returns
    -------
    path : list
        ``["einsum_path", (0, 1), ...]``, which ``optimize=`` of `einsum` takes: the operands of
        each step, whose result is then the last operand.
    account : str
        A line for each step, with its multiplications.

    Raises
    ------
    ValueError, TypeError
        As `einsum` raises them.
    """
    written, given = split_call(operands)
    shapes = tuple(_operand(index, x).shape for index, x in enumerate(given))
    subscripts = parse(written, tuple(map(len, shapes)))
    sizes = _sizes(subscripts, shapes)
    _, kept = _terms(subscripts, shapes, sizes)
    steps = plan_path(kept, subscripts.output, sizes, _hashable(optimize))
    path = ["einsum_path", *(step.positions for step in steps)]
    return path, "\n".join(step.describe(sizes) for step in steps)


def _program(
    written: str | tuple[Term, ...],
    lies: tuple[Lie, ...],
    lie_out: Lie | None,
    *,
    optimize: Any,
    dtype: np.dtype[Any] | None,
    order: str,
    casting: str,
) -> Callable[[Sequence[Array], Array | None], Array]:
    """Return what evaluates a call on arrays that lie so."""
    order = parsed_order("einsum", order)
    subscripts = parse(written, tuple(len(lie[0]) for lie in lies))
    sizes = _sizes(subscripts, [lie[0] for lie in lies])
    shape = tuple(sizes[label] for label in subscripts.output)
    if lie_out is not None and lie_out[0] != shape:
        raise ValueError(f"einsum: out has shape {lie_out[0]}, the result {shape}")
    if casting not in CASTINGS:
        raise ValueError(
            f"einsum: casting must be one of {', '.join(map(repr, CASTINGS))} (got {casting!r})"
        )
    if lie_out is None and len(lies) == 1 and set(subscripts.inputs[0]) == set(subscripts.output):
        return LoneView(subscripts.inputs[0], subscripts.output)
    common = _common_type(lies, lie_out, dtype, casting)
    terms, kept = _terms(subscripts, [lie[0] for lie in lies], sizes)
    reductions = tuple(
        _reduction(labels, lie, term, keep)
        for labels, lie, term, keep in zip(subscripts.inputs, lies, terms, kept, strict=True)
    )
    steps = plan_path(kept, subscripts.output, sizes, optimize)
    columns = order == "F" or (order == "A" and all(_is_column_major(lie) for lie in lies))
    layout = "K" if order == "K" else "F" if columns else "C"
    return Program(
        reductions=reductions,
        steps=steps,
        alone=(kept[0], subscripts.output),
        shape=shape,
        dtype=common,
        layout=layout,
    )


@dataclass(frozen=True)
class LoneView:
    """A call with one operand and no sum: a view of it, whatever the type and order asked for.

    Attributes
    ----------
    labels, output : tuple of labels
        Of the operand's axes, and of the result's.
    """

    labels: Labels
    output: Labels

    def __call__(self, arrays: Sequence[Array], _out: None) -> Array:
        """Return the view, its diagonals taken."""
        x, labels = arrays[0], list(self.labels)
        while len(labels) > len(self.output):
            label = next(each for each in labels if labels.count(each) > 1)
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = x.diagonal(axis1=first, axis2=second)  # becomes the last axis
            labels = [*labels[:first], *labels[first + 1 : second], *labels[second + 1 :], label]
        return x.transpose([labels.index(label) for label in self.output])


@dataclass(frozen=True)
class Reduction:
    """What becomes of one operand before it is multiplied.

    Attributes
    ----------
    view : View
        Its diagonals, without the axes along which it is broadcast.
    summed : tuple of int
        The axes of the view that are added up.
    """

    view: View
    summed: tuple[int, ...]

    def __call__(self, x: Array, dtype: np.dtype[Any]) -> Array:
        """Return the operand without what only it has."""
        x = viewed(x, self.view)
        return x.sum(axis=self.summed, dtype=dtype) if self.summed else x


@dataclass(frozen=True)
class Program:
    """One call, worked out but for the arrays' contents and places."""

    reductions: tuple[Reduction, ...]
    steps: tuple[Step, ...]
    alone: tuple[Labels, Labels]  # of a lone operand and the result
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    layout: str

    def __call__(self, arrays: Sequence[Array], out: Array | None) -> Array:
        """Evaluate it."""
        terms = [reduce(x, self.dtype) for reduce, x in zip(self.reductions, arrays, strict=True)]
        if not self.steps:
            return self._rearranged(terms[0], out)
        if out is None and self.layout != "K":
            from cupy import ndarray

            out = ndarray(self.shape, self.dtype, order=self.layout)
        for step in self.steps:
            first, second = step.positions
            x2, x1 = terms.pop(second), terms.pop(first)
            target = None if terms else out
            result = contract(
                x1, step.x1, x2, step.x2, step.out, target,
                dtype=self.dtype, casting="unsafe", any_order=True,
            )  # fmt: skip
            terms.append(result)
        return terms[0]

    def _rearranged(self, x: Array, out: Array | None) -> Array:
        """Return a lone operand with its axes in the order of the result's."""
        labels, output = self.alone
        x = x.transpose([labels.index(label) for label in output])
        if out is not None:
            assign(out, x.copy() if may_overlap(out, x) else x)
            return out
        layout = "A" if self.layout == "K" else self.layout
        return cast_to(x, self.dtype, layout)


def cast_to(x: Array, dtype: np.dtype[Any], layout: str) -> Array:
    """Return an array in a type and an order, itself where it has them."""
    import cupy

    x = x.astype(dtype, copy=False)
    return x if layout == "A" else cupy.asarray(x, order=layout)


def _operand(index: int, x: Any) -> Array:
    if is_scalar(x):
        import cupy

        return cupy.asarray(np.asarray(x))
    return as_array("einsum", f"operand {index}", x)


def _hashable(optimize: Any) -> Any:
    """Return ``optimize`` as a key of a dictionary."""
    return tuple(map(_hashable, optimize)) if isinstance(optimize, (list, tuple)) else optimize


def _sizes(subscripts: Subscripts, shapes: Sequence[tuple[int, ...]]) -> dict[Label, int]:
    """Return the extent of each label; extents of 1 are broadcast.

    Raises
    ------
    ValueError
        Extents differ.
    """
    sizes: dict[Label, int] = {}
    where: dict[Label, int] = {}
    for index, (labels, shape) in enumerate(zip(subscripts.inputs, shapes, strict=True)):
        own: dict[Label, int] = {}
        for label, extent in zip(labels, shape, strict=True):
            if own.setdefault(label, extent) != extent:
                raise ValueError(
                    f"einsum: operand {index} of shape {shape} has the subscript {label!r} for "
                    f"extents {own[label]} and {extent}, which has no diagonal"
                )
        for label, extent in own.items():
            if sizes.get(label, 1) == 1:
                sizes[label], where[label] = extent, index
            elif extent not in (1, sizes[label]):
                raise ValueError(
                    f"einsum: the subscript {label!r} has extent {sizes[label]} in operand "
                    f"{where[label]} and {extent} in operand {index}: {tuple(shapes)}"
                )
    return sizes


def _common_type(
    lies: tuple[Lie, ...], lie_out: Lie | None, dtype: np.dtype[Any] | None, casting: str
) -> np.dtype[Any]:
    """Return what to calculate in.

    Raises
    ------
    TypeError
        There is no common type, or `casting` forbids a conversion.
    """
    named = {f"operand {index}": lie[2] for index, lie in enumerate(lies)}
    given = named if lie_out is None else named | {"out": lie_out[2]}
    if dtype is None:
        try:
            dtype = np.result_type(*given.values())
        except TypeError as err:
            types = ", ".join(f"{name} is {its}" for name, its in given.items())
            raise TypeError(
                f"einsum: the types have no common dtype: {types}; convert one with astype, or "
                "say what to calculate in, e.g. dtype='float32'"
            ) from err
    for name, its in named.items():
        if not np.can_cast(its, dtype, casting):  # type: ignore[arg-type]
            raise TypeError(_cannot_cast(name, its, dtype, casting))
    if lie_out is not None and not np.can_cast(dtype, lie_out[2], casting):  # type: ignore[arg-type]
        raise TypeError(_cannot_cast("the result", dtype, lie_out[2], casting))
    return dtype


def _cannot_cast(what: str, source: np.dtype[Any], target: np.dtype[Any], casting: str) -> str:
    return (
        f"einsum: cannot cast {what} from dtype('{source}') to dtype('{target}') "
        f"with casting rule '{casting}'"
    )


def _terms(
    subscripts: Subscripts, shapes: Sequence[tuple[int, ...]], sizes: dict[Label, int]
) -> tuple[list[Labels], list[Labels]]:
    """Return the labels of each operand: once each, and those that are multiplied.

    The former lack axes along which the operand is broadcast, and those of extent 1 that the result
    lacks; the latter also those that are in no other operand and not in the result.
    """
    terms: list[Labels] = []
    for labels, shape in zip(subscripts.inputs, shapes, strict=True):
        present = [lb for lb, extent in zip(labels, shape, strict=True) if extent == sizes[lb]]
        terms.append(
            tuple(lb for lb in dict.fromkeys(present) if sizes[lb] != 1 or lb in subscripts.output)
        )
    kept = []
    for index, term in enumerate(terms):
        elsewhere = {*subscripts.output}.union(*terms[:index], *terms[index + 1 :])
        kept.append(tuple(label for label in term if label in elsewhere))
    return terms, kept


def _reduction(labels: Labels, lie: Lie, term: Labels, kept: Labels) -> Reduction:
    """Return what becomes of an operand that lies so."""
    extents = dict(zip(labels, lie[0], strict=True))
    strides = dict.fromkeys(term, 0)
    for label, stride in zip(labels, lie[1], strict=True):
        if label in strides:
            strides[label] += stride
    view = View(tuple(extents[label] for label in term), tuple(strides.values()))
    return Reduction(view, tuple(axis for axis, label in enumerate(term) if label not in kept))


def _is_column_major(lie: Lie) -> bool:
    shape, strides, dtype = lie
    return strides == contiguous(shape[::-1], dtype).strides[::-1]
