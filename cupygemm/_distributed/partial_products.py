"""`PartialProducts`: what a rank multiplies of a sum over ranks; `reduced` adds the rows of a rank.

A rank takes the steps of `all_gather_matmul` the other way round: it multiplies for a peer the rows
that it would have received from it, and sends the sums while it multiplies for the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from cupygemm._distributed.group import Group, Message
from cupygemm._distributed.steps import Rows, RowWork
from cupygemm._distributed.sums import sum_and_finish, type_of_sums
from cupygemm._distributed.ways import Way, choose_way
from cupygemm._products.matmul import matmul
from cupygemm._records.formats import container, parse_dtype
from cupygemm._request.call import Call
from cupygemm._request.options import MatmulOptions

MULTIPLIED = ("format_a", "format_b", "precision", "reproducible")
"""The options that concern products, and not the sum of all of them."""


class PartialProducts:
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
            for name in MULTIPLIED
            if name in options
        }
        self.sums: np.dtype[Any]
        self.travelling: np.dtype[Any]
        self._types: list[str] = []

    def set_type(self, call: Call) -> None:
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

    def of(self, a: Any, b: Any) -> PartialProducts:
        """Return the partial products of other arrays with the same layouts."""
        found = copy(self)
        found.a, found.b = a, b
        return found

    def facts(self, counts: list[int]) -> dict[str, Any]:
        """Return what all ranks must agree on, and this rank's k."""
        shape = [self.a.shape[0], self.b.shape[1]]
        return {"types": self._types, "(m, n)": shape, "rows": counts, "k": self.a.shape[1]}

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
        The largest of any rank.
    result_bytes : int
        What the segments must hold after the sums.
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
        Of this rank's rows of the result.
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
