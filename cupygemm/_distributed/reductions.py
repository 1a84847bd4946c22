"""Products whose k is spread over a group: `matmul_reduce_scatter` and `matmul_all_reduce`.

The sums of all ranks are added in the order of the ranks, whatever the order in which they arrive
(see `partial_products`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Unpack

from numpy.typing import DTypeLike

from cupygemm._distributed.arguments import checked_call, checked_group, matrices, rows_of_ranks
from cupygemm._distributed.group import Group
from cupygemm._distributed.messages import Message
from cupygemm._distributed.partial_products import (
    PartialProducts,
    PartialTypes,
    Reduction,
    partial_types,
    transport_of,
)
from cupygemm._distributed.rendezvous import Facts
from cupygemm._distributed.repeated import key_of
from cupygemm._distributed.row_products import rows_of_options
from cupygemm._distributed.shortcuts import shortcut
from cupygemm._distributed.steps import Rows, balanced, bounds_of, sliced
from cupygemm._distributed.transport import Transport
from cupygemm._records.formats import container
from cupygemm._request.call import Call
from cupygemm._request.keywords import common_keywords
from cupygemm._request.options import MatmulOptions

_OWN_FACTS = ("k",)
"""The facts of a call that may differ between ranks."""


@shortcut
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

    Each rank gets some rows of ``sum(matmul(a, b) of all ranks)``. It first computes and sends the
    rows of the other ranks.

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
        The number of rows of the result for each rank; by default they differ by at most one.
    partial_dtype : dtype, optional
        The type to which each rank's partial product is rounded before it is sent; the parts are
        added in float32. The default is bfloat16 for results in bfloat16, as with NCCL, and the
        type of the sums otherwise: float32 for results in float16, because parts can exceed 65504
        where their sum does not. ``"float32"`` doubles the traffic of bfloat16 and rounds once.
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
        As for `cupygemm.matmul`, or if a rank passes other dtypes, m, n or rows. Nothing is
        enqueued on any rank, and the group stays usable.
    GroupError
        A rank has ended, or does not make the call within the timeout.

    See Also
    --------
    matmul_all_reduce : The same sum; each rank gets all of it.

    Notes
    -----
    Sums are added in the order of the ranks, ``((p0 + p1) + p2) + ...``, so results are bitwise
    reproducible. They do not depend on `rows`, unless a range of rows is multiplied by another
    kernel, which adds in another order along k. The epilogue is applied once, after the sum, which
    is rounded once. The partial products of all ranks for this rank's rows, and this rank's partial
    products for the others, are in memory at the same time.
    """
    name = "matmul_reduce_scatter"
    checked_group(name, group)
    key = key_of(name, group.device, a, b, out, options, rows, partial_dtype, dtype, casting)
    if key is None:
        a, b = matrices(name, a, b, group)

    def check() -> tuple[Facts, _Product]:
        counts = rows_of_ranks(name, rows, None, group, total=a.shape[0])
        bounds = bounds_of(counts)
        block = a[slice(*bounds[group.rank])]
        call = checked_call(block, b, out, dtype=dtype, casting=casting, options=options)
        types = partial_types(call, partial_dtype, options)
        product = _Product(bounds, replace(call, x1=None, x2=None, out=None), types)
        return PartialProducts(a, b, types).facts(counts), product

    checked = group.checked(name, key, _OWN_FACTS, check)
    everybody = group.agree(name, checked.facts, own=_OWN_FACTS, digest=checked.digest)
    bounds, call, types = checked.details
    sums = PartialProducts(a, b, types)
    with group.guarded():
        transport = transport_of(group, bounds, sums, _largest_k(everybody))
        reduction = Reduction(group=group, transport=transport, bounds=bounds, sums=sums)
        return reduction.enqueue(call, out, key=key)


class _Product(NamedTuple):
    """Facts derived from the arguments of a call: rows of all ranks, request, and types."""

    bounds: list[Rows]
    call: Call
    types: PartialTypes


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
        The type in which partial products are sent; see `matmul_reduce_scatter`.
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
        As for `cupygemm.matmul`, or if a rank passes other dtypes, m, n or options. Nothing is
        enqueued on any rank, and the group stays usable.
    GroupError
        A rank has ended, or does not make the call within the timeout.

    See Also
    --------
    matmul_reduce_scatter : The same sum, with the same bits; each rank gets some of its rows.
    """
    import cupy

    name = "matmul_all_reduce"
    checked_group(name, group)
    a, b = matrices(name, a, b, group)
    with group.refusing(name):
        counts = balanced(a.shape[0], group.size)
        bounds = bounds_of(counts)
        own_rows = bounds[group.rank]
        whole = checked_call(a, b, out, dtype=dtype, casting=casting, options=options)
        sums = PartialProducts(a, b, partial_types(whole, partial_dtype, options))
        result = container(whole.request.types.result)
        target = out
        if out is None or not out.flags.c_contiguous:
            target = cupy.empty((a.shape[0], b.shape[1]), result)
        own = target[slice(*own_rows)]
        parts = rows_of_options(options, a.shape[0], own_rows)
        block = a[slice(*own_rows)]
        call = checked_call(block, b, own, dtype=dtype, casting=casting, options=parts)
    facts = sums.facts(counts) | {"result": str(result), "options": _described(options)}
    k = _largest_k(group.agree(name, facts, own=_OWN_FACTS))
    with group.guarded():
        transport = transport_of(group, bounds, sums, k, result_bytes=target.nbytes)
        reduction = Reduction(group=group, transport=transport, bounds=bounds, sums=sums)
        reduction.enqueue(call, own)
        _gather(group, transport, bounds, target)
        if out is not None and target is not out:
            out[...] = target
    return target if out is None else out


def _gather(group: Group, transport: Transport, bounds: Sequence[Rows], target: Any) -> None:
    """Enqueue the exchange of all ranks' rows of the result."""
    from cupy.cuda import get_current_stream

    own_rows = bounds[group.rank]
    own = target[slice(*own_rows)]
    peers = transport.peers
    if peers is None:
        group.all_gather(own, target, bounds)
        return
    stream = get_current_stream()
    (step,) = sliced(group.rank, bounds, 1)
    peers.begin(stream)
    arriving = peers.array(target.shape, target.dtype)
    for peer, _ in step.sends:
        peers.send(Message.of(own, peer), own_rows[0] * target.strides[0])
    peers.sent()
    for peer, part in step.receives:
        peers.receive(peer, stream)
        target[slice(*part)] = arriving[slice(*part)]
    peers.end(stream)


def _largest_k(everybody: Sequence[Mapping[str, Any]]) -> int:
    return max(int(facts["k"]) for facts in everybody)


def _described(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as text that ranks can compare, with shapes in place of arrays."""
    return {
        name: list(value.shape) if getattr(value, "ndim", 0) else str(value)
        for name, value in sorted(options.items())
    }
