"""The core axes of products, as in NumPy's generalized ufuncs.

A `Signature` names the core axes of the operands and of the result. They are the last axes unless
``axes`` names others, and the remaining axes broadcast. Core extents must agree, since an extent of
1 is not broadcast. From the shapes alone, every axis of an array gets a label for `contract`.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np

from cupygemm._records.shapes import Labels

Axes = Sequence[Any] | None


@dataclass(frozen=True)
class Signature:
    """The core axes of a product.

    Attributes
    ----------
    name : str
    x1, x2, out : str
        A letter for each core axis, in order.
    conjugates : bool
        Whether the first operand is conjugated.
    """

    name: str
    x1: str
    x2: str
    out: str
    conjugates: bool = False

    def __str__(self) -> str:
        groups = ",".join(f"({','.join(core)})" for core in (self.x1, self.x2))
        return f"{groups}->({','.join(self.out)})"


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """The labels of a call's arrays, and the shape of its result.

    Attributes
    ----------
    x1, x2, out : tuple of labels
    shape : tuple of int
        Includes the axis that ``keepdims`` keeps, for which `out` has no label.
    kept : int
        The axis of the result that ``keepdims`` keeps, or -1.
    core_last : tuple of int
        The axes of the result with the core axes last, as ``order`` counts them.
    """

    x1: Labels
    x2: Labels
    out: Labels
    shape: tuple[int, ...]
    kept: int
    core_last: tuple[int, ...]


def labelled(
    signature: Signature,
    shape1: tuple[int, ...],
    shape2: tuple[int, ...],
    shape_out: tuple[int, ...] | None,
    axes: Axes,
    keepdims: bool,
) -> Labelled:
    """Return the labels of arrays of these shapes.

    Raises
    ------
    ValueError
        The shapes do not match, or an axis is out of range.
    """
    name = signature.name
    kept = "*" if keepdims else ""  # the label of the axis that keepdims keeps
    cores = (signature.x1, signature.x2, signature.out or kept)
    places = core_axes(signature, cores, axes)
    labels1 = _labels(name, "x1", shape1, cores[0], places[0])
    labels2 = _labels(name, "x2", shape2, cores[1], places[1])
    sizes = _core_sizes(signature, shape1, labels1, shape2, labels2)
    batch = _batch(name, shape1, labels1, shape2, labels2)
    ndim = len(batch) + len(cores[2])
    if shape_out is not None:
        ndim = max(ndim, len(shape_out))
    labels_out = _labels(name, "out", (1,) * ndim, cores[2], places[2])
    extents = {**sizes, **batch, "*": 1}
    shape = tuple(extents.get(label, 1) for label in labels_out)
    if shape_out is not None:
        labels_out = _labels(name, "out", shape_out, cores[2], places[2])
        _check_out(name, shape_out, labels_out, extents, shape)
    return Labelled(
        x1=labels1,
        x2=labels2,
        out=tuple(label for label in labels_out if label != "*"),
        shape=shape,
        kept=labels_out.index("*") if keepdims else -1,
        core_last=(
            *(axis for axis, label in enumerate(labels_out) if isinstance(label, int)),
            *(labels_out.index(label) for label in cores[2]),
        ),
    )


def frozen(axes: Any) -> Any:
    """Return ``axes`` as a hashable value; entries that are not integers are refused later."""
    if axes is None or isinstance(axes, (str, float)):
        return axes
    try:
        return operator.index(axes)
    except TypeError:
        return tuple(map(frozen, axes))


def core_axes(
    signature: Signature, cores: tuple[str, str, str], axes: Axes
) -> list[tuple[SupportsIndex, ...]]:
    """Return the positions of each operand's core axes, by default the last ones."""
    if axes is None:
        return [tuple(range(-len(core), 0)) for core in cores]
    if isinstance(axes, (str, SupportsIndex)):
        raise TypeError(
            f"{signature.name}: axes = {axes!r}; it must be a list of tuples, one for each operand "
            f"and for the result, {signature}"
        )
    given = list(axes)
    if len(given) == 2 and not signature.out:  # a result without core axes may be left out
        given.append((-1,) * len(cores[2]))
    if len(given) != 3:
        raise ValueError(
            f"{signature.name}: the length of axes is {len(given)}; it takes an entry for each "
            f"operand and for the result, {signature}"
        )
    places: list[tuple[SupportsIndex, ...]] = []
    for name, core, entry in zip(("x1", "x2", "the result"), cores, given, strict=True):
        place = (entry,) if isinstance(entry, SupportsIndex) else tuple(entry)
        if len(place) != len(core):
            raise np.exceptions.AxisError(
                f"{signature.name}: axes gives {entry} for {name}; the number of its core axes in "
                f"{signature} is {len(core)}"
            )
        places.append(place)
    return places


