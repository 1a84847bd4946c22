"""`matmul` and `explain`: the arguments of a call, its plan, and the table of plans.

A repeated call is one look-up in that table, one allocation and one launch. Its key holds all that
a plan depends on: shapes, strides, dtypes, the operands' addresses modulo 16, options and the
device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Unpack

from numpy.typing import DTypeLike

from cupygemm._plan.explanation import Explanation
from cupygemm._plan.known_calls import KnownCall, keyword_key
from cupygemm._plan.plan import Plan, explain_plan, make_plan
from cupygemm._request.arrange import result_order, turned
from cupygemm._request.arrays import single_out
from cupygemm._request.call import Call, adopted, check_call, overlaps_epilogue, signature
from cupygemm._request.keywords import on_stream
from cupygemm._request.options import CallOptions, MatmulOptions, call_options, with_keywords

MAX_PLANS = 4096  # beyond it the table starts anew
_plans: dict[Any, Any] = {}  # of `Plan`, and what other functions keep by `keep_plan`
_PLAIN = CallOptions()


@with_keywords
def matmul(  # numpydoc ignore=PR02
    x1: Any,
    x2: Any,
    /,
    out: Any = None,
    *,
    dtype: DTypeLike | None = None,
    casting: str = "same_kind",
    **options: Unpack[MatmulOptions],
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
        An 8-bit float, such as ``"float8_e4m3fn"``, gives its bytes, a uint8 array: numbers beyond
        its largest one become that, infinities too, and NaN stays NaN.
    casting : {"no", "equiv", "safe", "same_kind", "unsafe"}
        Which conversions are allowed, as in NumPy.
    format_a, format_b : str or dtype, optional
        The 8-bit floats that ``x1``, ``x2`` hold: ``"e4m3fn"`` or ``"e5m2"`` on gfx950 and Hopper,
        ``"e4m3fnuz"`` or ``"e5m2fnuz"`` on gfx942; the two may differ. The array is one of uint8,
        since CuPy lacks these types. Without it, uint8 are integers. The result is float32 unless
        ``dtype`` says otherwise.
    precision : {"ieee", "tf32", "xf32", "tf32x3"}, optional
        Whether float32 operands may be cut to the 10 bits of fraction that the matrix unit
        multiplies several times as fast (``"tf32"``; ``"xf32"`` is AMD's name). On Hopper,
        ``"tf32x3"`` adds three such products of two parts of each operand: as exact as sums in
        float32, but where numbers are within a few thousand of the least or the largest. A device
        without such an instruction multiplies them exactly all the same.
    alpha : number
        Factor of the product.
    beta : number, optional
        Factor of `c`: 1 if it is not given. With 0, `c` is not read.
    c : cupy.ndarray, optional
        Added to the product; its shape broadcasts to the result's. It may be ``out`` itself.
    bias : cupy.ndarray, optional
        Added as well: ``(n,)`` for each column, ``(m, 1)`` for each row, or whatever broadcasts to
        the result.
    activation : {"relu", "gelu", "gelu_tanh", "silu", "sigmoid"}, optional
        Applied to what is then there. ``"gelu"`` is the exact one, by the error function.
    scale_a : number or cupy.ndarray, optional
        Factor of the product for each row of ``x1``, ``(m,)`` or ``(..., m, 1)``, or a single one.
    scale_b : number or cupy.ndarray, optional
        The same for each column of ``x2``, ``(n,)`` or ``(..., 1, n)``, or a single one.
    scale_out : number or cupy.ndarray, optional
        Factor of what the activation gives, a single one.
    clamp : tuple of number or None, optional
        The least and the greatest result, applied last; None leaves a side open.
    reproducible : bool
        The same operands give the same bits each time. With False, the parts of a sum that several
        workgroups share may be added by atomic instructions, in the order in which they come: that
        takes less memory and less time where k is long and the result small, and float sums may
        differ in their last bits from call to call.
    axes : list of tuple of int, optional
        Where the core axes of ``x1``, ``x2`` and the result are, by default the last ones:
        ``[(-2, -1), (-2, -1), (-2, -1)]``, with one axis for a 1-D operand. The other options see
        the result as it was before its axes were moved.
    order : {"K", "C", "F", "A"}
        The order in memory of a new result: ``"C"``, ``"F"``, or ``"A"``, ``"F"`` if both operands
        are F-contiguous, else ``"C"``. ``"K"`` leaves it open.
    stream : cupy.cuda.Stream, optional
        Where the whole call runs, copies included, in place of the current stream. It may be
        another library's, if that has ``__cuda_stream__``. The caller orders it with the streams
        on which the arrays are written and read.

    Returns
    -------
    cupy.ndarray
        The product, (..., m, n); ``out`` if it was given.

    Raises
    ------
    ValueError
        The shapes do not fit, the arrays are on different devices, the elements of ``out``
        overlap each other, an option is none of its choices, its shape does not fit, or there is
        `beta` without `c`.
    TypeError
        An argument is no CuPy array, a conversion is not allowed, or the device cannot multiply
        these types.

    See Also
    --------
    explain : Tell how a product is computed.
    numpy.matmul : The semantics.

    Notes
    -----
    Kernels of this library multiply bfloat16 and float16; on AMD GPUs float32, float64, complex64,
    complex128, int8, uint8 and 8-bit floats too; on Hopper int8, uint8, 8-bit floats, float32 in a
    lower precision, and float64 where that is faster. `cupy.matmul` multiplies everything else.
    Products of integers wrap as NumPy's do. The result is the same bits each time, unless
    `reproducible` is False.
    Nothing is written to ``out`` when an exception is raised.

    With any of the options from `alpha` to `clamp`, the result is ::

        cast(clamp(scale_out * activation(alpha * scale_a * scale_b * (x1 @ x2) + beta * c + bias)))

    computed in float32 and rounded once: in float64 for operands of float64 or of integers wider
    than a byte, and in their type for complex ones, which take `alpha`, `beta`, `c` and `bias`
    only. Sums of int8 beyond 2**24 are rounded to float32 first. An integer result is rounded to
    nearest, ties to even, and saturates, and NaN becomes 0. `explain` tells whether it is the
    kernel that does all this. Numbers are passed by value, arrays by address: a call waits for
    neither, and another number needs no other plan.

    Examples
    --------
    >>> import cupy as cp, cupygemm
    >>> a = cp.ones((2, 3), "float16")
    >>> b = cp.ones((3, 4), "float16")
    >>> cupygemm.matmul(a, b, dtype="float32")
    array([[3., 3., 3., 3.],
           [3., 3., 3., 3.]], dtype=float32)
    >>> bias = cp.asarray([0, 1, -2, -4], "float32")
    >>> cupygemm.matmul(a, b, bias=bias, activation="relu")
    array([[3., 4., 1., 0.],
           [3., 4., 1., 0.]], dtype=float16)
    """
    if options:
        return _matmul_with_options(x1, x2, out, dtype, casting, options)
    key: Any
    plan: Plan | None
    try:
        key = (
            signature(x1),
            signature(x2),
            out if out is None else signature(out),
            dtype,
            casting,
        )
        plan = _plans.get(key)
    except (AttributeError, TypeError):  # no CuPy array, or a dtype that is no dictionary key
        key = plan = None
        out = single_out("matmul", out)
        x1, x2, target = adopted(x1, x2, out)
        if target is not out:
            matmul(x1, x2, target, dtype=dtype, casting=casting)
            return out
    if plan is None or (out is not None and plan.overlaps(x1, x2, out)):
        call = check_call(x1, x2, out, dtype, casting, _PLAIN)
        plan, out = _plan_of(call), call.out
        if key is not None and not call.aliased:
            keep_plan(key, plan)
    return plan.run(x1, x2, out)


