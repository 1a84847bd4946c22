"""Typed buffer accesses convert elements between memory and registers, format by format."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.errors import Fault
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.waves.state import LANES, State
from tests.emulator.harness import assemble, assemble_all, make_state, run, set_exec
from tests.emulator.units.typed_reference import (
    COMPONENTS,
    DATA_FORMATS,
    NUMBERS,
    exists,
    joined,
    loaded,
    split,
    stored,
)

TARGETS = ("gfx90a", "gfx942", "gfx950")
FORMATS = [pair for pair in itertools.product(COMPONENTS, NUMBERS) if exists(*pair)]
IN_ORDER = 4 | 5 << 3 | 6 << 6 | 7 << 9
RECORDS = LANES - 4  # the last lanes are out of bounds
CHANNELS = {1: "x", 2: "xy", 3: "xyz", 4: "xyzw"}
KINDS = ("", "_d16")
FLOATS = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 0.25, 1 / 3, -2 / 3, 0.1, 2.0, -3.0, 1e-3, -1e-3, 1e30, -1e30,
    127.5, 128.5, 254.5, 255.5, 1023.5, -127.5, -128.5, 65504.0, 65536.0, 6e-8, 1e-5, 3.1e-5, 7e-5,
    np.inf, -np.inf, np.nan,
]  # fmt: skip


def elements(data: str, seed: int) -> list[int]:
    """Return random elements, and those of which a component is extreme."""
    rng = np.random.default_rng(seed)
    bits = COMPONENTS[data]
    extremes = [[0] * len(bits), [2**b - 1 for b in bits], [2 ** (b - 1) for b in bits]]
    drawn = [[int(rng.integers(0, 2**b)) for b in bits] for _ in range(LANES - len(extremes))]
    return [joined(raw, data) for raw in [*extremes, *drawn]]


def size_of(data: str) -> int:
    return sum(COMPONENTS[data]) // 8


def typed_state(
    memory: bytes, data: str, number: str, *, target: str = "gfx942", selects: int = IN_ORDER
) -> tuple[State, np.ndarray]:
    """Return a wave whose v1 is the lane, and s[4:7] a structured buffer of typed elements."""
    state = make_state(target=target, seed=3)
    address = state.memory.put(np.frombuffer(memory, np.uint8))
    size = size_of(data)
    word3 = DATA_FORMATS[data] << 15 | NUMBERS[number] << 12 | selects
    words = address & 0xFFFFFFFF, address >> 32 | size << 16, RECORDS, word3
    state.sgpr[4:8] = np.array(words, np.uint32)[:, None]
    state.vgpr[1] = np.arange(LANES)
    return state, state.memory.bytes(address)


def instruction(verb: str, kind: str, count: int, data: str, number: str, *, own: bool) -> str:
    """Return a typed access of `count` channels; `own` has the formats in the instruction."""
    registers = (count + 1) // 2 if kind else count
    vdata = f"v[8:{7 + registers}]" if registers > 1 else "v8"
    formats = f" format:[BUF_DATA_FORMAT_{data},BUF_NUM_FORMAT_{number}]" if own else ""
    name = f"{'t' * own}buffer_{verb}_format{kind}_{CHANNELS[count]}"
    return f"{name} {vdata}, v1, s[4:7], 0{formats} idxen"


@functools.cache
def assembled() -> dict[str, Instruction]:
    """Return the instructions of both tests of all formats, by their texts."""
    cases = itertools.product(("load", "store"), KINDS, CHANNELS, FORMATS, (False, True))
    texts = dict.fromkeys(
        instruction(verb, kind, count, *pair, own=own) for verb, kind, count, pair, own in cases
    )
    return dict(zip(texts, assemble_all(texts), strict=True))


def register(state: State, kind: str, channel: int, lane: int) -> int:
    if not kind:
        return int(state.vgpr[8 + channel, 0, lane])
    return int(state.vgpr[8 + channel // 2, 0, lane]) >> 16 * (channel % 2) & 0xFFFF


def are_equal(bits: int, expected: int, *, half: bool, is_float: bool) -> bool:
    """Return whether two registers are equal; all NaN are."""
    kind: Any = np.float16 if half else np.float32
    whole: Any = np.uint16 if half else np.uint32
    values = np.array([bits, expected], whole).view(kind)
    return bits == expected or (is_float and bool(np.isnan(values).all()))


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("data", "number"), FORMATS, ids="-".join)
def test_loads_of_each_format(data: str, number: str) -> None:
    """By MTBUF and by MUBUF, in 32 and 16 bits, with fewer and with more channels than it has."""
    found = elements(data, seed=DATA_FORMATS[data] * 8 + NUMBERS[number])
    memory = b"".join(each.to_bytes(size_of(data), "little") for each in found)
    for own, kind, count in itertools.product((False, True), KINDS, CHANNELS):
        state, _ = typed_state(memory, data, number)
        run(state, assembled()[instruction("load", kind, count, data, number, own=own)])
        for lane, channel in itertools.product(range(LANES), range(count)):
            raw = split(found[lane], data)
            expected = 0
            if lane < RECORDS and channel < len(raw):
                bits = COMPONENTS[data][channel]
                expected = loaded(raw[channel], bits, number, bool(kind))
            got = register(state, kind, channel, lane)
            assert are_equal(
                got, expected, half=bool(kind), is_float=number not in ("UINT", "SINT")
            ), (own, kind, count, lane, channel, hex(found[lane]), hex(got), hex(expected))


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("data", "number"), FORMATS, ids="-".join)
def test_stores_of_each_format(data: str, number: str) -> None:
    """Components that the instruction lacks become 0, and an element out of bounds stays."""
    size, rng = size_of(data), np.random.default_rng(9)
    for own, kind, count in itertools.product((False, True), KINDS, CHANNELS):
        before = rng.integers(0, 256, LANES * size, np.uint8).tobytes()
        state, memory = typed_state(before, data, number)
        whole: Any = np.uint16 if kind else np.uint32
        values = rng.integers(0, 2 ** (16 if kind else 32), (4, LANES)).astype(whole)
        if number not in ("UINT", "SINT"):
            with np.errstate(over="ignore"):
                some = np.array(FLOATS).astype(np.float16 if kind else np.float32).view(whole)
            values[:, : 2 * len(FLOATS)] = rng.permuted(np.tile(some, (4, 2)), axis=1)
        packed = values.astype(np.uint32)
        state.vgpr[8:12, 0] = packed[::2].repeat(2, 0) if kind else packed
        if kind:
            state.vgpr[8, 0], state.vgpr[9, 0] = (
                packed[0] | packed[1] << 16,
                packed[2] | packed[3] << 16,
            )
        run(state, assembled()[instruction("store", kind, count, data, number, own=own)])
        for lane in range(LANES):
            got = memory[lane * size : (lane + 1) * size].tobytes()
            if lane >= RECORDS:
                assert got == before[lane * size : (lane + 1) * size]
                continue
            raw = split(int.from_bytes(got, "little"), data)
            for channel, bits in enumerate(COMPONENTS[data]):
                reg = int(values[channel, lane]) if channel < count else 0
                expected = stored(reg, bits, number, bool(kind)) if channel < count else 0
                is_nan = number == "FLOAT" and np.isnan(
                    values[channel, lane : lane + 1].view(np.float16 if kind else np.float32)
                )
                if is_nan and channel < count:
                    assert np.isnan(small(raw[channel], bits)), (own, kind, count, lane, channel)
                else:
                    assert raw[channel] == expected, (own, kind, count, lane, channel, hex(reg))


def small(raw: int, bits: int) -> float:
    """Return the value of a float of any width."""
    if bits >= 16:
        whole, kind = (np.uint16, np.float16) if bits == 16 else (np.uint32, np.float32)
        return float(np.array([raw], whole).view(kind)[0])
    return float("nan") if raw >> (bits - 5) == 31 and raw % 2 ** (bits - 5) else 0.0


@pytest.mark.parametrize("target", TARGETS)
def test_the_upper_half_of_a_register(target: str) -> None:
    memory = np.arange(LANES, dtype=np.uint16).tobytes()
    state, data = typed_state(memory, "16", "UINT", target=target)
    run(state, assemble("buffer_load_format_d16_hi_x v8, v1, s[4:7], 0 idxen", target))
    expected = np.arange(LANES) * (np.arange(LANES) < RECORDS) << 16
    np.testing.assert_array_equal(state.vgpr[8, 0], expected)
    state.vgpr[8, 0] = 0x12340000 + np.arange(LANES)
    run(state, assemble("buffer_store_format_d16_hi_x v8, v1, s[4:7], 0 idxen", target))
    assert set(data.view(np.uint16)[:RECORDS]) == {0x1234}


def test_components_are_selected() -> None:
    """DST_SEL of the resource: 0, 1, and the components in another order."""
    memory = bytes(range(4 * LANES))
    for number, one in (("UINT", 1), ("UNORM", 0x3F800000)):
        selects = 7 | 1 << 3 | 0 << 6 | 4 << 9  # alpha, 1, 0, red
        state, _ = typed_state(memory, "8_8_8_8", number, selects=selects)
        run(state, assemble("buffer_load_format_xyzw v[8:11], v1, s[4:7], 0 idxen"))
        lane = 5
        assert state.vgpr[8, 0, lane] == loaded(4 * lane + 3, 8, number, half=False)
        assert state.vgpr[9, 0, lane] == one
        assert state.vgpr[10, 0, lane] == 0
        assert state.vgpr[11, 0, lane] == loaded(4 * lane, 8, number, half=False)
        with pytest.raises(Fault, match="typed store with exchanged components"):
            run(state, assemble("buffer_store_format_xyzw v[8:11], v1, s[4:7], 0 idxen"))


def test_a_raw_buffer_is_checked_by_its_bytes() -> None:
    """An element that is partly outside is outside as a whole."""
    memory = np.arange(3 * LANES, dtype=np.uint32)
    state, _ = typed_state(memory.tobytes(), "32_32_32", "UINT")
    state.sgpr[5] &= 0xFFFF
    state.sgpr[6] = 12 * 10 + 8
    state.vgpr[1] = 12 * np.arange(LANES)
    run(state, assemble("buffer_load_format_xyz v[8:10], v1, s[4:7], 0 offen"))
    expected = memory.reshape(LANES, 3) * (np.arange(LANES) < 10)[:, None]
    np.testing.assert_array_equal(state.vgpr[8:11, 0].T, expected)


@pytest.mark.parametrize(
    ("data", "number"), [("8", 7), ("2_10_10_10", 7), ("32", 0), ("32_32", 3), ("16", 6), ("", 4)]
)
def test_formats_that_do_not_exist_are_refused(data: str, number: int) -> None:
    state, _ = typed_state(bytes(16 * LANES), "32", "UINT")
    state.sgpr[7] = DATA_FORMATS.get(data, 0) << 15 | number << 12 | IN_ORDER
    with pytest.raises(Fault, match="typed access to an unknown format"):
        run(state, assemble("buffer_load_format_x v8, v1, s[4:7], 0 idxen"))


@pytest.mark.parametrize(("data", "step"), [("16", 1), ("8_8_8_8", 2), ("32_32", 2), ("16_16", 1)])
def test_elements_must_be_aligned(data: str, step: int) -> None:
    state, _ = typed_state(bytes(16 * LANES), data, "UINT")
    state.sgpr[5] &= 0xFFFF
    state.sgpr[6] = 16 * LANES
    state.vgpr[1] = 16 * np.arange(LANES) + step
    set_exec(state, 0b1110)
    with pytest.raises(Fault, match="misaligned typed access") as found:
        run(state, assemble("buffer_load_format_x v8, v1, s[4:7], 0 offen"))
    assert found.value.lanes == (1, 2, 3)
    assert found.value.check == "required_alignment"
    state.vgpr[1] += 4 - step
    run(state, assemble("buffer_load_format_x v8, v1, s[4:7], 0 offen"))


def test_swizzled_buffers() -> None:
    """Elements of up to a dword are followed there, and larger ones refused."""
    state, _ = typed_state(np.arange(4 * LANES, dtype=np.uint32).tobytes(), "32", "UINT")
    state.sgpr[5] = state.sgpr[5] & 0xFFFF | 1 << 31 | 16 << 16
    run(state, assemble("buffer_load_format_x v8, v1, s[4:7], 0 idxen offset:8"))
    index = np.arange(LANES)
    place = (index // 8 * 16 + 8) * 8 + index % 8 * 4
    np.testing.assert_array_equal(state.vgpr[8, 0], place // 4 * (index < RECORDS))
    state.sgpr[7] = DATA_FORMATS["32_32"] << 15 | NUMBERS["UINT"] << 12 | IN_ORDER
    with pytest.raises(Fault, match="typed access to a swizzled buffer"):
        run(state, assemble("buffer_load_format_xy v[8:9], v1, s[4:7], 0 idxen"))


SOURCE = """
typedef float float4_ __attribute__((ext_vector_type(4)));
extern "C" __device__ float4_ load(__amdgpu_buffer_rsrc_t, int, int, int, int)
    __asm("llvm.amdgcn.struct.ptr.buffer.load.format.v4f32");
