"""Compile a Triton kernel for a CDNA target with no GPU, and launch the code object.

    kernel = compile_kernel(kernels.softmax, "gfx942", (x, y, 700), {"block": 1024}, num_warps=8)
    kernel(grid, x, y, 700, order="reverse")

An array goes to device memory and comes back in place. Triton's kernels take two pointers more than
they declare (scratch memory, which none of these uses) and say how much dynamic LDS they need.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from cupygemm._build.cache import cache_dir
from cupygemm.emulator.code_object import load
from cupygemm.emulator.device import Memory
from cupygemm.emulator.run import LaunchStats, launch
from cupygemm.emulator.targets import TARGETS

os.environ.setdefault("TRITON_CACHE_DIR", str(cache_dir() / "triton"))
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # unset, Triton 3.9 warns

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TYPES = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp32": np.float32,
    "fp64": np.float64,
    "i8": np.int8,
    "i32": np.int32,
    "fp8e4b8": ml_dtypes.float8_e4m3fnuz,
    "fp8e5b16": ml_dtypes.float8_e5m2fnuz,
    "fp8e4nv": ml_dtypes.float8_e4m3fn,
    "fp8e5": ml_dtypes.float8_e5m2,
}
_NAMES = {np.dtype(value): name for name, value in TYPES.items()}


class CompiledKernel:
    """A Triton kernel as a code object.

    Attributes
    ----------
    code : bytes
    name : str
    dynamic_lds : int
        Bytes that the launch has to ask for.
    """

    def __init__(self, compiled: Any, target: str) -> None:
        self.code: bytes = compiled.asm["hsaco"]
        self.name: str = compiled.metadata.name
        self.dynamic_lds: int = compiled.metadata.shared
        self.threads = 64 * compiled.metadata.num_warps
        self.target = target

    def __call__(self, grid: Sequence[int], *arguments: Any, **options: Any) -> LaunchStats:
        """Launch on `grid` workgroups; `options` are those of `cupygemm.emulator.run.launch`."""
        memory = Memory()
        kernel = load(self.code, memory, self.target).kernels[self.name]
        values, arrays = [], []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                address = memory.malloc(argument.nbytes)
                view = memory.view(address, argument.nbytes)
                view[:] = np.frombuffer(argument.tobytes(), np.uint8)
                arrays.append((view, argument))
                values.append(struct.pack("<Q", address))
            else:
                values.append(struct.pack("<i" if isinstance(argument, int) else "<f", argument))
        scratch = [bytes(8), bytes(8)]
        stats = launch(
            kernel,
            grid,
            (self.threads, 1, 1),
            self.dynamic_lds,
            values + scratch,
            memory,
            TARGETS[self.target],
            **options,
        )
        for view, array in arrays:
            array[...] = np.frombuffer(view.tobytes(), array.dtype).reshape(array.shape)
        return stats


def compile_kernel(
    function: Any,
    target: str,
    arguments: Sequence[Any],
    constants: Mapping[str, Any],
    **options: Any,
) -> CompiledKernel:
    """Compile a `triton.jit` function for arguments of these types.

    Parameters
    ----------
    function : triton.JITFunction
    target : str
    arguments : sequence of array, int or float
        What stands before the constants.
    constants : mapping
        Values of the constexpr parameters.
    **options
        Of Triton's AMD backend: ``num_warps``, ``num_stages``, ``matrix_instr_nonkdim`` and so on.
    """
    signature, attributes = {}, {}
    for position, (name, value) in enumerate(zip(function.arg_names, arguments, strict=False)):
        if isinstance(value, np.ndarray):
            signature[name] = "*" + _NAMES[value.dtype]
        else:
            signature[name] = "i32" if isinstance(value, int) else "fp32"
        if isinstance(value, np.ndarray) or (isinstance(value, int) and value % 16 == 0):
            attributes[position,] = [["tt.divisibility", 16]]
    signature |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(function, signature, constexprs=dict(constants), attrs=attributes)
    compiled = triton.compile(source, target=GPUTarget("hip", target, 64), options=options)
    return CompiledKernel(compiled, target)