def _labels(
    function: str, name: str, shape: tuple[int, ...], core: str, places: tuple[SupportsIndex, ...]
) -> Labels:
    """Return an array's labels: letters of core axes, others by their distance from the end."""
    if len(shape) < len(core):
        raise ValueError(f"{function}: {name} has shape {shape}; it needs {len(core)} or more axes")
    letters = dict(zip(normalized_axes(function, name, places, len(shape)), core, strict=True))
    count = itertools.count(len(core) - len(shape))
    return tuple(letters[axis] if axis in letters else next(count) for axis in range(len(shape)))


def _core_sizes(
    signature: Signature, shape1: Any, labels1: Labels, shape2: Any, labels2: Labels
) -> dict[Any, int]:
    """Return the extents of the core axes.

    Raises
    ------
    ValueError
        The operands disagree.
    """
    sizes = {lb: n for lb, n in zip(labels1, shape1, strict=True) if isinstance(lb, str)}
    for label, extent in zip(labels2, shape2, strict=True):
        if isinstance(label, str) and sizes.setdefault(label, extent) != extent:
            raise ValueError(
                f"{signature.name}: the extents of {label} in {signature} differ: "
                f"{sizes[label]} in x1 of shape {shape1}, {extent} in x2 of shape {shape2}"
            )
    return sizes


def _batch(
    function: str, shape1: Any, labels1: Labels, shape2: Any, labels2: Labels
) -> dict[Any, int]:
    """Return the broadcast extents of the other axes, in order.

    Raises
    ------
    ValueError
        They do not broadcast.
    """
    sizes: dict[Any, int] = {}
    for shape, labels in ((shape1, labels1), (shape2, labels2)):
        for label, extent in zip(labels, shape, strict=True):
            if isinstance(label, int):
                if 1 not in (extent, sizes.setdefault(label, extent)) and sizes[label] != extent:
                    raise ValueError(
                        f"{function}: the axes of x1, shape {shape1}, and of x2, shape {shape2}, "
                        "that are not multiplied could not be broadcast together"
                    )
                if sizes[label] == 1:
                    sizes[label] = extent
    return dict(sorted(sizes.items()))


def _check_out(
    function: str,
    given: tuple[int, ...],
    labels: Labels,
    extents: dict[Any, int],
    shape: tuple[int, ...],
) -> None:
    """Raise ValueError unless the result broadcasts to `out`."""
    fits = all(
        extent == extents.get(label, 1) or (isinstance(label, int) and extents.get(label, 1) == 1)
        for label, extent in zip(labels, given, strict=True)
    )
    missing = [label for label, n in extents.items() if isinstance(label, int) and n != 1]
    if not fits or not set(missing) <= set(labels):
        raise ValueError(f"{function}: out has shape {given}, the result {shape}")


def normalized_axis(function: str, name: str, axis: SupportsIndex, ndim: int) -> int:
    """Return an axis counted from the front.

    Raises
    ------
    numpy.exceptions.AxisError
        The axis is out of range. The exception is a ValueError and an IndexError.
    TypeError
        The axis is not an integer.
    """
    try:
        index = operator.index(axis)
    except TypeError:
        raise TypeError(f"{function}: axis {axis!r} of {name} is not an integer") from None
    if not -ndim <= index < ndim:
        raise np.exceptions.AxisError(
            f"{function}: axis {index} is out of bounds for {name}, whose ndim is {ndim}"
        )
    return index % ndim


def normalized_axes(
    function: str, name: str, axes: tuple[SupportsIndex, ...], ndim: int
) -> tuple[int, ...]:
    """Return different axes, counted from the front.

    Raises
    ------
    ValueError
        An axis is named twice or is out of range.
    """
    found = tuple(normalized_axis(function, name, axis, ndim) for axis in axes)
    if len(set(found)) < len(found):
        raise ValueError(f"{function}: axes names an axis of {name} twice: {axes}")
    return found
