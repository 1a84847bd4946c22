"""The checks of LDS: bounds, races, and accesses that do not race."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cupygemm.emulator.errors import Fault
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.units.memory.machine import machine_of
from cupygemm.emulator.waves.state import LANES, State
from tests.emulator.harness import assemble, barrier, make_state, run, set_exec

ALL = 0xFFFFFFFFFFFFFFFF


def two_waves(**options: int) -> State:
    """Return one workgroup of two waves; v1 is the lane's own dword, the same in both waves."""
    state = make_state(waves=2, lds_bytes=1024, **options)  # type: ignore[arg-type]
    state.vgpr[1] = 4 * np.arange(LANES)
    state.vgpr[2] = np.arange(2 * LANES).reshape(2, LANES)
    return state


def store(text: str = "ds_write_b32 v1, v2") -> Instruction:
    """Return a store of v2 to v1."""
    return assemble(text)


def load(text: str = "ds_read_b32 v3, v1") -> Instruction:
    """Return a load from v1."""
    return assemble(text)


def waited(state: State) -> None:
    """Make every wave wait for everything that it has issued."""
    state.lds_waited[:] = state.lds_issued
    state.vm_waited[:] = state.vm_issued


def check_fault(state: State, action: Callable[[], None], kind: str, wave: int, lane: int) -> Fault:
    """Assert that `action` raises a fault of that kind, wave and lane, and return it."""
    with pytest.raises(Fault) as caught:
        action()
    assert caught.value.kind == kind
    assert (caught.value.wave, caught.value.lane) == (wave, lane)
    return caught.value


# -- bounds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("ds_read_b32 v4, v1", 4),
        ("ds_write_b128 v1, v[4:7]", 16),
        ("ds_read_u8 v4, v1", 1),
        ("ds_add_u32 v1, v4", 4),
        ("ds_read2_b32 v[4:5], v1 offset1:1", 8),
    ],
)
def test_bounds_are_exact(text: str, size: int) -> None:
    """The last `size` bytes can be reached, one byte further cannot."""
    inst = assemble(text)
    state = make_state(waves=2, lds_bytes=132)
    state.vgpr[1] = 4 * np.arange(LANES)
    set_exec(state, [1, 3])
    run(state, assemble("ds_write_b128 v1, v[4:7]"), waves=[1])
    run(state, assemble("ds_write_b128 v1, v[4:7] offset:112"), waves=[1])
    barrier(state)
    state.vgpr[1, 0, 0] = 0
    state.vgpr[1, 1, :2] = 0, 132 - size
    barrier(state)
    run(state, inst, waves=[1])
    state.vgpr[1, 1, 1] += 4 if "add" in text else 1
    verb = "atomic" if "add" in text else "write" if "write" in text else "read"
    fault = check_fault(state, lambda: run(state, inst), f"out-of-bounds LDS {verb}", 1, 1)
    assert "132 bytes" in fault.detail
    assert "past its end" in fault.detail


def test_an_address_below_zero_lies_before_the_start() -> None:
    state = make_state(lds_bytes=132)
    state.vgpr[1] = np.uint32(-12 & 0xFFFFFFFF)
    set_exec(state, 1)
    fault = check_fault(state, lambda: run(state, load()), "out-of-bounds LDS read", 0, 0)
    assert fault.detail.endswith("the workgroup's LDS has 132 bytes: 12 bytes before its start")


def test_a_kernel_without_lds() -> None:
    state = make_state()
    check_fault(state, lambda: run(state, load()), "out-of-bounds LDS read", 0, 0)


def test_lanes_switched_off_do_not_count() -> None:
    state = make_state(lds_bytes=8)
    state.vgpr[1] = 4 * np.arange(LANES)
    set_exec(state, 3)
    run(state, store(), load())


# -- races -----------------------------------------------------------------------------------------


def test_read_after_write_needs_a_barrier() -> None:
    state = two_waves()
    run(state, store(), waves=[0])
    run(state, load(), waves=[0])  # a wave's own LDS operations are in order
    waited(state)
    kind = "LDS race: read after another wave's write"
    fault = check_fault(state, lambda: run(state, load(), waves=[1]), kind, 0, 0)
    assert "wave 1 reads" in fault.detail
    assert "wave 0 wrote at\n  +0x0" in fault.detail


def test_read_after_write_needs_a_wait_before_the_barrier() -> None:
    state = two_waves()
    run(state, store(), waves=[0])
    barrier(state, waited=False)
    kind = "LDS race: read after another wave's write"
    check_fault(state, lambda: run(state, load(), waves=[1]), kind, 0, 0)
    barrier(state)
    run(state, load(), waves=[1])


def test_write_after_read_needs_a_barrier() -> None:
    state = two_waves()
    run(state, store(), waves=[0])
    barrier(state)
    run(state, load())
    waited(state)
    kind = "LDS race: write after another wave's read"
    fault = check_fault(state, lambda: run(state, store(), waves=[0]), kind, 0, 0)
    assert "which wave 1 read at" in fault.detail
    barrier(state)
    run(state, store(), waves=[0])


