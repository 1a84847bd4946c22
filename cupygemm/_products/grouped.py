"""`grouped_matmul`: products of matrices of different shapes, in few launches.

Each product is one request. Requests that the same kernel can compute share a launch, which the
backend prepares. The other products (types without a kernel, or a k too long for one workgroup) are
multiplied one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._backends.device import Device, device
from cupygemm._backends.protocol import Group, Places
from cupygemm._plan.table import PLANS, Key
from cupygemm._products.matmul import matmul
from cupygemm._products.row_groups import multiply_row_groups
from cupygemm._records.formats import parse_dtype
from cupygemm._request.arrays import ARRAY_TYPES, Array, as_array, one_device, type_of
from cupygemm._request.call import operand_of
from cupygemm._request.copies import assign
from cupygemm._request.keywords import common_keywords
from cupygemm._request.options import Options
from cupygemm._request.request import Request, make_request

_NAME = "grouped_matmul"


@common_keywords
def grouped_matmul(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    sizes: Any = None,
    offsets: Any = None,
    expected_rows: int | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    block: int = 128,
    format_a: DTypeLike | None = None,
    format_b: DTypeLike | None = None,
    dtype: DTypeLike | None = None,
    casting: str = "same_kind",
    stream: Any = None,
) -> Any:
    """Multiply pairs of matrices of different shapes, or groups of rows by a stack of matrices.

    Parameters
    ----------
    a, b : sequence of cupy.ndarray, or cupy.ndarray
        Matrices, (m_i, k_i) and (k_i, n_i). Extents of 0 are allowed. With `sizes` or `offsets`,
        two arrays: a stack ``b`` of matrices, (groups, k, n), and groups of rows that each multiply
        one of them. In an ``a`` of shape (m, k), groups are adjacent, like the tokens of a mixture
        of experts that are sorted by expert. In an ``a`` of shape (groups, rows, k), a group is the
        first rows of its matrix.
    out : sequence of cupy.ndarray, or cupy.ndarray, optional
        Arrays for the results. They may overlap the operands, but not each other.
    sizes : sequence of int or cupy.ndarray, optional
        The number of rows of each group, (groups,). It may be an array of integers on the device;
        the host does not wait for it if the device has a kernel for groups of rows (see the
        notes). Such sizes are not checked, but wrong ones cause no access outside the arrays.
    offsets : sequence of int or cupy.ndarray, optional
        The row of an ``a`` of shape (m, k) at which each group ends, (groups,), instead of `sizes`.
        They must not decrease.
    expected_rows : int, optional
        The number of rows of a typical group, for which a kernel is chosen. The default is m
        divided by the number of groups, or for a stack at most 128. It affects results only through
        the order of sums.
    scale_a : number or cupy.ndarray, optional
        Factors of ``a``, with `sizes` or `offsets`: a single one, one for each row,
        ``a.shape[:-1]``, or one for each row and block of k,
        ``(*a.shape[:-1], ceil(k / block))``.
    scale_b : number or cupy.ndarray, optional
        Factors of ``b``: a single one, one for each matrix, (groups,), or for each column,
        (groups, n), or with ``g(x) = ceil(x / block)`` one for each block, (groups, g(k), g(n)), or
        block of k and column, (groups, g(k), n).
    block : int
        Extent of a block.
    format_a, format_b : str or dtype, optional
        The 8-bit float formats of ``a`` and ``b``, as for `matmul`, with `sizes` or `offsets`.
    dtype, casting
        As for `matmul`.
    stream : cupy.cuda.Stream, optional
        As for `matmul`.

    Returns
    -------
    list of cupy.ndarray, or cupy.ndarray
        The products, (m_i, n_i); the arrays of ``out`` if they were given. With `sizes` or
        `offsets`, one array of shape (m, n) or (groups, rows, n), in which rows that belong to no
        group have no defined value; ``out`` if it was given.

    Raises
    ------
    ValueError
        If the numbers of matrices differ, shapes do not match, or numbers on the host do not
        describe groups of rows of ``a``.
    TypeError
        If an argument is not an array on a device, the types have no product, or scales or formats
        are given for pairs of matrices.

    Notes
    -----
    All products share one launch if the operands have the same type and memory order (one order for
    all of ``a``, one for all of ``b``, and one for all of ``out``). Otherwise there is one launch
    for each combination of orders. Some kernels limit the number of products of a launch, and a
    product with a long k and few rows and columns is launched alone if a model predicts that this
    takes less time, since its k can then be split. The how-to guide "Use more than matmul" has the
    details.

    On Hopper GPUs, all groups of rows take one launch, whose kernel reads the sizes. On other
    devices each group is one product; sizes on the device are first copied to the host, which
    waits for them, so that the call cannot be captured in a graph.

    Examples
    --------
    Five tokens for two experts, three of them for the first:

    >>> import cupygemm, cupy as cp
    >>> tokens = cp.arange(10, dtype="float32").reshape(5, 2)
    >>> experts = cp.stack([cp.eye(2), 10 * cp.eye(2)]).astype("float32")
    >>> cupygemm.grouped_matmul(tokens, experts, sizes=cp.array([3, 2]))
    array([[ 0.,  1.],
           [ 2.,  3.],
           [ 4.,  5.],
           [60., 70.],
           [80., 90.]], dtype=float32)
    """
    formats = {"format_a": format_a, "format_b": format_b}
    formats = {name: given for name, given in formats.items() if given is not None}
    if sizes is not None or offsets is not None:
        return multiply_row_groups(
            a,
            b,
            out,
            sizes=sizes,
            offsets=offsets,
            expected_rows=expected_rows,
            scale_a=scale_a,
            scale_b=scale_b,
            block=block,
            formats=formats,
            dtype=dtype,
            casting=casting,
        )
    _refuse_for_pairs(
        formats | {"scale_a": scale_a, "scale_b": scale_b, "expected_rows": expected_rows}
    )
    return _multiply_pairs(a, b, out, dtype=dtype, casting=casting)


def _refuse_for_pairs(given: dict[str, Any]) -> None:
    """Raise TypeError for an option that only groups of rows have."""
    for name, value in given.items():
        if value is not None:
            raise TypeError(
                f"{_NAME}: {name} is for groups of rows: pass a as one array, b as a stack of "
                "matrices, and sizes or offsets"
            )


def _multiply_pairs(
    a: Sequence[Any],
    b: Sequence[Any],
    out: Sequence[Any] | None,
    *,
    dtype: DTypeLike | None,
    casting: str,
) -> list[Array]:
    """Return the products of pairs of matrices."""
    _check_pairs(a, b, out)
    if not a:
        return []
    from cupy.cuda import Device as CurrentDevice
    from cupy.cuda.runtime import getDevice

    wanted = parse_dtype(dtype)
    targets: Sequence[Any] = () if out is None else out
    key, places = _key(a, b, targets, dtype=wanted, casting=casting)
    plan: GroupedPlan | None = PLANS.get(key)
    firsts, seconds, outs = a, b, targets
    if plan is None or not plan.is_known_apart(places):
        firsts, seconds, outs = _matrices(a, b, targets)
        aliased = _aliased(outs, [*firsts, *seconds])
        if plan is None or any(aliased):
            index = firsts[0].data.device_id
            with CurrentDevice(index):  # load the kernels on the device of the arrays
                plan = _make_plan(
                    firsts,
                    seconds,
                    outs,
                    aliased=aliased,
                    dtype=wanted,
                    casting=casting,
                    device_index=index,
                )
            if key is not None and not any(aliased):
                PLANS.keep(key, plan)
        if not any(aliased):
            plan.known_apart = places
    if plan.device_index == getDevice():
        results = plan(firsts, seconds, outs or [None] * len(a), places)
    else:
        with CurrentDevice(plan.device_index):  # the device of the tables of addresses
            results = plan(firsts, seconds, outs or [None] * len(a), places)
    return results if out is None else list(out)


def _check_pairs(a: Any, b: Any, out: Any) -> None:
    """Raise an error unless the arguments are lists of one length."""
    for name, given in (("a", a), ("b", b), ("out", a if out is None else out)):
        if not hasattr(given, "__len__"):
            raise TypeError(
                f"{_NAME}: {name} is {type_of(given)}, not a list of arrays; pass list({name})"
            )
    if len(a) != len(b) or (out is not None and len(out) != len(a)):
        more = "" if out is None else f" and {len(out)} in out"
        are_arrays = hasattr(a, "ndim") and hasattr(b, "ndim")
        remedy = "; if the rows of a are groups, pass sizes or offsets" if are_arrays else ""
        raise ValueError(
            f"{_NAME}: the numbers of matrices differ: {len(a)} in a, {len(b)} in b{more}{remedy}"
        )


def _key(
    a: Sequence[Any],
    b: Sequence[Any],
    out: Sequence[Any],
    *,
    dtype: np.dtype[Any] | None,
    casting: str,
) -> tuple[Key | None, Places | None]:
    """Return the key of a call and the addresses of its arrays; None if they are not CuPy's."""
    key: list[Any] = [_NAME, dtype, casting, len(a)]
    addresses: list[tuple[int, ...]] = []
    for given in (a, b, out):
        places: list[int] = []
        for x in given:
            if type(x) not in ARRAY_TYPES:
                return None, None
            memory = x.data
            place = memory.ptr
            places.append(place)
            key += (x.shape, x.strides, x.dtype, place & 15, memory.device_id)
        addresses.append(tuple(places))
    return tuple(key), Places(*addresses)


