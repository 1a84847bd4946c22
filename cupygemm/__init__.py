"""Matrix products on CuPy arrays: kernels for AMD CDNA and NVIDIA Hopper, and an emulated device.

Importing this package touches no GPU and does not import CuPy. With ``CUPYGEMM_EMULATE`` set in
the environment to ``gfx90a``, ``gfx942`` or ``gfx950``, it enables the emulated device of that
name, so it must then be imported before CuPy.
"""

from __future__ import annotations

import os

from cupygemm import linalg
from cupygemm._plan.explanation import Explanation
from cupygemm._products.accelerate import accelerate
from cupygemm._products.blas import gemm, linear, scaled_matmul, syrk
from cupygemm._products.einsum import einsum, einsum_path
from cupygemm._products.grouped import grouped_matmul
from cupygemm._products.gufuncs import matvec, vecdot, vecmat
from cupygemm._products.matmul import explain, matmul
from cupygemm._products.products import dot, inner, outer, tensordot, vdot
from cupygemm._tuning.tune import Tuned, tune
from cupygemm._tuning.warmup import warmup
from cupygemm._version import __version__

__all__ = [
    "Explanation",
    "Tuned",
    "__version__",
    "accelerate",
    "dot",
    "einsum",
    "einsum_path",
    "explain",
    "gemm",
    "grouped_matmul",
    "inner",
    "linalg",
    "linear",
    "matmul",
    "matvec",
    "outer",
    "scaled_matmul",
    "syrk",
    "tensordot",
    "tune",
    "vdot",
    "vecdot",
    "vecmat",
    "warmup",
]

if os.environ.get("CUPYGEMM_EMULATE"):
    from cupygemm import emulator

    emulator.enable(os.environ["CUPYGEMM_EMULATE"])
