"""`emulator.launch`: a code object's kernel on NumPy arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.runtime.compile import compile_program

SOURCE = """
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
STRUCTS = """
struct view { float* data; unsigned long columns; };
struct globals { view x; char first; view y; float by; };
extern "C" __global__ void scale(const globals g) {
    if (threadIdx.x >= g.first) g.y.data[threadIdx.x] = g.by * g.x.data[threadIdx.x] + g.y.columns;
}
"""
OTHER = 'extern "C" __global__ void nothing() {}'


@pytest.fixture(scope="module", params=["gfx90a", "gfx942", "gfx950"])
def code(request: pytest.FixtureRequest) -> bytes:
    return compile_program(SOURCE, "saxpy", target_name=request.param).code


def test_arrays_come_back(code: bytes) -> None:
    x, y = np.arange(100, dtype="f4"), np.ones(100, "f4")
    stats = emulator.launch(code, 2, 64, [100, 2.0, x, y])
    np.testing.assert_array_equal(y, 1 + 2 * x)
    assert stats.num_waves == 2
    assert stats.profile is None


def test_views_and_read_only_arrays(code: bytes) -> None:
    x = np.arange(200, dtype="f4")[::2]
    x.flags.writeable = False
    y = np.zeros((2, 100), "f4")
    emulator.launch(code, (2, 1), (64,), [np.int32(100), np.float32(1), x, y[1]])
    np.testing.assert_array_equal(y[1], x)
    assert not y[0].any()


def test_a_path_a_profile_and_an_order(code: bytes, tmp_path: Path) -> None:
    path = tmp_path / "saxpy.hsaco"
    path.write_bytes(code)
    x, y = np.ones(64, "f4"), np.zeros(64, "f4")
    stats = emulator.launch(path, 1, 64, [64, 1.0, x, y], profile=True, order="reverse")
    assert stats.profile is not None
    assert (y == 1).all()


def test_tuples_are_structs_by_value() -> None:
    scale = compile_program(STRUCTS, "scale", target_name="gfx942").code
    x, y = np.arange(64, dtype="f4"), np.zeros(64, "f4")
    views = (x, np.uint64(64)), (y, np.uint64(7))
    emulator.launch(scale, 1, 64, [(views[0], np.int8(2), views[1], np.float32(3))])
    np.testing.assert_array_equal(y[2:], 3 * x[2:] + 7)
    assert not y[:2].any()
    with pytest.raises(ValueError, match="argument 0 of scale has 48 bytes, not 40"):
        emulator.launch(scale, 1, 64, [(views[0], np.int8(2), views[1])])
    with pytest.raises(
        ValueError, match="argument 0, member 1 is 2; members of a struct must be NumPy"
    ):
        emulator.launch(scale, 1, 64, [(views[0], 2)])


def test_a_report_names_the_dynamic_lds_of_the_launch() -> None:
    source = """extern "C" __global__ void reverse(float* y) {
        extern __shared__ float tile[];
        tile[threadIdx.x] = y[threadIdx.x];
        __syncthreads();
        y[threadIdx.x] = tile[63 - threadIdx.x];
    }"""
    reverse = compile_program(source, "reverse", target_name="gfx942").code
    y = np.arange(64, dtype="f4")
    emulator.launch(reverse, 1, 64, [y], dynamic_lds=256)
    with pytest.raises(emulator.KernelFault, match="gives it 128 of them as dynamic LDS"):
        emulator.launch(reverse, 1, 64, [y], dynamic_lds=128)
    with pytest.raises(emulator.KernelFault, match="the launch gives it 0 of them"):
        emulator.launch(reverse, 1, 64, [y])


def test_faults_are_reported(code: bytes) -> None:
    x, y = np.ones(64, "f4"), np.zeros(64, "f4")
    with pytest.raises(emulator.KernelFault, match="out-of-bounds global read"):
        emulator.launch(code, 2, 64, [128, 1.0, x, y])


def test_what_does_not_fit_is_refused(code: bytes) -> None:
    x, y = np.ones(64, "f4"), np.zeros(64, "f4")
    with pytest.raises(
        ValueError,
        match=r"saxpy takes 4 arguments, not 3: n \(4 bytes by value\), a .*, x \(a pointer\), y ",
    ):
        emulator.launch(code, 1, 64, [1, x, y])
    with pytest.raises(ValueError, match="argument 1 of saxpy has 4 bytes, not 8"):
        emulator.launch(code, 1, 64, [64, np.float64(1), x, y])
    with pytest.raises(ValueError, match="no kernel axpy; it has saxpy"):
        emulator.launch(code, 1, 64, [64, 1.0, x, y], kernel="axpy")
    with pytest.raises(ValueError, match="one to three extents"):
        emulator.launch(code, (1, 1, 1, 1), 64, [64, 1.0, x, y])
    two = compile_program(SOURCE + OTHER, "two", target_name="gfx942").code
    with pytest.raises(ValueError, match="choose a kernel; it has nothing, saxpy"):
        emulator.launch(two, 1, 64, [])


COOPERATIVE = """
#include <hip/hip_cooperative_groups.h>
extern "C" __global__ void turn(const int* x, int* y, int* z) {
    auto grid = cooperative_groups::this_grid();
    int i = grid.thread_rank();
    y[i] = 2 * x[i];
    grid.sync();
    z[i] = y[grid.size() - 1 - i] + 1;
}
"""


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_a_cooperative_launch_waits_for_its_grid(target: str) -> None:
    code = compile_program(COOPERATIVE, "turn", target_name=target).code
    x, y, z = np.arange(5 * 128, dtype="i4"), np.zeros(5 * 128, "i4"), np.zeros(5 * 128, "i4")
    emulator.launch(code, 5, 128, [x, y, z], cooperative=True)
    np.testing.assert_array_equal(z, 2 * x[::-1] + 1)
    with pytest.raises(emulator.KernelFault, match="outside a cooperative launch"):
        emulator.launch(code, 5, 128, [x, y, z])


def test_a_cooperative_launch_that_does_not_fit_is_refused() -> None:
    code = compile_program(COOPERATIVE, "turn", target_name="gfx942").code
    arguments = [np.zeros(1, "i4")] * 3
    with pytest.raises(emulator.EmulatorError, match=r"of 305 workgroups; the device holds 304"):
        emulator.launch(code, 305, 64, arguments, dynamic_lds=65536, cooperative=True)
    with pytest.raises(ValueError, match="sample=2: workgroups of a cooperative launch wait"):
        emulator.launch(code, 5, 64, arguments, profile=True, sample=2, cooperative=True)
