"""A counter that one workgroup clears by a plain store, and others count by atomics."""

from __future__ import annotations

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.runtime.compile import compile_program
from cupygemm.emulator.targets import TARGETS

SOURCE = r"""
#define AGENT __HIP_MEMORY_SCOPE_AGENT
extern "C" __global__ void count(unsigned* counter, unsigned* ready) {
    if (threadIdx.x == 0) {
        if (blockIdx.x == 0) {
            *counter = 0;
            __hip_atomic_store(ready, 1, __ATOMIC_RELEASE, AGENT);
        } else if (WAITS) {
            while (__hip_atomic_load(ready, __ATOMIC_ACQUIRE, AGENT) == 0) {}
        }
    }
    __syncthreads();
    if (threadIdx.x == COUNTS)
        atomicAdd(counter, 1u);
}
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("counts", ["0", "64"])
@pytest.mark.parametrize("waits", ["true", "false"])
def test_clearing_is_ordered_before_other_workgroups_count(
    target: str, counts: str, waits: str
) -> None:
    """The first workgroup has also counted when the others do, which orders nothing."""
    source = SOURCE.replace("COUNTS", counts).replace("WAITS", waits)
    code = compile_program(source, "a.hip", target_name=target).code
    arguments = [np.full(1, 7, np.uint32), np.zeros(1, np.uint32)]
    if waits == "true":
        emulator.launch(code, 5, 128, arguments)
        assert arguments[0][0] == 5
        return
    with pytest.raises(emulator.KernelFault, match="write after another workgroup's write"):
        emulator.launch(code, 5, 128, arguments)


@pytest.mark.parametrize("counts", ["0", "64"])
def test_one_workgroup_may_clear_what_it_counts(counts: str) -> None:
    source = SOURCE.replace("COUNTS", counts).replace("WAITS", "false")
    code = compile_program(source, "a.hip", target_name="gfx942").code
    arguments = [np.full(1, 7, np.uint32), np.zeros(1, np.uint32)]
    emulator.launch(code, 1, 128, arguments)
    assert arguments[0][0] == 1
