"""`all_gather_matmul`: rows that are spread over a group are multiplied as they arrive.

Products run on the caller's stream, and the exchange, by NCCL or by copies to the memory of peers,
on the stream of the group. Events or flags order the two, in both directions:

.. code-block:: text

    caller's stream   own rows | rows of step 1 | rows of step 2 | rows of step 3
    group's stream    step 1   | step 2         | step 3         |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from cupygemm._distributed.group import Group, Message
from cupygemm._distributed.rendezvous import Facts
from cupygemm._distributed.repeated import key_of
from cupygemm._distributed.row_products import Plans, RowProducts, plan_rows
from cupygemm._distributed.steps import Rows, RowWork, Step, bounds_of
from cupygemm._distributed.ways import Way, choose_way
from cupygemm._products.matmul import matmul
from cupygemm._records.formats import container
from cupygemm._request.keywords import common_keywords
from cupygemm._request.options import MatmulOptions

_OWN_FACTS = ("n",)
"""The facts of a call that may differ between ranks."""


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

    Each rank gets ``matmul(concatenate(a of all ranks), b)``. It multiplies its own rows at once,
    and those of the others as they arrive.

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
        The numbers of rows of all ranks. By default all have as many as this one.
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
        As `cupygemm.matmul`, or a rank calls with another dtype, k or rows. Nothing is enqueued on
        any rank, and the group stays usable.
    GroupError
        A rank is gone, or does not make the call within the timeout.

    See Also
    --------
    matmul_reduce_scatter : The product of operands whose k is spread over a group.

    Notes
    -----
    The result has the bits that ``cupygemm.matmul(gathered, b, out)`` gives on one GPU, and these
    do not depend on the order in which rows arrive. Where the kernel of that product sums in an
    order that depends on the number of rows (stream-k, or `cupy.matmul`), nothing is multiplied
    before all rows have arrived.
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
        way = _way_of(group, product, a.itemsize, max(each["n"] for each in everybody))
        own = a if key is not None else contiguous_rows(a, out)
        full = gathered if way.peers is None else way.peers.array(product.whole, a.dtype)
        if full is None:
            full = cupy.empty(product.whole, a.dtype)
        products = _row_products(product, way, own, full, b, out, asked)
        gather = _gather_by_nccl if way.peers is None else _gather_by_copies
        gather(group, way, own, product.own_rows, full, products)
        if gathered is not None or products is None:
            full[slice(*product.own_rows)] = own
        if products is None:
            matmul(full, b, out, dtype=dtype, casting=casting, **options)
        if gathered is not None and gathered is not full:
            gathered[...] = full
    return out


@dataclass(kw_only=True)
class _Product:
    """What is derived from the arguments of a call.

    Attributes
    ----------
    bounds : list of Rows
        The rows of each rank.
    own_rows : Rows
    whole : tuple of int
        The shape of the gathered operand.
    result : numpy.dtype
    way, plans
        How the rows travelled in the last call, and the plans of their products.
    """

    bounds: list[Rows]
    own_rows: Rows
    whole: tuple[int, int]
    result: np.dtype[Any]
    way: Way | None = None
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
    """Check the arguments; return what the other ranks must know, and what follows from them."""
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


def _way_of(group: Group, product: _Product, itemsize: int, n: int) -> Way:
    """Return how the rows travel; n is the largest of any rank."""
    m, k = product.whole
    work = RowWork(nbytes=k * itemsize, flops=2.0 * k * n, itemsize=itemsize)
    return choose_way(group, product.bounds, work, segment_bytes=m * work.nbytes)


def _row_products(
    product: _Product, way: Way, own: Any, full: Any, b: Any, out: Any, asked: Mapping[str, Any]
) -> RowProducts | None:
    """Return the products of rows as they arrive; None if all rows must have arrived."""
    pieces = {product.own_rows: own} | {
        part: full[slice(*part)] for step in way.steps for _, part in step.receives
    }
    if product.way is not way:
        product.plans, product.way = plan_rows(full, b, out, pieces, **asked), way
    if product.plans is None:
        return None
    return RowProducts(product.plans, pieces, b, out, asked["options"])


def _unread(shape: tuple[int, int], dtype: np.dtype[Any], index: int) -> Any:
    """Return an array for checks, at an address that is never read or written."""
    from cupy import ndarray
    from cupy.cuda import MemoryPointer, UnownedMemory

    nbytes = shape[0] * shape[1] * dtype.itemsize
    return ndarray(shape, dtype, MemoryPointer(UnownedMemory(1 << 46, nbytes, None, index), 0))


def _gather_by_nccl(
    group: Group, way: Way, own: Any, own_rows: Rows, full: Any, products: RowProducts | None
) -> None:
    """Enqueue the exchange, and the products of rows as they arrive."""
    from cupy.cuda import get_current_stream

    stream, steps = get_current_stream(), way.steps
    group.stream.wait_event(stream.record())  # the rows are there, and `full` may be written
    arrived = []
    for number, step in enumerate(steps):
        sends = [Message(_rows(own, own_rows, part), peer) for peer, part in step.sends]
        group.exchange(sends, [Message(full[slice(*part)], peer) for peer, part in step.receives])
        arrived.append(group.stream.record())
        if products is not None:  # of what the step before brought
            if number == 0:
                products.multiply(own_rows)
            else:
                _multiply_arrived(stream, arrived[number - 1], steps[number - 1], products)
    if not steps:
        if products is not None:
            products.multiply(own_rows)
    elif products is not None:
        _multiply_arrived(stream, arrived[-1], steps[-1], products)
    else:
        stream.wait_event(arrived[-1])


def _multiply_arrived(stream: Any, arrived: Any, step: Step, products: RowProducts) -> None:
    stream.wait_event(arrived)
    for _, part in step.receives:
        products.multiply(part)


def _gather_by_copies(
    group: Group, way: Way, own: Any, own_rows: Rows, full: Any, products: RowProducts | None
) -> None:
    """Enqueue the copies to all peers, and the products of rows as they arrive."""
    from cupy.cuda import get_current_stream

    stream, peers = get_current_stream(), way.peers
    assert peers is not None
    peers.begin(stream)
    if products is not None:
        products.multiply(own_rows)
    offset = own_rows[0] * full.strides[0]
    for step in way.steps:
        for peer, part in step.sends:
            row = part[0] - own_rows[0]
            peers.send(_rows(own, own_rows, part), peer, offset + row * full.strides[0])
    for step in way.steps:
        for peer, part in step.receives:
            if part[1] > part[0] and full.shape[1]:
                peers.receive(peer, stream)
                if products is not None:
                    products.multiply(part)
    peers.end(stream)


def _rows(own: Any, own_rows: Rows, part: Rows) -> Any:
    return own[part[0] - own_rows[0] : part[1] - own_rows[0]]


def _check_gathered(full: Any, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    if full.shape != shape or full.dtype != dtype or not full.flags.c_contiguous:
        raise ValueError(
            f"all_gather_matmul: gathered has shape {full.shape} and dtype {full.dtype}; it must "
            f"be a C-contiguous array of shape {shape} and dtype {dtype}"
        )