def test_write_after_a_read_in_flight() -> None:
    state = two_waves()
    run(state, store(), waves=[0])
    barrier(state)
    run(state, load(), waves=[1])
    barrier(state, waited=False)
    kind = "LDS race: write after another wave's read"
    check_fault(state, lambda: run(state, store(), waves=[0]), kind, 0, 0)


def test_write_after_own_read_in_flight_and_another_wave_that_waited() -> None:
    state = two_waves()
    run(state, store(), waves=[0])
    barrier(state)
    run(state, load(), waves=[1])
    run(state, load(), waves=[0])
    waited(state)
    state.barrier_epoch += 1
    state.lds_released[1] = state.lds_issued[1]  # wave 0 has not waited for its own read
    run(state, store(), waves=[0])


def test_a_read_in_flight_across_a_barrier_is_not_forgotten() -> None:
    """The wave that writes has itself read in the meantime."""
    kind = "LDS race: write after another wave's read"
    for released in (False, True):
        state = two_waves()
        run(state, store(), waves=[0])
        barrier(state)
        run(state, load(), waves=[0])
        barrier(state, waited=released)
        run(state, load(), waves=[1])
        if released:
            run(state, store(), waves=[1])
        else:
            check_fault(state, lambda s=state: run(s, store(), waves=[1]), kind, 0, 0)  # type: ignore[misc]


def test_write_after_write_needs_a_barrier() -> None:
    state = two_waves()
    kind = "LDS race: write after another wave's write"
    fault = check_fault(state, lambda: run(state, store()), kind, 1, 0)
    assert "which wave 0 wrote" in fault.detail
    state = two_waves()
    run(state, store(), waves=[1])
    barrier(state)
    run(state, store(), waves=[0])


def test_waves_may_store_the_same_value() -> None:
    state = two_waves()
    state.vgpr[2] = 7
    run(state, store())
    state.vgpr[2, 1, 9] = 8
    kind = "LDS race: write after another wave's write"
    check_fault(state, lambda: run(state, store(), waves=[1]), kind, 0, 9)
    state = two_waves()
    state.vgpr[2] = 7
    run(state, store())
    state.vgpr[2, 0, 9] = 8
    check_fault(state, lambda: run(state, store(), waves=[0]), kind, 0, 9)
    barrier(state)
    run(state, store(), waves=[0])


def test_waves_of_different_workgroups_do_not_race() -> None:
    state = make_state(workgroups=2, lds_bytes=256)
    state.vgpr[1] = 4 * np.arange(LANES)
    state.vgpr[2] = np.arange(2 * LANES).reshape(2, LANES)
    run(state, store(), load(), store())


@pytest.mark.parametrize(("write", "size"), [("ds_write_b8", 1), ("ds_write_b16", 2)])
def test_neighbouring_bytes_do_not_race(write: str, size: int) -> None:
    """Two waves write and read alternate elements of the same dwords."""
    state = two_waves()
    state.vgpr[1] = (size * (2 * np.arange(LANES) + np.arange(2)[:, None])).astype(np.uint32)
    read = "ds_read_u8 v3, v1" if size == 1 else "ds_read_u16 v3, v1"
    run(state, assemble(f"{write} v1, v2"), assemble(read), assemble(f"{write} v1, v2"))
    state.vgpr[1, 0, 63] += size
    kind = "LDS race: write after another wave's write"
    check_fault(state, lambda: run(state, assemble(f"{write} v1, v2"), waves=[0]), kind, 0, 63)


def test_misaligned_accesses_are_seen_byte_by_byte() -> None:
    state = make_state(waves=2, lds_bytes=64)
    set_exec(state, 1)
    state.vgpr[1, 0], state.vgpr[1, 1] = 3, 7
    state.vgpr[2, 0], state.vgpr[2, 1] = 0x11111111, 0x22222222
    run(state, store())  # bytes 3..6 and 7..10
    np.testing.assert_array_equal(state.lds[0, :12], [0] * 3 + [0x11] * 4 + [0x22] * 4 + [0])
    kind = "LDS race: read after another wave's write"
    state.vgpr[1, 0] = 4
    check_fault(state, lambda: run(state, load(), waves=[0]), kind, 0, 0)


@pytest.mark.parametrize(
    ("text", "shift"),
    [
        ("ds_write_b128 v4, v[4:7]", 4),
        ("ds_write_b64 v4, v[4:5]", 3),
        ("ds_write_b96 v4, v[4:6]", 2),
        ("ds_read_u16 v3, v4", 1),
        ("ds_write_b8 v4, v4", 0),
    ],
)
def test_records_are_as_fine_as_the_kernel_has_needed(text: str, shift: int) -> None:
    state = two_waves()
    state.vgpr[4] = 16 * np.arange(LANES)
    run(state, store(text))
    assert machine_of(state).struct.shadow_shift == shift
    later = two_waves()
    later.kernel = state.kernel
    assert machine_of(later).struct.shadow_shift == shift


