"""`scaled_matmul` with scales that change along k, in one launch if the device has a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import DTypeLike

from cupygemm._backends.device import device
from cupygemm._backends.scales_and_groups import BlockScaling
from cupygemm._plan.keys import options_key, product_key
from cupygemm._plan.plan import on_device, plan_of
from cupygemm._plan.table import NO_PLAN, PLANS
from cupygemm._request.arrays import Array
from cupygemm._request.call import check_call
from cupygemm._request.options import call_options
from cupygemm._request.promotion import F32

SHARED_BY_ALL = 1 << 31
"""The number of rows or columns that share a scale, if all of them share a single one."""


@dataclass(frozen=True)
class Scales:
    """Scales for the rows of A or the columns of B, one for each block of k.

    Attributes
    ----------
    table : cupy.ndarray
        Scales, (rows, blocks of k) or (columns, blocks of k).
    shared : int
        Number of adjacent rows or columns that share a row of the table.
    """

    table: Array
    shared: int

    def of_block(self, index: int, count: int) -> Array:
        """Return the scales of `count` rows or columns for one block of k."""
        import cupy

        scales = self.table[:, index]
        return scales if self.shared == 1 else cupy.repeat(scales, self.shared)[:count]


def block_scaled_matmul(
    a: Array,
    b: Array,
    out: Any,
    *,
    rows: Scales | None,
    columns: Scales | None,
    block: int,
    dtype: DTypeLike | None,
    options: dict[str, Any],
) -> Array | None:
    """Return the product in one launch; None if no kernel supports it.

    Parameters
    ----------
    a, b : cupy.ndarray
    out : cupy.ndarray or None
    rows, columns : Scales or None
        Scales of ``a`` and of ``b``; None for scales that do not change along k.
    block : int
        Extent of a block.
    dtype : dtype or None
    options : dict
        Options of `matmul`, including the scales that do not change along k.
    """
    scaling = BlockScaling(
        kind="float32",
        block=block,
        rows=SHARED_BY_ALL if rows is None else rows.shared,
        columns=SHARED_BY_ALL if columns is None else columns.shared,
    )
    tables = _table(rows), _table(columns)
    return multiply_scaled(a, b, out, scaling=scaling, scales=tables, dtype=dtype, options=options)


def multiply_scaled(
    a: Array,
    b: Array,
    out: Any,
    *,
    scaling: BlockScaling,
    scales: tuple[Array, Array],
    dtype: DTypeLike | None,
    options: dict[str, Any],
) -> Array | None:
    """Return the product of operands with scales along k; None if no kernel supports it.

    Parameters
    ----------
    a, b : cupy.ndarray
    out : cupy.ndarray or None
    scaling : BlockScaling
        Which scales are present, and their blocks.
    scales : (cupy.ndarray, cupy.ndarray)
        Scales for the rows of ``a``, (rows, blocks), and for the columns of ``b``,
        (columns, blocks).
    dtype : dtype or None
    options : dict
        Options of `matmul`.
    """
    if not min(a.size, b.size):
        return None
    options = options.copy()
    casting = options.pop("casting", "same_kind")
    key, more = product_key(a, b, out, dtype=dtype, casting=casting), options_key(options)
    if key is None or more is None:
        key = None
    else:
        key = ("scaled_matmul", scaling, *key, *more)
        plan = PLANS.get(key)
        if plan is NO_PLAN:
            return None
        result = None if plan is None else plan.run_again(a, b, out, options, *scales)
        if result is not None:
            return result
    given = call_options(options)  # type: ignore[arg-type]
    call = check_call(a, b, out, dtype=dtype, casting=casting, given=given)
    place = device(call.device_index)
    run = on_device(place, lambda: place.kernels.block_scaled(call.request, scaling))
    plan = NO_PLAN
    if run is not None:
        plan = plan_of(run, call.request, place, options=options, arguments=call.arguments)
    if key is not None and not call.request.aliased:
        PLANS.keep(key, plan)
    if plan is NO_PLAN:
        return None
    epilogue = () if call.arguments is None else (call.arguments,)
    return plan.run(call.x1, call.x2, call.out, *scales, *epilogue)


def _table(scales: Scales | None) -> Array:
    """Return scales in float32; a single scale of 1 if there are none."""
    import cupy

    if scales is None:
        return cupy.ones((1, 1), F32)
    return scales.table.astype(F32, copy=False)
