"""`grouped_matmul`: products of matrices of different shapes, in one launch.

Each product is a request of its own. Those that one kernel can compute share a launch, which the
backend prepares. The others (types without a kernel, or a k too deep for one workgroup to sum) are
multiplied one by one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._backends.cdna import grouped as grouped_cdna
from cupygemm._backends.cdna.arch import Arch
from cupygemm._backends.device import Device, device
from cupygemm._products.matmul import matmul
from cupygemm._request.arrays import Array, as_array, one_device
from cupygemm._request.copies import assign, copied
from cupygemm._request.keywords import common_keywords
from cupygemm._request.layout import Operand
from cupygemm._request.options import Options
from cupygemm._request.request import Posed, pose

Addresses = Sequence[tuple[int, int, int]]
"""Of the A, B and C of each product."""
Arrays = Sequence[Array]
Targets = Sequence[Array | None]
MAX_RECENT = 256
"""Calls whose plans are found by their arrays' addresses."""


@common_keywords
def grouped_matmul(
    a: Sequence[Any],
    b: Sequence[Any],
    out: Sequence[Any] | None = None,
    *,
    dtype: DTypeLike | None = None,
    casting: str = "same_kind",
    stream: Any = None,
) -> list[Array]:
    """Multiply pairs of matrices of different shapes.

    Parameters
    ----------
    a, b : sequence of cupy.ndarray
        Matrices, (m_i, k_i) and (k_i, n_i). Extents of 0 are allowed.
    out : sequence of cupy.ndarray, optional
        Where to put the results. They may overlap the operands, but not
        each other.
    dtype, casting
        As for `matmul`.
    stream : cupy.cuda.Stream, optional
        As for `matmul`.

    Returns
    -------
    list of cupy.ndarray
        The products, (m_i, n_i); those of ``out`` if they were given.

    Raises
    ------
    ValueError
        The numbers of matrices differ, or a pair does not fit.
    TypeError
        An argument is no array of a device, or the types have no product.

    Notes
    -----
    All products are one launch if the operands have one type and lie alike (all of ``a`` with the
    same axis adjacent in memory, all of ``b``, all of ``out``); else there is one launch for each
    way of lying. On Hopper GPUs a launch takes up to 63 products, of types for which this library
    has a kernel; products with a long k and few rows and columns are launched alone where a model
    says that this takes less time, since k is then split.
    """
    name = "grouped_matmul"
    if len(a) != len(b) or (out is not None and len(out) != len(a)):
        more = "" if out is None else f" and {len(out)} in out"
        raise ValueError(f"{name}: {len(a)} matrices in a, {len(b)} in b{more}")
    if not a:
        return []
    from cupy.cuda import Device as CurrentDevice
    from cupy.cuda.runtime import getDevice

    asked = None if dtype is None else np.dtype(dtype)
    key = _key(a, b, out, asked, casting)
    found = _recent.get(key)
    if found is None:
        firsts, seconds, outs = _matrices(a, b, () if out is None else out)
        index = firsts[0].data.device_id
        items = tuple(
            (_lie(x1), _lie(x2), None if target is None else _lie(target), aliased)
            for x1, x2, target, aliased in zip(
                firsts, seconds, outs or [None] * len(a), _aliased(outs, [*firsts, *seconds]),
                strict=True,
            )
        )  # fmt: skip
        with CurrentDevice(index):  # kernels are loaded where the arrays are
            found = _plan(items, asked, casting, index), index
        if key is not None:
            if len(_recent) >= MAX_RECENT:
                _recent.clear()
            _recent[key] = found
    else:
        firsts, seconds, outs = list(a), list(b), list(out or ())
    plan, index = found
    if index == getDevice():
        results = plan(firsts, seconds, outs or [None] * len(a))
    else:
        with CurrentDevice(index):  # where the tables of addresses are kept
            results = plan(firsts, seconds, outs or [None] * len(a))
    return results if out is None else list(out)


