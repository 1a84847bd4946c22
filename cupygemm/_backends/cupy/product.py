"""Products that have no kernel of ours: `cupy.matmul`, in types in which it is right.

`cupy.matmul` rounds the product of 16-bit operands to 16 bits whatever the output, cannot multiply
stacks of bfloat16, and under HIP aborts the process on bfloat16 matrices. Those operands are
converted to float32, which holds them exactly, and the product is rounded once: also that of
float32 to an 8-bit float, where the device multiplies those. cuBLAS by default adds parts of a long
sum of 16-bit products in 16 bits; here it is told not to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm import emulator
from cupygemm._backends.device import Device
from cupygemm._epilogue.float8 import rounded_to_float8
from cupygemm._records.formats import FLOAT8, FLOAT8_DTYPES, as_stored
from cupygemm._request.promotion import BF16, F32, HALVES, I8
from cupygemm._request.request import Posed

CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16  # cublasMath_t, cuBLAS's manual


@dataclass(frozen=True)
class Fallback:
    """One product by `cupy.matmul`.

    Attributes
    ----------
    posed : Posed
    device : Device
    why : str
        Why no kernel of this library computes it.
    """

    posed: Posed
    device: Device
    why: str

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype in which `cupy.matmul` is asked for the product."""
        types = self.posed.types
        if types.operand == I8:  # its sums may be asked for
            return types.stored
        if types.operand not in HALVES:
            return types.operand
        if types.stored != types.operand:
            return F32
        fails = types.operand == BF16 and (self.device.is_hip or self.posed.shape.batch)
        return F32 if fails else types.operand

    @property
    def copies(self) -> tuple[str, ...]:
        """Return the conversions that are made, as sentences."""
        types, notes = self.posed.types, []
        if self.dtype != types.operand:
            notes.append(
                f"the operands are converted to {self.dtype}, in which cupy.matmul is right"
            )
        if self.dtype != types.result:
            notes.append(f"the product is converted from {self.dtype} to {types.result}")
        return tuple(notes)

    def require(self) -> None:
        """Raise TypeError where CuPy cannot multiply: it lacks the type, or its BLAS library."""
        types = self.posed.types
        formats = {FLOAT8[name] for name in self.device.formats}
        if FLOAT8_DTYPES & {types.x1, types.x2, *({types.stored} - formats)}:
            raise TypeError(f"matmul: {self.why}; {_formats_of(self.device)}")
        if emulator.is_enabled() and self.dtype.kind not in "biu":  # CuPy has a kernel for those
            raise TypeError(self._refusal("the emulated device has no BLAS library"))
        try:
            from cupy_backends.cuda.libs import cublas  # noqa: F401
        except ImportError as err:
            raise TypeError(self._refusal(f"it lacks its BLAS library ({err})")) from err

    def __call__(self, x1: Any, x2: Any, out: Any) -> Any:
        """Return the product, in ``out`` where it is given.

        Raises
        ------
        TypeError
            CuPy cannot multiply these types on this device either.
        """
        import cupy

        types = self.posed.types
        try:
            x1, x2 = (x.astype(self.dtype, copy=False) for x in (x1, x2))
            with _sums_in_float32(self.device):
                product = cupy.matmul(x1, x2)
        except (ImportError, NotImplementedError, TypeError) as err:
            raise TypeError(self._refusal(str(err))) from err
        if types.stored in FLOAT8_DTYPES:
            product = rounded_to_float8(product, types.stored)
        else:
            product = product.astype(types.stored, copy=False)
        if out is None:
            return product
        as_stored(out)[...] = product
        return out

    def _refusal(self, detail: str) -> str:
        remedy = "float32, or to float64" if self.device.arch is not None else "float32"
        return (
            f"matmul: {self.why}, and cupy.matmul cannot multiply {self.dtype} on "
            f"{self.device.name}: {detail}; convert the operands to {remedy}, or multiply "
            "on another device"
        )


@contextlib.contextmanager
def _sums_in_float32(device: Device) -> Iterator[None]:
    """Keep cuBLAS from rounding partial sums to 16 bits; the handle is this thread's own."""
    if device.is_hip:
        yield
        return
    from cupy.cuda.device import get_cublas_handle
    from cupy_backends.cuda.libs import cublas

    handle = get_cublas_handle()
    mode = cublas.getMathMode(handle)
    cublas.setMathMode(handle, mode | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)
    try:
        yield
    finally:
        cublas.setMathMode(handle, mode)


def why_no_kernel(posed: Posed, device: Device) -> str:
    """Return why the types or the device of a call have no kernel of ours."""
    if device.arch is None:
        return f"no kernel of cupygemm runs on {device.name} yet"
    types = posed.types
    operands = f"{types.x1} operands" if types.x1 == types.x2 else f"{types.x1} and {types.x2}"
    return f"cupygemm has no kernel yet for {operands} and a {types.stored} product"


def _formats_of(device: Device) -> str:
    """Return which 8-bit floats a device has, and how to convert others, for people."""
    if not device.formats:
        return (
            f"{device.name} has no 8-bit floats: convert the operands to float16 on the host, e.g. "
            "cupy.asarray(x.get().view(ml_dtypes.float8_e4m3fn).astype('float16'))"
        )
    known = " and ".join(f"float8_{name}" for name in device.formats)
    name = device.formats[0]
    return (
        f"the 8-bit floats of {device.name} are {known}: convert others to them on the host, e.g. "
        f"cupy.asarray(x.get().view(ml_dtypes.float8_e5m2).astype(ml_dtypes.float8_{name})"
        ".view('uint8'))"
    )
