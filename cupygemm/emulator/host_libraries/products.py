"""Matrix products of the libraries: this package's kernels on the emulated device, or the host.

`cupygemm.gemm` computes a product if it has a kernel for it. Otherwise it passes the product to
CuPy, which calls the library again, and NumPy computes it.
"""

from __future__ import annotations

import importlib
import threading
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.host_libraries.blas_handle import NONE, applied
from cupygemm.emulator.host_libraries.library import Call
from cupygemm.emulator.host_libraries.memory import Operands

DATA_TYPES: dict[int, np.dtype[Any]] = {
    0: np.dtype("f4"),
    1: np.dtype("f8"),
    2: np.dtype("f2"),
    3: np.dtype("i1"),
    4: np.dtype("c8"),
    5: np.dtype("c16"),
    8: np.dtype("u1"),
    10: np.dtype("i4"),
    12: np.dtype("u4"),
    14: np.dtype(ml_dtypes.bfloat16),
}
"""hipDataType; complex types of halves and integers are not computed with."""

_running = threading.local()


@dataclass(frozen=True)
class Stack:
    """Column-major matrices in device memory.

    Attributes
    ----------
    argument : str
        The operand's name.
    address : int
    shape : tuple of int
        (batch, rows, columns), before the operation.
    ld, stride : int
        Distances between columns and between matrices, in elements.
    dtype : numpy.dtype
    operation : int
        A value of hipblasOperation_t.
    """

    argument: str
    address: int
    shape: tuple[int, int, int]
    ld: int
    stride: int
    dtype: np.dtype[Any]
    operation: int = NONE

    @property
    def strides(self) -> tuple[int, int, int]:
        """Strides of the axes of `shape`, in elements."""
        return self.stride, 1, self.ld

    def on(self, operands: Operands, access: str) -> NDArray[Any]:
        """Return the checked view for an access, "read" or "write"."""
        how = getattr(operands, access)
        view: NDArray[Any] = how(self.argument, self.address, self.shape, self.dtype, self.strides)
        return view

    def on_device(self, cupy: Any) -> Any:
        """Return the operand as a CuPy array."""
        size = self.dtype.itemsize
        span = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)) + 1
        device = cupy.cuda.runtime.getDevice()
        memory = cupy.cuda.UnownedMemory(self.address, span * size, self, device)
        pointer = cupy.cuda.MemoryPointer(memory, 0)
        strides = tuple(step * size for step in self.strides)
        return cupy.ndarray(self.shape, self.dtype, pointer, strides)


def product(
    call: Call, alpha: Any, a: Stack, b: Stack, beta: Any, c: Stack, accumulate: np.dtype[Any]
) -> None:
    """Compute ``c = alpha op(a) op(b) + beta c``; with a `beta` of 0, `c` is not read.

    Parameters
    ----------
    call : Call
    alpha : number
    a, b : Stack
    beta : number
    c : Stack
    accumulate : numpy.dtype
        The type of the sums, which the host uses.
    """
    if 0 in c.shape:
        return
    call.refuse_capture()
    inner = a.shape[2 if a.operation == NONE else 1]
    if alpha != 0 and inner != 0 and _has_kernel(a, b, c):
        # The kernel also checks its accesses; this check's report names the library's argument.
        checked = Operands(call.function, call.memory)
        if call.order is None or call.order.deferral.is_idle:  # the operands are computed
            for operand in (a, b) if beta == 0 else (a, b, c):
                operand.on(checked, "read")
        _on_device(alpha, a, b, beta, c)
        return
    result = np.zeros(c.shape, accumulate)
    if alpha != 0 and inner != 0:
        left = applied(a.on(call, "read"), a.operation).astype(accumulate)
        right = applied(b.on(call, "read"), b.operation).astype(accumulate)
        result += alpha * (left @ right)
    if beta != 0:
        result += beta * c.on(call, "read").astype(accumulate)
    c.on(call, "write")[...] = result.astype(c.dtype)


def _has_kernel(a: Stack, b: Stack, c: Stack) -> bool:
    """Tell whether to try the package's kernels: only once, and not for mixed types."""
    same = a.dtype == b.dtype and c.dtype in {a.dtype, np.dtype("f4")}
    return same and a.dtype.kind != "i" and not getattr(_running, "depth", 0)


def _on_device(alpha: Any, a: Stack, b: Stack, beta: Any, c: Stack) -> None:
    # The emulator's only import from a higher layer: the package's kernels serve the BLAS library.
    cupy, cupygemm = importlib.import_module("cupy"), importlib.import_module("cupygemm")
    letters = {111: "N", 112: "T", 113: "C"}
    out = c.on_device(cupy)
    _running.depth = 1
    try:
        cupygemm.gemm(
            alpha,
            b.on_device(cupy).swapaxes(1, 2),
            a.on_device(cupy).swapaxes(1, 2),
            beta,
            None if beta == 0 else out.swapaxes(1, 2),
            letters[b.operation],
            letters[a.operation],
            out=out.swapaxes(1, 2),
            dtype=c.dtype,
        )
    finally:
        _running.depth = 0