def _key(
    a: Sequence[Any],
    b: Sequence[Any],
    out: Sequence[Any] | None,
    dtype: np.dtype[Any] | None,
    casting: str,
) -> tuple[Any, ...] | None:
    """Return what a call of CuPy's arrays depends on, addresses included; None of others."""
    from cupy import ndarray

    key: list[Any] = [len(a), dtype, casting]
    for given in (a, b, out or ()):
        for x in given:
            if type(x) is not ndarray:
                return None
            key += (x.data.ptr, x.shape, x.strides, x.dtype)
    return tuple(key)


def _matrices(*lists: Sequence[Any]) -> list[list[Array]]:
    """Return the matrices of ``a``, ``b`` and ``out`` as CuPy arrays.

    Raises
    ------
    ValueError
        One has not two axes, or they are on different devices.
    TypeError
        One is no array of a device.
    """
    from cupy import ndarray

    name = "grouped_matmul"
    every = [x for given in lists for x in given]
    if all(isinstance(x, ndarray) and x.ndim == 2 for x in every) and (
        len({x.data.device_id for x in every}) == 1
    ):
        return [list(given) for given in lists]
    found: list[list[Array]] = []
    labelled: dict[str, Array] = {}
    for key, given in zip(("a", "b", "out"), lists, strict=True):
        labels = [f"{key}[{index}]" for index in range(len(given))]
        found.append([as_array(name, lb, x) for lb, x in zip(labels, given, strict=True)])
        labelled |= zip(labels, found[-1], strict=True)
    one_device(name, labelled)
    for label, x in labelled.items():
        if x.ndim != 2:
            raise ValueError(f"{name}: {label} has shape {x.shape}; it must have two axes")
    return found


@dataclass(frozen=True)
class Launch:
    """Products that share a launch.

    Attributes
    ----------
    indices : tuple of int
        Of the products, in the order of the launch.
    posed : tuple of Posed
    enqueue : callable
        Takes the addresses of all of them.
    """

    indices: tuple[int, ...]
    posed: tuple[Posed, ...]
    enqueue: Callable[[Addresses], None]

    def __call__(self, x1s: Arrays, x2s: Arrays, outs: Targets) -> list[Array]:
        """Enqueue the launch; return the products, in its order, where it writes them."""
        from cupy import ndarray

        addresses, results, kept = [], [], []
        for index, (copy1, copy2, temporary, swapped, shape, dtype) in self._each:
            first, second, target = x1s[index], x2s[index], outs[index]
            if copy1 is not None or copy2 is not None:
                first, second = copied(first, copy1), copied(second, copy2)
                kept.append((first, second))  # copies live until the launch is enqueued
            if target is None or temporary:
                target = ndarray(shape, dtype)
            a, b = (second, first) if swapped else (first, second)
            addresses.append((a.data.ptr, b.data.ptr, target.data.ptr))
            results.append(target)
        self.enqueue(addresses)
        return results

    @functools.cached_property
    def _each(self) -> list[tuple[int, tuple[Any, ...]]]:
        """Return each product's number, and of how it is posed what a call needs."""
        return [
            (index, (p.x1_copy, p.x2_copy, p.temporary is not None, p.layout.swapped,
                     p.shape.result, p.types.stored))
            for index, p in zip(self.indices, self.posed, strict=True)
            if p.layout is not None
        ]  # fmt: skip


