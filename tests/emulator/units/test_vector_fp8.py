"""Conversions of narrow floats by the vector ALU against ml_dtypes, in each target's formats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.waves.state import State
from tests.emulator.harness import assemble_all
from tests.emulator.vector_cases import DEFAULT_MODE, execute, fresh_state, get

FORMATS: dict[tuple[str, str], Any] = {
    ("gfx942", "fp8"): ml_dtypes.float8_e4m3fnuz,
    ("gfx942", "bf8"): ml_dtypes.float8_e5m2fnuz,
    ("gfx950", "fp8"): ml_dtypes.float8_e4m3fn,
    ("gfx950", "bf8"): ml_dtypes.float8_e5m2,
    ("gfx950", "fp6"): ml_dtypes.float6_e2m3fn,
    ("gfx950", "bf6"): ml_dtypes.float6_e3m2fn,
    ("gfx950", "fp4"): ml_dtypes.float4_e2m1fn,
}
EIGHT_BIT = [key for key in FORMATS if key[1] in ("fp8", "bf8")]
NARROW = [key for key in FORMATS if key[0] == "gfx950"]
WIDE: dict[str, tuple[Any, int]] = {
    "f32": (np.float32, 32),
    "f16": (np.float16, 16),
    "bf16": (ml_dtypes.bfloat16, 16),
}
CODES = np.arange(256, dtype=np.uint8)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Let references overflow, as the conversions under test do."""
    with np.errstate(all="ignore"):
        yield


def same(got: np.ndarray, expected: np.ndarray) -> bool:
    return bool(((got == expected) | np.isnan(got) & np.isnan(expected)).all())


# -- the instructions, all of a target in one run of the assembler ---------------------------------


def decode_byte(kind: str, byte: int) -> str:
    return f"v_cvt_f32_{kind}_sdwa v0, v2 src0_sel:BYTE_{byte}"


def decode_word(kind: str, word: int) -> str:
    return f"v_cvt_pk_f32_{kind}_sdwa v[0:1], v2 src0_sel:WORD_{word}"


def encode_pair(kind: str, high: int) -> str:
    return f"v_cvt_pk_{kind}_f32 v0, v2, v4 op_sel:[0,0,{high}]"


def encode_randomly(kind: str, byte: int) -> str:
    return f"v_cvt_sr_{kind}_f32 v0, v2, v4 op_sel:[0,0,{byte & 1},{byte >> 1}]"


def widen_pair(kind: str, wide: str) -> str:
    result = "v[0:1]" if wide == "f32" else "v0"
    selection = "1,1" if kind == "fp4" else "1,0"
    return f"v_cvt_scalef32_pk_{wide}_{kind} {result}, v2, v6 op_sel:[{selection}]"


def widen_single(kind: str, wide: str) -> str:
    return f"v_cvt_scalef32_{wide}_{kind} v0, v2, v6 op_sel:[0,1]"


def narrow_pair(kind: str, wide: str) -> str:
    operands = "v2, v4, v6" if wide == "f32" else "v2, v6"
    # A byte is named by the last two bits, a half by the last one.
    selection = "0,0,1,1" if kind == "fp4" else "0,0,0,1" if wide == "f32" else "0,0,1"
    return f"v_cvt_scalef32_pk_{kind}_{wide} v0, {operands} op_sel:[{selection}]"


def narrow_block(kind: str, wide: str) -> str:
    if wide == "f32":
        return f"v_cvt_scalef32_2xpk16_{kind}_f32 v[8:13], v[64:79], v[96:111], v6"
    return f"v_cvt_scalef32_pk32_{kind}_{wide} v[8:13], v[64:79], v6"


def widen_block(kind: str, wide: str) -> str:
    last = 159 if wide == "f32" else 143
    return f"v_cvt_scalef32_pk32_{wide}_{kind} v[128:{last}], v[8:13], v6"


def texts(target: str) -> list[str]:
    result = []
    for kind in ("fp8", "bf8"):
        for i in range(4):
            result += [decode_byte(kind, i), encode_randomly(kind, i)]
        for i in range(2):
            result += [decode_word(kind, i), encode_pair(kind, i)]
    if target == "gfx950":
        for wide in WIDE:
            result += [f(k, wide) for f in (widen_pair, narrow_pair) for k in ("fp8", "bf8", "fp4")]
            result += [f(k, wide) for f in (widen_block, narrow_block) for k in ("fp6", "bf6")]
        result += [widen_single(k, wide) for wide in ("f32", "f16") for k in ("fp8", "bf8")]
    return result


def one(text: str, target: str) -> Instruction:
    every = texts(target)
    return assemble_all(every, target)[every.index(text)]


# -- reading and writing ---------------------------------------------------------------------------


