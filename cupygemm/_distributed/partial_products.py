"""`PartialProducts`: a rank's part of a sum over ranks; `Reduction` adds the parts of its rows.

A rank takes the steps of `all_gather_matmul` in reverse: where it would receive rows of a peer, it
multiplies these rows for the peer, and sends the sums while it multiplies for the next one. If this
would take longer, it multiplies all rows first, on the caller's stream.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cupygemm._distributed.arguments import product_options
from cupygemm._distributed.group import Group
from cupygemm._distributed.messages import Message
from cupygemm._distributed.peers import Peers
from cupygemm._distributed.product_streams import ProductStreams
from cupygemm._distributed.steps import Rows, RowWork, Step
from cupygemm._distributed.sums import in_one_pass, sum_and_finish, type_of_sums
from cupygemm._distributed.transport import Transport, choose_transport
from cupygemm._plan.plan import Plan
from cupygemm._products.matmul import matmul, plan_for
from cupygemm._records.formats import container, parse_dtype
from cupygemm._request.call import Call
from cupygemm._request.promotion import BF16, F32, ProductTypes


@dataclass(frozen=True, kw_only=True)
class PartialTypes:
    """The types of partial products, and the options by which they are multiplied.

    Attributes
    ----------
    operands : tuple of str
        The names of both operands' types.
    sums : numpy.dtype
        The type in which partial products are added.
    travelling : numpy.dtype
        The type to which they are rounded before they are sent.
    options : mapping
        Keywords of `cupygemm.matmul`.
    plans : dict
        The plans of ranges of rows, for later calls with the same shapes, strides and alignment.
    """

    operands: tuple[str, str]
    sums: np.dtype[Any]
    travelling: np.dtype[Any]
    options: Mapping[str, Any]
    plans: dict[Rows, Plan] = field(default_factory=dict)


def partial_types(call: Call, partial_dtype: Any, options: Mapping[str, Any]) -> PartialTypes:
    """Return the types of the partial products of a call.

    Parameters
    ----------
    call : Call
    partial_dtype : dtype or None
        The type in which they are sent; None means `bfloat16` for results of that type, or else
        the type of their sums.
    options : mapping
        Keywords of the call.

    Raises
    ------
    TypeError
        The type cannot hold sums of such products.
    """
    types = call.request.types
    sums = type_of_sums(types, epilogue=call.arguments is not None)
    wanted = parse_dtype(partial_dtype)
    travelling = _type_of_parts(types, sums) if wanted is None else wanted
    if not np.can_cast(travelling, sums, "safe"):
        raise TypeError(f"partial_dtype is {travelling}, which sums of {sums} cannot hold")
    return PartialTypes(
        operands=(str(types.x1), str(types.x2)),
        sums=sums,
        travelling=travelling,
        options=product_options(options),
    )


def _type_of_parts(types: ProductTypes, sums: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which partial products are sent by default.

    bfloat16 has the range of float32, so that a partial product overflows only where its sum in
    float32 would. float16 has a smaller range.
    """
    return BF16 if types.stored == BF16 and sums == F32 else sums


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

    def empty_like_result(self) -> Any:
        """Return an array for all rows, in the type in which they are sent."""
        from cupy import empty

        return empty((self.a.shape[0], self.b.shape[1]), self.travelling)

    def facts(self, counts: list[int]) -> dict[str, Any]:
        """Return the facts that all ranks must agree on, and this rank's k."""
        shape = [self.a.shape[0], self.b.shape[1]]
        types = [*self._types.operands, str(self.sums), str(self.travelling)]
        return {"types": types, "(m, n)": shape, "rows": counts, "k": self.a.shape[1]}

    def multiply(self, rows: Rows, target: Any) -> None:
        """Enqueue the product of some rows, rounded to the type in which it is sent."""
        if rows[1] <= rows[0]:
            return
        part, types = self.a[slice(*rows)], self._types
        plan = types.plans.get(rows)
        if plan is not None:
            plan.run(part, self.b, target)
            return
        dtype, casting = self.travelling, "unsafe"
        matmul(part, self.b, target, dtype=dtype, casting=casting, **types.options)
        if not types.options:
            plan = plan_for(part, self.b, target, dtype=dtype, casting=casting)
            if plan is not None:
                types.plans[rows] = plan


