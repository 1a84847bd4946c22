"""The matrix product on CuPy arrays: MFMA kernels for AMD CDNA, and an emulated device for them.

Importing this package touches no GPU and does not import CuPy. With ``CUPYGEMM_EMULATE`` set in
the environment to ``gfx90a``, ``gfx942`` or ``gfx950``, it enables the emulated device of that
name, so it must then be imported before CuPy.
"""

from __future__ import annotations

import os

from cupygemm import linalg
from cupygemm._explain import Explanation
from cupygemm._linalg.accelerate import accelerate
from cupygemm._linalg.blas import gemm, linear, scaled_matmul, syrk
from cupygemm._linalg.einsum import einsum, einsum_path
from cupygemm._linalg.grouped import grouped_matmul
from cupygemm._linalg.gufuncs import matvec, vecdot, vecmat
from cupygemm._linalg.products import dot, inner, outer, tensordot, vdot
from cupygemm._matmul import explain, matmul
from cupygemm._tune import Tuned, tune
from cupygemm._version import __version__
from cupygemm._warmup import warmup

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
