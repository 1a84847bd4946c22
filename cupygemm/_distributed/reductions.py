"""Products whose k is spread over a group: `matmul_reduce_scatter` and `matmul_all_reduce`.

A rank takes the steps of `all_gather_matmul` the other way round: it multiplies for a peer the rows
that it would have received from it, and sends the sums while it multiplies for the next one. The
sums of all ranks are added in the order of the ranks, whenever they arrive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._distributed.arguments import checked_call, checked_group, matrix, rows_of_ranks
from cupygemm._distributed.group import Group, Message
from cupygemm._distributed.row_products import rows_of_options
from cupygemm._distributed.steps import Rows, balanced, bounds_of, sliced
from cupygemm._distributed.sums import added_in_order, finished, type_of_sums
from cupygemm._distributed.ways import Way, choose_way
from cupygemm._products.matmul import matmul
from cupygemm._records.formats import container, parse_dtype
from cupygemm._request.call import Call
from cupygemm._request.keywords import common_keywords
from cupygemm._request.options import MatmulOptions

_MULTIPLIED = ("format_a", "format_b", "precision", "reproducible")
"""The options that concern products, and not the sum of all of them."""


@common_keywords
def matmul_reduce_scatter(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    group: Group,
    rows: Sequence[int] | None = None,
    partial_dtype: DTypeLike | None = None,
    dtype: DTypeLike | None = None,
    casting: str = "same_kind",
    **options: Unpack[MatmulOptions],
) -> Any:
    """Multiply matrices whose k is spread over a group, and spread the rows of the result.

    Each rank gets some rows of ``sum(matmul(a, b) of all ranks)``. It computes and sends the rows
    of the others first.

    Parameters
    ----------
    a : cupy.ndarray
        The columns of the first matrix that this rank has, (m, k). Ranks may have different k.
    b : cupy.ndarray
        The rows of the second matrix that this rank has, (k, n).
    out : cupy.ndarray, optional
        Array for the rows of the result, (rows[rank], n).
    group : Group
        From `connect`.
    rows : sequence of int, optional
        The numbers of rows of the result of all ranks; by default they differ by one at most.
    partial_dtype : dtype, optional
        The type in which partial products are rounded and travel. The default is the type of the
        sums, float32 for 16-bit operands. A narrower type halves the traffic, and rounds each
        rank's part once more.
    dtype : dtype, optional
        As for `cupygemm.matmul`.
    casting : str
        As for `cupygemm.matmul`.
    **options
        The other options of `cupygemm.matmul` for matrices, and ``stream``. Arrays of the epilogue
        fit this rank's rows of the result.

    Returns
    -------
    cupy.ndarray
        The rows of the result that this rank has, (rows[rank], n).

    Raises
    ------
    ValueError, TypeError
        As `cupygemm.matmul`, or a rank calls with other dtypes, m, n or rows. Nothing is enqueued
        on any rank, and the group stays usable.
    GroupError
        A rank is gone, or has not come within the timeout.

    See Also
    --------
    matmul_all_reduce : The same sum, whole on each rank.

    Notes
    -----
    Sums are added in the order of the ranks, ``((p0 + p1) + p2) + ...``, so that the bits are the
    same each time and do not depend on `rows`. The epilogue is applied once, after the sum, which
    is rounded once. The partial products of all ranks for the rows of this one, and those of this
    rank for the others, are in memory at once.
    """
    name = "matmul_reduce_scatter"
    checked_group(name, group)
    with group.refusing(name):
        a, b = matrix(name, "a", a, group), matrix(name, "b", b, group)
        counts = rows_of_ranks(name, rows, None, group, total=a.shape[0])
        bounds = bounds_of(counts)
        own_rows = bounds[group.rank]
        sums = _Sums(a, b, options, partial_dtype)
        block = a[slice(*own_rows)]
        call = checked_call(block, b, out, dtype=dtype, casting=casting, options=options)
        sums.set_type(call, options)
    group.agree(name, sums.facts(counts))
    with group.guarded():
        return _reduced(group, bounds, sums, call, out)


@common_keywords
def matmul_all_reduce(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    group: Group,
    partial_dtype: DTypeLike | None = None,
    dtype: DTypeLike | None = None,
    casting: str = "same_kind",
    **options: Unpack[MatmulOptions],
) -> Any:
    """Multiply matrices whose k is spread over a group; each rank gets the whole result.

    Parameters
    ----------
    a : cupy.ndarray
        The columns of the first matrix that this rank has, (m, k). Ranks may have different k.
    b : cupy.ndarray
        The rows of the second matrix that this rank has, (k, n).
    out : cupy.ndarray, optional
        Array for the result, (m, n).
    group : Group
        From `connect`.
    partial_dtype : dtype, optional
        The type in which partial products travel; see `matmul_reduce_scatter`.
    dtype : dtype, optional
        As for `cupygemm.matmul`.
    casting : str
        As for `cupygemm.matmul`.
    **options
        The other options of `cupygemm.matmul` for matrices, and ``stream``. All ranks pass the same
        numbers, and arrays with the same contents.

    Returns
    -------
    cupy.ndarray
        The result, (m, n), with the same bits on all ranks.

    Raises
    ------
    ValueError, TypeError
        As `cupygemm.matmul`, or a rank calls with other dtypes, m, n or options. Nothing is
        enqueued on any rank, and the group stays usable.
    GroupError
        A rank is gone, or has not come within the timeout.

    See Also
    --------
    matmul_reduce_scatter : The same sum, of which each rank gets some rows, with the same bits.
    """
    import cupy

    name = "matmul_all_reduce"
    checked_group(name, group)
    with group.refusing(name):
        a, b = matrix(name, "a", a, group), matrix(name, "b", b, group)
        counts = balanced(a.shape[0], group.size)
        bounds = bounds_of(counts)
        own_rows = bounds[group.rank]
        sums = _Sums(a, b, options, partial_dtype)
        whole = checked_call(a, b, out, dtype=dtype, casting=casting, options=options)
        sums.set_type(whole, options)
        result = container(whole.request.types.result)
        target = out
        if out is None or not out.flags.c_contiguous:
            target = cupy.empty((a.shape[0], b.shape[1]), result)
        own = target[slice(*own_rows)]
        parts = rows_of_options(options, a.shape[0], own_rows)
        block = a[slice(*own_rows)]
        call = checked_call(block, b, own, dtype=dtype, casting=casting, options=parts)
    facts = sums.facts(counts) | {"result": str(result), "options": _described(options)}
    group.agree(name, facts)
    with group.guarded():
        _reduced(group, bounds, sums, call, own)
        (step,) = sliced(group.rank, bounds, 1)
        stream = cupy.cuda.get_current_stream()
        group.stream.wait_event(stream.record())
        group.exchange(
            [Message(own, peer) for peer, _ in step.sends],
            [Message(target[slice(*part)], peer) for peer, part in step.receives],
        )
        stream.wait_event(group.stream.record())
        if out is not None and target is not out:
            out[...] = target
    return target if out is None else out


class _Sums:
    """The partial products of a rank.

    Parameters
    ----------
    a, b : cupy.ndarray
    options : mapping
    partial_dtype : dtype or None
    """

    def __init__(self, a: Any, b: Any, options: MatmulOptions, partial_dtype: Any) -> None:
        self.a, self.b = a, b
        self._wanted = parse_dtype(partial_dtype)
        self._options: dict[str, Any] = {
            name: options[name]  # type: ignore[literal-required]
            for name in _MULTIPLIED
            if name in options
        }
        self.sums: np.dtype[Any]
        self.travelling: np.dtype[Any]
        self._types: list[str] = []

    def set_type(self, call: Call, options: MatmulOptions) -> None:
        """Derive the types of the partial products from those of the call."""
        types = call.request.types
        epilogue = call.arguments is not None
        self.sums = type_of_sums(types, epilogue=epilogue)
        self.travelling = self.sums if self._wanted is None else self._wanted
        if not np.can_cast(self.travelling, self.sums, "safe"):
            raise TypeError(
                f"partial_dtype is {self.travelling}, which sums of {self.sums} cannot hold"
            )
        self._types = [str(types.x1), str(types.x2), str(self.sums), str(self.travelling)]

    def facts(self, counts: list[int]) -> dict[str, Any]:
        """Return what all ranks must agree on."""
        shape = [self.a.shape[0], self.b.shape[1]]
        return {"types": self._types, "(m, n)": shape, "rows": counts}

    def multiply(self, rows: Rows, target: Any) -> None:
        """Enqueue the product of some rows, rounded to the type in which it travels."""
        if rows[1] > rows[0]:
            part = self.a[slice(*rows)]
            matmul(part, self.b, target, dtype=self.travelling, casting="unsafe", **self._options)

    def adds_in_kernel(self, call: Call) -> bool:
        """Whether a product's epilogue can add the sums of a peer, and round to the result."""
        types = call.request.types
        return (
            call.arguments is None
            and types.accumulator.kind == "f"
            and types.result == types.stored
            and self.travelling.itemsize > 1
        )

    def add(self, rows: Rows, peers: Any, out: Any) -> None:
        """Enqueue the sum of a peer's products and those of some rows, rounded to the result."""
        if rows[1] > rows[0]:
            part = self.a[slice(*rows)]
            matmul(part, self.b, out, dtype=out.dtype, casting="unsafe", c=peers, **self._options)