def test_the_history_survives_a_finer_record() -> None:
    """A narrow access after wide ones still sees who wrote what."""
    state = two_waves()
    run(state, store(), waves=[0])
    barrier(state)
    run(state, load(), waves=[1])
    state.vgpr[1] = np.arange(LANES)
    kind = "LDS race: write after another wave's read"
    narrow = assemble("ds_write_b8 v1, v2")
    check_fault(state, lambda: run(state, narrow, waves=[0]), kind, 0, 0)


# -- atomics ---------------------------------------------------------------------------------------


def test_atomics_do_not_race_with_one_another() -> None:
    state = two_waves()
    run(state, store(), waves=[0])
    barrier(state)
    run(state, assemble("ds_add_u32 v1, v2"), assemble("ds_max_rtn_u32 v3, v1, v2"))


def test_atomic_races_with_reads_and_writes() -> None:
    atomic = assemble("ds_add_u32 v1, v2")
    for before, after, kind in (
        (store(), atomic, "LDS race: write after another wave's write"),
        (load(), atomic, "LDS race: write after another wave's read"),
        (atomic, load(), "LDS race: read after another wave's write"),
        (atomic, store(), "LDS race: write after another wave's write"),
    ):
        state = two_waves()
        run(state, store(), waves=[0])
        barrier(state)
        run(state, before, waves=[0])
        waited(state)
        check_fault(state, lambda s=state, i=after: run(s, i, waves=[1]), kind, 0, 0)  # type: ignore[misc]
        barrier(state)
        run(state, after, waves=[1])


def test_a_wave_clears_what_others_add_to() -> None:
    """The wave's own atomic does not hide its store; a barrier after both orders everything."""
    atomic = assemble("ds_add_u32 v1, v2")
    state = two_waves()
    run(state, store(), atomic, waves=[0])
    kind = "LDS race: write after another wave's write"
    check_fault(state, lambda: run(state, atomic, waves=[1]), kind, 0, 0)
    barrier(state)
    run(state, atomic, waves=[1])
    run(state, atomic, waves=[0])


def test_a_loop_around_compare_and_swap_may_read_plainly() -> None:
    """Atomics that the hardware lacks are made this way; a write still races with its reads."""
    swap = assemble("ds_cmpst_rtn_b32 v3, v1, v2, v4")
    state = two_waves()
    run(state, store(), waves=[0])
    barrier(state)
    run(state, load(), load(), swap)
    run(state, load(), swap, waves=[1])
    waited(state)
    kind = "LDS race: write after another wave's read"
    check_fault(state, lambda: run(state, store(), waves=[0]), kind, 0, 0)
    state = two_waves()
    run(state, store(), waves=[0])
    kind = "LDS race: write after another wave's write"
    check_fault(state, lambda: run(state, swap, waves=[1]), kind, 0, 0)


def test_misaligned_atomic() -> None:
    state = make_state(lds_bytes=64)
    set_exec(state, 1)
    run(state, assemble("ds_write_b128 v1, v[4:7]"))
    state.vgpr[1] = 4
    run(state, assemble("ds_add_u32 v1, v2"))
    check_fault(
        state, lambda: run(state, assemble("ds_add_u64 v1, v[2:3]")), "misaligned atomic", 0, 0
    )


# -- reports ---------------------------------------------------------------------------------------


def test_the_other_instruction_is_named_until_it_is_too_old() -> None:
    state = two_waves()
    state.current_pc = 0x40
    run(state, store(), waves=[0])
    kind = "LDS race: read after another wave's write"
    fault = check_fault(state, lambda: run(state, load(), waves=[1]), kind, 0, 0)
    assert "+0x40" in fault.detail
    state.vgpr[1, 0] += 512
    for _ in range(300):
        run(state, store(), waves=[0])
    state.vgpr[1, 0] -= 512
    fault = check_fault(state, lambda: run(state, load(), waves=[1]), kind, 0, 0)
    assert "no longer on record" in fault.detail


def test_a_read_that_is_not_on_record_is_no_missing_wait() -> None:
    """Wave 1 reads before wave 0, which then writes: a barrier is missing."""
    state = two_waves()
    run(state, store(), waves=[0])
    barrier(state)
    run(state, load(), load(), load(), waves=[1])
    barrier(state)
    run(state, load(), waves=[1])
    run(state, load(), waves=[0])
    kind = "LDS race: write after another wave's read"
    fault = check_fault(state, lambda: run(state, store(), waves=[0]), kind, 0, 0)
    assert "no longer on record" in fault.detail
    assert "must come between" in fault.detail
