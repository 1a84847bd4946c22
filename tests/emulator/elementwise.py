"""Run an expression of HIP on the device, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def elementwise(
    cp: ModuleType, code: str, dtype: str, *arrays: Array, includes: str = "", n: int | None = None
) -> Array:
    """Run ``code``, which sets `out` from `a`, `b` and so on, in one thread for each element."""
    return elementwise_each(cp, [code], dtype, *arrays, includes=includes, n=n)[0]


def elementwise_each(
    cp: ModuleType,
    codes: Sequence[str],
    dtype: str,
    *arrays: Array,
    includes: str = "",
    n: int | None = None,
) -> Array:
    """Run several pieces of code like `elementwise`, compiled as one kernel; one row for each."""
    parameters = "".join(
        f", const {_C_NAMES[array.dtype.name]}* {name}_"
        for name, array in zip("abc", arrays)  # noqa: B905
    )
    values = "".join(f"auto {name} = {name}_[i]; " for name, _ in zip("abc", arrays))  # noqa: B905
    each = "".join(
        f"{{ {_C_NAMES[dtype]} out; {code}; out_[{row} * n_ + i] = out; }}\n"
        for row, code in enumerate(codes)
    )
    source = (
        f'{includes}\nextern "C" __global__ void k({_C_NAMES[dtype]}* out_, int n_{parameters}) {{'
        f"int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n_) return; {values}\n{each}}}"
    )
    size = n or arrays[0].size
    out = cp.empty((len(codes), size), dtype)
    # HIP contracts a * b + c by default, also across conversions to a narrower type and back.
    kernel = cp.RawKernel(source, "k", options=("--fmad=false",))
    kernel((-(-size // 64),), (64,), (out, np.int32(size), *map(cp.asarray, arrays)))
    result: Array = out.get()
    return result


_C_NAMES = {
    "float64": "double",
    "float32": "float",
    "float16": "half",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "uint16": "unsigned short",
}