def _matmul_with_options(
    x1: Any,
    x2: Any,
    out: Any,
    dtype: DTypeLike | None,
    casting: str,
    options: MatmulOptions,
) -> Any:
    """Compute a product with options beyond `dtype` and `casting`."""
    if "stream" in options:
        with on_stream("matmul", options.pop("stream"), (x1, x2, out)):
            return matmul(x1, x2, out, dtype=dtype, casting=casting, **options)
    try:
        known_key: Any = (
            "keywords",
            signature(x1),
            signature(x2),
            out if out is None else signature(out),
            dtype,
            casting,
            keyword_key(options),
        )
        known: KnownCall | None = _plans.get(known_key)
    except (AttributeError, TypeError):  # another library's arrays, or what is no dictionary key
        known_key = known = None
    if known is not None:
        values = known.values(options)
        if out is None or not known.overlaps(x1, x2, out, values):
            return known.plan.run(x1, x2, out, *values)
    asked = single_out("matmul", out)
    x1, x2, out = adopted(x1, x2, asked)
    if "axes" in options or "order" in options:
        x1, x2, out, finish = _arranged(x1, x2, out, dtype, casting, options)
        result = finish(matmul(x1, x2, out, dtype=dtype, casting=casting, **options))
        return result if asked is None else asked
    given = call_options(options)
    target = out if out is None else signature(out)
    key: Any = (signature(x1), signature(x2), target, dtype, casting, given.key)
    try:
        plan = _plans.get(key)
    except TypeError:  # a dtype or a format that is no dictionary key
        key = plan = None
    if plan is None or (
        out is not None and (plan.overlaps(x1, x2, out) or overlaps_epilogue(out, given))
    ):
        call = check_call(x1, x2, out, dtype, casting, given)
        plan = _plan_of(call)
        if key is not None and not call.aliased:
            keep_plan(key, plan)
            if known_key is not None:
                keep_plan(known_key, KnownCall.of(plan, out, given))
    result = plan.run(x1, x2, out, *given.values)
    return result if out is asked else asked


