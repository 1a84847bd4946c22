"""A ``__constant__`` variable that a kernel reads and the host has not filled is reported."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import numpy as np

from cupygemm.emulator.errors import KernelWarning

SOURCE = """
struct Options { int step = 3; };
__constant__ float weights[9];  // __constant__ float other;
__constant__ int count[2] = {}, last = 0;
__constant__ Options options;
extern "C" __global__ void sum(float* y, int n) {
    float all = count[threadIdx.x % 2] + last + options.step;
    for (int i = 0; i < n; i++) all += weights[i];
    y[threadIdx.x] = all;
}
"""


def launched(cp: ModuleType, module: Any, n: int) -> tuple[float, list[str]]:
    """Return the sum, and the warnings of the launch."""
    y = cp.zeros(64, "f4")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", KernelWarning)
        module.get_function("sum")((1,), (64,), (y, np.int32(n)))
    return float(y[0]), [str(each.message) for each in caught]


def test_a_variable_that_is_read_and_was_never_filled(cp: ModuleType) -> None:
    total, found = launched(cp, cp.RawModule(code=SOURCE), 9)
    assert total == 3
    (message,) = found
    assert "weights has no value in the source" in message
    assert "all += weights[i];" in message


def test_variables_that_are_filled_have_a_value_or_are_not_read(cp: ModuleType) -> None:
    module = cp.RawModule(code=f"// filled\n{SOURCE}")
    assert launched(cp, module, 0) == (3, [])
    cp.ndarray(9, "f4", module.get_global("weights"))[:] = 2
    assert launched(cp, module, 9) == (21, [])