def _matrices(*lists: Sequence[Any]) -> list[list[Array]]:
    """Return the matrices of ``a``, ``b`` and ``out`` as CuPy arrays.

    Raises
    ------
    ValueError
        If a matrix does not have two axes, or the matrices are on different devices.
    TypeError
        If an entry is not an array on a device.
    """
    found: list[list[Array]] = []
    labelled: dict[str, Array] = {}
    for key, given in zip(("a", "b", "out"), lists, strict=True):
        labels = [f"{key}[{index}]" for index in range(len(given))]
        found.append([as_array(_NAME, lb, x) for lb, x in zip(labels, given, strict=True)])
        labelled |= zip(labels, found[-1], strict=True)
    one_device(_NAME, labelled)
    for label, x in labelled.items():
        if x.ndim != 2:
            raise ValueError(f"{_NAME}: {label} has shape {x.shape}; it must have two axes")
    return found


@dataclass(kw_only=True)
class GroupedPlan:
    """The plan of a call of `grouped_matmul`.

    Attributes
    ----------
    launches : tuple of Group
        The launches that several products share.
    alone : tuple of int
        The numbers of the products that `matmul` computes one by one.
    requests : tuple of Request
        All products.
    dtype : numpy.dtype or None
    casting : str
        Options of the call.
    device_index : int
        The device of the arrays.
    known_apart : Places or None
        Addresses for which no result overlaps an operand, as the last check showed.
    """

    launches: tuple[Group, ...]
    alone: tuple[int, ...]
    requests: tuple[Request, ...]
    dtype: np.dtype[Any] | None
    casting: str
    device_index: int
    known_apart: Places | None = None

    def is_known_apart(self, places: Places | None) -> bool:
        """Whether results at these addresses are known not to overlap operands."""
        return places is not None and (not places.out or places == self.known_apart)

    def __call__(self, x1s: Any, x2s: Any, outs: Any, places: Places | None) -> list[Array]:
        """Return the products."""
        results: list[Any] = [None] * len(self.requests)
        for launch in self.launches:
            products = launch(x1s, x2s, outs, places)
            for number, product in zip(launch.numbers, products, strict=True):
                results[number] = product
        for number in self.alone:
            pair = x1s[number], x2s[number]
            request = self.requests[number]
            if request.aliased:
                results[number] = matmul(*pair, dtype=request.types.stored, casting="unsafe")
            else:
                results[number] = matmul(
                    *pair, outs[number], dtype=self.dtype, casting=self.casting
                )
        for number, out in enumerate(outs):  # after all operands have been read
            if out is not None and results[number] is not out:
                assign(out, results[number])
                results[number] = out
        return results