def _reduced(group: Group, bounds: Sequence[Rows], sums: _Sums, call: Call, out: Any) -> Any:
    """Enqueue the partial products and their exchange, and return this rank's rows of the result.

    They are in ``out`` if that is not None.
    """
    import cupy

    (m, k), n = sums.a.shape, sums.b.shape[1]
    row_bytes = n * sums.travelling.itemsize
    way = choose_way(
        group,
        bounds,
        row_bytes=row_bytes,
        row_flops=2.0 * max(1, k) * n,
        itemsize=sums.a.itemsize,
        segment_bytes=group.size * max(last - first for first, last in bounds) * row_bytes,
    )
    first, last = bounds[group.rank]
    sent = cupy.empty((m, n), sums.travelling)
    parts_shape = (group.size, last - first, n)
    if way.peers is None:
        parts = cupy.empty(parts_shape, sums.travelling)
        _exchange_by_nccl(group, way, bounds, sums, sent, parts)
    else:
        parts = way.peers.array(parts_shape, sums.travelling)
        adds = group.size == 2 and sums.adds_in_kernel(call)
        if adds and out is None:
            out = cupy.empty((last - first, n), container(call.request.types.result))
        _exchange_by_copies(group, way, bounds, sums, sent, parts, out if adds else None)
        if adds:
            return out
    return finished(call, added_in_order(parts, sums.sums), out)


