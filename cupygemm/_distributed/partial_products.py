"""`PartialProducts`: a rank's part of a sum over ranks; `reduced` adds the parts for its own rows.

A rank takes the steps of `all_gather_matmul` in reverse: where it would receive rows of a peer, it
multiplies these rows for the peer, and sends the sums while it multiplies for the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm._distributed.arguments import product_options
from cupygemm._distributed.group import Group, Message
from cupygemm._distributed.steps import Rows, RowWork
from cupygemm._distributed.sums import sum_and_finish, type_of_sums
from cupygemm._distributed.ways import Way, choose_way
from cupygemm._products.matmul import matmul
from cupygemm._records.formats import container, parse_dtype
from cupygemm._request.call import Call


@dataclass(frozen=True, kw_only=True)
class PartialTypes:
    """The types of partial products, and the options by which they are multiplied.

    Attributes
    ----------
    operands : tuple of str
        The names of both operands' types.
    sums : numpy.dtype
        In which partial products are added.
    travelling : numpy.dtype
        In which they are rounded and travel.
    options : mapping
        Keywords of `cupygemm.matmul`.
    """

    operands: tuple[str, str]
    sums: np.dtype[Any]
    travelling: np.dtype[Any]
    options: Mapping[str, Any]


def partial_types(call: Call, partial_dtype: Any, options: Mapping[str, Any]) -> PartialTypes:
    """Return the types of the partial products of a call.

    Parameters
    ----------
    call : Call
    partial_dtype : dtype or None
        The type in which they travel; None is that of their sums.
    options : mapping
        Keywords of the call.

    Raises
    ------
    TypeError
        That type cannot hold the sums of such products.
    """
    types = call.request.types
    sums = type_of_sums(types, epilogue=call.arguments is not None)
    wanted = parse_dtype(partial_dtype)
    travelling = sums if wanted is None else wanted
    if not np.can_cast(travelling, sums, "safe"):
        raise TypeError(f"partial_dtype is {travelling}, which sums of {sums} cannot hold")
    return PartialTypes(
        operands=(str(types.x1), str(types.x2)),
        sums=sums,
        travelling=travelling,
        options=product_options(options),
    )


class PartialProducts:
    """The partial products of a rank.

    Parameters
    ----------
    a, b : cupy.ndarray
    types : PartialTypes
    """

    def __init__(self, a: Any, b: Any, types: PartialTypes) -> None:
        self.a, self.b = a, b
        self.sums, self.travelling = types.sums, types.travelling
        self._types = types

    def facts(self, counts: list[int]) -> dict[str, Any]:
        """Return what all ranks must agree on, and this rank's k."""
        shape = [self.a.shape[0], self.b.shape[1]]
        types = [*self._types.operands, str(self.sums), str(self.travelling)]
        return {"types": types, "(m, n)": shape, "rows": counts, "k": self.a.shape[1]}

    def multiply(self, rows: Rows, target: Any) -> None:
        """Enqueue the product of some rows, rounded to the type in which it travels."""
        if rows[1] > rows[0]:
            part = self.a[slice(*rows)]
            options = self._types.options
            matmul(part, self.b, target, dtype=self.travelling, casting="unsafe", **options)

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
            options = self._types.options
            matmul(part, self.b, out, dtype=out.dtype, casting="unsafe", c=peers, **options)


def way_of(
    group: Group, bounds: Sequence[Rows], sums: PartialProducts, k: int, *, result_bytes: int = 0
) -> Way:
    """Return how the sums travel.

    Parameters
    ----------
    group : Group
    bounds : sequence of Rows
        The rows of each rank.
    sums : PartialProducts
    k : int
        The largest k of any rank.
    result_bytes : int
        The bytes of the result that the segments hold after the sums; 0 if they do not.
    """
    row_bytes = sums.b.shape[1] * sums.travelling.itemsize
    parts = group.size * max(last - first for first, last in bounds) * row_bytes
    flops = 2.0 * max(1, k) * sums.b.shape[1]
    work = RowWork(nbytes=row_bytes, flops=flops, itemsize=sums.a.itemsize)
    return choose_way(group, bounds, work, segment_bytes=max(parts, result_bytes))


def reduced(
    group: Group, way: Way, bounds: Sequence[Rows], sums: PartialProducts, call: Call, out: Any
) -> Any:
    """Enqueue the partial products and their exchange, and return this rank's rows of the result.

    Parameters
    ----------
    group : Group
    way : Way
    bounds : sequence of Rows
    sums : PartialProducts
    call : Call
        The call that computes this rank's rows of the result.
    out : cupy.ndarray or None
        Where they are stored; None makes a new array.
    """
    import cupy

    m, n = sums.a.shape[0], sums.b.shape[1]
    first, last = bounds[group.rank]
    sent = cupy.empty((m, n), sums.travelling)
    parts_shape = (group.size, last - first, n)
    if way.peers is None:
        parts = cupy.empty(parts_shape, sums.travelling)
        _exchange_by_nccl(group, way, bounds, sums, sent, parts)
        return sum_and_finish(call, parts, sums.sums, out)
    parts = way.peers.array(parts_shape, sums.travelling)
    if group.size > 2 or not sums.adds_in_kernel(call):
        _exchange_by_copies(group, way, bounds, sums, sent, parts, None)
        return sum_and_finish(call, parts, sums.sums, out)
    if out is None:
        out = cupy.empty((last - first, n), container(call.request.types.result))
    _exchange_by_copies(group, way, bounds, sums, sent, parts, out)
    return out


def _exchange_by_nccl(
    group: Group, way: Way, bounds: Sequence[Rows], sums: PartialProducts, sent: Any, parts: Any
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
    sums: PartialProducts,
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