def _make_plan(
    a: Sequence[Array],
    b: Sequence[Array],
    out: Sequence[Array],
    *,
    aliased: Sequence[bool],
    dtype: np.dtype[Any] | None,
    casting: str,
    device_index: int,
) -> GroupedPlan:
    """Return the plan for matrices of these layouts on a device."""
    options = Options(dtype=dtype, casting=casting)
    requests: list[Request] = []
    for number, (x1, x2, target) in enumerate(zip(a, b, out or [None] * len(a), strict=True)):
        operand = None if target is None else operand_of(target)
        try:
            request = make_request(
                operand_of(x1), operand_of(x2), operand, options=options, aliased=aliased[number]
            )
        except (TypeError, ValueError) as err:
            reason = str(err).removeprefix("matmul: ")
            raise type(err)(f"{_NAME}: product {number}: {reason}") from err
        requests.append(request.at_any_address())
    launches = _groups(requests, device(device_index))
    grouped = {number for launch in launches for number in launch.numbers}
    return GroupedPlan(
        launches=tuple(launches),
        alone=tuple(number for number in range(len(requests)) if number not in grouped),
        requests=tuple(requests),
        dtype=dtype,
        casting=casting,
        device_index=device_index,
    )


def _groups(requests: Sequence[Request], place: Device) -> Sequence[Group]:
    """Return the launches that several products share."""
    wanted = {n: request for n, request in enumerate(requests) if request.work == "product"}
    return place.kernels.groups(wanted)


def _aliased(outs: Sequence[Array], operands: Sequence[Array]) -> list[bool]:
    """Return which results overlap an operand, and must be written after all operands are read."""
    if not outs:
        return [False] * (len(operands) // 2)
    reads = np.array([_extent(x) for x in operands], dtype=np.uint64)
    writes = np.array([_extent(x) for x in outs], dtype=np.uint64)
    before, after = reads[:, 0] < writes[:, None, 1], writes[:, None, 0] < reads[:, 1]
    return list(map(bool, np.any(before & after, axis=1)))


def _extent(array: Array) -> tuple[int, int]:
    start, end = operand_of(array).extent()
    return array.data.ptr + start, array.data.ptr + end
