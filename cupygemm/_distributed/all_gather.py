"""`all_gather_matmul`: multiply rows that are spread over a group as they arrive.

Products run on the caller's stream and a second one. The exchange, by NCCL or by copies to the
memory of peers, runs on the stream of the group. Events or flags order them, in both directions:

.. code-block:: text

    products         own rows | rows of step 1 | rows of step 2 | rows of step 3
    group's stream   step 1   | step 2         | step 3         |

Where this would take longer, all rows are gathered first, on the caller's stream.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._distributed.arguments import (
    checked_call,
    checked_group,
    contiguous_rows,
    matrices,
    rows_of_ranks,
)
from cupygemm._distributed.group import Group
from cupygemm._distributed.messages import Message
from cupygemm._distributed.product_streams import ProductStreams
from cupygemm._distributed.recordings import Recordings
from cupygemm._distributed.rendezvous import Facts
from cupygemm._distributed.repeated import key_of
from cupygemm._distributed.row_products import Plans, RowProducts, plan_rows
from cupygemm._distributed.shortcuts import shortcut
from cupygemm._distributed.steps import Rows, RowWork, bounds_of
from cupygemm._distributed.transport import Transport, choose_transport
from cupygemm._products.matmul import matmul
from cupygemm._records.formats import container
from cupygemm._request.keywords import common_keywords
from cupygemm._request.options import MatmulOptions

_OWN_FACTS = ("n",)
"""The facts of a call that may differ between ranks."""


@shortcut
@common_keywords
def all_gather_matmul(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    group: Group,
    rows: Sequence[int] | None = None,
    gathered: Any = None,
    dtype: DTypeLike | None = None,
    casting: str = "same_kind",
    **options: Unpack[MatmulOptions],
) -> Any:
    """Multiply a matrix whose rows are spread over a group by a matrix of this rank.

    Each rank gets ``matmul(concatenate(a of all ranks), b)``. It multiplies its own rows
    immediately, and those of the others as they arrive.

    Parameters
    ----------
    a : cupy.ndarray
        The rows of this rank, (rows[rank], k). All ranks pass the same dtype and k.
    b : cupy.ndarray
        The second matrix, (k, n). Ranks may pass different ones, such as columns of a larger
        matrix.
    out : cupy.ndarray, optional
        Array for the result, (sum(rows), n).
    group : Group
        From `connect`.
    rows : sequence of int, optional
        The numbers of rows of all ranks. By default all have the same number as this one.
    gathered : cupy.ndarray, optional
        C-contiguous array for the rows of all ranks, (sum(rows), k).
    dtype : dtype, optional
        As for `cupygemm.matmul`.
    casting : str
        As for `cupygemm.matmul`.
    **options
        The other options of `cupygemm.matmul` for matrices, and ``stream``. Arrays of the epilogue
        fit the whole result.

    Returns
    -------
    cupy.ndarray
        The product, (sum(rows), n).

    Raises
    ------
    ValueError, TypeError
        As for `cupygemm.matmul`, or if a rank passes another dtype, k or rows. Nothing is enqueued
        on any rank, and the group stays usable.
    GroupError
        A rank has ended, or does not make the call within the timeout.

    See Also
    --------
    matmul_reduce_scatter : The product of operands whose k is spread over a group.

    Notes
    -----
    The result is bitwise equal to ``cupygemm.matmul(gathered, b, out)`` on one GPU, whatever the
    order in which rows arrive. If the order of sums in that product's kernel depends on the number
    of rows (stream-k, or `cupy.matmul`), nothing is multiplied before all rows have arrived.
    """
    import cupy

    name = "all_gather_matmul"
    checked_group(name, group)
    key = None
    if gathered is None:
        key = key_of(name, group.device, a, b, out, options, rows, dtype, casting)
    if key is None:
        a, b = matrices(name, a, b, group)
    asked = {"dtype": dtype, "casting": casting, "options": options}
    call = group.checked(
        name, key, _OWN_FACTS, lambda: _check(a, b, out, group, rows, gathered, asked)
    )
    everybody = group.agree(name, call.facts, own=_OWN_FACTS, digest=call.digest)
    product = call.details
    with group.guarded():
        if out is None:
            out = cupy.empty((product.whole[0], b.shape[1]), product.result)
        transport = _transport_of(group, product, a.itemsize, max(each["n"] for each in everybody))
        repeated = transport.placed(key, a, b, out)
        recordings = group.recordings if transport.peers is not None else None
        if recordings is not None and recordings.replay(repeated):
            return out
        own = a if key is not None else contiguous_rows(a, out)
        gather = _Gather(
            group=group,
            product=product,
            transport=transport,
            own=own,
            b=b,
            out=out,
            gathered=gathered,
            asked=asked,
        )
        if recordings is not None and not transport.overlaps:
            gather.by_stores(recordings, repeated)
        else:
            gather.step_by_step(recordings, repeated)
    return out


@dataclass(kw_only=True)
class _Product:
    """Facts derived from the arguments of a call.

    Attributes
    ----------
    bounds : list of Rows
        The rows of each rank.
    own_rows : Rows
    whole : tuple of int
        The shape of the gathered operand.
    result : numpy.dtype
    transport, plans
        How the rows were sent in the last call, and the plans of their products.
    """

    bounds: list[Rows]
    own_rows: Rows
    whole: tuple[int, int]
    result: np.dtype[Any]
    transport: Transport | None = None
    plans: Plans | None = None


def _check(
    a: Any,
    b: Any,
    out: Any,
    group: Group,
    rows: Sequence[int] | None,
    gathered: Any,
    asked: Mapping[str, Any],
) -> tuple[Facts, _Product]:
    """Check the arguments; return the facts for the other ranks, and those derived from them."""
    counts = rows_of_ranks("all_gather_matmul", rows, a.shape[0], group)
    bounds = bounds_of(counts)
    whole = (bounds[-1][1], a.shape[1])
    if gathered is None:
        place = _unread(whole, a.dtype, group.device)
    else:
        _check_gathered(gathered, whole, a.dtype)
        place = gathered
    types = checked_call(place, b, out, **asked).request.types
    facts = {"dtype": str(a.dtype), "k": whole[1], "rows": counts, "n": b.shape[1]}
    return facts, _Product(
        bounds=bounds,
        own_rows=bounds[group.rank],
        whole=whole,
        result=container(types.result),
    )


def _transport_of(group: Group, product: _Product, itemsize: int, n: int) -> Transport:
    """Return how the rows are sent; n is the largest of any rank."""
    m, k = product.whole
    work = RowWork(nbytes=k * itemsize, flops=2.0 * k * n, itemsize=itemsize)
    return choose_transport(group, product.bounds, work, segment_bytes=m * work.nbytes)


def _unread(shape: tuple[int, int], dtype: np.dtype[Any], index: int) -> Any:
    """Return an array for checks, at an address that is never read or written."""
    from cupy import ndarray
    from cupy.cuda import MemoryPointer, UnownedMemory

    nbytes = shape[0] * shape[1] * dtype.itemsize
    return ndarray(shape, dtype, MemoryPointer(UnownedMemory(1 << 46, nbytes, None, index), 0))


@dataclass(frozen=True, kw_only=True)
class _Gather:
    """The work of one call.

    Attributes
    ----------
    group : Group
    product : _Product
    transport : Transport
    own : cupy.ndarray
        The rows of this rank.
    b, out : cupy.ndarray
    gathered : cupy.ndarray or None
        The caller's array for the rows of all ranks.
    asked : mapping
        ``dtype``, ``casting`` and ``options`` of the call.
    """

    group: Group
    product: _Product
    transport: Transport
    own: Any
    b: Any
    out: Any
    gathered: Any
    asked: Mapping[str, Any]

    def step_by_step(self, recordings: Recordings | None, call: Hashable) -> None:
        """Enqueue copies or NCCL's exchange, and the products, as rows arrive or at the end."""
        import cupy

        own_rows, peers = self.product.own_rows, self.transport.peers
        if peers is not None:
            peers.begin(cupy.cuda.get_current_stream())
            full = peers.array(self.product.whole, self.own.dtype)
        elif self.gathered is None:
            full = cupy.empty(self.product.whole, self.own.dtype)
        else:
            full = self.gathered
        products = self._products_of_rows(full)
        if recordings is not None:
            enqueue = partial(self._by_copies, full, products)
            recordings.enqueue(call if products is not None else None, enqueue)
        elif products is not None:
            self._by_nccl(full, products)
        else:
            self.group.all_gather(self.own, full, self.product.bounds)
        has_own_rows = peers is None and products is None
        if not has_own_rows and (self.gathered is not None or products is None):
            full[slice(*own_rows)] = self.own
        if products is None:
            self._multiply_all(full)
        if self.gathered is not None and self.gathered is not full:
            self.gathered[...] = full
        if peers is not None:
            peers.end(cupy.cuda.get_current_stream())

    def by_stores(self, recordings: Recordings, call: Hashable) -> None:
        """Enqueue the stores to all peers, and the product when all rows have arrived."""
        from cupy.cuda import get_current_stream

        peers = self.transport.peers
        assert peers is not None
        caller = get_current_stream()
        peers.begin_on(caller)
        full = peers.array(self.product.whole, self.own.dtype)

        def enqueue(_streams: ProductStreams, _split: Callable[[], None]) -> None:
            stream = get_current_stream()
            offset = self.product.own_rows[0] * full.strides[0]
            sends = [(Message.of(self.own, peer), offset) for peer in peers.others_first]
            peers.store(sends, stream)
            peers.exchange_flags(stream)
            self._multiply_all(full)

        recordings.enqueue(call, enqueue, one_stream=True)
        if self.gathered is not None:
            self.gathered[...] = full
        peers.end_on(caller)

    def _multiply_all(self, full: Any) -> None:
        """Enqueue the product of all rows."""
        dtype, casting = self.asked["dtype"], self.asked["casting"]
        matmul(full, self.b, self.out, dtype=dtype, casting=casting, **self.asked["options"])

    def _products_of_rows(self, full: Any) -> RowProducts | None:
        """Return the products of rows as they arrive; None if all rows are multiplied together."""
        product, transport = self.product, self.transport
        if not transport.overlaps:
            return None
        pieces = {product.own_rows: self.own} | {
            part: full[slice(*part)] for step in transport.steps for _, part in step.receives
        }
        if product.transport is not transport:
            product.plans = plan_rows(
                full, self.b, self.out, pieces, spared=transport.spared, **self.asked
            )
            product.transport = transport
        if product.plans is None:
            return None
        return RowProducts(product.plans, pieces, self.b, self.out, self.asked["options"])

    def _by_nccl(self, full: Any, products: RowProducts) -> None:
        """Enqueue the exchange, and the products of rows as they arrive."""
        from cupy.cuda import get_current_stream

        group, steps = self.group, self.transport.steps
        stream = get_current_stream()
        group.stream.wait_event(stream.record())  # the rows are complete, and `full` may be written
        arrived = []
        for step in steps:
            sends = [self._message(part, peer) for peer, part in step.sends]
            receives = [Message.of_rows(full, part, peer) for peer, part in step.receives]
            group.exchange(sends, receives, group.stream)
            arrived.append(group.stream.record())
        products.multiply(self.product.own_rows)
        for step, event in zip(steps, arrived, strict=True):
            stream.wait_event(event)
            for _, part in step.receives:
                products.multiply(part)

    def _by_copies(
        self,
        full: Any,
        products: RowProducts | None,
        streams: ProductStreams,
        _split: Callable[[], None],
    ) -> None:
        """Enqueue the copies to all peers, and the products of rows as they arrive."""
        peers, steps = self.transport.peers, self.transport.steps
        assert peers is not None
        row_bytes = full.strides[0]
        source: int | None = None
        for step in steps:
            if source is not None and len(step.sends) == 1:
                peers.follow(source)
            for peer, part in step.sends:
                peers.send(self._message(part, peer), part[0] * row_bytes)
            source = step.receives[0].peer
        peers.sent()
        if products is not None:
            products.multiply(self.product.own_rows)
        for number, step in enumerate(steps):
            for peer, part in step.receives:
                with streams.turn(number + 1) as waiting:
                    peers.receive(peer, waiting)
                    if products is not None:
                        products.multiply(part)
        streams.join()

    def _message(self, part: Rows, peer: int) -> Message:
        """Return the message of some of this rank's rows, numbered as those of all ranks."""
        first = self.product.own_rows[0]
        return Message.of_rows(self.own, (part[0] - first, part[1] - first), peer)


def _check_gathered(full: Any, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    if full.shape != shape or full.dtype != dtype or not full.flags.c_contiguous:
        raise ValueError(
            f"all_gather_matmul: gathered has shape {full.shape} and dtype {full.dtype}; it must "
            f"be a C-contiguous array of shape {shape} and dtype {dtype}"
        )
