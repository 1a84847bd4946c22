"""Host: the time of a warm call on Hopper, by its launches: copies, products, sums of parts.

On a GPU the launches are real, and CuPy's product is timed too. Elsewhere they return immediately:
CuPy's arrays, pool and streams are those of the emulated device, plans are made for an H200, and no
kernel is compiled. The emulated runtime is in Python, which adds some microseconds to each call, so
only figures of one process can be compared.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
CASES: dict[str, tuple[tuple[int, int, int], Any, dict[str, Any]]] = {
    "aligned": ((512, 512, 512), BF16, {}),
    "padded": ((511, 513, 515), BF16, {}),
    "one padded": ((512, 513, 512), BF16, {}),
    "transposed": ((512, 512, 512), "int8", {"dtype": "int32"}),
    "tf32 parts": ((2048, 2048, 2048), "float32", {"precision": "tf32x3"}),
    "k split": ((64, 64, 16384), BF16, {}),
    "padded, k split": ((63, 65, 16383), BF16, {}),
    "padded, alpha": ((511, 513, 515), BF16, {"alpha": 2.0}),
}


_patches = contextlib.ExitStack()  # of the process; `start` runs once


class _Answered:
    """A kernel that does nothing."""

    ptr = 1

    @property
    def kernel(self) -> _Answered:
        return self


_DRIVER = SimpleNamespace(
    cuLaunchKernelEx=lambda *_: 0,
    cuTensorMapEncodeTiled=lambda *_: 0,
    cuFuncSetAttribute=lambda *_: 0,
)
"""What stands for the CUDA driver: it answers at once."""


@functools.cache
def start() -> Any:
    """Start the GPU or its substitute, and return CuPy."""
    from cupygemm._commands.detect import DEFAULT_TARGET, best_device

    if best_device().kind == "cuda":
        import cupy

        return cupy
    import cupygemm.emulator

    if cupygemm.emulator.is_enabled():
        raise NotImplementedError("the device of this process is the emulated one")
    cupygemm.emulator.enable(DEFAULT_TARGET)
    import cupy

    from cupygemm._backends import registry
    from cupygemm._backends.hopper import plan, product
    from cupygemm._backends.hopper.backend import HopperBackend
    from cupygemm._backends.hopper.compilation.compile import Cubin
    from cupygemm._backends.hopper.config import HopperArch
    from cupygemm._backends.hopper.cuda import driver
    from cupygemm._backends.hopper.operands import copies

    cupy.cuda.set_allocator(cupy.cuda.MemoryPool().malloc)  # without the emulator's guards
    _patches.enter_context(registry.registered(lambda _: HopperBackend(HopperArch())))
    for module in (plan, product, copies):
        module.compile_cubin = lambda _, name: Cubin(name, Path(), "none")
    for module in (product, copies):
        module.load = lambda _: _Answered()
    driver.library = lambda: _DRIVER
    return cupy


def call_of(cp: Any, module: Any, case: str) -> Callable[[], Any]:
    """Return the call of a module's `matmul`."""
    (m, n, k), dtype, options = CASES[case]
    a, b = cp.ndarray((m, k), dtype), cp.ndarray((k, n), dtype)
    if module is cp:
        options = {}
    return lambda: module.matmul(a, b, **options)


class HostWarmHopperCall:
    """Host time in seconds of a repeated call."""

    version = "1"
    params: ClassVar[tuple[tuple[str, ...], ...]] = (tuple(CASES), ("cupygemm", "cupy"))
    param_names = ("call", "of")
    number = 100
    repeat = (3, 10, 5.0)

    def setup(self, case: str, of: str) -> None:
        import cupygemm
        import cupygemm.emulator

        cp = start()
        if of == "cupy" and cupygemm.emulator.is_enabled():
            raise NotImplementedError(
                "without a GPU, CuPy's products are computed on the emulated device"
            )
        self.call = call_of(cp, cupygemm if of == "cupygemm" else cp, case)
        for _ in range(3):
            self.call()
        cp.cuda.Device().synchronize()

    def time_call(self, case: str, of: str) -> None:
        self.call()

    time_call.pretty_name = "Host: warm call on Hopper"
