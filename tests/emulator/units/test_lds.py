"""DS reads, writes and lane exchanges against plain loops over waves and lanes."""

from __future__ import annotations

import numpy as np
import pytest

from cupygemm.emulator.diagnostics.checking import Policy
from cupygemm.emulator.diagnostics.findings import Findings
from cupygemm.emulator.errors import Fault, UnsupportedInstruction
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.waves.state import LANES, State
from tests.emulator.harness import assemble, exec_lanes, make_state, run, set_exec

LDS_BYTES = 4096
RNG = np.random.default_rng(20)
MASKS = [0xFFFFFFFFFFFFFFFF, 0x8000000100F0FF01]


def filled_state(*, mask: int, seed: int = 1, target: str = "gfx942") -> State:
    """Return two workgroups of two waves whose LDS holds known random bytes."""
    state = make_state(waves=2, workgroups=2, lds_bytes=LDS_BYTES, target=target, seed=seed)
    fill_lds(state)
    state.lds[:] = np.random.default_rng(seed + 1).integers(0, 256, state.lds.shape, np.uint8)
    set_exec(state, mask)
    return state


def fill_lds(state: State) -> None:
    """Make wave 0 of each workgroup write all of LDS, and all waves wait for it."""
    lane = np.arange(LANES, dtype=np.uint32)
    saved = state.vgpr.copy(), state.sgpr.copy()
    set_exec(state, 0xFFFFFFFFFFFFFFFF)
    first_waves = np.flatnonzero(state.wave_in_group == 0)
    store = assemble("ds_write_b128 v0, v[4:7]")
    for start in range(0, state.lds.shape[1], 16 * LANES):
        state.vgpr[0] = start + 16 * lane
        run(state, store, waves=first_waves)
    state.vgpr[:], state.sgpr[:] = saved
    state.barrier_epoch += 1
    state.lds_released[:] = state.lds_waited[:] = state.lds_issued


def random_addresses(state: State, size: int, *, aligned: bool, room: int = 0) -> np.ndarray:
    """Return addresses (waves, 64) that leave `size` + `room` bytes."""
    step = size if aligned else 1
    top = (LDS_BYTES - size - room) // step
    return (step * RNG.integers(0, top + 1, (state.num_waves, LANES))).astype(np.uint32)


def lds_bytes(state: State, wave: int, address: int, size: int) -> bytes:
    """Return bytes of the LDS of a wave's workgroup."""
    return state.lds[state.workgroup[wave], address : address + size].tobytes()


def extend(data: bytes, *, signed: bool) -> int:
    """Return little-endian bytes as a 32-bit pattern."""
    return int.from_bytes(data, "little", signed=signed) & 0xFFFFFFFF