def floats(state: State, register: int, dtype: Any = np.float32) -> np.ndarray:
    return state.vgpr[register].reshape(-1).view(dtype)


def put_floats(state: State, register: int, values: np.ndarray) -> None:
    state.vgpr[register] = np.asarray(values, np.float32).reshape(-1, 64).view(np.uint32)


def encoded(values: np.ndarray, dtype: Any) -> np.ndarray:
    return np.asarray(values, np.float32).astype(dtype).view(np.uint8)


def samples(dtype: Any, count: int, seed: int) -> np.ndarray:
    """Return float32 values across a format's range, its own and their midpoints among them."""
    rng = np.random.default_rng(seed)
    bits = 4 if "4_e" in dtype.__name__ else 6 if "6_e" in dtype.__name__ else 8
    own = np.arange(1 << bits, dtype=np.uint8).view(dtype).astype(np.float32)
    own = np.unique(own[np.isfinite(own)])
    midpoints = (own[1:] + own[:-1]) / 2
    known = np.concatenate([own, midpoints, np.nextafter(midpoints, np.float32(0))])
    spread = rng.standard_normal(count) * own.max() / 4
    values = np.concatenate([known, spread])[-count:].astype(np.float32)
    return np.clip(values, own.min(), own.max())


@pytest.mark.parametrize(("target", "kind"), EIGHT_BIT)
def test_every_code_to_f32(target: str, kind: str) -> None:
    expected = CODES.view(FORMATS[target, kind]).astype(np.float32)
    for byte in range(4):
        state = fresh_state(4, target)
        state.vgpr[2] = (CODES.astype(np.uint32) << np.uint32(8 * byte)).reshape(4, 64)
        execute(state, one(decode_byte(kind, byte), target))
        assert same(floats(state, 0), expected)


@pytest.mark.parametrize(("target", "kind"), EIGHT_BIT)
@pytest.mark.parametrize("word", [0, 1])
def test_pairs_of_codes_to_f32(target: str, kind: str, word: int) -> None:
    table = CODES.view(FORMATS[target, kind]).astype(np.float32)
    state = fresh_state(4, target)
    low, high = CODES.astype(np.uint32), CODES[::-1].astype(np.uint32)
    state.vgpr[2] = ((low | high << np.uint32(8)) << np.uint32(16 * word)).reshape(4, 64)
    execute(state, one(decode_word(kind, word), target))
    assert same(floats(state, 0), table)
    assert same(floats(state, 1), table[::-1])


@pytest.mark.parametrize(("target", "kind"), EIGHT_BIT)
@pytest.mark.parametrize("high", [0, 1])
def test_pairs_from_f32(target: str, kind: str, high: int) -> None:
    dtype = FORMATS[target, kind]
    first, second = samples(dtype, 1024, 1), samples(dtype, 1024, 2)[::-1]
    state = fresh_state(16, target)
    state.vgpr[0] = 0xAAAA5555
    put_floats(state, 2, first)
    put_floats(state, 4, second)
    execute(state, one(encode_pair(kind, high), target))
    got = state.vgpr[0].reshape(-1)
    pair = got >> np.uint32(16 * high) & np.uint32(0xFFFF)
    assert (pair & np.uint32(0xFF) == encoded(first, dtype)).all()
    assert (pair >> np.uint32(8) == encoded(second, dtype)).all()
    assert (
        got >> np.uint32(16 - 16 * high) & np.uint32(0xFFFF) == (0x5555 if high else 0xAAAA)
    ).all()


@pytest.mark.parametrize(("target", "kind"), EIGHT_BIT)
def test_overflow_saturates_only_if_mode_says_so(target: str, kind: str) -> None:
    dtype = FORMATS[target, kind]
    largest = float(ml_dtypes.finfo(dtype).max)
    for mode, limit in ((DEFAULT_MODE, None), (DEFAULT_MODE | 1 << 23, largest)):
        state = fresh_state(1, target, mode)
        put_floats(state, 2, np.full(64, 1e9))
        put_floats(state, 4, np.full(64, -1e9))
        execute(state, one(encode_pair(kind, 0), target))
        codes = state.vgpr[0, 0, 0:1].view(np.uint8)[:2].view(dtype).astype(np.float32)
        if limit is None:
            assert not np.isfinite(codes).any()
        else:
            assert codes.tolist() == [limit, -limit]


