"""The contenders of `benchmarks.compare`: this library, CuPy, and torch where it is installed.

Operands are uniform random in [-0.5, 0.5), because the clock of a power-bound GPU depends on the
data; integers are uniform over their range. Both operands are row-major. For products of bytes, x2
is column-major, since torch accepts nothing else; ours are also timed with a row-major x2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
Call = Callable[[], Any]
COLUMN_MAJOR = ", x2 column-major"
ROW_MAJOR = ", x2 row-major"


@dataclass(frozen=True)
class Case:
    """One product."""

    m: int
    n: int
    k: int
    batch: int = 0

    @property
    def name(self) -> str:
        shape = f"{self.m}x{self.n}x{self.k}"
        return f"{self.batch} of {shape}" if self.batch else shape

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k * max(self.batch, 1)

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        stack = (self.batch,) if self.batch else ()
        return (*stack, self.m, self.k), (*stack, self.k, self.n)


_SQUARES = tuple(Case(size, size, size) for size in (512, 1024, 2048, 4096, 8192, 16384))
_LARGE = _SQUARES[2:5]
_HALVES = (
    *_SQUARES,
    Case(16, 8192, 8192),
    Case(64, 8192, 8192),
    Case(128, 8192, 8192),
    Case(4096, 14336, 4096),
    Case(65536, 256, 256),
    Case(256, 256, 65536),
    Case(8192, 8192, 256),
    Case(1000, 1000, 1000),
    Case(1536, 1536, 1536),
    Case(3000, 3000, 3000),
    Case(768, 3072, 768),
    Case(304, 1000, 3000),
    Case(776, 2344, 6064),
    Case(256, 2688, 3584),
    Case(64, 11008, 4096),
    Case(2048, 11008, 4096),
    Case(1023, 1025, 1027),
    Case(2047, 2049, 2051),
    Case(4095, 4097, 4099),
    Case(512, 512, 512, 64),
    Case(1024, 1024, 1024, 16),
)
CASES: dict[str, tuple[Case, ...]] = {
    "bf16": _HALVES,
    "fp16": _HALVES,
    "int8": _SQUARES[3:5],
    "int8-int8": _SQUARES[3:5],
    "fp8": (*_LARGE, Case(4096, 14336, 4096)),
    "fp8-fp8": (*_LARGE, Case(4096, 14336, 4096)),
    "tf32": _LARGE,
    "tf32x3": _LARGE,
    "fp64": _LARGE,
}
"""By type; tf32 and tf32x3 are precisions of fp32. The results of bytes are wider unless named."""


def contenders(case: Case, dtype: str) -> dict[str, Call]:
    """Return the contenders by name, without those that lack the product."""
    kinds = {"bf16": _halves, "fp16": _halves, "int8": _int8, "fp8": _fp8}
    return kinds.get(dtype.partition("-")[0], _floats)(case, dtype)


def _halves(case: Case, dtype: str) -> dict[str, Call]:
    import cupy as cp

    import cupygemm

    a, b = _uniform(case.shapes, BF16 if dtype == "bf16" else np.dtype(np.float16))
    calls: dict[str, Call] = {"cupygemm": lambda: cupygemm.matmul(a, b)}
    if not (case.batch and dtype == "bf16"):  # cupy.matmul raises TypeError
        calls["cupy"] = lambda: cp.matmul(a, b)
    torch = _torch()
    if torch is not None:
        x, y = _torch_uniform(case.shapes, torch.bfloat16 if dtype == "bf16" else torch.float16)
        calls["torch"] = lambda: torch.matmul(x, y)
    return calls


def _floats(case: Case, dtype: str) -> dict[str, Call]:
    """Return the contenders for fp32, in a precision, and fp64."""
    import cupy as cp

    import cupygemm

    numpy_dtype = np.dtype(np.float64 if dtype == "fp64" else np.float32)
    a, b = _uniform(case.shapes, numpy_dtype)
    c = cp.ascontiguousarray(b.T).T
    options = {} if dtype == "fp64" else {"precision": dtype}
    calls: dict[str, Call] = {"cupygemm": lambda: cupygemm.matmul(a, b, **options)}
    if dtype == "tf32":
        calls["cupygemm" + COLUMN_MAJOR] = lambda: cupygemm.matmul(a, c, **options)
    else:
        calls["cupy"] = lambda: cp.matmul(a, b)
    torch = _torch()
    if torch is not None:
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        x, y = _torch_uniform(case.shapes, getattr(torch, numpy_dtype.name))
        calls["torch"] = lambda: torch.matmul(x, y)
        if dtype == "tf32":
            z = y.t().contiguous().t()
            calls["torch" + COLUMN_MAJOR] = lambda: torch.matmul(x, z)
    return calls


def _int8(case: Case, dtype: str) -> dict[str, Call]:
    """Return the contenders for int8 to int32 or int8; CuPy has only int8 results, torch int32."""
    import cupy as cp

    import cupygemm

    a = cp.random.randint(-128, 128, (case.m, case.k)).astype(np.int8)
    b = cp.random.randint(-128, 128, (case.n, case.k)).astype(np.int8).T
    c = cp.ascontiguousarray(b)
    result = np.int8 if dtype == "int8-int8" else np.int32
    calls: dict[str, Call] = {
        "cupygemm": lambda: cupygemm.matmul(a, b, dtype=result),
        "cupygemm" + ROW_MAJOR: lambda: cupygemm.matmul(a, c, dtype=result),
        "cupy": lambda: cp.matmul(a, b),
    }
    torch = _torch()
    if torch is not None:
        x, y = (
            torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda")
            for shape in ((case.m, case.k), (case.n, case.k))
        )
        calls["torch"] = lambda: torch._int_mm(x, y.t())
    return calls


def _fp8(case: Case, dtype: str) -> dict[str, Call]:
    """Return the contenders for e4m3fn to bf16 or e4m3fn; torch by its default, promoted sums."""
    import cupy as cp

    import cupygemm

    shapes = ((case.m, case.k), (case.n, case.k))
    a, b = (
        cp.asarray(x.get().astype(ml_dtypes.float8_e4m3fn).view(np.uint8))
        for x in _uniform(shapes, np.dtype(np.float32))
    )
    b, c = b.T, cp.ascontiguousarray(b.T)
    result = "float8_e4m3fn" if dtype == "fp8-fp8" else BF16
    options = {"dtype": result, "format_a": "e4m3fn", "format_b": "e4m3fn"}
    calls: dict[str, Call] = {
        "cupygemm": lambda: cupygemm.matmul(a, b, **options),
        "cupygemm" + ROW_MAJOR: lambda: cupygemm.matmul(a, c, **options),
    }
    torch = _torch()
    if torch is not None:
        x, y = _torch_uniform(shapes, torch.float8_e4m3fn)
        one = torch.ones((), device="cuda")
        out = torch.float8_e4m3fn if dtype == "fp8-fp8" else torch.bfloat16
        calls["torch"] = lambda: torch._scaled_mm(x, y.t(), one, one, out_dtype=out)
    return calls


def _uniform(shapes: Any, dtype: np.dtype[Any]) -> list[Any]:
    import cupy as cp

    wide = np.float64 if dtype.itemsize == 8 else np.float32
    return [
        cp.random.uniform(-0.5, 0.5, shape, dtype=wide).astype(dtype, copy=False)
        for shape in shapes
    ]


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


def _torch_uniform(shapes: Any, dtype: Any) -> list[Any]:
    import torch

    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return [torch.rand(shape, device="cuda", dtype=wide).sub_(0.5).to(dtype) for shape in shapes]