@dataclass(frozen=True)
class GroupedPlan:
    """A call, worked out but for the arrays' places.

    Attributes
    ----------
    launches : tuple of Launch
    alone : tuple of int
        Products that `matmul` computes one by one.
    posed : tuple of Posed
        All products.
    aliased : tuple of bool
        Whose results overlap an operand, of any product.
    dtype : numpy.dtype or None
    casting : str
    """

    launches: tuple[Launch, ...]
    alone: tuple[int, ...]
    posed: tuple[Posed, ...]
    aliased: tuple[bool, ...]
    dtype: np.dtype[Any] | None
    casting: str

    def __call__(self, x1s: Arrays, x2s: Arrays, outs: Targets) -> list[Array]:
        """Return the products."""
        results: list[Any] = [None] * len(outs)
        for launch in self.launches:
            for index, product in zip(launch.indices, launch(x1s, x2s, outs), strict=True):
                results[index] = product
        for index in self.alone:
            pair = x1s[index], x2s[index]
            if self.aliased[index]:
                stored = self.posed[index].types.stored
                results[index] = matmul(*pair, dtype=stored, casting="unsafe")
            else:
                given = outs[index]
                results[index] = matmul(*pair, given, dtype=self.dtype, casting=self.casting)
        for index, out in enumerate(outs):  # after all operands have been read
            if out is not None and results[index] is not out:
                assign(out, results[index])
                results[index] = out
        return results


Lie = tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any], int]  # an Operand's fields
Item = tuple[Lie, Lie, Lie | None, bool]  # x1, x2, out, whether out is aliased


@functools.lru_cache(maxsize=1024)
def _plan(
    items: tuple[Item, ...], dtype: np.dtype[Any] | None, casting: str, index: int
) -> GroupedPlan:
    """Return how matrices that lie so are multiplied on a device."""
    place = device(index)
    options = Options(dtype, casting)
    posed: list[Posed] = []
    for number, (lie1, lie2, lie_out, aliased) in enumerate(items):
        x1, x2 = Operand(*lie1), Operand(*lie2)
        out = None if lie_out is None else Operand(*lie_out)
        try:
            posed.append(
                pose(
                    x1, x2, out, options,
                    products=place.products, row_bytes=place.row_bytes, aliased=aliased,
                )
            )  # fmt: skip
        except (TypeError, ValueError) as err:
            raise type(err)(f"grouped_matmul: product {number}: {err}") from err
    launches = [
        Launch(numbers, tuple(posed[number] for number in numbers), enqueue)
        for numbers, enqueue in _groups(posed, place)
    ]
    grouped = {number for launch in launches for number in launch.indices}
    alone = tuple(number for number in range(len(items)) if number not in grouped)
    overlapping = tuple(item[-1] for item in items)
    return GroupedPlan(tuple(launches), alone, tuple(posed), overlapping, dtype, casting)


_recent: dict[tuple[Any, ...] | None, tuple[GroupedPlan, int]] = {}


def forget_groups() -> None:
    """Forget all plans of groups."""
    _plan.cache_clear()
    _recent.clear()


def _groups(
    posed: list[Posed], place: Device
) -> list[tuple[tuple[int, ...], Callable[[Addresses], None]]]:
    """Return the launches of products that share one: which products, and what enqueues them."""
    layouts = {number: its.layout for number, its in enumerate(posed) if its.layout is not None}
    if isinstance(place.arch, Arch):
        return grouped_cdna.groups(layouts, place.arch)
    if place.arch is None:
        return []
    from cupygemm._backends.hopper import grouped as grouped_hopper

    return grouped_hopper.groups(layouts, place.arch)


def _lie(array: Array) -> Lie:
    """Return where an array lies, as far as a plan depends on it."""
    return array.shape, array.strides, array.dtype, array.data.ptr & 15


def _aliased(outs: Sequence[Array], operands: Sequence[Array]) -> list[bool]:
    """Return which results share memory with any operand: they are written after all is read."""
    if not outs:
        return [False] * (len(operands) // 2)
    reads = np.array([_extent(x) for x in operands], dtype=np.uint64)
    writes = np.array([_extent(x) for x in outs], dtype=np.uint64)
    before, after = reads[:, 0] < writes[:, None, 1], writes[:, None, 0] < reads[:, 1]
    return list(map(bool, np.any(before & after, axis=1)))


def _extent(array: Array) -> tuple[int, int]:
    start, end = _reach(array.shape, array.strides, array.dtype)
    return array.data.ptr + start, array.data.ptr + end


@functools.lru_cache(maxsize=4096)
def _reach(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[int, int]:
    return Operand(shape, strides, dtype).extent()
