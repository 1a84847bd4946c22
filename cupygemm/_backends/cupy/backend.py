"""The fallback backend: `cupy.matmul`, in types for which it is correct.

`cupy.matmul` rounds the product of 16-bit operands to 16 bits regardless of the output, cannot
multiply batches of bfloat16, and under HIP aborts the process on bfloat16 matrices. Such operands
are converted to float32, which holds them exactly, and the product is rounded once. A float32
product may also be rounded to an 8-bit float, if the device multiplies those. By default, cuBLAS
may add partial sums of 16-bit products in 16 bits; this backend disables that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cupygemm._backends.blas import too_large
from cupygemm._backends.no_extras import NoExtras
from cupygemm._backends.protocol import (
    SUPPORTED,
    Backend,
    Candidate,
    Compiled,
    DeviceProperties,
    Runner,
    Support,
)
from cupygemm._epilogue.float8 import rounded_to_float8
from cupygemm._records.dtypes import FLOAT8, FLOAT8_DTYPES
from cupygemm._records.formats import as_stored
from cupygemm._request.copies import in_type
from cupygemm._request.promotion import BF16, F32, HALVES, I8, ProductTypes
from cupygemm._request.request import Request

CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16  # cublasMath_t, cuBLAS's manual
_PARTS = "multiply parts of the operands one after the other"


def create(properties: DeviceProperties, others: Sequence[Backend] = ()) -> CupyBackend:
    """Return the backend of a device, which is used if `others` do not support a request."""
    return CupyBackend(properties, others)


class CupyBackend(NoExtras):
    """Computes products by `cupy.matmul`.

    Parameters
    ----------
    properties : DeviceProperties
    others : sequence of Backend
        The backends with priority; they determine the 8-bit floats that the device multiplies.
    """

    name = "cupy"

    def __init__(self, properties: DeviceProperties, others: Sequence[Backend]) -> None:
        self._device = properties
        self._has_kernels = bool(others)
        self.formats = tuple(name for other in others for name in other.formats)

    def supports(self, request: Request) -> Support:
        """Tell whether CuPy multiplies the types on this device and its library is installed."""
        types = request.types
        if request.epilogue is not None:
            return Support("cupy.matmul has no epilogue")
        known = {FLOAT8[name] for name in self.formats}
        if FLOAT8_DTYPES & {types.x1, types.x2, *({types.stored} - known)}:
            return Support(self._float8_hint(types))
        dtype = self.dtype(request)
        if self._device.is_emulated and dtype.kind not in "biu":  # CuPy has a kernel for these
            return Support(
                self._refusal(
                    dtype, "the BLAS library of the emulated device has only these kernels"
                )
            )
        if dtype.kind not in "biu" and (reason := too_large(request)):
            return Support(self._refusal(dtype, reason, _PARTS))
        try:
            from cupy_backends.cuda.libs import cublas  # noqa: F401
        except ImportError as err:
            return Support(self._refusal(dtype, f"it lacks its BLAS library ({err})"))
        return SUPPORTED

    def candidates(self, request: Request) -> Sequence[Candidate]:
        """Return nothing: the library chooses."""
        return ()

    def compile(self, request: Request, config: Any = None, *, reason: str = "") -> Compiled:
        """Return the description of a product; nothing is compiled."""
        return Compiled(
            computed_by="cupy.matmul", reason=reason, handle=None, notes=self._conversions(request)
        )

    def launch(self, request: Request, compiled: Compiled) -> Runner:
        """Return the runner, which converts operands and results if CuPy would be wrong."""
        import cupy

        types, dtype = request.types, self.dtype(request)

        def run(x1: Any, x2: Any, out: Any) -> Any:
            try:
                x1, x2 = (in_type(x, dtype) for x in (x1, x2))
                with self._sums_in_float32():
                    product = cupy.matmul(x1, x2)
            except (ImportError, NotImplementedError, TypeError) as err:
                raise TypeError(f"matmul: {self._refusal(dtype, str(err))}") from err
            if types.stored in FLOAT8_DTYPES:
                product = rounded_to_float8(product, types.stored)
            else:
                product = product.astype(types.stored, copy=False)
            if out is None:
                return product
            as_stored(out)[...] = product
            return out

        return run

    def dtype(self, request: Request) -> np.dtype[Any]:
        """Return the dtype in which `cupy.matmul` computes the product."""
        types = request.types
        if types.operand == I8:  # the result may be the unrounded sums
            return types.stored
        if types.operand not in HALVES:
            return types.operand
        if types.stored != types.operand:
            return F32
        fails = types.operand == BF16 and (self._device.is_hip or request.shape.batch)
        return F32 if fails else types.operand

    def _conversions(self, request: Request) -> tuple[str, ...]:
        """Return the conversions that are made, as sentences."""
        dtype, types, notes = self.dtype(request), request.types, []
        if dtype != types.operand:
            notes.append(f"the operands are converted to {dtype}, in which cupy.matmul is right")
        if dtype != types.result:
            notes.append(f"the product is converted from {dtype} to {types.result}")
        return tuple(notes)

    def _refusal(self, dtype: np.dtype[Any], detail: str, remedy: str = "") -> str:
        types = ("float32", "float64") if self._has_kernels else ("float32",)
        if dtype.name in types and self._has_kernels:  # kernels exist, but not for these extents
            remedy = _PARTS
        remedy = remedy or f"convert the operands to {', or to '.join(types)}"
        return (
            f"cupy.matmul cannot multiply {dtype} on {self._device.name}: {detail}; {remedy}, or "
            "multiply on another device"
        )

    def _float8_hint(self, types: ProductTypes) -> str:
        """Return a hint: the 8-bit floats of the device, and what to do about others."""
        known = [FLOAT8[name].name for name in self.formats]
        device = self._device.name
        hint = f"{device} has no 8-bit floats"
        if known:
            hint = f"the 8-bit floats of {device} are {' and '.join(known)}"
        operands = [dtype.name for dtype in (types.x1, types.x2) if dtype in FLOAT8_DTYPES]
        if not operands:
            return f"{hint}: pass another dtype"
        foreign = next((name for name in operands if name not in known), None)
        if foreign is None:
            return "cupy.matmul does not multiply 8-bit floats"
        family = foreign.removesuffix("fnuz").removesuffix("fn")
        like = [f"ml_dtypes.{name}).view('uint8')" for name in known if name.startswith(family)]
        target = like[0] if like else "'float16')"
        return (
            f"{hint}: convert {foreign} on the host, e.g. "
            f"cupy.asarray(x.get().view(ml_dtypes.{foreign}).astype({target})"
        )

    @contextlib.contextmanager
    def _sums_in_float32(self) -> Iterator[None]:
        """Forbid cuBLAS from rounding partial sums to 16 bits; each thread has its own handle."""
        if self._device.is_hip:
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
