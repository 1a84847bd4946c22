"""Plain accesses that are not aligned to their size: legal, and reported on request."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.diagnostics.checking import Policy
from cupygemm.emulator.diagnostics.findings import Findings
from cupygemm.emulator.errors import Fault
from cupygemm.emulator.waves.state import State
from tests.emulator.harness import HostMemory, assemble, make_state, run, set_exec, set_v64


def be_strict(state: State, strict: bool) -> None:
    state.alignment = strict
    state.findings = Findings(Policy().changed({"alignment": strict}))


@pytest.mark.parametrize(
    ("text", "alignment"),
    [
        ("ds_read_b32 v4, v1", 4),
        ("ds_write_b64 v1, v[4:5]", 8),
        ("ds_read_b128 v[4:7], v1", 16),
        ("ds_read_b96 v[4:6], v1", 16),
        ("ds_read2_b64 v[4:7], v1 offset1:1", 8),
        ("ds_write_b16 v1, v4", 2),
        ("ds_read_u8 v4, v1", 1),
    ],
)
def test_lds(text: str, alignment: int) -> None:
    inst = assemble(text)
    for strict in (False, True):
        for offset in (1, 2, 4, 8, 16):
            state = make_state(lds_bytes=128)
            be_strict(state, strict)
            set_exec(state, 0xF0)
            state.vgpr[1, 0, 6] = offset
            if not strict or offset % alignment == 0:
                run(state, inst)
                continue
            with pytest.raises(Fault, match="misaligned LDS") as caught:
                run(state, inst)
            assert caught.value.lanes == (6,)
            assert caught.value.address == offset


@pytest.mark.parametrize(
    ("text", "alignment"),
    [
        ("global_load_dword v4, v[2:3], off", 4),
        ("global_load_dwordx2 v[4:5], v[2:3], off", 8),
        ("global_store_dwordx4 v[2:3], v[4:7], off", 16),
        ("global_load_ushort v4, v[2:3], off", 2),
        ("global_load_dwordx3 v[4:6], v[2:3], off", 4),
        ("global_load_ubyte v4, v[2:3], off", 1),
    ],
)
def test_global(text: str, alignment: int) -> None:
    inst = assemble(text)
    for strict in (False, True):
        for offset in (1, 2, 4, 8, 16):
            memory = HostMemory()
            place = memory.put(np.zeros(64, np.uint8))
            state = make_state(memory=memory)
            be_strict(state, strict)
            set_v64(state, 2, np.full((1, 64), place + offset))
            if not strict or offset % alignment == 0:
                run(state, inst)
                continue
            with pytest.raises(Fault, match="misaligned global") as caught:
                run(state, inst)
            assert caught.value.lanes == tuple(range(64))


def test_it_is_asked_for(cp: ModuleType) -> None:
    kernel = cp.RawKernel(
        """extern "C" __global__ void pairs(const char* x, double* y) {
            y[threadIdx.x] = *(const double*)(x + 8 * threadIdx.x + 4);
        }""",
        "pairs",
    )
    x, y = cp.zeros(600, "u1"), cp.zeros(64)
    kernel((1,), (64,), (x, y))
    with (
        emulator.checks(alignment=True),
        pytest.raises(RuntimeError, match="misaligned global read"),
    ):
        kernel((1,), (64,), (x, y))
    kernel((1,), (64,), (x, y))
