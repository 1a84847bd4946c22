"""Atomics on LDS and on global memory, against a loop over lanes with Python's own arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from cupygemm.emulator.errors import Fault
from cupygemm.emulator.waves.state import LANES, State
from tests.emulator.harness import (
    HostMemory,
    assemble,
    barrier,
    exec_lanes,
    make_state,
    run,
    set_exec,
    set_v64,
)

Update = Callable[[int, int, int, int], int]  # old, first operand, second operand, bits
MASK = 0xF00F00FF0F0F1235
SLOTS = 16  # several lanes share each slot


def signed(value: int, bits: int) -> int:
    """Return the two's complement value of a bit pattern."""
    return value - (1 << bits) if value >> (bits - 1) else value


def as_float(value: int, bits: int) -> np.floating:
    """Return the float32 or float64 of a bit pattern."""
    kind, number = (np.uint32, np.float32) if bits == 32 else (np.uint64, np.float64)
    return np.array(value, kind).view(number)[()]


def float_bits(value: np.floating) -> int:
    """Return the bit pattern of a NumPy float."""
    return int(np.asarray(value).view(f"u{value.itemsize}"))


def float_sum(old: int, data: int, _: int, bits: int) -> int:
    """Add floats."""
    return float_bits(as_float(old, bits) + as_float(data, bits))


def packed_sum(dtype: object) -> Update:
    """Return the update that adds the two halves separately, as numbers of a type."""

    def update(old: int, data: int, _second: int, _bits: int) -> int:
        pair = [np.array([value], np.uint32).view(dtype) for value in (old, data)]
        return int((pair[0] + pair[1]).view(np.uint32)[0])

    return update


INTEGER: dict[str, Update] = {
    "swap": lambda _old, data, _, __: data,
    "add": lambda old, data, _, bits: (old + data) % (1 << bits),
    "sub": lambda old, data, _, bits: (old - data) % (1 << bits),
    "smin": lambda old, data, _, bits: min(old, data, key=lambda x: signed(x, bits)),
    "umin": lambda old, data, _, __: min(old, data),
    "smax": lambda old, data, _, bits: max(old, data, key=lambda x: signed(x, bits)),
    "umax": lambda old, data, _, __: max(old, data),
    "and": lambda old, data, _, __: old & data,
    "or": lambda old, data, _, __: old | data,
    "xor": lambda old, data, _, __: old ^ data,
    "inc": lambda old, data, _, __: 0 if old >= data else old + 1,
    "dec": lambda old, data, _, __: data if old == 0 or old > data else old - 1,
}
FLOATS: dict[str, tuple[Update, int]] = {
    "add_f32": (float_sum, 32),
    "add_f64": (float_sum, 64),
    "min_f64": (lambda o, d, _, b: d if as_float(d, b) < as_float(o, b) else o, 64),
    "max_f64": (lambda o, d, _, b: d if as_float(d, b) > as_float(o, b) else o, 64),
    "pk_add_f16": (packed_sum(np.float16), 32),
    "pk_add_bf16": (packed_sum(ml_dtypes.bfloat16), 32),
}


