"""`matmul` and `explain`: look up a call's plan in the table, or make the plan and keep it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from numpy.typing import DTypeLike

from cupygemm._backends.device import device
from cupygemm._plan.explanation import Explanation
from cupygemm._plan.keys import options_key, product_key
from cupygemm._plan.plan import Plan, explain_request, make_plan
from cupygemm._plan.table import PLANS, Key
from cupygemm._request.arrays import single_out
from cupygemm._request.axes import core_axes_last, result_order
from cupygemm._request.call import adopted, check_call
from cupygemm._request.containers import multiplier
from cupygemm._request.epilogue import EpilogueArguments
from cupygemm._request.keywords import on_stream
from cupygemm._request.options import MatmulOptions, call_options, with_keywords


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
        Operands of one or more axes, (..., m, k) and (..., k, n). A 1-D ``x1`` is a row and a 1-D
        ``x2`` a column; the result lacks the axis that this adds. Leading axes broadcast. Arrays of
        other libraries in device memory are accepted if they have ``__dlpack__`` or
        ``__cuda_array_interface__``. Dask arrays of CuPy chunks are accepted too; the result is
        then a Dask array, which Dask computes later. Two distributed arrays of
        `cupyx.distributed.array` with two axes give a distributed array.
    out : cupy.ndarray, optional
        Array for the result, of the result's shape. It may have any strides and may overlap the
        operands.
    dtype : dtype, optional
        Type of the result. Products of 16-bit operands are summed in float32 and rounded once, so
        ``dtype="float32"`` returns the sums unrounded; ``dtype="int32"`` does the same for int8. An
        8-bit float, such as ``"float8_e4m3fn"``, returns a uint8 array of its bytes. Numbers beyond
        the largest finite one, and infinities, saturate to it; NaN stays NaN.
    casting : {"no", "equiv", "safe", "same_kind", "unsafe"}
        Which conversions are allowed, as in NumPy.
    format_a, format_b : str or dtype, optional
        The 8-bit float formats of ``x1`` and ``x2``, which may differ: ``"e4m3fn"``, ``"e5m2"``,
        ``"e4m3fnuz"`` or ``"e5m2fnuz"``. Which of them a device multiplies is listed in the table
        of types in the documentation. The operand is a uint8 array, since CuPy lacks these types;
        without a format, uint8 arrays hold integers. The result is float32 by default.
    precision : {"ieee", "tf32", "xf32", "tf32x3", "int8x6", ..., "int8x16"}, optional
        The precision in which float32 and float64 are multiplied. ``"tf32"`` (or its other name,
        ``"xf32"``) allows the device to truncate float32 to 10 bits of fraction, which matrix units
        multiply several times as fast. ``"tf32x3"`` splits each operand into two parts and adds
        three such products. It is as exact as sums in float32, except where numbers are within a
        factor of a few thousand of the smallest or the largest. A device without such an
        instruction multiplies exactly. These precisions do not affect float64. ``"int8x14"``
        multiplies float64 and float32 by 14 products of int8, modulo 14 integers. The error is
        relative to the norms of the rows of ``x1`` and the columns of ``x2``; with 15 products it
        is that of float64 sums, and with 8 that of float32 sums. Rows and columns with a NaN or an
        infinity become NaN.
    alpha : number, optional
        Factor of the product.
    beta : number, optional
        Factor of `c`, 1 by default. With 0, `c` is not read.
    c : cupy.ndarray, optional
        Array to add to the product; its shape broadcasts to the result's. It may be ``out``.
    bias : cupy.ndarray, optional
        Another array to add: ``(n,)`` for each column, ``(m, 1)`` for each row, or any shape that
        broadcasts to the result's.
    activation : {"relu", "gelu", "gelu_tanh", "silu", "sigmoid"}, optional
        Function to apply to the sum. ``"gelu"`` is the exact one, with the error function.
    scale_a : number or cupy.ndarray, optional
        Factor of the product: a single one, or one for each row of ``x1``, ``(m,)`` or
        ``(..., m, 1)``.
    scale_b : number or cupy.ndarray, optional
        Factor of the product: a single one, or one for each column of ``x2``, ``(n,)`` or
        ``(..., 1, n)``.
    scale_out : number or cupy.ndarray, optional
        A single factor of the activation's result.
    clamp : tuple of number or None, optional
        The smallest and the largest result, applied last. None means no limit on that side.
    reproducible : bool
        Whether the same operands must give the same bits each time. With False, workgroups that
        share a sum may add their parts by atomic instructions, in any order. This takes less memory
        and time if k is long and the result is small, but the last bits of floating-point sums may
        differ from call to call.
    axes : list of tuple of int, optional
        The core axes of ``x1``, ``x2`` and the result. The default is the last ones,
        ``[(-2, -1), (-2, -1), (-2, -1)]``, with a single axis for a 1-D operand. The shapes of the
        other options refer to the result before its axes are moved.
    order : {"K", "C", "F", "A"}
        The memory order of a new result: ``"C"``, ``"F"``, ``"A"`` (``"F"`` if both operands are
        F-contiguous, else ``"C"``), or ``"K"``, which leaves the choice to the library.
    stream : cupy.cuda.Stream, optional
        The stream on which the whole call runs, including copies, instead of the current stream. It
        may be a stream of another library that has ``__cuda_stream__``. The caller is responsible
        for ordering it with the streams that write and read the arrays.

    Returns
    -------
    cupy.ndarray
        The product, (..., m, n); ``out`` if it was given.

    Raises
    ------
    ValueError
        If shapes do not match, arrays are on different devices, elements of ``out`` overlap each
        other, an option does not have one of its allowed values, or `beta` is given without `c`.
    TypeError
        If an argument is not an array on a device, a conversion is not allowed, or the device
        cannot multiply the types.

    See Also
    --------
    explain : Describe how a product is computed.
    numpy.matmul : The function whose semantics this one follows.

    Notes
    -----
    Kernels of this library multiply the types that the table of types in the documentation lists
    for each device; cuBLASLt and `cupy.matmul` multiply all others. Without the options below,
    integer products wrap as NumPy's do. Results are bitwise reproducible unless `reproducible` is
    False. Nothing is written to ``out`` when an exception is raised.

    With any of the options from `alpha` to `clamp`, the result is ::

        cast(clamp(scale_out * activation(alpha * scale_a * scale_b * (x1 @ x2) + beta * c + bias)))

    It is computed in float32 and rounded once. Operands of float64 and of integers wider than a
    byte are computed in float64. Complex operands are computed in their own type and support only
    `alpha`, `beta`, `c` and `bias`. Sums of int8 beyond 2**24 are first rounded to float32. An
    integer result is rounded to nearest, ties to even, and saturates; NaN becomes 0. This depends
    on which options are given (not None), not on their values: with ``alpha=1`` an integer result
    saturates too. Sums of int8 and uint8 in int32 stay exact with options that change no number.
    `explain` reports whether the kernel applies all of this. Numbers are passed by value and arrays
    by address, so a call does not wait for them, and a different number needs no new plan.

    Examples
    --------
    >>> import cupygemm, cupy as cp
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
    if not options:
        # Positional arguments save 1 to 3 % of a warm call's time.
        key = product_key(x1, x2, out, dtype, casting)
        plan: Plan | None = PLANS.get(key)
        if plan is not None and (out is None or not plan.overlaps(x1, x2, out)):
            return plan.run(x1, x2, out)
        return _checked_call(x1, x2, out, dtype=dtype, casting=casting, options={})
    stream = options.pop("stream", None)
    if stream is not None:
        with on_stream("matmul", stream, (x1, x2, out)):
            return _matmul_with_options(x1, x2, out, dtype=dtype, casting=casting, options=options)
    return _matmul_with_options(x1, x2, out, dtype=dtype, casting=casting, options=options)


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
    """Describe how `matmul` computes a product, without computing it.

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
        The backend, the problem, the kernel configuration, the resources of the kernel, and the
        copies. The kernel is compiled if it is not in the cache.

    Raises
    ------
    ValueError, TypeError
        In the same cases as `matmul`.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> a = cp.ones((256, 256), "float16")
    >>> print(cupygemm.explain(a, a.T))  # doctest: +SKIP
    """
    x1, x2, out = adopted(x1, x2, single_out("matmul", out))
    with on_stream("matmul", options.pop("stream", None), (x1, x2, out)):
        x1, x2, out, _ = _arranged(x1, x2, out, dtype=dtype, casting=casting, options=options)
        given = call_options(options)
        call = check_call(x1, x2, out, dtype=dtype, casting=casting, given=given)
        return explain_request(call.request, device(call.device_index))


def plan_for(x1: Any, x2: Any, out: Any, *, dtype: DTypeLike | None, casting: str) -> Plan | None:
    """Return the plan of a product that was computed before; None if the table has dropped it."""
    key = product_key(x1, x2, out, dtype=dtype, casting=casting)
    plan: Plan | None = PLANS.get(key)
    return plan


def _matmul_with_options(
    x1: Any,
    x2: Any,
    out: Any,
    *,
    dtype: DTypeLike | None,
    casting: str,
    options: MatmulOptions,
) -> Any:
    """Compute a product with options besides ``dtype`` and ``casting``, on the current stream."""
    key = _key(x1, x2, out, dtype, casting, options)
    plan: Plan | None = PLANS.get(key)
    result = None if plan is None else plan.run_again(x1, x2, out, options)
    if result is None:
        result = _checked_call(x1, x2, out, dtype=dtype, casting=casting, options=options)
    return result


def _key(
    x1: Any, x2: Any, out: Any, dtype: DTypeLike | None, casting: str, options: MatmulOptions
) -> Key | None:
    """Return the key of a call in the table of plans; None if its plan cannot be kept there."""
    key = product_key(x1, x2, out, dtype, casting)
    if key is None or not options:
        return key
    more = options_key(options)
    return None if more is None else (*key, more)


def _checked_call(
    x1: Any,
    x2: Any,
    out: Any,
    *,
    dtype: DTypeLike | None,
    casting: str,
    options: MatmulOptions,
) -> Any:
    """Validate a call, and run its plan, which is made and kept if the table lacks it.

    The table may have it, since arrays of other libraries get a key when they become CuPy's, and
    calls with an overlapping ``out`` have another key.
    """
    chunked = multiplier(x1, x2)
    if chunked is not None:
        return chunked.matmul(x1, x2, out, dtype=dtype, casting=casting, **options)
    asked = single_out("matmul", out)
    if "axes" in options or "order" in options:
        x1, x2, target = adopted(x1, x2, asked)
        x1, x2, target, finish = _arranged(
            x1, x2, target, dtype=dtype, casting=casting, options=options
        )
        result = finish(
            _checked_call(x1, x2, target, dtype=dtype, casting=casting, options=options)
        )
        return result if asked is None else asked
    given = call_options(options)
    call = check_call(x1, x2, asked, dtype=dtype, casting=casting, given=given)
    key = _key(call.x1, call.x2, call.out, dtype, casting, options)
    if key is not None and call.request.aliased:
        key = (*key, "aliased")
    plan: Plan | None = PLANS.get(key)
    if plan is None:
        plan = make_plan(call.request, device(call.device_index), options, call.arguments)
        if key is not None:
            PLANS.keep(key, plan)
    arguments: tuple[EpilogueArguments, ...] = ()
    if call.arguments is not None:
        arguments = (call.arguments,)
    result = plan.run(call.x1, call.x2, call.out, *arguments)
    return result if asked is None else asked


def _arranged(
    x1: Any,
    x2: Any,
    out: Any,
    *,
    dtype: DTypeLike | None,
    casting: str,
    options: MatmulOptions,
) -> tuple[Any, Any, Any, Callable[[Any], Any]]:
    """Apply ``axes`` and ``order``, and remove both from the options.

    Returns
    -------
    x1, x2, out : cupy.ndarray
        The operands with the core axes last, and an ``out`` of the requested order.
    finish : callable
        Moves the axes of the result to where ``axes`` puts them.
    """
    axes, order = options.pop("axes", None), options.pop("order", None)
    finish: Callable[[Any], Any] = _unchanged
    contiguous = result_order("matmul", order, (x1, x2))
    if axes is not None and x1.ndim and x2.ndim:
        views = core_axes_last(x1, x2, out, axes)
        x1, x2, out, finish = views.x1, views.x2, views.out, views.moved_back
    if out is None and contiguous is not None:
        from cupy import ndarray
        from cupy.cuda import Device

        given = call_options(options)
        call = check_call(x1, x2, dtype=dtype, casting=casting, given=given)
        with Device(call.device_index):
            shape, types = call.request.shape.result, call.request.types
            out = ndarray(shape, types.container, order=contiguous)
    return x1, x2, out, finish


def _unchanged(result: Any) -> Any:
    return result