# -- reads -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("bits", [32, 64, 96, 128])
def test_wide_read(bits: int, aligned: bool, mask: int) -> None:
    state = filled_state(mask=mask)
    size = bits // 8
    registers = f"v[8:{7 + size // 4}]" if bits > 32 else "v8"
    address = random_addresses(
        state, 4 if bits == 96 and aligned else size, aligned=aligned, room=32
    )
    state.vgpr[1] = address
    before = state.vgpr.copy()
    run(state, assemble(f"ds_read_b{bits} {registers}, v1 offset:16"))
    expected = before
    for wave in range(state.num_waves):
        for lane in exec_lanes(state, wave):
            data = lds_bytes(state, wave, int(address[wave, lane]) + 16, size)
            for i in range(size // 4):
                expected[8 + i, wave, lane] = extend(data[4 * i : 4 * i + 4], signed=False)
    np.testing.assert_array_equal(state.vgpr, expected)


@pytest.mark.parametrize(
    ("name", "size", "signed", "half"),
    [
        ("ds_read_u8", 1, False, ""),
        ("ds_read_i8", 1, True, ""),
        ("ds_read_u16", 2, False, ""),
        ("ds_read_i16", 2, True, ""),
        ("ds_read_u8_d16", 1, False, "low"),
        ("ds_read_u8_d16_hi", 1, False, "high"),
        ("ds_read_i8_d16", 1, True, "low"),
        ("ds_read_i8_d16_hi", 1, True, "high"),
        ("ds_read_u16_d16", 2, False, "low"),
        ("ds_read_u16_d16_hi", 2, False, "high"),
    ],
)
def test_narrow_read(name: str, size: int, signed: bool, half: str) -> None:
    state = filled_state(mask=MASKS[1])
    state.vgpr[1] = address = random_addresses(state, size, aligned=False, room=256)
    expected = state.vgpr.copy()
    run(state, assemble(f"{name} v8, v1 offset:255"))
    for wave in range(state.num_waves):
        for lane in exec_lanes(state, wave):
            data = lds_bytes(state, wave, int(address[wave, lane]) + 255, size)
            value = extend(data, signed=signed)
            if half == "low":
                value = value & 0xFFFF
            elif half == "high":
                value = (value & 0xFFFF) << 16
            expected[8, wave, lane] = value
    np.testing.assert_array_equal(state.vgpr, expected)


def test_reads_at_two_gib_are_disabled() -> None:
    """Tensile reads there in lanes outside a matrix; no other address outside LDS is accepted."""
    state = filled_state(mask=2**64 - 1)
    address = np.where(np.arange(64) % 2, np.uint32(0x80000000), np.uint32(16))
    state.vgpr[1] = address
    run(state, assemble("ds_read_b64 v[8:9], v1 offset:8"))
    for wave in range(state.num_waves):
        data = np.frombuffer(lds_bytes(state, wave, 24, 8), np.uint32)
        assert (state.vgpr[8:10, wave, ::2] == data[:, None]).all()
        assert (state.vgpr[8:10, wave, 1::2] == 0).all()
    with pytest.raises(Fault, match="out-of-bounds LDS write"):
        run(state, assemble("ds_write_b64 v1, v[8:9]"))
    state.vgpr[1] = address - np.uint32(16)
    with pytest.raises(Fault, match="out-of-bounds LDS read"):
        run(state, assemble("ds_read_b64 v[8:9], v1 offset:8"))


@pytest.mark.parametrize(("name", "unit"), [("ds_read2", 1), ("ds_read2st64", 64)])
@pytest.mark.parametrize("bits", [32, 64])
def test_double_read(name: str, unit: int, bits: int) -> None:
    state = filled_state(mask=MASKS[1])
    size = bits // 8
    state.vgpr[1] = address = random_addresses(state, size, aligned=True, room=3 * size * unit)
    expected = state.vgpr.copy()
    # The address register is one of the destinations: both addresses are taken before it changes.
    run(state, assemble(f"{name}_b{bits} v[0:{2 * size // 4 - 1}], v1 offset0:3 offset1:1"))
    for wave in range(state.num_waves):
        for lane in exec_lanes(state, wave):
            for access, offset in enumerate((3, 1)):
                start = int(address[wave, lane]) + offset * size * unit
                data = lds_bytes(state, wave, start, size)
                for i in range(size // 4):
                    register = access * size // 4 + i
                    expected[register, wave, lane] = extend(data[4 * i : 4 * i + 4], signed=False)
    np.testing.assert_array_equal(state.vgpr, expected)


def test_read_into_accumulation_registers() -> None:
    state = filled_state(mask=MASKS[0])
    state.vgpr[1] = address = random_addresses(state, 8, aligned=True)
    run(state, assemble("ds_read_b64 a[6:7], v1"))
    for wave in range(state.num_waves):
        for lane in range(LANES):
            data = lds_bytes(state, wave, int(address[wave, lane]), 8)
            assert state.vgpr[256 + 6, wave, lane] == extend(data[:4], signed=False)
            assert state.vgpr[256 + 7, wave, lane] == extend(data[4:], signed=False)


def test_address_wraps_at_32_bits() -> None:
    state = filled_state(mask=MASKS[0])
    state.vgpr[1] = 0xFFFFFFF0  # -16
    run(state, assemble("ds_read_b32 v8, v1 offset:20"))
    for wave in range(state.num_waves):
        assert (state.vgpr[8, wave] == extend(lds_bytes(state, wave, 4, 4), signed=False)).all()


# -- writes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    ("name", "size", "shift"),
    [
        ("ds_write_b8", 1, 0),
        ("ds_write_b16", 2, 0),
        ("ds_write_b32", 4, 0),
        ("ds_write_b64", 8, 0),
        ("ds_write_b96", 12, 0),
        ("ds_write_b128", 16, 0),
        ("ds_write_b8_d16_hi", 1, 16),
        ("ds_write_b16_d16_hi", 2, 16),
    ],
)
def test_write(name: str, size: int, shift: int, mask: int) -> None:
    state = filled_state(mask=mask)
    registers = f"v[4:{3 + size // 4}]" if size > 4 else "v4"
    wave_part = LDS_BYTES // 2 * state.wave_in_group[:, None]
    state.vgpr[1] = address = (wave_part + 24 * np.arange(LANES)).astype(np.uint32)
    expected = state.lds.copy()
    for wave in range(state.num_waves):
        for lane in exec_lanes(state, wave):
            words = [int(state.vgpr[4 + i, wave, lane]) for i in range(4)]
            value = sum(word << 32 * i for i, word in enumerate(words)) >> shift
            data = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
            start = int(address[wave, lane]) + 8
            expected[state.workgroup[wave], start : start + size] = np.frombuffer(data, np.uint8)
    run(state, assemble(f"{name} v1, {registers} offset:8"))
    np.testing.assert_array_equal(state.lds, expected)


@pytest.mark.parametrize(("name", "unit"), [("ds_write2", 1), ("ds_write2st64", 64)])
@pytest.mark.parametrize("bits", [32, 64])
def test_double_write(name: str, unit: int, bits: int) -> None:
    state = filled_state(mask=MASKS[1])
    size = bits // 8
    first, second = ("v4", "v6") if bits == 32 else ("v[4:5]", "v[6:7]")
    wave_part = LDS_BYTES // 2 * state.wave_in_group[:, None]
    spread = 24 * np.arange(LANES) if unit == 1 else size * np.arange(LANES)
    state.vgpr[1] = address = (wave_part + spread).astype(np.uint32)
    expected = state.lds.copy()
    for wave in range(state.num_waves):
        for lane in exec_lanes(state, wave):
            for register, offset in ((4, 2), (6, 1)):
                words = state.vgpr[register : register + size // 4, wave, lane]
                start = int(address[wave, lane]) + offset * size * unit
                expected[state.workgroup[wave], start : start + size] = words.copy().view(np.uint8)
    run(state, assemble(f"{name}_b{bits} v1, {first}, {second} offset0:2 offset1:1"))
    np.testing.assert_array_equal(state.lds, expected)


def test_highest_lane_wins() -> None:
    state = make_state(lds_bytes=64)
    state.findings = Findings(Policy().changed({"lane_races": "off"}))
    state.vgpr[4] = np.arange(LANES)
    run(state, assemble("ds_write_b32 v1, v4"))
    assert state.lds[0, 0] == 63


@pytest.mark.parametrize(("target", "m0"), [("gfx942", 0xABCD0000 | 256), ("gfx950", 256)])
def test_addtid(target: str, m0: int) -> None:
    state = make_state(lds_bytes=2048, target=target)
    state.sgpr[124] = m0
    state.vgpr[4] = 1000 + np.arange(LANES)
    store, load = "ds_write_addtid_b32 v4 offset:16", "ds_read_addtid_b32 v5 offset:16"
    run(state, assemble(store, target), assemble(load, target))
    words = state.lds[0].view(np.uint32)[(256 + 16) // 4 :][:LANES]
    np.testing.assert_array_equal(words, 1000 + np.arange(LANES))
    np.testing.assert_array_equal(state.vgpr[5, 0], 1000 + np.arange(LANES))


# -- lane exchanges --------------------------------------------------------------------------------


def exchange(text: str, *, mask: int, pattern: np.ndarray) -> tuple[State, np.ndarray]:
    """Run an exchange of v2 into v3 with addresses `pattern` in v1; also return the old v3."""
    state = make_state(waves=2, seed=5)
    # The hardware ignores the lower two bits of an address.
    state.findings.policy = Policy({**Policy(), "lane_addresses": "off"})
    set_exec(state, mask)
    state.vgpr[1] = pattern
    before = state.vgpr[3].copy()
    run(state, assemble(text))
    return state, before


@pytest.mark.parametrize("mask", MASKS)
def test_bpermute(mask: int) -> None:
    pattern = RNG.integers(0, 1 << 12, (2, LANES)).astype(np.uint32)
    state, before = exchange("ds_bpermute_b32 v3, v1, v2 offset:8", mask=mask, pattern=pattern)
    for wave in range(2):
        active = exec_lanes(state, wave)
        for lane in range(LANES):
            other = (int(pattern[wave, lane]) + 8) // 4 % 64
            got = state.vgpr[3, wave, lane]
            if lane in active:
                assert got == (state.vgpr[2, wave, other] if other in active else 0)
            else:
                assert got == before[wave, lane]


@pytest.mark.parametrize("name", ["ds_bpermute_b32", "ds_permute_b32"])
def test_an_address_that_names_no_lane_is_reported(name: str) -> None:
    state = make_state()
    set_exec(state, 0b0111)
    state.vgpr[1, 0, :4] = 4, 8, 13, 2  # the last lane is switched off
    with pytest.raises(Fault, match=r"the address is 17: .* 4 for each lane") as caught:
        run(state, assemble(f"{name} v3, v1, v2 offset:4"))
    assert caught.value.kind == "lane exchange at an address that is no multiple of 4"
    assert (caught.value.check, caught.value.lanes) == ("lane_addresses", (2,))


@pytest.mark.parametrize("mask", MASKS)
def test_permute(mask: int) -> None:
    pattern = RNG.integers(0, 1 << 12, (2, LANES)).astype(np.uint32)
    state, before = exchange("ds_permute_b32 v3, v1, v2 offset:4", mask=mask, pattern=pattern)
    for wave in range(2):
        active = exec_lanes(state, wave)
        sent = [0] * LANES
        for lane in active:  # the highest source lane wins
            sent[(int(pattern[wave, lane]) + 4) // 4 % 64] = state.vgpr[2, wave, lane]
        for lane in range(LANES):
            expected = sent[lane] if lane in active else before[wave, lane]
            assert state.vgpr[3, wave, lane] == expected


# Tables of the ISA guides for the FFT mode; swap is (xor_mask << 10 | or_mask << 5 | and_mask).
SWIZZLES = {
    "swizzle(SWAP, 4)": lambda i: i ^ 4,
    "swizzle(REVERSE, 32)": lambda i: i & 32 | 31 - (i & 31),
    "swizzle(BROADCAST, 8, 3)": lambda i: i & ~7 | 3,
    "swizzle(QUAD_PERM, 2, 0, 3, 1)": lambda i: i & ~3 | (2, 0, 3, 1)[i & 3],
    'swizzle(BITMASK_PERM, "01pip")': lambda i: i & 32 | (i & 7 ^ 2) | 8,
    "0xc0a0": lambda i: i & 32 | (i + 5) & 31,  # rotate by 5
    "0xc4a3": lambda i: i & 32 | i & 3 | (i & 31) - 5 & 28,  # back by 5, the low two bits kept
    "0xe000": lambda i: i & 32 | int(f"{i & 31:05b}"[::-1], 2),
    "0xe010": lambda i: i & 48 | [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15][i & 15],
    "0xe01f": lambda i: i,
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("pattern", SWIZZLES)
def test_swizzle(pattern: str, mask: int) -> None:
    state, before = exchange(
        f"ds_swizzle_b32 v3, v2 offset:{pattern}", mask=mask, pattern=np.zeros((2, LANES))
    )
    for wave in range(2):
        active = exec_lanes(state, wave)
        for lane in range(LANES):
            other = SWIZZLES[pattern](lane)
            expected = before[wave, lane]
            if lane in active:
                expected = state.vgpr[2, wave, other] if other in active else 0
            assert state.vgpr[3, wave, lane] == expected, (lane, other)


# -- transposing reads -----------------------------------------------------------------------------


def element(data: bytes, index: int, bits: int) -> int:
    """Return element `index` of packed `bits`-bit elements, the lowest bits first."""
    return int.from_bytes(data, "little") >> index * bits & (1 << bits) - 1


@pytest.mark.parametrize(("size", "bits"), [(8, 16), (8, 8), (8, 4), (12, 6)])
def test_transposing_read(size: int, bits: int) -> None:
    """Every 16 lanes read a tile, rows first, and each lane gets a column."""
    state = filled_state(mask=MASKS[0], target="gfx950")
    step = 8 if size == 8 else 16
    address = (step * RNG.integers(0, 200, (state.num_waves, LANES))).astype(np.uint32)
    state.vgpr[1] = address
    run(
        state,
        assemble(f"ds_read_b{8 * size}_tr_b{bits} v[8:{7 + size // 4}], v1 offset:16", "gfx950"),
    )
    per_lane = 8 * size // bits
    for wave in range(state.num_waves):
        for block in range(0, LANES, 16):
            tile = [
                element(
                    lds_bytes(state, wave, int(address[wave, block + lane]) + 16, size), i, bits
                )
                for lane in range(16)
                for i in range(per_lane)
            ]
            rows = [tile[16 * row : 16 * row + 16] for row in range(per_lane)]
            for column in range(16):
                got = state.vgpr[8 : 8 + size // 4, wave, block + column].copy().tobytes()
                wanted = [row[column] for row in rows]
                assert [element(got, i, bits) for i in range(per_lane)] == wanted


def test_transposing_read_of_halves_by_the_published_formula() -> None:
    """Element n of lane l is element l%4 of lane 16(l/16) + (l/4)%4 + 4n."""
    state = filled_state(mask=MASKS[0], target="gfx950")
    state.vgpr[1] = 8 * np.arange(LANES)
    run(state, assemble("ds_read_b64_tr_b16 v[8:9], v1", "gfx950"))
    halves = state.lds[0].view(np.uint16)
    for lane in range(LANES):
        got = state.vgpr[8:10, 0, lane].copy().view(np.uint16)
        for n in range(4):
            source = (lane & ~15 | lane >> 2 & 3) + 4 * n
            assert got[n] == halves[4 * source + (lane & 3)]


def test_transposing_read_needs_every_lane() -> None:
    state = filled_state(mask=MASKS[1], target="gfx950")
    state.vgpr[1] = 8 * np.arange(LANES)
    with pytest.raises(Fault, match="lanes switched off"):
        run(state, assemble("ds_read_b64_tr_b16 v[8:9], v1", "gfx950"))


def test_transposing_read_must_be_aligned() -> None:
    state = filled_state(mask=MASKS[0], target="gfx950")
    state.vgpr[1] = 8 * np.arange(LANES)
    state.vgpr[1, 1, 7] += 4
    with pytest.raises(Fault, match="misaligned LDS transpose read") as caught:
        run(state, assemble("ds_read_b64_tr_b8 v[8:9], v1", "gfx950"))
    assert (caught.value.wave, caught.value.lane) == (1, 7)


# -- unsupported -----------------------------------------------------------------------------------


def test_gds_is_refused() -> None:
    state = make_state(lds_bytes=64)
    with_gds = assemble("ds_read_b32 v0, v1").raw | 1 << 16
    with pytest.raises(UnsupportedInstruction, match="ds_read_b32"):
        run(state, decode(with_gds.to_bytes(8, "little")))
