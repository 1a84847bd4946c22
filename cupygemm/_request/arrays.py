"""The arrays that functions accept: CuPy arrays, and device memory of other libraries.

An object with ``__dlpack__`` or ``__cuda_array_interface__`` whose memory is on the device becomes
a CuPy array of that memory, without a copy. Arrays in host memory are refused with a message that
names the remedy, since nothing is moved silently.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from cupygemm._request.layout import Operand

Array = Any
DLPACK_GPU = (2, 10, 13)  # kDLCUDA, kDLROCM, kDLCUDAManaged of dlpack.h
ARRAY_TYPES: set[type] = set()
"""The types of CuPy arrays seen in calls so far: `cupy.ndarray` and its subclasses."""
SCALARS = (bool, int, float, complex, np.number, np.bool_)


def as_array(function: str, name: str, array: Any) -> Array:
    """Return a CuPy array of the memory of an argument.

    Raises
    ------
    TypeError
        The argument is not an array on a device.
    ValueError
        The argument is named ``out``, and its memory is read-only.
    """
    if type(array) in ARRAY_TYPES:
        return array
    if name == "out":
        _check_writable(function, array)
    loaded = sys.modules.get("cupy")  # a caller that has a CuPy array has imported CuPy
    if loaded is not None and isinstance(array, loaded.ndarray):
        if hasattr(type(array), "index_map"):  # a distributed array's memory is that of its chunks
            raise TypeError(
                f"{function}: {name} is a cupyx.distributed.array.DistributedArray, which only "
                "matmul takes, as both operands"
            )
        ARRAY_TYPES.add(type(array))
        return array
    place = dlpack_device(array)
    on_gpu = place is not None and place[0] in DLPACK_GPU
    if on_gpu or (place is None and hasattr(array, "__cuda_array_interface__")):
        import cupy

        return cupy.asarray(array) if place is None else cupy.from_dlpack(array)
    if name == "out":
        what = "pass a CuPy array to write to"
    elif hasattr(array, "__dask_graph__"):
        what = "Dask arrays can only be operands of matmul, tensordot and einsum; compute it first"
    elif hasattr(array, "toarray"):
        what = f"make it dense first: cupy.asarray({name}.toarray())"
    elif array is None or isinstance(array, (str, type, Mapping)) or callable(array):
        what = "pass a CuPy array"
    else:
        what = f"move it to the device first: cupy.asarray({'...' if ' ' in name else name})"
    where = "" if place is None or isinstance(array, np.ndarray) else " in the memory of the host"
    raise TypeError(f"{function}: {name} is {type_of(array)}{where}, not a cupy.ndarray; {what}")


def type_of(value: Any) -> str:
    """Return the type of a value with an article, for a message: ``"an int"``."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return f"{'an' if kind[0] in 'aeio' else 'a'} {kind}"


def _check_writable(function: str, out: Any) -> None:
    """Raise ValueError if the interface of ``out`` says that its memory is read-only."""
    interface = getattr(out, "__cuda_array_interface__", None)
    if interface is not None and interface["data"][1]:
        raise ValueError(
            f"{function}: out is a read-only {type(out).__qualname__}, by the flag in its "
            "__cuda_array_interface__; pass an array that can be written to"
        )


def as_arrays(function: str, **arrays: Any) -> list[Array]:
    """Return CuPy arrays of the memory of arguments, given by name, all on one device.

    Only ``out``, which comes last, may be None, and stays None.

    Raises
    ------
    TypeError
        One of them is not an array on a device.
    ValueError
        They are on different devices.
    """
    lacks_out = "out" in arrays and arrays["out"] is None
    if lacks_out:
        del arrays["out"]
    found = [as_array(function, name, array) for name, array in arrays.items()]
    index = found[0].data.device_id
    for array in found:
        if array.data.device_id != index:
            one_device(function, dict(zip(arrays, found, strict=True)))
    if lacks_out:
        found.append(None)
    return found


def one_device(function: str, arrays: dict[str, Array]) -> None:
    """Raise ValueError unless arrays are on one device."""
    indices = {name: array.data.device_id for name, array in arrays.items()}
    if len(set(indices.values())) > 1:
        places = ", ".join(f"{name} on device {index}" for name, index in indices.items())
        raise ValueError(f"{function}: the arrays must be on one device: {places}")


def single_out(function: str, out: Any) -> Any:
    """Return ``out``, or the entry of a tuple of one, which NumPy's ufuncs accept too."""
    if not isinstance(out, tuple):
        return out
    if len(out) != 1:
        raise ValueError(
            f"{function}: out is a tuple of {len(out)}; it must have exactly one entry"
        )
    return out[0]


def is_scalar(value: Any) -> bool:
    """Whether a value is a Python or NumPy number, which needs no device memory."""
    return isinstance(value, SCALARS)


def may_overlap(first: Array, second: Array) -> bool:
    """Return whether the memory ranges of two arrays, from first to last byte, overlap."""
    ranges = []
    for array in (first, second):
        start, end = Operand(array.shape, array.strides, array.dtype).extent()
        ranges.append((array.data.ptr + start, array.data.ptr + end))
    (start1, end1), (start2, end2) = ranges
    return bool(start1 < end2 and start2 < end1)


def dlpack_device(array: Any) -> tuple[int, int] | None:
    """Return the kind and the index of the device of an object with ``__dlpack__``, or None."""
    try:
        kind, index = array.__dlpack_device__()
    except (AttributeError, TypeError, ValueError):
        return None
    return int(kind), int(index)
