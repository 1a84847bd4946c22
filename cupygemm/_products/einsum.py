"""`einsum`: contract any number of operands pair by pair, as matrix products of views.

Each operand is simplified first: repeated labels become a diagonal (a view), broadcast axes are
dropped, and labels that appear nowhere else are summed. Pairs are then contracted along a path by
`contract`, which calls `cupygemm.matmul`, or CuPy where nothing is summed. Everything that depends
only on shapes, strides and types is computed once and kept in the table of plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._plan.table import PLANS
from cupygemm._products.contraction import View
from cupygemm._products.einsum_program import LoneView, Program, Reduction
from cupygemm._products.pairs import ArrayLayout, layout_of
from cupygemm._products.paths import plan_path
from cupygemm._products.subscripts import Subscripts, Term, parse, split_call
from cupygemm._records.formats import parse_dtype
from cupygemm._records.shapes import Label, Labels
from cupygemm._request.arrays import Array, as_array, is_scalar, one_device
from cupygemm._request.axes import parsed_order
from cupygemm._request.containers import multiplier
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
    """Evaluate the Einstein summation convention, as `numpy.einsum`.

    Parameters
    ----------
    *operands : str and arrays, or arrays and lists of labels
        ``"ij,jk->ik", a, b`` or ``a, [0, 1], b, [1, 2], [0, 2]``, with any number of arrays. An
        ellipsis stands for axes that broadcast.
    out : cupy.ndarray, optional
        Array for the result. It may have any strides and may overlap the operands.
    optimize : bool, str, (str, int) or sequence, optional
        The order in which three or more operands are contracted. A string names a strategy of
        opt_einsum (``"greedy"``, ``"optimal"``, ``"dp"``, ...); ``"auto"`` and True choose one by
        the number of operands. A tuple adds the largest allowed number of elements of an
        intermediate result. A path, as returned by `einsum_path`, is followed. False contracts from
        left to right.
    dtype : dtype, optional
        The type of the calculation and of the result. 16-bit operands are not converted to float32,
        nor int8 operands to int32, since their products are summed in these types anyway.
    order : {"K", "C", "F", "A"}
        The memory order of a new result: ``"C"``, ``"F"``, ``"A"`` (``"F"`` if all operands are
        F-contiguous, else ``"C"``), or ``"K"``, whichever order needs no copy.
    casting : {"safe", "no", "equiv", "same_kind", "unsafe"}
        Which conversions are allowed, as in NumPy.
    stream : cupy.cuda.Stream, optional
        As for `matmul`.

    Returns
    -------
    cupy.ndarray
        The result. With one operand, no sum and no ``out``, it is a view of the operand, regardless
        of ``dtype`` and ``order``, as in NumPy.

    Raises
    ------
    ValueError
        If the subscripts are malformed or do not match the shapes.
    TypeError
        If an operand is not an array on a device, or a conversion is not allowed.

    See Also
    --------
    einsum_path : Return the order in which the operands are contracted.

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
    chunked = multiplier(*given)
    if chunked is not None:
        return chunked.einsum(
            *operands, out=out, optimize=optimize, dtype=dtype, order=order, casting=casting
        )
    arrays = [_operand(index, x) for index, x in enumerate(given)]
    target = None if out is None else as_array("einsum", "out", out)
    names = {f"operand {index}": x for index, x in enumerate(arrays)}
    one_device("einsum", names | ({} if target is None else {"out": target}))
    optimize, wanted = _hashable(optimize), parse_dtype(dtype)
    # The key has plain tuples because every call builds it.
    key = (
        "einsum",
        written,
        tuple([(x.shape, x.strides, x.dtype) for x in arrays]),
        None if target is None else (target.shape, target.strides, target.dtype),
        optimize,
        wanted,
        order,
        casting,
    )
    program = PLANS.get(key)
    if program is None:
        program = _program(
            written,
            [layout_of(x) for x in arrays],
            None if target is None else layout_of(target),
            optimize=optimize,
            dtype=wanted,
            order=order,
            casting=casting,
        )
        PLANS.keep(key, program)
    result = program(arrays, target)
    return result if out is None else out


