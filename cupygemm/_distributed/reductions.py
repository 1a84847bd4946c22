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

from cupygemm._backends.device import device
from cupygemm._distributed.arguments import checked_call, checked_group, matrix, rows_of_ranks
from cupygemm._distributed.group import Group, Message
from cupygemm._distributed.row_products import rows_of_options
from cupygemm._distributed.steps import Rows, balanced, bounds_of, choose_steps, sliced
from cupygemm._distributed.sums import added_in_order, finished, type_of_sums
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
        return finished(call, _reduced(group, bounds, sums), out)


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
        finished(call, _reduced(group, bounds, sums), own)
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


def _reduced(group: Group, bounds: Sequence[Rows], sums: _Sums) -> Any:
    """Enqueue the partial products and their exchange, and return the sum of this rank's rows."""
    import cupy

    (m, k), n = sums.a.shape, sums.b.shape[1]
    first, last = bounds[group.rank]
    chosen = choose_steps(
        group.rank,
        bounds,
        row_bytes=n * sums.travelling.itemsize,
        row_flops=2.0 * max(1, k) * n,
        itemsize=sums.a.itemsize,
        link=device(group.device).kernels.interconnect,
    )
    sent = cupy.empty((m, n), sums.travelling)
    parts = cupy.empty((group.size, last - first, n), sums.travelling)
    stream = cupy.cuda.get_current_stream()
    for step in chosen.steps:
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
    if chosen.steps:
        stream.wait_event(group.stream.record())
    return added_in_order(parts, sums.sums)


def _described(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ranks can compare of options: numbers and words, and the shapes of arrays."""
    return {
        name: list(value.shape) if getattr(value, "ndim", 0) else str(value)
        for name, value in sorted(options.items())
    }
