"""Add the reason of a failed call to the exception that CuPy raises for its status."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from cupygemm.emulator.host_libraries.library import HostLibrary

ERRORS = {
    "cupy_backends.cuda.libs.cublas": ("CUBLASError", ("hipblas",)),
    "cupy_backends.cuda.libs.curand": ("CURANDError", ("hiprand",)),
    "cupy_backends.cuda.libs.cusolver": ("CUSOLVERError", ("rocsolver", "rocblas")),
    "cupy_backends.cuda.libs.cusparse": ("CuSparseError", ("hipsparse",)),
    "cupy_backends.cuda.libs.nccl": ("NcclError", ("nccl",)),
    "cupy.cuda.cufft": ("CuFFTError", ("hipfft",)),
}
"""CuPy's modules, their exceptions, and the libraries whose statuses those are made from."""


def explain_errors(module: ModuleType, libraries: dict[str, HostLibrary]) -> None:
    """Make the exceptions of one of CuPy's modules quote the reason.

    Parameters
    ----------
    module : module
        One of `ERRORS`, loaded.
    libraries : dict of str to HostLibrary
        By stem.
    """
    name, stems = ERRORS[module.__name__]
    error: Any = getattr(module, name)
    construct: Callable[..., None] = error.__init__

    def init(self: Any, status: int) -> None:
        try:
            construct(self, status)
        except KeyError:  # CuPy's table lacks the status
            RuntimeError.__init__(self, f"status {status}")
        for stem in stems:
            message = libraries[stem].take_message(status) if stem in libraries else ""
            if message:
                self.args = (f"{self.args[0]}: {message}",)

    error.__init__ = init