def transport_of(
    group: Group, bounds: Sequence[Rows], sums: PartialProducts, k: int, *, result_bytes: int = 0
) -> Transport:
    """Return how the sums are sent.

    Parameters
    ----------
    group : Group
    bounds : sequence of Rows
        The rows of each rank.
    sums : PartialProducts
    k : int
        The largest k of any rank.
    result_bytes : int
        The bytes of the result that the segments hold after the sums; 0 if they hold none.
    """
    row_bytes = sums.b.shape[1] * sums.travelling.itemsize
    parts = group.size * max(last - first for first, last in bounds) * row_bytes
    flops = 2.0 * max(1, k) * sums.b.shape[1]
    work = RowWork(nbytes=row_bytes, flops=flops, itemsize=sums.a.itemsize)
    nbytes = max(parts, result_bytes)
    return choose_transport(group, bounds, work, segment_bytes=nbytes, scatters=True)


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """The sum of partial products over a group; this rank gets some of its rows.

    Attributes
    ----------
    group : Group
    transport : Transport
    bounds : sequence of Rows
        The rows of each rank.
    sums : PartialProducts
    """

    group: Group
    transport: Transport
    bounds: Sequence[Rows]
    sums: PartialProducts

    def enqueue(self, call: Call, out: Any, *, key: Hashable = None) -> Any:
        """Enqueue the partial products and their exchange, and return this rank's rows of the sum.

        Parameters
        ----------
        call : Call
            The call that computes this rank's rows of the result.
        out : cupy.ndarray or None
            Array for these rows; None makes a new one.
        key : hashable, optional
            The identity of the call, without the addresses of its arrays; None if it cannot be
            kept.
        """
        import cupy

        if self.transport.peers is not None:
            return self._at_peers(self.transport.peers, call, out, key)
        first, last = self._own_rows
        shape = (self.group.size, last - first, self.sums.b.shape[1])
        parts, sent = cupy.empty(shape, self.sums.travelling), self.sums.empty_like_result()
        if self.transport.overlaps:
            self._exchange_by_nccl(sent, parts)
        else:
            self._exchange_at_once(sent, parts)
        return sum_and_finish(call, parts, self.sums.sums, out)

    @property
    def _own_rows(self) -> Rows:
        return self.bounds[self.group.rank]

    def _at_peers(self, peers: Peers, call: Call, out: Any, key: Hashable) -> Any:
        from cupy import empty
        from cupy.cuda import get_current_stream

        transport, sums, recordings = self.transport, self.sums, self.group.recordings
        assert recordings is not None
        first, last = self._own_rows
        shape = (last - first, sums.b.shape[1])
        repeated = None
        if key is not None and transport.records and in_one_pass(call, sums.sums):
            if out is None:
                out = empty(shape, container(call.request.types.result))
            repeated = transport.placed(key, sums.a, sums.b, out)
        if recordings.replay(repeated):
            return out
        stream = get_current_stream()
        overlaps = transport.overlaps
        begin, end = (peers.begin, peers.end) if overlaps else (peers.begin_on, peers.end_on)
        begin(stream)
        parts = peers.array((self.group.size, *shape), sums.travelling)
        result = out

        def enqueue(streams: ProductStreams, split: Callable[[], None]) -> None:
            nonlocal result
            sent = sums.empty_like_result()
            if overlaps:
                self._send_by_copies(peers, sent, parts, streams)
                split()
                peers.sent()
                for step in transport.steps:
                    for peer, _ in step.sends:
                        peers.receive(peer, get_current_stream())
            else:
                self._send_by_stores(peers, sent, parts)
            result = sum_and_finish(call, parts, sums.sums, out)

        recordings.enqueue(repeated, enqueue, one_stream=not overlaps)
        end(stream)
        return result

    def _exchange_at_once(self, sent: Any, parts: Any) -> None:
        """Enqueue the partial products of all rows, and then their exchange by NCCL."""
        from cupy.cuda import get_current_stream, runtime

        rank, stream = self.group.rank, get_current_stream()
        self.sums.multiply((0, sent.shape[0]), sent)
        for step in self.transport.steps:
            self.group.exchange(*self._messages(step, sent, parts), stream)
        own = Message.of_rows(sent, self._own_rows, rank)
        if own.nbytes:
            place = parts.data.ptr + rank * own.nbytes
            kind = runtime.memcpyDeviceToDevice
            runtime.memcpyAsync(place, own.address, own.nbytes, kind, stream.ptr)

    def _exchange_by_nccl(self, sent: Any, parts: Any) -> None:
        """Enqueue the partial products, and the exchange of each one after it is computed."""
        from cupy.cuda import get_current_stream

        group, stream = self.group, get_current_stream()
        for step in self.transport.steps:
            for _, part in step.receives:
                self.sums.multiply(part, sent[slice(*part)])
            # These sums are complete, and `parts` may be written.
            group.stream.wait_event(stream.record())
            group.exchange(*self._messages(step, sent, parts), group.stream)
        self.sums.multiply(self._own_rows, parts[group.rank])
        if self.transport.steps:
            stream.wait_event(group.stream.record())

    def _messages(self, step: Step, sent: Any, parts: Any) -> tuple[list[Message], list[Message]]:
        """Return the sends and the receives of a step."""
        count, n = parts.shape[1:]
        row_bytes = n * parts.itemsize
        sends = [Message.of_rows(sent, part, peer) for peer, part in step.receives]
        receives = [
            Message(
                parts.data.ptr + (peer * count + start - self._own_rows[0]) * row_bytes,
                (stop - start) * row_bytes,
                peer,
            )
            for peer, (start, stop) in step.sends
        ]
        return sends, receives

    def _send_by_copies(self, peers: Peers, sent: Any, parts: Any, streams: ProductStreams) -> None:
        """Enqueue the partial products and the copies to peers."""
        rank, transport = self.group.rank, self.transport
        row_bytes = parts.shape[2] * parts.itemsize
        receives = [part for step in transport.steps for part in step.receives]
        for number, (peer, (start, stop)) in enumerate(receives):
            with streams.turn(number * transport.two_products) as multiplying:
                self.sums.multiply((start, stop), sent[start:stop])
            begins, ends = self.bounds[peer]
            row = rank * (ends - begins) + start - begins
            message = Message.of_rows(sent, (start, stop), peer)
            peers.send_after(multiplying, message, row * row_bytes)
        with streams.turn(len(receives) * transport.two_products):
            self.sums.multiply(self._own_rows, parts[rank])
        streams.join()

    def _send_by_stores(self, peers: Peers, sent: Any, parts: Any) -> None:
        """Enqueue the partial products of all rows, and stores of them to all ranks."""
        from cupy.cuda import get_current_stream

        stream = get_current_stream()
        self.sums.multiply((0, sent.shape[0]), sent)
        row_bytes = parts.shape[2] * parts.itemsize
        sends = []
        for peer in peers.others_first:
            first, last = self.bounds[peer]
            message = Message.of_rows(sent, (first, last), peer)
            sends.append((message, self.group.rank * (last - first) * row_bytes))
        peers.store(sends, stream)
        peers.exchange_flags(stream)