def einsum_path(*operands: Any, optimize: Any = "auto") -> tuple[list[Any], str]:
    """Return the order in which `einsum` contracts operands, as `numpy.einsum_path`.

    Parameters
    ----------
    *operands : str and arrays, or arrays and lists of labels
        As for `einsum`.
    optimize : bool, str, (str, int) or sequence
        As for `einsum`.

    Returns
    -------
    path : list
        ``["einsum_path", (0, 1), ...]``, which `einsum` accepts as ``optimize=``: the positions of
        the operands of each step. The result of a step is appended to the operands that are left.
    account : str
        A description with one line per step, which includes the number of multiplications.

    Raises
    ------
    ValueError, TypeError
        In the same cases as `einsum`.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> a, b, c = cp.ones((2, 30)), cp.ones((30, 4)), cp.ones((4, 5))
    >>> path, account = cupygemm.einsum_path("ij,jk,kl", a, b, c)
    >>> path
    ['einsum_path', (0, 1), (0, 1)]
    >>> cupygemm.einsum("ij,jk,kl", a, b, c, optimize=path).shape
    (2, 5)
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
    layouts: Sequence[ArrayLayout],
    layout_out: ArrayLayout | None,
    *,
    optimize: Any,
    dtype: np.dtype[Any] | None,
    order: str,
    casting: str,
) -> Callable[[Sequence[Array], Array | None], Array]:
    """Return the evaluation of a call on arrays with these layouts."""
    order = parsed_order("einsum", order)
    shapes = [layout.shape for layout in layouts]
    subscripts = parse(written, tuple(map(len, shapes)))
    sizes = _sizes(subscripts, shapes)
    shape = tuple(sizes[label] for label in subscripts.output)
    if layout_out is not None and layout_out.shape != shape:
        raise ValueError(
            f"einsum: out has shape {layout_out.shape}, but the result has shape {shape}"
        )
    if casting not in CASTINGS:
        raise ValueError(
            f"einsum: casting must be one of {', '.join(map(repr, CASTINGS))} (got {casting!r})"
        )
    if (
        layout_out is None
        and len(layouts) == 1
        and set(subscripts.inputs[0]) == set(subscripts.output)
    ):
        return LoneView(labels=subscripts.inputs[0], output=subscripts.output, shape=shape)
    common = _common_type(layouts, layout_out, dtype, casting)
    terms, kept = _terms(subscripts, shapes, sizes)
    reductions = tuple(
        _reduction(labels, layout, term, keep)
        for labels, layout, term, keep in zip(subscripts.inputs, layouts, terms, kept, strict=True)
    )
    steps = plan_path(kept, subscripts.output, sizes, optimize)
    columns = order == "F" or (order == "A" and all(map(_is_column_major, layouts)))
    return Program(
        reductions=reductions,
        steps=steps,
        transposition=() if steps else tuple(kept[0].index(label) for label in subscripts.output),
        shape=shape,
        dtype=common,
        layout="K" if order == "K" else "F" if columns else "C",
    )


def _operand(index: int, x: Any) -> Array:
    if is_scalar(x):
        import cupy

        return cupy.asarray(np.asarray(x))
    return as_array("einsum", f"operand {index}", x)


def _hashable(optimize: Any) -> Any:
    """Return ``optimize`` with tuples in place of lists."""
    return tuple(map(_hashable, optimize)) if isinstance(optimize, (list, tuple)) else optimize


def _sizes(subscripts: Subscripts, shapes: Sequence[tuple[int, ...]]) -> dict[Label, int]:
    """Return the extent of each label; extents of 1 are broadcast.

    Raises
    ------
    ValueError
        If the extents of a label differ.
    """
    sizes: dict[Label, int] = {}
    where: dict[Label, int] = {}
    for index, (labels, shape) in enumerate(zip(subscripts.inputs, shapes, strict=True)):
        own: dict[Label, int] = {}
        for label, extent in zip(labels, shape, strict=True):
            if own.setdefault(label, extent) != extent:
                raise ValueError(
                    f"einsum: operand {index} of shape {shape} repeats the subscript {label!r} "
                    f"on axes of extents {own[label]} and {extent}; a diagonal needs equal extents"
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
    layouts: Sequence[ArrayLayout],
    layout_out: ArrayLayout | None,
    dtype: np.dtype[Any] | None,
    casting: str,
) -> np.dtype[Any]:
    """Return the type of the calculation.

    Raises
    ------
    TypeError
        If there is no common type, or `casting` forbids a conversion.
    """
    named = {f"operand {index}": layout.dtype for index, layout in enumerate(layouts)}
    given = named if layout_out is None else named | {"out": layout_out.dtype}
    if dtype is None:
        try:
            dtype = np.result_type(*given.values())
        except TypeError as err:
            types = ", ".join(f"{name} is {its}" for name, its in given.items())
            raise TypeError(
                f"einsum: the types have no common dtype: {types}; convert one with astype, or "
                "pass the type of the calculation, e.g. dtype='float32'"
            ) from err
    for name, its in named.items():
        if not np.can_cast(its, dtype, casting):  # type: ignore[arg-type]
            raise TypeError(_cannot_cast(name, its, dtype, casting))
    if layout_out is not None and not np.can_cast(dtype, layout_out.dtype, casting):  # type: ignore[arg-type]
        raise TypeError(_cannot_cast("the result", dtype, layout_out.dtype, casting))
    return dtype


def _cannot_cast(what: str, source: np.dtype[Any], target: np.dtype[Any], casting: str) -> str:
    return (
        f"einsum: cannot cast {what} from dtype('{source}') to dtype('{target}') "
        f"with casting rule '{casting}'"
    )


def _terms(
    subscripts: Subscripts, shapes: Sequence[tuple[int, ...]], sizes: dict[Label, int]
) -> tuple[list[Labels], list[Labels]]:
    """Return two lists of labels for each operand: those of its view, and those multiplied.

    The first list has no duplicates, no axes along which the operand is broadcast, and no axes of
    extent 1 that the result lacks. The second also lacks the labels that are neither in another
    operand nor in the result.
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


def _reduction(labels: Labels, layout: ArrayLayout, term: Labels, kept: Labels) -> Reduction:
    """Return how an operand with this layout is simplified."""
    extents = dict(zip(labels, layout.shape, strict=True))
    strides = dict.fromkeys(term, 0)
    for label, stride in zip(labels, layout.strides, strict=True):
        if label in strides:
            strides[label] += stride
    return Reduction(
        view=View(shape=tuple(extents[label] for label in term), strides=tuple(strides.values())),
        summed=tuple(axis for axis, label in enumerate(term) if label not in kept),
    )


def _is_column_major(layout: ArrayLayout) -> bool:
    """Whether an array is F-contiguous."""
    return layout.strides == contiguous(layout.shape[::-1], layout.dtype).strides[::-1]
