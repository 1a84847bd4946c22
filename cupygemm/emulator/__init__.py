"""An emulated CDNA device under CuPy's unmodified ROCm build, on a machine with no GPU.

`enable` puts a stand-in ROCm runtime in place before CuPy is imported; after that CuPy works as on
a machine with one AMD GPU. Kernels are executed from their machine code, and an error that a GPU
would pass over silently raises an exception.
"""

from __future__ import annotations

from cupygemm.emulator._session import (
    EmulatorSetupError,
    enable,
    is_enabled,
    last_fault,
    last_launch,
    streams,
    target,
    unwritten,
)
from cupygemm.emulator._standalone import launch
from cupygemm.emulator.diagnostics.checking import checks
from cupygemm.emulator.errors import (
    EmulatorError,
    KernelFault,
    KernelWarning,
    UnsupportedInstruction,
)
from cupygemm.emulator.profiling import profile, profile_loop

__all__ = [
    "EmulatorError",
    "EmulatorSetupError",
    "KernelFault",
    "KernelWarning",
    "UnsupportedInstruction",
    "checks",
    "enable",
    "is_enabled",
    "last_fault",
    "last_launch",
    "launch",
    "profile",
    "profile_loop",
    "streams",
    "target",
    "unwritten",
]