def _arranged(
    x1: Any,
    x2: Any,
    out: Any,
    dtype: DTypeLike | None,
    casting: str,
    options: MatmulOptions,
) -> tuple[Any, Any, Any, Callable[[Any], Any]]:
    """Return a call's arrays as ``axes`` and ``order`` ask, and what turns the result back.

    Both are taken out of the options.
    """
    axes, order = options.pop("axes", None), options.pop("order", None)
    finish: Callable[[Any], Any] = _unchanged
    contiguous = result_order("matmul", order, (x1, x2))
    if axes is not None and x1.ndim and x2.ndim:
        views = turned(x1, x2, out, axes)
        x1, x2, out, finish = views.x1, views.x2, views.out, views.turned_back
    if out is None and contiguous is not None:
        from cupy import ndarray
        from cupy.cuda import Device

        call = check_call(x1, x2, None, dtype, casting, call_options(options))
        posed = call.posed
        with Device(call.device.index):
            out = ndarray(posed.shape.result, posed.types.container, order=contiguous)
    return x1, x2, out, finish


def _unchanged(result: Any) -> Any:
    return result


@with_keywords
def explain(  # numpydoc ignore=PR02
    x1: Any,
    x2: Any,
    /,
    out: Any = None,
    *,
    dtype: DTypeLike | None = None,
    casting: str = "same_kind",
    **options: Unpack[MatmulOptions],
) -> Explanation:
    """Tell how `matmul` computes a product, without computing it.

    Parameters
    ----------
    x1, x2, out, dtype, casting
        As for `matmul`.
    format_a, format_b, precision
        As for `matmul`.
    alpha, beta, c, bias, activation, scale_a, scale_b, scale_out, clamp
        As for `matmul`.
    reproducible, axes, order, stream
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
    x1, x2, out = adopted(x1, x2, single_out("matmul", out))
    with on_stream("matmul", options.pop("stream", None), (x1, x2, out)):
        x1, x2, out, _ = _arranged(x1, x2, out, dtype, casting, options)
        call = check_call(x1, x2, out, dtype, casting, call_options(options))
    explanation = explain_plan(call.posed, call.device, call.describe())
    return replace(explanation, why="; ".join((explanation.why, *call.notes)))


def _plan_of(call: Call) -> Plan:
    """Return the plan of a call from the table, made first where there is none."""
    operands = (call.x1, call.x2, call.target)
    signatures = tuple(o and (o.shape, o.strides, o.dtype, o.address & 15) for o in operands)
    key = (signatures, call.options, call.device, call.aliased)
    plan = _plans.get(key)
    if plan is None:
        plan = make_plan(call.posed, call.device, operands)
        keep_plan(key, plan)
    return plan


def plan_by_address(
    x1: Any, x2: Any, out: Any, dtype: DTypeLike | None, casting: str
) -> Plan | None:
    """Return the plan of a product that has been computed, if it goes by addresses alone."""
    plan: Plan | None = _plans.get((signature(x1), signature(x2), signature(out), dtype, casting))
    return plan if plan is not None and plan.by_address else None


def kept_plan(key: Any) -> Any:
    """Return what `keep_plan` put in the table, or None."""
    return _plans.get(key)


def keep_plan(key: Any, plan: Any) -> None:
    """Put a plan in the table, under a key that begins with a string if it is not `matmul`'s."""
    if len(_plans) >= MAX_PLANS:
        _plans.clear()
    _plans[key] = plan


def forget_plans() -> None:
    """Make plans anew from now on: what they were made by has changed."""
    _plans.clear()
