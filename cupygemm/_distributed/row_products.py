"""`RowProducts`: a product by some rows at a time, with the bits of the whole product.

The kernel of the whole product is chosen first. If its backend can run the same configuration on
each range of rows, in which all sums along k then have the same order, ranges are multiplied as
they arrive. If not (stream-k, or a product that `cupy.matmul` computes), the whole product is
computed when all rows are there. All kernels are compiled and loaded before anything is enqueued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._backends.device import device
from cupygemm._plan.plan import Plan, choose, make_plan, on_device, plan_of
from cupygemm._plan.table import PLANS
from cupygemm._request.arrays import as_array
from cupygemm._request.call import Call, check_call, operand_of
from cupygemm._request.options import call_options

Rows = tuple[int, int]
"""A range of rows: the first one, and the one behind the last."""
_BY_ROW = ("c", "bias", "scale_a")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Some rows of the first operand, and the plan of their product.

    Attributes
    ----------
    rows : tuple of int
    x1 : cupy.ndarray
    plan : Plan
    """

    rows: Rows
    x1: Any
    plan: Plan


class RowProducts:
    """The product of two matrices, by ranges of rows of the first one.

    Parameters
    ----------
    x1 : cupy.ndarray
        (m, k), C-contiguous; its rows need not have arrived.
    x2 : cupy.ndarray
        (k, n).
    out : cupy.ndarray
        (m, n).
    dtype : dtype or None
    casting : str
    options : mapping
        Keywords of `cupygemm.matmul`, whose arrays fit the whole result.
    """

    def __init__(
        self,
        x1: Any,
        x2: Any,
        out: Any,
        *,
        dtype: DTypeLike | None,
        casting: str,
        options: Mapping[str, Any],
    ) -> None:
        self._x1, self._x2, self._out = x1, x2, out
        self._dtype, self._casting, self._options = dtype, casting, options
        self._pieces: dict[Rows, Piece] = {}
        self._call = self._checked(x1, out, options)

    @classmethod
    def again(
        cls, plans: Mapping[Rows, Plan], pieces: Mapping[Rows, Any], x2: Any, out: Any
    ) -> RowProducts:
        """Return products without an epilogue, whose plans are those of an earlier call.

        Parameters
        ----------
        plans : mapping of Rows to Plan
        pieces : mapping of Rows to cupy.ndarray
            As for `prepare`.
        x2, out : cupy.ndarray
        """
        products = cls.__new__(cls)
        vars(products).update(_x2=x2, _out=out, _options={})
        vars(products)["_pieces"] = {
            rows: Piece(rows=rows, x1=pieces[rows], plan=plan) for rows, plan in plans.items()
        }
        return products

    @property
    def plans(self) -> dict[Rows, Plan]:
        """Return the plans of the ranges."""
        return {rows: piece.plan for rows, piece in self._pieces.items()}

    def prepare(self, pieces: Mapping[Rows, Any]) -> bool:
        """Make the plans of ranges of rows, and return whether `multiply` can be used.

        If not, `multiply_all` is.

        Parameters
        ----------
        pieces : mapping of Rows to cupy.ndarray
            The ranges to multiply, and where each one lies.
        """
        pieces = {rows: piece for rows, piece in pieces.items() if rows[1] > rows[0]}
        places = tuple(
            (rows, replace(operand_of(piece), address=piece.data.ptr & 15))
            for rows, piece in pieces.items()
        )
        key = ("rows", self._call.request, self._call.device_index, places)
        plans = PLANS.get(key)
        if plans is None:
            plans = self._plans(pieces)
            PLANS.keep(key, plans)
        for (rows, x1), plan in zip(pieces.items(), plans, strict=False):
            self._pieces[rows] = Piece(rows=rows, x1=x1, plan=plan)
        return len(plans) == len(pieces)

    def multiply(self, rows: Rows) -> None:
        """Enqueue the product of one of the ranges, on the current stream."""
        piece = self._pieces.get(rows)
        if piece is None:  # no rows
            return
        arguments: tuple[Any, ...] = ()
        if piece.plan.binding is not None:
            options = rows_of_options(self._options, self._x1.shape[0], rows)
            arguments = (piece.plan.binding(options),)
        piece.plan.run(piece.x1, self._x2, self._out[slice(*rows)], *arguments)

    def multiply_all(self) -> None:
        """Enqueue the whole product, on the current stream."""
        call = self._call
        plan = make_plan(call.request, device(call.device_index), self._options, call.arguments)
        arguments = () if call.arguments is None else (call.arguments,)
        plan.run(call.x1, call.x2, call.out, *arguments)

    def _checked(self, x1: Any, out: Any, options: Mapping[str, Any]) -> Call:
        given = call_options(dict(options))  # type: ignore[arg-type]
        return check_call(x1, self._x2, out, dtype=self._dtype, casting=self._casting, given=given)

    def _plans(self, pieces: Mapping[Rows, Any]) -> Sequence[Plan]:
        """Return the plans of the ranges; none if one of them would be summed in another order."""
        request, place = self._call.request, device(self._call.device_index)
        if request.work != "product" or request.aliased:
            return ()
        if not any(backend.supports(request) for backend in place.backends):
            return ()  # the epilogue is a step of its own
        backend, whole = on_device(place, lambda: choose(request, place))
        plans: list[Plan] = []
        for rows, x1 in pieces.items():
            options = rows_of_options(self._options, self._x1.shape[0], rows)
            call = self._checked(x1, self._out[slice(*rows)], options)
            if not backend.supports(call.request):
                return ()
            compiled = backend.part(call.request, whole)
            if compiled is None:
                return ()
            run = on_device(place, lambda: backend.launch(call.request, compiled))  # noqa: B023
            plans.append(plan_of(run, call.request, place, options, call.arguments))
        return tuple(plans)


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
