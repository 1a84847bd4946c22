"""Arrays that share memory are reported as arguments of kernels that declare them __restrict__."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cupygemm.emulator.errors import KernelWarning

KERNEL = """
#define I threadIdx.x
extern "C" __global__ void k(const float* RX x, float* RY y, int n) {
    BODY
}
"""
RESTRICT = "__restrict__"
LATER = "y[I] = x[I] * 2; y[I] += x[I];"
SERIAL = "if (I == 0) for (int i = 0; i < n; i++) y[i] = x[i] + 1;"


def found(cp: ModuleType, body: str, x: Any, y: Any, rx: str = RESTRICT, ry: str = RESTRICT) -> str:
    """Launch a kernel on 64 elements; return the check's reports."""
    source = KERNEL.replace("RX", rx).replace("RY", ry).replace("BODY", body)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", KernelWarning)
        cp.RawKernel(source, "k")((1,), (64,), (x, y, np.int32(64)))
    found = [each for each in seen if "restricted_arguments" in str(each.message)]
    assert [each.filename for each in found] in ([], [__file__])
    return "".join(str(each.message) for each in found)


@pytest.mark.parametrize(("rx", "ry"), [(RESTRICT, RESTRICT), (RESTRICT, ""), ("", RESTRICT)])
def test_a_read_behind_a_write_is_named(emulated_cp: ModuleType, rx: str, ry: str) -> None:
    x = emulated_cp.arange(64, dtype=np.float32)
    text = found(emulated_cp, LATER, x, x, rx, ry)
    assert "argument 0 (x) and argument 1 (y) are one array" in text
    assert f"0x{x.data.ptr:x} is read through x, by" in text
    assert "and written through y, by" in text
    assert "pass a copy, x.copy(), or drop __restrict__" in text


def test_arrays_that_overlap_are_named(emulated_cp: ModuleType) -> None:
    x = emulated_cp.arange(65, dtype=np.float32)
    text = found(emulated_cp, SERIAL, x[:64], x[1:])
    assert "overlap: the second begins 4 bytes after the first" in text


@pytest.mark.parametrize(
    ("body", "rx", "ry"),
    [
        ("y[I] = x[I] * 2;", RESTRICT, RESTRICT),  # each element is read before it is written
        ("float v = x[I]; v = v * v; y[I] = v + 1;", RESTRICT, RESTRICT),
        (LATER, "", ""),
        ("y[I] += n; if (n < 0) y[I] += x[I];", RESTRICT, RESTRICT),  # x is not read
        ("if (I < 32) y[I] = 1; else if (x[I] < 0) y[0] = x[I];", RESTRICT, RESTRICT),
    ],
)
def test_one_array_that_is_no_finding(emulated_cp: ModuleType, body: str, rx: str, ry: str) -> None:
    x = emulated_cp.arange(64, dtype=np.float32)
    assert found(emulated_cp, body, x, x, rx, ry) == ""


def test_other_arrays_are_no_finding(emulated_cp: ModuleType) -> None:
    x = emulated_cp.arange(256, dtype=np.float32)
    assert found(emulated_cp, LATER, x, x.copy()) == ""
    assert found(emulated_cp, LATER, x[:64], x[64:128]) == ""
    assert found(emulated_cp, "y[2 * I] = x[2 * I]; y[2 * I] += x[2 * I];", x[:128], x[1:129]) == ""


def test_read_only_arguments_are_no_finding(emulated_cp: ModuleType) -> None:
    x = emulated_cp.arange(64, dtype=np.float32)
    assert found(emulated_cp, "if (x[I] + y[I] < 0) y[I] = 1;", x, x) == ""
