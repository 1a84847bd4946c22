"""Products of some rows at a time, with the bits of the whole product.

`plan_rows` first chooses the kernel of the whole product. If its backend can run the same
configuration on each range of rows, so that all sums along k have the same order, `RowProducts`
multiplies ranges as they arrive. If not (stream-k, or a product that `cupy.matmul` computes), the
product must wait for all rows. All kernels are compiled and loaded before anything is enqueued.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._backends.device import device
from cupygemm._distributed.arguments import checked_call
from cupygemm._distributed.steps import Rows
from cupygemm._plan.plan import Plan, choose, on_device, plan_of
from cupygemm._plan.table import NO_PLAN, PLANS
from cupygemm._request.arrays import as_array
from cupygemm._request.call import Call, operand_of

Plans = Mapping[Rows, Plan]
_BY_ROW = ("c", "bias", "scale_a")


def plan_rows(
    x1: Any,
    x2: Any,
    out: Any,
    pieces: Mapping[Rows, Any],
    *,
    dtype: DTypeLike | None,
    casting: str,
    options: Mapping[str, Any],
    spared: int = 0,
) -> Plans | None:
    """Return plans of ranges of rows whose results are bitwise equal to the whole product.

    Parameters
    ----------
    x1 : cupy.ndarray
        (m, k), C-contiguous; its rows need not have arrived.
    x2 : cupy.ndarray
        (k, n).
    out : cupy.ndarray
        (m, n).
    pieces : mapping of Rows to cupy.ndarray
        The ranges to multiply, and the array of the rows of each one.
    dtype : dtype or None
    casting : str
    options : mapping
        Keywords of `cupygemm.matmul`, whose arrays fit the whole result.
    spared : int
        The number of compute units that the products leave to other kernels.

    Returns
    -------
    mapping of Rows to Plan, or None
        None if a range would be summed in another order than the whole product. Empty ranges have
        no plan.
    """
    pieces = {rows: piece for rows, piece in pieces.items() if rows[1] > rows[0]}
    check = partial(checked_call, dtype=dtype, casting=casting)
    whole = check(x1, x2, out, options=options)
    places = tuple(
        (rows, replace(operand_of(piece), address=piece.data.ptr & 15))
        for rows, piece in pieces.items()
    )
    key = ("rows", whole.request, whole.device_index, places, spared)
    plans = PLANS.get(key)
    if plans is None:

        def calls() -> Iterator[tuple[Rows, Call, Mapping[str, Any]]]:
            for rows, piece in pieces.items():
                parts = rows_of_options(options, x1.shape[0], rows)
                yield rows, check(piece, x2, out[slice(*rows)], options=parts), parts

        plans = _plans(whole, calls(), spared)
        PLANS.keep(key, NO_PLAN if plans is None else plans)
    return None if plans is NO_PLAN else plans


def _plans(
    whole: Call, calls: Iterable[tuple[Rows, Call, Mapping[str, Any]]], spared: int
) -> Plans | None:
    """Return the plans of ranges, by the kernel of the whole product.

    Parameters
    ----------
    whole : Call
    calls : iterable
        For each range, its rows, the call that computes them, and its keywords.
    spared : int
    """
    request, place = whole.request, device(whole.device_index)
    if request.work != "product" or request.aliased:
        return None
    if not any(backend.supports(request) for backend in place.backends):
        return None  # the epilogue is a separate step
    backend, kernel = on_device(place, lambda: choose(request, place))
    sparing = backend.sparing(spared) if spared else backend
    plans = {}
    for rows, call, options in calls:
        if not backend.supports(call.request):
            return None
        compiled = sparing.part(call.request, kernel)
        if compiled is None:
            return None
        run = on_device(place, partial(sparing.launch, call.request, compiled))
        plans[rows] = plan_of(run, call.request, place, options, call.arguments)
    return plans


class RowProducts:
    """The product of two matrices, by ranges of rows of the first one.

    Parameters
    ----------
    plans : mapping of Rows to Plan
        From `plan_rows`.
    pieces : mapping of Rows to cupy.ndarray
        The rows of each range, (rows, k).
    x2 : cupy.ndarray
        (k, n).
    out : cupy.ndarray
        (m, n).
    options : mapping
        Keywords of `cupygemm.matmul`, whose arrays fit the whole result.
    """

    def __init__(
        self,
        plans: Plans,
        pieces: Mapping[Rows, Any],
        x2: Any,
        out: Any,
        options: Mapping[str, Any],
    ) -> None:
        self._plans, self._pieces = plans, pieces
        self._x2, self._out, self._options = x2, out, options

    def multiply(self, rows: Rows) -> None:
        """Enqueue the product of one of the ranges, on the current stream."""
        plan = self._plans.get(rows)
        if plan is None:  # no rows
            return
        arguments: tuple[Any, ...] = ()
        if plan.binding is not None:
            parts = rows_of_options(self._options, self._out.shape[0], rows)
            arguments = (plan.binding(parts),)
        plan.run(self._pieces[rows], self._x2, self._out[slice(*rows)], *arguments)


def rows_of_options(options: Mapping[str, Any], m: int, rows: Rows) -> dict[str, Any]:
    """Return the keywords of `cupygemm.matmul` for some of the m rows of the result."""
    found = dict(options)
    for name in _BY_ROW:
        array = options.get(name)
        if array is None or isinstance(array, np.generic) or not hasattr(array, "ndim"):
            continue
        array = as_array("matmul", name, array)
        per_row = array.ndim == 1 and name == "scale_a"
        if (array.ndim == 2 or per_row) and array.shape[0] == m:
            found[name] = array[slice(*rows)]
    return found
