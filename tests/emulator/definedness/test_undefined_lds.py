"""LDS that nothing has written: how a read marks lanes, and how the marks are cleared."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from cupygemm.emulator.units.memory.machine import machine_of
from cupygemm.emulator.waves.marks import marks_of
from cupygemm.emulator.waves.state import LANES, State
from tests.emulator.harness import assemble, make_state, run, set_exec
from tests.emulator.units.test_lds_faults import ALL, check_fault, load, store, two_waves

ALL32 = 0xFFFFFFFF


def undefined(state: State, register: int) -> np.ndarray:
    """Return the undefined bits of a register, (waves, lanes)."""
    return marks_of(state).undefined[register]


def test_uninitialised_read() -> None:
    """It is not a fault by itself: the lanes that read such bytes are marked."""
    state = two_waves()
    set_exec(state, [ALL, ALL ^ 1 << 5])
    state.vgpr[1, 1] += 256
    run(state, store())
    set_exec(state, ALL)
    run(state, load())
    expected = np.zeros((2, LANES), np.uint32)
    expected[1, 5] = 0xFFFFFFFF
    np.testing.assert_array_equal(undefined(state, 3), expected)


@pytest.mark.parametrize(("write", "size"), [("ds_write_b8", 1), ("ds_write_b16", 2)])
def test_partly_uninitialised_read(write: str, size: int) -> None:
    state = make_state(lds_bytes=64)
    set_exec(state, 1)
    for start in range(0, 4 - size, size):
        state.vgpr[1] = start
        run(state, assemble(f"{write} v1, v2"))
    state.vgpr[1] = 0
    run(state, assemble("ds_read_u8 v3, v1"))
    assert not undefined(state, 3).any()
    run(state, load())
    assert undefined(state, 3)[0, 0] == (0xFFFFFFFF << 8 * (4 - size)) & 0xFFFFFFFF
    state.vgpr[1] = 4 - size
    run(state, assemble(f"{write} v1, v2"))
    state.vgpr[1] = 0
    undefined(state, 3)[:] = 0
    run(state, load())
    assert not undefined(state, 3).any()


@pytest.mark.parametrize(
    ("text", "registers", "bits"),
    [
        ("ds_read_b128 v[4:7], v1", 4, ALL32),
        ("ds_read2_b64 v[4:7], v1 offset1:1", 4, ALL32),
        ("ds_read_u8 v4, v1", 1, 0xFF),
        ("ds_read_i16 v4, v1", 1, ALL32),
        ("ds_read_u16_d16_hi v4, v1", 1, 0xFFFF0000),
    ],
)
def test_every_width_of_uninitialised_read(text: str, registers: int, bits: int) -> None:
    state = make_state(lds_bytes=256)
    state.vgpr[1] = 16 * (np.arange(LANES) % 4)
    run(state, assemble(text))
    for register in range(4, 4 + registers):
        assert (undefined(state, register) == bits).all()
    assert not undefined(state, 4 + registers).any()


def test_uninitialised_transposing_read() -> None:
    """Each undefined byte moves with its value."""
    state = make_state(lds_bytes=512, target="gfx950")
    state.vgpr[1] = 8 * np.arange(LANES)
    state.vgpr[2:4] = 0
    set_exec(state, ALL ^ 2)
    run(state, assemble("ds_write_b64 v1, v[2:3]", "gfx950"))
    set_exec(state, ALL)
    run(state, assemble("ds_read_b64_tr_b16 v[4:5], v1", "gfx950"))
    found = marks_of(state).undefined[4:6, 0]
    assert np.flatnonzero(found.any(axis=0)).tolist() == [4, 5, 6, 7]  # the columns of lane 1
    assert (found[0, 4:8] == 0xFFFF).all()
    assert not found[1].any()


def test_uninitialised_atomic() -> None:
    state = two_waves()
    inst = assemble("ds_add_u32 v1, v2")
    fault = check_fault(state, lambda: run(state, inst), "uninitialised LDS", 0, 0)
    assert fault.lanes == tuple(range(LANES))


def test_exchanging_uninitialised_bytes_is_no_fault() -> None:
    """The old value is undefined, and the new one is not."""
    state = two_waves()
    run(state, assemble("ds_wrxchg_rtn_b32 v3, v1, v2"), waves=[0])
    assert (undefined(state, 3)[0] == 0xFFFFFFFF).all()
    undefined(state, 3)[:] = 0
    run(state, load(), waves=[0])
    assert not undefined(state, 3).any()


def test_each_workgroup_has_its_own_lds() -> None:
    state = make_state(workgroups=2, lds_bytes=256)
    state.vgpr[1] = 4 * np.arange(LANES)
    run(state, store(), waves=[0])
    run(state, load())
    assert undefined(state, 3).all(axis=1).tolist() == [False, True]


def test_undefined_data_stay_undefined_in_lds() -> None:
    state = make_state(lds_bytes=256)
    state.vgpr[1] = 4 * np.arange(LANES)
    undefined(state, 2)[0, 7] = 0xFF00
    marks_of(state).suspect_vector |= 1 << 2
    machine_of(state).struct.tainted = True  # as the run loop does
    run(state, store())
    machine_of(state).struct.tainted = False
    run(state, load())
    expected = np.zeros(LANES, np.uint32)
    expected[7] = 0xFF00
    np.testing.assert_array_equal(undefined(state, 3)[0], expected)


def test_a_report_names_what_another_wave_has_loaded(cp: ModuleType) -> None:
    """Waves 1 and 2 pass the value on through LDS, and wave 0 stores it."""
    code = r"""
    extern "C" __global__ void sum(float* out) {
        __shared__ float part[256];
        if (threadIdx.x < 192)
            part[threadIdx.x] = threadIdx.x;
        for (int step = 128; step > 0; step /= 2) {
            __syncthreads();
            if (threadIdx.x < step)
                part[threadIdx.x] += part[threadIdx.x + step];
        }
        if (threadIdx.x == 0)
            out[0] = part[0];
    }"""
    with pytest.raises(RuntimeError, match="uninitialised LDS") as caught:
        cp.RawKernel(code, "sum")((1,), (256,), (cp.zeros(1, "f4"),))
    report = str(caught.value)
    assert "LDS that nothing has written, from byte 0x300 on" in report
    assert "part[192] lies there" in report