extern "C" __device__ void store(float4_, __amdgpu_buffer_rsrc_t, int, int, int, int)
    __asm("llvm.amdgcn.struct.ptr.buffer.store.format.v4f32");
extern "C" __global__ void brighten(const unsigned* x, unsigned* y, int n) {
    const int formats = 10 << 15 | 0 << 12 | 4 | 5 << 3 | 6 << 6 | 7 << 9;  // 8_8_8_8, UNORM
    auto from = __builtin_amdgcn_make_buffer_rsrc((void*)x, 4, n, formats);
    auto to = __builtin_amdgcn_make_buffer_rsrc((void*)y, 4, n, formats);
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    store(load(from, i, 0, 0, 0) * 1.5f, to, i, 0, 0, 0);
}
extern "C" __global__ void undefined(unsigned* y, int n) {
    const int formats = 10 << 15 | 4 | 5 << 3 | 6 << 6 | 7 << 9;
    auto to = __builtin_amdgcn_make_buffer_rsrc((void*)y, 4, n, formats);
    float4_ color;
    color.x = 1; color.y = threadIdx.x; color.w = 0;
    float z[2];
    z[1] = 3;
    color.z = z[threadIdx.x % 2] * 2;
    store(color, to, threadIdx.x, 0, 0, 0);
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_from_hip(target: str) -> None:
    """By LLVM's intrinsics; an image is brightened, and memory past the last record stays."""
    code = emulator_code(SOURCE, target)
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (256, 4), np.uint8)
    y = np.full((256, 4), 7, np.uint8)
    emulator.launch(code, 2, 128, [x, y, np.int32(250)], kernel="brighten")
    brighter = (x / np.float32(255) * np.float32(1.5)).astype(np.float64)
    expected = np.minimum(np.rint(brighter * 255), 255)
    expected[250:] = 7
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("target", TARGETS)
def test_undefined_components_are_found(target: str) -> None:
    with pytest.raises(emulator.KernelFault, match="uninitialised variable") as caught:
        emulator.launch(
            emulator_code(SOURCE, target), 1, 64, [np.zeros(64, np.uint32), np.int32(64)],
            kernel="undefined",
        )  # fmt: skip
    assert caught.value.lanes == tuple(range(0, 64, 2))
    assert "color.z = z[threadIdx.x % 2] * 2" in caught.value.detail or "float z[2]" in str(
        caught.value
    )


def emulator_code(source: str, target: str) -> bytes:
    from cupygemm.emulator.runtime.compile import compile_program

    return compile_program(source, "typed.hip", target_name=target).code
