"""`matmul` and `explain`: one look-up in the table of plans, or a plan that is made and kept."""

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
    alpha : number, optional
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
    Without the options below, products of integers wrap as NumPy's do. The result is the same bits
    each time, unless `reproducible` is False.
    Nothing is written to ``out`` when an exception is raised.

    With any of the options from `alpha` to `clamp`, the result is ::

        cast(clamp(scale_out * activation(alpha * scale_a * scale_b * (x1 @ x2) + beta * c + bias)))

    computed in float32 and rounded once: in float64 for operands of float64 or of integers wider
    than a byte, and in their type for complex ones, which take `alpha`, `beta`, `c` and `bias`
    only. Sums of int8 beyond 2**24 are rounded to float32 first. An integer result is rounded to
    nearest, ties to even, and saturates, and NaN becomes 0. This depends on which options are given
    (not None), and not on their values: with ``alpha=1`` an integer result saturates too. Sums of
    int8 and uint8 in int32 stay exact under options that change no number. `explain` tells whether
    it is the kernel that does all this. Numbers are passed by value, arrays by address: a call
    waits for neither, and another number needs no other plan.

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
        return multiply(x1, x2, out, dtype=dtype, casting=casting)
    stream = options.pop("stream", None)
    if stream is not None:
        with on_stream("matmul", stream, (x1, x2, out)):
            return _matmul_with_options(x1, x2, out, dtype, casting, options)
    return _matmul_with_options(x1, x2, out, dtype, casting, options)


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
    >>> import cupygemm, cupy as cp
    >>> a = cp.ones((256, 256), "float16")
    >>> print(cupygemm.explain(a, a.T))  # doctest: +SKIP
    """
    x1, x2, out = adopted(x1, x2, single_out("matmul", out))
    with on_stream("matmul", options.pop("stream", None), (x1, x2, out)):
        x1, x2, out, _ = _arranged(x1, x2, out, dtype, casting, options)
        given = call_options(options)
        call = check_call(x1, x2, out, dtype=dtype, casting=casting, given=given)
        return explain_request(call.request, device(call.device_index))


def multiply(
    x1: Any,
    x2: Any,
    out: Any = None,
    *,
    dtype: DTypeLike | None = None,
    casting: str = "same_kind",
) -> Any:
    """Return ``matmul(x1, x2, out, dtype=dtype, casting=casting)``, on the current stream."""
    key = product_key(x1, x2, out, dtype, casting)
    plan: Plan | None = None if key is None else PLANS.get(key)
    if plan is not None and (out is None or not plan.overlaps(x1, x2, out)):
        return plan.run(x1, x2, out)
    return _first_call(x1, x2, out, dtype, casting, {})


def plan_for(
    x1: Any, x2: Any, out: Any, *, dtype: DTypeLike | None = None, casting: str = "same_kind"
) -> Plan | None:
    """Return the plan of a product that has been computed; None if it is no longer kept."""
    key = product_key(x1, x2, out, dtype, casting)
    plan: Plan | None = None if key is None else PLANS.get(key)
    return plan


def _matmul_with_options(
    x1: Any,
    x2: Any,
    out: Any,
    dtype: DTypeLike | None,
    casting: str,
    options: MatmulOptions,
) -> Any:
    """Compute a product with options beyond ``dtype`` and ``casting``, on the current stream."""
    key, more = product_key(x1, x2, out, dtype, casting), options_key(options)
    if key is None or more is None:
        return _first_call(x1, x2, out, dtype, casting, options)
    plan: Plan | None = PLANS.get((*key, more))
    if plan is None:
        return _first_call(x1, x2, out, dtype, casting, options)
    if plan.binding is None:
        if out is None or not plan.overlaps(x1, x2, out):
            return plan.run(x1, x2, out)
        return _first_call(x1, x2, out, dtype, casting, options)
    arguments = plan.binding(options)
    if out is None or not (plan.overlaps(x1, x2, out) or plan.overlaps_epilogue(arguments, out)):
        return plan.run(x1, x2, out, arguments)
    return _first_call(x1, x2, out, dtype, casting, options)


def _key(
    x1: Any,
    x2: Any,
    out: Any,
    dtype: DTypeLike | None,
    casting: str,
    options: MatmulOptions,
) -> Key | None:
    """Return the key of a call in the table of plans; None if it has none."""
    key = product_key(x1, x2, out, dtype, casting)
    if key is None or not options:
        return key
    more = options_key(options)
    return None if more is None else (*key, more)


def _first_call(
    x1: Any,
    x2: Any,
    out: Any,
    dtype: DTypeLike | None,
    casting: str,
    options: MatmulOptions,
) -> Any:
    """Validate a call, make its plan and keep it, and run it."""
    asked = single_out("matmul", out)
    if "axes" in options or "order" in options:
        x1, x2, target = adopted(x1, x2, asked)
        x1, x2, target, finish = _arranged(x1, x2, target, dtype, casting, options)
        result = finish(_first_call(x1, x2, target, dtype, casting, options))
        return result if asked is None else asked
    given = call_options(options)
    call = check_call(x1, x2, asked, dtype=dtype, casting=casting, given=given)
    key = _key(call.x1, call.x2, call.out, dtype, casting, options)
    if key is not None and call.request.aliased:
        key = (*key, "aliased")
    plan: Plan | None = None if key is None else PLANS.get(key)
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
    dtype: DTypeLike | None,
    casting: str,
    options: MatmulOptions,
) -> tuple[Any, Any, Any, Callable[[Any], Any]]:
    """Return the arrays of a call as ``axes`` and ``order`` ask, and what restores the result.

    Both keywords are removed from the options.
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
