"""Matrix products on CuPy arrays, with kernels for AMD CDNA and NVIDIA Hopper GPUs.

`matmul` multiplies arrays as `numpy.matmul` does, in types from 4-bit floats to complex128. It can
fuse scales, a bias, an activation and an addend into the product. Other functions offer the rest of
NumPy's products (`dot`, `einsum`, `tensordot`, ...; see also `cupygemm.linalg`), those of BLAS
(`gemm`, `syrk`) and those of neural networks (`linear`, `grouped_matmul`, `scaled_matmul`).
`explain` describes how a product is computed, and `tune` measures which kernel is fastest. Inside
``with accelerate():``, CuPy's own products and solvers are computed by this library.

cuBLASLt and `cupy.matmul` compute the products of other GPUs, and those of types without a kernel.
The table of types in the documentation lists what each device supports.

No GPU is needed to try the library. On the emulated CDNA device, CuPy programs run on the CPU,
which executes the machine code of their kernels. To enable it, call `cupygemm.emulator.enable`, or
set the environment variable ``CUPYGEMM_EMULATE`` to the name of a target, as in
`cupygemm.emulator.targets`, before Python starts.

Importing this package uses no GPU and does not import CuPy.

Examples
--------
>>> import cupygemm, cupy as cp
>>> a = cp.ones((2, 3), "float32")
>>> cupygemm.matmul(a, a.T)
array([[3., 3.],
       [3., 3.]], dtype=float32)
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import TYPE_CHECKING

from cupygemm._plan.explanation import Explanation
from cupygemm._products.accelerate import accelerate
from cupygemm._products.accelerate import register as register_functions
from cupygemm._products.blas import gemm, linear, syrk
from cupygemm._products.einsum import einsum, einsum_path
from cupygemm._products.grouped import grouped_matmul
from cupygemm._products.gufuncs import matvec, vecdot, vecmat
from cupygemm._products.matmul import explain, matmul
from cupygemm._products.products import dot, inner, outer, tensordot, vdot
from cupygemm._products.scaled import scaled_matmul
from cupygemm._request.containers import register as register_containers
from cupygemm._tuning.tune import Tuned, tune
from cupygemm._tuning.warmup import warmup
from cupygemm._version import __version__
from cupygemm_startup import missing_runtime

if TYPE_CHECKING:
    from cupygemm import distributed as distributed
    from cupygemm import emulator as emulator
    from cupygemm import linalg as linalg
    from cupygemm import testing as testing

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

register_containers("dask", "cupygemm._distributed.dask_products")
register_containers("cupyx", "cupygemm._distributed.device_arrays", "index_map")
register_functions("cupygemm._solvers.replacements")


_MODULES = ("distributed", "emulator", "linalg", "testing")


def __getattr__(name: str) -> ModuleType:
    """Import a public module when it is first used; most programs use few of them."""
    if name in _MODULES:
        return importlib.import_module(f"cupygemm.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})


if os.environ.get("CUPYGEMM_EMULATE"):
    from cupygemm import emulator

    emulator.enable(os.environ["CUPYGEMM_EMULATE"])
else:
    missing_runtime.install()
