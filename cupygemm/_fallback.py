"""Products that have no kernel of ours: `cupy.matmul`, in types in which it is right.

`cupy.matmul` rounds the product of 16-bit operands to 16 bits whatever the output, cannot multiply
stacks of bfloat16, and under HIP aborts the process on bfloat16 matrices. Those operands are
converted to float32, which holds them exactly, and the product is rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cupygemm._device import Device
from cupygemm._pose import Posed
from cupygemm._promotion import BF16, F32, KERNEL_OPERANDS


def multiply(posed: Posed, device: Device, x1: Any, x2: Any, out: Any) -> Any:
    """Return the product by `cupy.matmul`, in ``out`` where it is given.

    Raises
    ------
    TypeError
        CuPy cannot multiply these types on this device either.
    """
    import cupy

    dtype, types = _multiplied_as(posed, device), posed.types
    try:
        product = cupy.matmul(x1.astype(dtype, copy=False), x2.astype(dtype, copy=False))
    except (ImportError, NotImplementedError, TypeError) as err:
        raise TypeError(_refusal(posed, device, str(err))) from err
    product = product.astype(types.stored, copy=False)
    if out is None:
        return product
    out[...] = product
    return out


def require(posed: Posed, device: Device) -> None:
    """Raise TypeError where it is known beforehand that CuPy cannot multiply these types."""
    if _multiplied_as(posed, device).kind not in "fc" or not device.is_hip:
        return
    try:
        from cupy_backends.cuda.libs import cublas  # noqa: F401
    except ImportError as err:
        raise TypeError(_refusal(posed, device, f"hipBLAS is missing ({err})")) from err


def account(posed: Posed, device: Device) -> tuple[str, tuple[str, ...]]:
    """Return why a call has no kernel of ours, and the copies that it takes."""
    dtype = _multiplied_as(posed, device)
    notes = []
    if dtype != posed.types.operand:
        notes.append(f"the operands are converted to {dtype}, in which cupy.matmul is right")
    if dtype != posed.types.result:
        notes.append(f"the product is converted from {dtype} to {posed.types.result}")
    return _why(posed, device), tuple(notes)


def _multiplied_as(posed: Posed, device: Device) -> np.dtype[Any]:
    """Return the dtype in which `cupy.matmul` is asked for the product."""
    types = posed.types
    if types.operand not in KERNEL_OPERANDS:
        return types.operand
    if types.stored != types.operand:
        return F32
    stacked = len(posed.shape.batch) > 0
    return F32 if types.operand == BF16 and (device.is_hip or stacked) else types.operand


def _why(posed: Posed, device: Device) -> str:
    if device.arch is None:
        return f"no kernel of cupygemm runs on {device.name} yet"
    types = posed.types
    return f"cupygemm has no kernel yet for {types.operand} operands and a {types.stored} product"


def _refusal(posed: Posed, device: Device, detail: str) -> str:
    remedy = (
        "convert the operands to bfloat16 or float16"
        if device.arch is not None
        else "convert the operands to float32"
    )
    return (
        f"matmul: {_why(posed, device)}, and cupy.matmul cannot multiply "
        f"{_multiplied_as(posed, device)} on {device.name}: {detail}; {remedy}"
    )