def _exchange_by_nccl(
    group: Group, way: Way, bounds: Sequence[Rows], sums: _Sums, sent: Any, parts: Any
) -> None:
    from cupy.cuda import get_current_stream

    first, last = bounds[group.rank]
    stream = get_current_stream()
    for step in way.steps:
        for _, part in step.receives:
            sums.multiply(part, sent[slice(*part)])
        group.stream.wait_event(stream.record())  # these sums are there, and `parts` may be written
        group.exchange(
            [Message(sent[slice(*part)], peer) for peer, part in step.receives],
            [
                Message(parts[peer, start - first : stop - first], peer)
                for peer, (start, stop) in step.sends
            ],
        )
    sums.multiply((first, last), parts[group.rank])
    if way.steps:
        stream.wait_event(group.stream.record())


def _exchange_by_copies(
    group: Group,
    way: Way,
    bounds: Sequence[Rows],
    sums: _Sums,
    sent: Any,
    parts: Any,
    out: Any,
) -> None:
    """Enqueue the partial products and the copies to peers.

    If `out` is not None, the products of this rank's rows are added in the kernel to those of the
    only peer.
    """
    from cupy.cuda import get_current_stream

    first, last = bounds[group.rank]
    stream, peers = get_current_stream(), way.peers
    assert peers is not None
    row_bytes = parts.shape[2] * parts.itemsize
    peers.begin(stream)
    for step in way.steps:
        for peer, (start, stop) in step.receives:
            sums.multiply((start, stop), sent[start:stop])
            begins, ends = bounds[peer]
            row = group.rank * (ends - begins) + start - begins
            peers.send_after(stream, sent[start:stop], peer, row * row_bytes)
    if out is None:
        sums.multiply((first, last), parts[group.rank])
    for step in way.steps:
        for peer, (start, stop) in step.sends:
            if stop > start and row_bytes:
                peers.receive(peer, stream)
            if out is not None:
                rows = slice(start - first, stop - first)
                sums.add((start, stop), parts[peer, rows], out[rows])
    peers.end(stream)


def _described(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ranks can compare of options: numbers and words, and the shapes of arrays."""
    return {
        name: list(value.shape) if getattr(value, "ndim", 0) else str(value)
        for name, value in sorted(options.items())
    }