def operands(state: State, bits: int, *, floats: bool, half: object = None) -> None:
    """Fill v4.. (first operand) and v6.. (second), and choose slots in v1."""
    rng = np.random.default_rng(3)
    shape = (state.num_waves, LANES)
    state.vgpr[1] = rng.integers(0, SLOTS, shape) * (bits // 8)
    for register in (4, 6):
        if half is not None:
            values = rng.normal(0, 30, (*shape, 2)).astype(half).view(np.uint32)[..., 0]
            state.vgpr[register] = values
        elif floats:
            values = rng.normal(0, 1e3, shape).astype(np.float32 if bits == 32 else np.float64)
            set_words(state, register, values.view(f"u{bits // 8}"), bits)
        else:  # small values too, so that compare, increment and wrap take every branch
            wide = rng.integers(0, 1 << (bits - 1), shape, np.uint64) * 2
            small = rng.integers(0, 12, shape, np.uint64)
            set_words(state, register, np.where(rng.random(shape) < 0.5, wide, small), bits)


def set_words(state: State, register: int, values: np.ndarray, bits: int) -> None:
    """Write 32- or 64-bit patterns to vector registers."""
    if bits == 64:
        set_v64(state, register, values)
    else:
        state.vgpr[register] = values.astype(np.uint32)


def get_words(state: State, register: int, wave: int, lane: int, bits: int) -> int:
    """Return a 32- or 64-bit pattern from vector registers."""
    low = int(state.vgpr[register, wave, lane])
    return low | int(state.vgpr[register + 1, wave, lane]) << 32 if bits == 64 else low


def expected_lanes(
    state: State, memory: np.ndarray, update: Update, bits: int
) -> tuple[np.ndarray, dict[tuple[int, int], int]]:
    """Return the memory afterwards and the value returned to each active lane."""
    memory = memory.copy()
    slots = memory.view(f"u{bits // 8}")
    returned = {}
    for wave in range(state.num_waves):
        for lane in exec_lanes(state, wave):
            slot = int(state.vgpr[1, wave, lane]) // (bits // 8)
            first, second = (get_words(state, r, wave, lane, bits) for r in (4, 6))
            old = int(slots[slot])
            returned[wave, lane] = old
            slots[slot] = update(old, first, second, bits)
    return memory, returned


def check_returned(state: State, returned: dict[tuple[int, int], int], bits: int) -> None:
    """Compare v8.. with what the atomic should have returned."""
    for (wave, lane), old in returned.items():
        assert get_words(state, 8, wave, lane, bits) == old, (wave, lane)


# -- global ----------------------------------------------------------------------------------------


def global_state(bits: int, target: str) -> tuple[State, HostMemory, int]:
    """Return a state of two waves, v[2:3] the addresses of slots that v1 chooses."""
    memory = HostMemory()
    state = make_state(waves=2, target=target, memory=memory)
    address = memory.malloc(SLOTS * bits // 8)
    set_exec(state, MASK)
    return state, memory, address


def check_global(
    name: str, bits: int, update: Update, target: str, returns: bool, **kinds: object
) -> None:
    """Run a global atomic and compare memory and results."""
    state, memory, address = global_state(bits, target)
    operands(state, bits, **kinds)  # type: ignore[arg-type]
    set_v64(state, 2, np.uint64(address) + state.vgpr[1])
    if kinds.get("floats"):
        memory.bytes(address)[:] = 0
    expected, returned = expected_lanes(state, memory.bytes(address), update, bits)
    first = 4 if bits == 32 else "[4:5]"
    result = f"v{8 if bits == 32 else '[8:9]'}, " if returns else ""
    suffix = " sc0" if target != "gfx90a" else " glc"
    text = f"global_atomic_{name} {result}v[2:3], v{first}, off{suffix if returns else ''}"
    before = state.vgpr.copy()
    run(state, assemble(text, target))
    np.testing.assert_array_equal(memory.bytes(address), expected)
    if returns:
        check_returned(state, returned, bits)
    else:
        np.testing.assert_array_equal(state.vgpr, before)


@pytest.mark.covering(pairs=True)
@pytest.mark.parametrize("returns", [True, False])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", INTEGER)
def test_global_integer(name: str, bits: int, returns: bool) -> None:
    suffix = "_x2" if bits == 64 else ""
    check_global(name + suffix, bits, INTEGER[name], "gfx942", returns, floats=False)


@pytest.mark.parametrize(("name", "returns"), [(name, r) for name in FLOATS for r in (True, False)])
def test_global_float(name: str, returns: bool) -> None:
    update, bits = FLOATS[name]
    half = {"pk_add_f16": np.float16, "pk_add_bf16": ml_dtypes.bfloat16}.get(name)
    check_global(name, bits, update, "gfx950", returns, floats=True, half=half)


@pytest.mark.parametrize("bits", [32, 64])
def test_global_compare_and_swap(bits: int) -> None:
    """The new value comes first, then the value to compare with."""
    state, memory, address = global_state(bits, "gfx90a")
    slots = memory.view(address, f"u{bits // 8}")
    slots[:] = np.arange(SLOTS)
    state.vgpr[1] = np.arange(LANES) % SLOTS * (bits // 8)
    set_v64(state, 2, np.uint64(address) + state.vgpr[1])
    second = 4 + bits // 32
    set_words(state, 4, 1000 + np.arange(2 * LANES).reshape(2, LANES), bits)
    set_words(state, second, np.arange(LANES) % SLOTS + (np.arange(LANES) % 3 == 0), bits)
    expected, returned = slots.copy(), {}
    for wave in range(2):
        for lane in exec_lanes(state, wave):
            slot, old = lane % SLOTS, int(expected[lane % SLOTS])
            returned[wave, lane] = old
            if old == get_words(state, second, wave, lane, bits):
                expected[slot] = get_words(state, 4, wave, lane, bits)
    name, result = ("cmpswap", "v8") if bits == 32 else ("cmpswap_x2", "v[8:9]")
    data = "v[4:5]" if bits == 32 else "v[4:7]"
    run(state, assemble(f"global_atomic_{name} {result}, v[2:3], {data}, off glc", "gfx90a"))
    np.testing.assert_array_equal(slots, expected)
    check_returned(state, returned, bits)


def test_global_atomic_must_be_aligned() -> None:
    state, _, address = global_state(64, "gfx942")
    set_v64(state, 2, address + 4)
    with pytest.raises(Fault, match="misaligned atomic") as caught:
        run(state, assemble("global_atomic_add_x2 v[2:3], v[4:5], off"))
    assert caught.value.lane == exec_lanes(state, 0)[0]
    run(state, assemble("global_atomic_add v[2:3], v4, off"))


def test_accumulation_registers_as_data_and_result() -> None:
    state, memory, address = global_state(32, "gfx942")
    memory.view(address, np.uint32)[:] = 5
    set_exec(state, [1, 0])
    set_v64(state, 2, address)
    state.vgpr[256 + 7] = 10
    run(state, assemble("global_atomic_add a9, v[2:3], a7, off sc0"))
    assert memory.view(address, np.uint32)[0] == 15
    assert state.vgpr[256 + 9, 0, 0] == 5


@pytest.mark.parametrize("space", ["flat", "buffer"])
def test_other_spaces(space: str) -> None:
    state, memory, address = global_state(32, "gfx942")
    operands(state, 32, floats=False)
    set_v64(state, 2, np.uint64(address) + state.vgpr[1])
    state.sgpr[4:8] = np.array([[address & 0xFFFFFFFF], [address >> 32], [SLOTS * 4], [0x20000]])
    expected, returned = expected_lanes(state, memory.bytes(address), INTEGER["add"], 32)
    text = {
        "flat": "flat_atomic_add v8, v[2:3], v4 sc0",
        "buffer": "buffer_atomic_add v8, v1, s[4:7], 0 offen sc0",
    }[space]
    state.vgpr[8] = state.vgpr[4]  # a buffer atomic returns where its data came from
    run(state, assemble(text))
    np.testing.assert_array_equal(memory.bytes(address), expected)
    check_returned(state, returned, 32)


# -- LDS -------------------------------------------------------------------------------------------

DS_INTEGER = {
    "swap": "wrxchg_rtn_b",
    "add": "add_u",
    "sub": "sub_u",
    "smin": "min_i",
    "umin": "min_u",
    "smax": "max_i",
    "umax": "max_u",
    "and": "and_b",
    "or": "or_b",
    "xor": "xor_b",
    "inc": "inc_u",
    "dec": "dec_u",
}
DS_OTHER: dict[str, tuple[Update, str]] = {
    "rsub_u": (lambda old, data, _, bits: (data - old) % (1 << bits), "32 64"),
    "mskor_b": (lambda old, data, second, _: old & ~data | second, "32 64"),
    "cmpst_b": (lambda old, data, second, _: second if old == data else old, "32 64"),
    "wrap_rtn_b": (lambda o, d, s, b: (o - d if o >= d else o + s) % (1 << b), "32"),
    "condxchg32_rtn_b": (
        lambda o, d, _, __: (
            (d & 0x7FFFFFFF if d >> 31 & 1 else o & 0xFFFFFFFF)
            | (d >> 32 & 0x7FFFFFFF if d >> 63 else o >> 32) << 32
        ),
        "64",
    ),
    "add_f": (float_sum, "32 64"),
    "min_f": (lambda o, d, _, b: d if as_float(d, b) < as_float(o, b) else o, "32 64"),
    "max_f": (lambda o, d, _, b: d if as_float(d, b) > as_float(o, b) else o, "32 64"),
    "cmpst_f": (lambda o, d, s, b: s if as_float(o, b) == as_float(d, b) else o, "32 64"),
    "pk_add_f": (packed_sum(np.float16), "16"),
    "pk_add_bf": (packed_sum(ml_dtypes.bfloat16), "16"),
}


def check_lds(name: str, bits: int, update: Update, returns: bool, half: object = None) -> None:
    """Run a DS atomic on initialised LDS and compare memory and results."""
    size = 32 if bits == 16 else bits
    state = make_state(waves=2, lds_bytes=SLOTS * size // 8)
    state.vgpr[1] = 4 * np.arange(LANES)
    set_exec(state, (1 << SLOTS * size // 32) - 1)
    floats = "_f" in name or half is not None
    state.vgpr[3] = 0 if floats else np.arange(LANES)
    run(state, assemble("ds_write_b32 v1, v3"), waves=[0])
    barrier(state)
    set_exec(state, MASK)
    operands(state, size, floats=floats, half=half)
    two = name.startswith(("mskor", "cmpst", "wrap"))
    if name.startswith("cmpst"):  # now and then what is there
        state.vgpr[4:6] = np.where(np.arange(LANES) % 2, state.vgpr[4:6], 0)
    rtn = "_rtn" in name
    expected, returned = expected_lanes(state, state.lds[0], update, size)
    if returns and not rtn:
        stem, kind = name.rsplit("_", 1)
        name, rtn = f"{stem}_rtn_{kind}", True
    registers = (lambda r: f"v[{r}:{r + 1}]") if size == 64 else (lambda r: f"v{r}")
    second = f", {registers(6)}" if two else ""
    result = f"{registers(8)}, " if rtn else ""
    run(state, assemble(f"ds_{name}{bits} {result}v1, {registers(4)}{second}"))
    np.testing.assert_array_equal(state.lds[0], expected)
    if rtn:
        check_returned(state, returned, size)


@pytest.mark.covering(pairs=True)
@pytest.mark.parametrize("returns", [True, False])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", DS_INTEGER)
def test_lds_integer(name: str, bits: int, returns: bool) -> None:
    check_lds(DS_INTEGER[name], bits, INTEGER[name], returns)


@pytest.mark.parametrize("returns", [True, False])
@pytest.mark.parametrize(
    ("name", "bits"), [(n, int(b)) for n in DS_OTHER for b in DS_OTHER[n][1].split()]
)
def test_lds_other(name: str, bits: int, returns: bool) -> None:
    half = {"pk_add_f": np.float16, "pk_add_bf": ml_dtypes.bfloat16}.get(name)
    check_lds(name, bits, DS_OTHER[name][0], returns, half)


@pytest.mark.parametrize(("name", "unit"), [("wrxchg2", 1), ("wrxchg2st64", 64)])
def test_lds_double_exchange(name: str, unit: int) -> None:
    state = make_state(lds_bytes=1024)
    state.vgpr[1] = 16 * np.arange(LANES)
    state.vgpr[4:8] = np.arange(4 * LANES).reshape(4, 1, LANES)
    run(state, assemble("ds_write_b128 v1, v[4:7]"))
    before = state.lds[0].view(np.uint32).copy()
    set_exec(state, 1)
    state.vgpr[1] = 0
    run(state, assemble(f"ds_{name}_rtn_b32 v[8:9], v1, v2, v3 offset0:1 offset1:2"))
    assert state.vgpr[8, 0, 0] == before[unit]
    assert state.vgpr[9, 0, 0] == before[2 * unit]


@pytest.mark.parametrize(("name", "sign"), [("ds_append", 1), ("ds_consume", -1)])
def test_append_and_consume(name: str, sign: int) -> None:
    """The number of active lanes is added once, and every lane gets the old value."""
    state = make_state(waves=2, lds_bytes=256)
    state.vgpr[1], state.vgpr[2] = 4 * np.arange(LANES), 500
    run(state, assemble("ds_write_b32 v1, v2"), waves=[0])
    barrier(state)
    state.sgpr[124] = 8
    set_exec(state, [MASK, 0xFF])
    state.vgpr[3] = 1
    run(state, assemble(f"{name} v3 offset:16"))
    first = MASK.bit_count()
    assert state.lds[0].view(np.uint32)[6] == 500 + sign * (first + 8)
    assert {int(state.vgpr[3, 0, lane]) for lane in exec_lanes(state, 0)} == {500}
    assert set(state.vgpr[3, 1, :8].tolist()) == {500 + sign * first}
    assert state.vgpr[3, 1, 8] == 1
