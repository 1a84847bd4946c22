"""``tools/hip_library.py`` builds HIP programs whose host part runs, too."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.conftest import ROOT

SOURCE = r"""
#include <hip/hip_runtime.h>

template <int factor> __global__ void scale(int *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] *= factor;
}

extern "C" int scaled(int *x, int n) {
    int *copy;
    if (hipMalloc(&copy, n * sizeof(int)) || hipMemcpy(copy, x, n * 4, hipMemcpyDeviceToDevice))
        return 1;
    scale<FACTOR><<<(n + 63) / 64, 64>>>(copy, n);
    if (hipMemcpy(x, copy, n * 4, hipMemcpyDeviceToDevice) || hipFree(copy))
        return 2;
    return hipDeviceSynchronize();
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="libraries are for x86-64")
@pytest.mark.sweep  # it runs a compiler of the host
def test_a_library_launches_its_kernels(cp: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "scale.hip").write_text(SOURCE)
    target = cp.cuda.runtime.getDeviceProperties(0)["gcnArchName"].decode().partition(":")[0]
    command = [sys.executable, ROOT / "tools" / "hip_library.py", tmp_path / "scale.hip"]
    command += ["-o", tmp_path / "scale.so", "--target", target, "--option=-DFACTOR=3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    library = ctypes.CDLL(str(tmp_path / "scale.so"))
    x = cp.arange(100, dtype="i4")
    assert library.scaled(ctypes.c_void_p(x.data.ptr), 100) == 0
    np.testing.assert_array_equal(x.get(), 3 * np.arange(100))