@pytest.mark.parametrize(("target", "kind"), EIGHT_BIT)
@pytest.mark.parametrize("byte", range(4))
def test_stochastic_rounding(target: str, kind: str, byte: int) -> None:
    dtype = FORMATS[target, kind]
    state = fresh_state(16, target)
    state.vgpr[0] = 0x11223344
    put_floats(state, 2, np.full(1024, 1.0 + 2.0**-5 if kind == "fp8" else 1.0 + 2.0**-4))
    state.vgpr[4] = (np.arange(1024, dtype=np.uint32) << np.uint32(22)).reshape(16, 64)
    execute(state, one(encode_randomly(kind, byte), target))
    got = np.array(get(state, 0, 32), np.uint32)
    codes = (got >> np.uint32(8 * byte)).astype(np.uint8).view(dtype).astype(np.float32)
    step = 0.125 if kind == "fp8" else 0.25
    assert set(codes.tolist()) == {1.0, 1.0 + step}
    assert (codes > 1).sum() == 256  # a quarter of a step above: up for a quarter of the numbers
    keep = np.uint32(~(0xFF << 8 * byte) & 0xFFFFFFFF)
    assert (got & keep == np.uint32(0x11223344) & keep).all()


# -- scaled conversions of gfx950 ------------------------------------------------------------------

SCALES = [1.0, 0.25, 8.0]
BITS = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}


