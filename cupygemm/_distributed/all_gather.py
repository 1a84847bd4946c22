"""`all_gather_matmul`: rows that are spread over a group are multiplied as they arrive.

Products run on the caller's stream, and the exchange on the stream of the group. Events order the
two, in both directions:

.. code-block:: text

    caller's stream   own rows | rows of step 1 | rows of step 2 | rows of step 3
    group's stream    step 1   | step 2         | step 3         |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._backends.device import device
from cupygemm._distributed.arguments import (
    checked_call,
    checked_group,
    contiguous_rows,
    matrix,
    rows_of_ranks,
)
from cupygemm._distributed.group import Group, Message
from cupygemm._distributed.row_products import RowProducts
from cupygemm._distributed.steps import Rows, Step, bounds_of, choose_steps
from cupygemm._records.formats import container
from cupygemm._request.arrays import may_overlap
from cupygemm._request.keywords import common_keywords
from cupygemm._request.options import MatmulOptions


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
        A rank is gone, or has not come within the timeout.

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
    with group.refusing(name):
        a, b = matrix(name, "a", a, group), matrix(name, "b", b, group)
        counts = rows_of_ranks(name, rows, a.shape[0], group)
        bounds = bounds_of(counts)
        own = contiguous_rows(a) if out is None or not may_overlap(out, a) else a.copy()
        whole = (bounds[-1][1], a.shape[1])
        full = cupy.empty(whole, a.dtype) if gathered is None else gathered
        _check_gathered(full, whole, a.dtype)
        out = _result(full, b, out, dtype=dtype, casting=casting, options=options)
        products = RowProducts(full, b, out, dtype=dtype, casting=casting, options=options)
    facts = {"dtype": str(a.dtype), "k": whole[1], "rows": counts, "n": b.shape[1]}
    everybody = group.agree(name, facts, own=("n",))
    chosen = choose_steps(
        group.rank,
        bounds,
        row_bytes=whole[1] * a.itemsize,
        row_flops=2.0 * whole[1] * max(facts["n"] for facts in everybody),
        itemsize=a.itemsize,
        link=device(group.device).kernels.interconnect,
    )
    with group.guarded():
        own_rows = bounds[group.rank]
        pieces = {own_rows: own} | {
            part: full[slice(*part)] for step in chosen.steps for _, part in step.receives
        }
        by_rows = products.prepare(pieces)
        if gathered is not None or not by_rows:
            full[slice(*own_rows)] = own
        _gather(group, chosen.steps, own, own_rows, full, products if by_rows else None)
        if not by_rows:
            products.multiply_all()
    return out


def _gather(
    group: Group,
    steps: Sequence[Step],
    own: Any,
    own_rows: Rows,
    full: Any,
    products: RowProducts | None,
) -> None:
    """Enqueue the exchange, and the products of rows as they arrive."""
    from cupy.cuda import get_current_stream

    stream = get_current_stream()
    group.stream.wait_event(stream.record())  # the rows are there, and `full` may be written
    arrived = []
    for number, step in enumerate(steps):
        sends = [
            Message(own[first - own_rows[0] : last - own_rows[0]], peer)
            for peer, (first, last) in step.sends
        ]
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


def _check_gathered(full: Any, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    if full.shape != shape or full.dtype != dtype or not full.flags.c_contiguous:
        raise ValueError(
            f"all_gather_matmul: gathered has shape {full.shape} and dtype {full.dtype}; it must "
            f"be a C-contiguous array of shape {shape} and dtype {dtype}"
        )


def _result(
    full: Any, b: Any, out: Any, *, dtype: DTypeLike | None, casting: str, options: MatmulOptions
) -> Any:
    """Return ``out``, or a new array of the result's type."""
    import cupy

    if out is not None:
        return out
    call = checked_call(full, b, None, dtype=dtype, casting=casting, options=options)
    return cupy.empty((full.shape[0], b.shape[1]), container(call.request.types.result))
