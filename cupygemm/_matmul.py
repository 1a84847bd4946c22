"""`matmul` and `explain`: the arguments of a call, its plan, and the table of plans.

A repeated call is one look-up in that table, one allocation and one launch. Its key holds all that
a plan depends on: shapes, strides, dtypes, the operands' addresses modulo 16, options and the
device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._device import Device, device
from cupygemm._explain import Explanation
from cupygemm._layout import Operand
from cupygemm._linalg.arrays import as_array, one_device, single_out
from cupygemm._plan import Plan, explain_plan, make_plan
from cupygemm._pose import Posed, pose

MAX_PLANS = 4096  # beyond it the table starts anew
_plans: dict[Any, Plan] = {}


def matmul(
    x1: Any,
    x2: Any,
    /,
    out: Any = None,
    *,
    dtype: DTypeLike | None = None,
    casting: str = "same_kind",
) -> Any:
    """Matrix product of two CuPy arrays, with NumPy's semantics.

    Parameters
    ----------
    x1, x2 : cupy.ndarray
        Or any array of the device's memory with ``__dlpack__`` or ``__cuda_array_interface__``.
        Operands of 1, 2 or more axes, (..., m, k) and (..., k, n). A 1-D ``x1`` is a row, a 1-D
        ``x2`` a column, and the result lacks the axis so added. Leading axes broadcast.
    out : cupy.ndarray, optional
        Where to put the result; its shape must be the result's. It may have any strides and may
        overlap the operands.
    dtype : dtype, optional
        Type of the result. 16-bit operands are summed in float32 and rounded to it once, so
        ``dtype="float32"`` keeps the sums as they are. ``dtype="int32"`` does so for int8.
    casting : {"no", "equiv", "safe", "same_kind", "unsafe"}
        Which conversions are allowed, as in NumPy.

    Returns
    -------
    cupy.ndarray
        The product, (..., m, n); ``out`` if it was given.

    Raises
    ------
    ValueError
        The shapes do not fit, the arrays are on different devices, or the elements of ``out``
        overlap each other.
    TypeError
        An argument is no CuPy array, a conversion is not allowed, or the device cannot multiply
        these types.

    See Also
    --------
    explain : Tell how a product is computed.
    numpy.matmul : The semantics.

    Notes
    -----
    Kernels of this library multiply bfloat16 and float16 operands, int8 ones into int32 sums, and
    on AMD GPUs float32, float64, int8 and uint8 ones; `cupy.matmul` multiplies everything else.
    Products of integers wrap as NumPy's do. The result is the same bits each time.
    Nothing is written to ``out`` when an exception is raised.

    Examples
    --------
    >>> import cupy as cp, cupygemm
    >>> a = cp.ones((2, 3), "float16")
    >>> b = cp.ones((3, 4), "float16")
    >>> cupygemm.matmul(a, b, dtype="float32")
    array([[3., 3., 3., 3.],
           [3., 3., 3., 3.]], dtype=float32)
    """
    key: Any
    plan: Plan | None
    try:
        key = (
            _signature(x1),
            _signature(x2),
            out if out is None else _signature(out),
            dtype,
            casting,
        )
        plan = _plans.get(key)
    except (AttributeError, TypeError):  # no CuPy array, or a dtype that is no dictionary key
        key = plan = None
        out = single_out("matmul", out)
        x1, x2, target = _adopted(x1, x2, out)
        if target is not out:
            matmul(x1, x2, target, dtype=dtype, casting=casting)
            return out
    if plan is None or (out is not None and plan.overlaps(x1, x2, out)):
        call = _check(x1, x2, out, dtype, casting)
        plan, out = _plan_of(call), call.out
        if key is not None and not call.aliased:
            _keep(key, plan)
    return plan.run(x1, x2, out)


def explain(
    x1: Any,
    x2: Any,
    /,
    out: Any = None,
    *,
    dtype: DTypeLike | None = None,
    casting: str = "same_kind",
) -> Explanation:
    """Tell how `matmul` computes a product, without computing it.

    Parameters
    ----------
    x1, x2, out, dtype, casting
        As for `matmul`.

    Returns
    -------
    Explanation
        Backend, problem, kernel configuration, the kernel's resources, and the copies that are
        made. The kernel is compiled if it is not in the cache.

    Raises
    ------
    ValueError, TypeError
        As `matmul` raises them.

    Examples
    --------
    >>> import cupy as cp, cupygemm
    >>> a = cp.ones((256, 256), "float16")
    >>> print(cupygemm.explain(a, a.T))  # doctest: +SKIP
    """
    call = _check(x1, x2, out, dtype, casting)
    return explain_plan(call.posed, call.device, call.describe())


@dataclass(frozen=True)
class _Call:
    """The arguments of a call, found to be of the right kind and on one device."""

    x1: Operand
    x2: Operand
    out: Any
    dtype: np.dtype[Any] | None
    casting: str
    device: Device
    aliased: bool

    @property
    def posed(self) -> Posed:
        return pose(
            self.x1,
            self.x2,
            None if self.out is None else _operand(self.out),
            dtype=self.dtype,
            casting=self.casting,
            products=self.device.products,
            row_bytes=self.device.row_bytes,
            aliased=self.aliased,
        )

    def describe(self) -> str:
        posed = self.posed
        return (
            f"matmul: {self.x1.dtype} {self.x1.shape} @ {self.x2.dtype} {self.x2.shape} "
            f"-> {posed.types.result} {posed.shape.result}"
        )


def _check(x1: Any, x2: Any, out: Any, dtype: DTypeLike | None, casting: str) -> _Call:
    """Check what the table of plans cannot know: kinds of objects, and devices."""
    x1, x2, out = _adopted(x1, x2, single_out("matmul", out))
    one_device("matmul", {"x1": x1, "x2": x2} | ({} if out is None else {"out": out}))
    return _Call(
        _operand(x1),
        _operand(x2),
        out,
        None if dtype is None else np.dtype(dtype),
        casting,
        device(x1.data.device_id),
        out is not None and (_overlap(out, x1) or _overlap(out, x2)),
    )


def _adopted(x1: Any, x2: Any, out: Any) -> tuple[Any, Any, Any]:
    """Return the arguments as CuPy arrays of the same memory; see `as_array`."""
    x1, x2 = as_array("matmul", "x1", x1), as_array("matmul", "x2", x2)
    return x1, x2, out if out is None else as_array("matmul", "out", out)


def _plan_of(call: _Call) -> Plan:
    """Return the plan of a call from the table, made first where there is none."""
    out = None if call.out is None else _operand(call.out)
    operands = (call.x1, call.x2, out)
    signatures = tuple(o and (o.shape, o.strides, o.dtype, o.address & 15) for o in operands)
    key = (signatures, call.dtype, call.casting, call.device, call.aliased)
    plan = _plans.get(key)
    if plan is None:
        plan = make_plan(call.posed, call.device, operands)
        _keep(key, plan)
    return plan


def _keep(key: Any, plan: Plan) -> None:
    """Put a plan in the table."""
    if len(_plans) >= MAX_PLANS:
        _plans.clear()
    _plans[key] = plan


def _signature(array: Any) -> tuple[Any, ...]:
    """Return what a plan depends on."""
    memory = array.data
    return array.shape, array.strides, array.dtype, memory.ptr & 15, memory.device_id


def _operand(array: Any) -> Operand:
    return Operand(array.shape, array.strides, array.dtype, array.data.ptr)


def _overlap(first: Any, second: Any) -> bool:
    """Whether the bytes from the first to the last element of two arrays have any in common."""
    start1, end1 = _operand(first).extent()
    start2, end2 = _operand(second).extent()
    address1, address2 = first.data.ptr, second.data.ptr
    return bool(address1 + start1 < address2 + end2 and address2 + start2 < address1 + end1)