def scale_state(count: int, scale: float) -> State:
    state = fresh_state(count // 64, "gfx950")
    state.vgpr[6] = np.float32(scale).view(np.uint32)
    return state


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("kind", ["fp8", "bf8", "fp4"])
def test_scaled_pair_widens(kind: str, wide: str, scale: float) -> None:
    dtype, bits = FORMATS["gfx950", kind], BITS[kind]
    state = scale_state(256, scale)
    low, high = CODES & ((1 << bits) - 1), CODES[::-1] & ((1 << bits) - 1)
    word = low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(bits)
    state.vgpr[2] = (word << np.uint32(24 if kind == "fp4" else 16)).reshape(4, 64)
    execute(state, one(widen_pair(kind, wide), "gfx950"))
    expected = [codes.view(dtype).astype(np.float32) * np.float32(scale) for codes in (low, high)]
    if wide == "f32":
        got = [floats(state, 0), floats(state, 1)]
    else:
        halves = state.vgpr[0].reshape(-1)
        got = [
            (halves >> np.uint32(16 * i)).astype(np.uint16).view(WIDE[wide][0]).astype(np.float32)
            for i in (0, 1)
        ]
        expected = [x.astype(WIDE[wide][0]).astype(np.float32) for x in expected]
    assert same(got[0], expected[0])
    assert same(got[1], expected[1])


@pytest.mark.parametrize("wide", ["f32", "f16"])
@pytest.mark.parametrize("kind", ["fp8", "bf8"])
def test_scaled_single_widens(kind: str, wide: str) -> None:
    dtype = FORMATS["gfx950", kind]
    state = scale_state(256, 4.0)
    state.vgpr[0] = 0xAAAA5555
    state.vgpr[2] = (CODES.astype(np.uint32) << np.uint32(16)).reshape(4, 64)
    execute(state, one(widen_single(kind, wide), "gfx950"))
    expected = CODES.view(dtype).astype(np.float32) * np.float32(4)
    if wide == "f16":
        expected = expected.astype(np.float16).astype(np.float32)
        got = state.vgpr[0].reshape(-1).astype(np.uint16).view(np.float16).astype(np.float32)
    else:
        got = floats(state, 0)
    assert same(got, expected)


def put_pair(state: State, wide: str, first: np.ndarray, second: np.ndarray) -> None:
    """Write two columns of values as the sources of a packed conversion."""
    if wide == "f32":
        put_floats(state, 2, first)
        put_floats(state, 4, second)
        return
    low, high = (x.astype(WIDE[wide][0]).view(np.uint16).astype(np.uint32) for x in (first, second))
    state.vgpr[2] = (low | high << np.uint32(16)).reshape(-1, 64)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("kind", ["fp8", "bf8", "fp4"])
def test_scaled_pair_narrows(kind: str, wide: str, scale: float) -> None:
    dtype, bits = FORMATS["gfx950", kind], BITS[kind]
    state = scale_state(512, scale)
    state.vgpr[0] = 0x55AA55AA
    values = [samples(dtype, 512, seed)[:: 1 - 2 * seed] * np.float32(scale) for seed in (0, 1)]
    values = [x.astype(WIDE[wide][0]).astype(np.float32) for x in values]
    put_pair(state, wide, *values)
    execute(state, one(narrow_pair(kind, wide), "gfx950"))
    got = state.vgpr[0].reshape(-1)
    low = 24 if kind == "fp4" else 16
    mask = np.uint32((1 << bits) - 1)
    scaled = [encoded(x / np.float32(scale), dtype).astype(np.uint32) & mask for x in values]
    assert (got >> np.uint32(low) & mask == scaled[0]).all()
    assert (got >> np.uint32(low + bits) & mask == scaled[1]).all()
    assert (got & np.uint32((1 << low) - 1) == 0x55AA55AA & (1 << low) - 1).all()


def unpacked(state: State, register: int) -> np.ndarray:
    """Return the 32 six-bit codes of six registers, (32, lanes)."""
    words = state.vgpr[register : register + 6].reshape(6, -1)
    total = [sum(int(words[i, lane]) << 32 * i for i in range(6)) for lane in range(words.shape[1])]
    return np.array([[word >> 6 * i & 63 for word in total] for i in range(32)], np.uint8)


@pytest.mark.parametrize("kind", ["fp6", "bf6"])
@pytest.mark.parametrize("wide", WIDE)
def test_scaled_blocks_of_six_bits(kind: str, wide: str) -> None:
    dtype, scale = FORMATS["gfx950", kind], 4.0
    values = samples(dtype, 32 * 64, 3).reshape(32, 64) * np.float32(scale)
    values = values.astype(WIDE[wide][0]).astype(np.float32)
    state = scale_state(64, scale)
    if wide == "f32":
        for i in range(16):  # the two sources are interleaved
            state.vgpr[64 + i, 0] = values[2 * i].view(np.uint32)
            state.vgpr[96 + i, 0] = values[2 * i + 1].view(np.uint32)
    else:
        halves = values.astype(WIDE[wide][0]).view(np.uint16).astype(np.uint32)
        state.vgpr[64:80, 0] = halves[0::2] | halves[1::2] << np.uint32(16)
    execute(state, one(narrow_block(kind, wide), "gfx950"), one(widen_block(kind, wide), "gfx950"))
    expected = encoded(values / np.float32(scale), dtype)
    codes = unpacked(state, 8)
    assert (codes == expected & 63).all()
    back = codes.view(dtype).astype(np.float32) * np.float32(scale)
    if wide == "f32":
        got = state.vgpr[128:160, 0].view(np.float32)
    else:
        words = state.vgpr[128:144, 0]
        got = np.empty((32, 64), np.float32)
        got[0::2] = words.astype(np.uint16).view(WIDE[wide][0]).astype(np.float32)
        got[1::2] = (
            (words >> np.uint32(16)).astype(np.uint16).view(WIDE[wide][0]).astype(np.float32)
        )
    assert same(got, back)


STOCHASTIC = {
    "v_cvt_scalef32_sr_pk_fp4_f32 v0, v[2:3], v4, v6": ("fp4", "f32", 2),
    "v_cvt_scalef32_sr_pk_fp4_f16 v0, v2, v4, v6": ("fp4", "f16", 2),
    "v_cvt_scalef32_sr_fp8_f32 v0, v2, v4, v6": ("fp8", "f32", 1),
    "v_cvt_scalef32_sr_bf8_bf16 v0, v2, v4, v6": ("bf8", "bf16", 1),
    "v_cvt_scalef32_sr_pk32_fp6_f32 v[8:13], v[64:95], v4, v6": ("fp6", "f32", 32),
    "v_cvt_scalef32_sr_pk32_bf6_bf16 v[8:13], v[64:79], v4, v6": ("bf6", "bf16", 32),
}


@pytest.mark.parametrize("text", STOCHASTIC)
def test_scaled_stochastic_rounding_stays_between_neighbours(text: str) -> None:
    kind, wide, count = STOCHASTIC[text]
    dtype, bits = FORMATS["gfx950", kind], BITS[kind]
    instruction = assemble_all(STOCHASTIC, "gfx950")[list(STOCHASTIC).index(text)]
    state = scale_state(1024, 2.0)
    state.vgpr[0] = 0
    step = 2.0 ** -ml_dtypes.finfo(dtype).nmant
    value = np.float32(2 * (1 + step / 4))  # a quarter of a step above 1, times the scale
    if wide == "f32":
        sources = value.view(np.uint32)
    else:
        half = value.astype(WIDE[wide][0]).view(np.uint16).astype(np.uint32)
        sources = half | half << np.uint32(16)
    state.vgpr[2:4] = state.vgpr[64:96] = sources
    state.vgpr[4] = np.random.default_rng(5).integers(0, 1 << 32, (16, 64), np.uint32)
    execute(state, instruction)
    if count == 32:
        codes = unpacked(state, 8).reshape(-1)
    else:
        word = state.vgpr[0].reshape(-1)
        codes = np.concatenate([word >> np.uint32(bits * i) for i in range(count)]).astype(np.uint8)
        codes &= np.uint8((1 << bits) - 1)
    results = codes.view(dtype).astype(np.float32)
    assert set(results.tolist()) == {1.0, 1.0 + step}
    assert abs((results > 1).mean() - 0.25) < 0.06
