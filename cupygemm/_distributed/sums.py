"""Partial products: the type of their sums, their addition in the order of ranks, and the epilogue.

The epilogue is applied once, to the sum of all partial products, which is then rounded once.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cupygemm._backends import unfused
from cupygemm._records.formats import as_stored, container
from cupygemm._request.call import Call
from cupygemm._request.promotion import F32, HALVES, ProductTypes


def type_of_sums(types: ProductTypes, *, epilogue: bool) -> np.dtype[Any]:
    """Return the type of sums over a part of the products along k.

    Integers wrap, as in NumPy, unless there is an epilogue.
    """
    if types.operand.kind in "biu" and not epilogue:
        return types.stored
    return types.accumulator


def finished(call: Call, total: Any, out: Any) -> Any:
    """Return the epilogue of a sum, rounded once, in ``out`` if that is not None."""
    request = call.request
    if call.arguments is not None:
        return unfused.applied(request, lambda *_: total)(None, None, out, call.arguments)
    result = unfused.rounded(total, request.types.stored)
    result = result.astype(container(request.types.result), copy=False)
    if out is None:
        return result
    as_stored(out)[...] = result
    return out


def in_one_pass(call: Call, sums: np.dtype[Any]) -> bool:
    """Whether one kernel can add in this type, round and store, for `sum_and_finish`."""
    stored = call.request.types.stored
    return call.arguments is None and sums == F32 and stored in (F32, *HALVES)


def sum_and_finish(call: Call, parts: Any, sums: np.dtype[Any], out: Any) -> Any:
    """Return the epilogue of a sum, rounded once, in ``out`` if that is not None.

    Parameters
    ----------
    call : Call
    parts : cupy.ndarray
        (parts, rows, columns), each C-contiguous.
    sums : numpy.dtype
        The type in which they are added, from first to last.
    out : cupy.ndarray or None
    """
    import cupy

    if not in_one_pass(call, sums):
        return finished(call, added_in_order(parts, sums), out)
    if out is None:
        out = cupy.empty(parts.shape[1:], container(call.request.types.result))
    if out.size:
        _add(parts, sums, as_stored(out))
    return out


def added_in_order(parts: Any, sums: np.dtype[Any]) -> Any:
    """Return the sum of ``parts`` along their first axis, from first to last, in one pass.

    Parameters
    ----------
    parts : cupy.ndarray
        (parts, rows, columns), C-contiguous.
    sums : numpy.dtype
        The type in which they are added.

    Returns
    -------
    cupy.ndarray
        (rows, columns).
    """
    import cupy

    total = cupy.empty(parts.shape[1:], sums)
    if total.size and sums.kind == "b":
        cupy.any(parts, axis=0, out=total)
    elif total.size:
        _add(parts, sums, total)
    return total


def _add(parts: Any, sums: np.dtype[Any], total: Any) -> None:
    """Enqueue the sum of ``parts`` along their first axis, added in `sums` and rounded to `total`.

    A thread loads 16 bytes of each part by one instruction if all parts are aligned to 16 bytes.
    """
    count, size = parts.shape[0], total.size
    width = 16 // parts.itemsize
    begins = parts.data.ptr | size * parts.itemsize | parts.strides[0] | total.data.ptr
    if begins % 16 or not total.flags.c_contiguous:
        width = 1
    stride = parts.strides[0] // parts.itemsize
    first = _flat(parts, (count - 1) * stride + size)
    _adder(sums, width)(first, count, stride, 0, total, size=size // width)


def _flat(parts: Any, size: int) -> Any:
    """Return the memory of parts, each of which is C-contiguous, as one array."""
    from cupy import ndarray

    return ndarray((size,), parts.dtype, parts.data)


@functools.cache
def _adder(sums: np.dtype[Any], width: int) -> Any:
    """Return the kernel whose threads add `width` adjacent elements of each part."""
    import cupy

    return cupy.ElementwiseKernel(
        f"raw T parts, int64 count, int64 stride, {sums.name} zero",
        "raw R total",
        f"""
        constexpr int width = {width};
        Lanes<decltype(+zero), width> sum;
        for (long long part = 0; part < count; part++) {{
            const T* source = &parts[part * stride] + i * width;
            const auto next = *reinterpret_cast<const Lanes<T, width>*>(source);
            for (int lane = 0; lane < width; lane++) {{
                const auto value = static_cast<decltype(+zero)>(next.lane[lane]);
                sum.lane[lane] = part ? sum.lane[lane] + value : value;
            }}
        }}
        if constexpr (width == 1) {{
            total[i] = static_cast<R>(sum.lane[0]);
        }} else {{
            Lanes<R, width> rounded;
            for (int lane = 0; lane < width; lane++)
                rounded.lane[lane] = static_cast<R>(sum.lane[lane]);
            *reinterpret_cast<Lanes<R, width>*>(&total[0] + i * width) = rounded;
        }}
        """,
        "cupygemm_add_in_order",
        preamble="""
        template <typename Element, int count>
        struct alignas(count * sizeof(Element) < 16 ? count * sizeof(Element) : 16) Lanes {
            Element lane[count];
        };
        """,
    )
