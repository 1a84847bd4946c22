"""Cooperative launches: the workgroups of a grid wait for each other."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from cupygemm.emulator import _session
from cupygemm.emulator.runtime.compile import compile_program
from cupygemm.emulator.runtime.status import Status
from cupygemm.emulator.targets import TARGETS

SOURCE = """
#include <hip/hip_cooperative_groups.h>
namespace cg = cooperative_groups;

// Each round, a work-item reads what one of another workgroup wrote in the round before.
extern "C" __global__ void turn(int* x, int* y, int rounds, int leaver) {
    cg::grid_group grid = cg::this_grid();
    int i = grid.thread_rank(), opposite = grid.size() - 1 - i;
    x[i] = i;
    if ((int)blockIdx.x == leaver) return;
    for (int round = 0; round < rounds; round++) {
        grid.sync();
        y[i] = x[opposite] + 1;
        grid.sync();
        x[i] = y[opposite] + 1;
    }
}
"""
Launch = Callable[..., int]


@pytest.fixture
def launch(hip: ctypes.CDLL) -> Iterator[Launch]:
    code = compile_program(SOURCE, "turn", target_name=_session.target() or "").code
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    assert hip.hipModuleLoadData(ctypes.byref(module), ctypes.c_char_p(code)) == 0
    assert hip.hipModuleGetFunction(ctypes.byref(function), module, b"turn") == 0

    def launch_turn(
        grid: int, *values: ctypes.c_void_p | ctypes.c_int, block: int = 64, lds: int = 0
    ) -> int:
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        status: int = hip.hipModuleLaunchCooperativeKernel(
            function, grid, 1, 1, block, 1, 1, lds, None, pointers
        )
        return status

    yield launch_turn
    assert hip.hipModuleUnload(module) == 0


def arrays(cp: ModuleType, threads: int) -> tuple[object, object]:
    return cp.zeros(threads, "i4"), cp.zeros(threads, "i4")


# 400 workgroups are more than one for each compute unit, and 1,600 waves are more than run
# concurrently in other launches.
@pytest.mark.slow
@pytest.mark.parametrize(("grid", "block"), [(1, 64), (7, 128), (400, 256)])
def test_a_grid_waits_for_itself(cp: ModuleType, launch: Launch, grid: int, block: int) -> None:
    x, y = arrays(cp, grid * block)
    for _ in range(2):  # the counters of the module are ready for another launch
        pointers = ctypes.c_void_p(x.data.ptr), ctypes.c_void_p(y.data.ptr)
        assert launch(grid, *pointers, ctypes.c_int(2), ctypes.c_int(-1), block=block) == 0
        assert (x == cp.arange(grid * block) + 4).all()


def test_a_workgroup_that_left_is_a_deadlock(
    cp: ModuleType, launch: Launch, hip: ctypes.CDLL
) -> None:
    x, y = arrays(cp, 2 * 64)
    pointers = ctypes.c_void_p(x.data.ptr), ctypes.c_void_p(y.data.ptr)
    status = launch(2, *pointers, ctypes.c_int(1), ctypes.c_int(1))
    assert status == Status.LAUNCH_FAILURE
    text = bytes(hip.hipGetErrorString(status)).decode()
    assert text.startswith("deadlock\n")
    assert "no wave on the device can continue" in text


def test_a_grid_that_does_not_fit_is_refused(
    cp: ModuleType, launch: Launch, hip: ctypes.CDLL
) -> None:
    x, y = arrays(cp, 64)
    pointers = ctypes.c_void_p(x.data.ptr), ctypes.c_void_p(y.data.ptr)
    target = TARGETS[_session.target() or ""]
    grid = target.num_cus + 1  # with all of its LDS for a workgroup, a compute unit holds one
    given = *pointers, ctypes.c_int(1), ctypes.c_int(-1)
    status = launch(grid, *given, lds=target.lds_bytes)
    assert status == Status.COOPERATIVE_LAUNCH_TOO_LARGE
    text = bytes(hip.hipGetErrorString(status)).decode()
    assert f"a cooperative launch of {grid} workgroups; the device holds {grid - 1} of 64" in text
