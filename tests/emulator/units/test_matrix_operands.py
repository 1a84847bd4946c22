"""Matrix instructions: constants, AGPRs, broadcasts, sparse A, and which waves take part."""

from __future__ import annotations

import ctypes
import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.native import library
from cupygemm.emulator.targets import TARGETS
from cupygemm.emulator.units import bind
from cupygemm.emulator.units.matrix import step
from cupygemm.emulator.units.matrix import unit as matrix
from cupygemm.emulator.waves.state import Group
from tests.emulator.harness import assemble, assemble_all, make_state, run, set_exec
from tests.emulator.mfma_cases import find, instruction, small_integers
from tests.emulator.mfma_layout import (
    Case,
    encode,
    pack_input,
    pack_output,
    register_range,
    unpack_output,
)

BF16 = find("gfx942", "v_mfma_f32_16x16x16_bf16")
BF16_32 = find("gfx942", "v_mfma_f32_32x32x8_bf16")
F32 = find("gfx942", "v_mfma_f32_16x16x4_f32")
F64 = find("gfx942", "v_mfma_f64_16x16x4_f64")
I8 = find("gfx942", "v_mfma_i32_16x16x32_i8")


def operands(
    case: Case, waves: int = 1, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.uint32], NDArray[np.uint32]]:
    """Return A and B (waves, blocks, rows, k) of small integers, and both as registers."""
    rng = np.random.default_rng(seed)
    a = small_integers(case.a, (waves, case.blocks, case.m, case.k), rng)
    b = small_integers(case.b, (waves, case.blocks, case.n, case.k), rng)
    fnuz = TARGETS[case.target].fp8_fnuz
    packed_a = pack_input(case, case.a, encode(case.a, a, fnuz))
    packed_b = pack_input(case, case.b, encode(case.b, b, fnuz))
    return a, b, packed_a, packed_b


def product(
    case: Case, inst: Instruction, dtype: type[np.generic] = np.float32
) -> tuple[NDArray[np.generic], NDArray[np.float64]]:
    """Run an instruction on A in v[64:] and B in v[96:]; return D and A B, without C."""
    a, b, packed_a, packed_b = operands(case)
    state = make_state(target=case.target)
    state.vgpr[64 : 64 + len(packed_a)] = packed_a
    state.vgpr[96 : 96 + len(packed_b)] = packed_b
    run(state, inst)
    d = unpack_output(case, state.vgpr[: case.d_registers], dtype)
    return d, np.einsum("wbik,wbjk->wbij", a, b)


def test_python_and_c_agree_on_the_instruction_record() -> None:
    assert library().mfma_op_size() == ctypes.sizeof(matrix._Instruction)


# ---- C as a constant


@pytest.mark.parametrize(
    ("case", "text", "value"),
    [
        (BF16, "1.0", 1.0),
        (BF16, "-4.0", -4.0),
        (BF16, "0", 0.0),
        (F32, "0.5", 0.5),
        (I8, "-16", -16),
        (I8, "64", 64),
        (I8, "1.0", 0x3F800000),  # its bits
        (F64, "2.0", 2.0),
        (F64, "-0.5", -0.5),
    ],
    ids=str,
)
def test_c_may_be_an_inline_constant(case: Case, text: str, value: float) -> None:
    dtype = {"f64": np.float64, "i8": np.int32}.get(case.a, np.float32)
    d, expected = product(case, assemble(case.text_with(c=text), case.target), dtype)
    np.testing.assert_array_equal(d, expected + value)


def test_an_inline_integer_is_the_bits_of_a_float_c() -> None:
    for case, dtype in ((F32, np.float32), (F64, np.float64)):
        state = make_state(target=case.target)
        run(state, assemble(case.text_with(c="3"), case.target))
        d = unpack_output(case, state.vgpr[: case.d_registers], dtype)
        assert (d == 3 * np.finfo(dtype).smallest_subnormal).all()


# ---- Registers


FILES = list(itertools.product("va", repeat=3))


@pytest.mark.parametrize("files", FILES, ids="".join)
@pytest.mark.parametrize("target", TARGETS)
def test_operands_may_be_agprs(target: str, files: tuple[str, str, str]) -> None:
    case = find(target, "v_mfma_f32_16x16x4f32" if target == "gfx90a" else F32.mnemonic)
    texts = {}
    for file_a, file_b, file_d in FILES:
        d_range = register_range(0, case.d_registers, file_d)
        texts[file_a, file_b, file_d] = case.text_with(
            a=f"{file_a}64", b=f"{file_b}96", c=d_range, d=d_range
        )
    file_a, file_b, file_d = files
    a, b, packed_a, packed_b = operands(case)
    c = np.arange(256, dtype=np.float32).reshape(1, 1, 16, 16)
    state = make_state(target=target, seed=1)
    offset = {"v": 0, "a": 256}
    state.vgpr[offset[file_a] + 64] = packed_a[0]
    state.vgpr[offset[file_b] + 96] = packed_b[0]
    first = offset[file_d]
    state.vgpr[first : first + 4] = pack_output(case, c)
    run(state, assemble(texts[files], target, among=texts.values()))
    d = unpack_output(case, state.vgpr[first : first + 4], np.float32)
    np.testing.assert_array_equal(d, np.einsum("wbik,wbjk->wbij", a, b) + c)


def test_d_may_be_where_a_and_b_were() -> None:
    a, b, packed_a, packed_b = operands(BF16)
    state = make_state()
    state.vgpr[64:66], state.vgpr[66:68] = packed_a, packed_b
    run(state, assemble(BF16.text_with(a="v[64:65]", b="v[66:67]", c="0", d="v[64:67]")))
    d = unpack_output(BF16, state.vgpr[64:68], np.float32)
    np.testing.assert_array_equal(d, np.einsum("wbik,wbjk->wbij", a, b))


# ---- Lanes and waves


def test_exec_does_not_matter() -> None:
    a, b, packed_a, packed_b = operands(BF16)
    state = make_state()
    state.vgpr[64:66], state.vgpr[96:98] = packed_a, packed_b
    set_exec(state, 0)
    run(state, instruction(BF16))
    d = unpack_output(BF16, state.vgpr[:4], np.float32)
    np.testing.assert_array_equal(d, np.einsum("wbik,wbjk->wbij", a, b))


@pytest.mark.parametrize("case", [BF16, BF16_32, I8], ids=str)
def test_only_the_waves_of_the_group_take_part(case: Case) -> None:
    waves = 7
    dtype = np.int32 if case.a == "i8" else np.float32
    a, b, packed_a, packed_b = operands(case, waves)
    state = make_state(waves=waves)
    state.vgpr[64 : 64 + len(packed_a)] = packed_a
    state.vgpr[96 : 96 + len(packed_b)] = packed_b
    before = state.vgpr.copy()
    chosen = [5, 1, 2]
    run(state, instruction(case), waves=chosen)
    d = unpack_output(case, state.vgpr[: case.d_registers], dtype)
    others = [wave for wave in range(waves) if wave not in chosen]
    np.testing.assert_array_equal(d[chosen], np.einsum("wbik,wbjk->wbij", a, b)[chosen])
    np.testing.assert_array_equal(state.vgpr[:, others], before[:, others])


@pytest.mark.parametrize(
    "chosen", [slice(0, 37), slice(5, 30), slice(1, 37, 2), np.arange(0, 37, 3)]
)
def test_many_waves_are_shared_among_threads(
    chosen: slice | NDArray[np.intp], monkeypatch: pytest.MonkeyPatch
) -> None:
    waves = 37
    a, b, packed_a, packed_b = operands(BF16, waves)
    state = make_state(waves=waves)
    state.vgpr[64:66], state.vgpr[96:98] = packed_a, packed_b
    monkeypatch.setattr(step, "_MACS_PER_THREAD", 16 * 16 * 16 * 5)
    monkeypatch.setattr(step, "_helpers", lambda: (executor, 3))
    count = len(range(waves)[chosen]) if isinstance(chosen, slice) else len(chosen)
    with ThreadPoolExecutor(2) as executor:
        bind(instruction(BF16), state.target)(Group(state, chosen, count))
    d = unpack_output(BF16, state.vgpr[:4], np.float32)
    expected = np.zeros_like(d)
    expected[chosen] = np.einsum("wbik,wbjk->wbij", a, b)[chosen]
    np.testing.assert_array_equal(d, expected)


# ---- Broadcasts and signs

BROADCASTS = [
    ("gfx942", "v_mfma_f32_32x32x1_2b_f32", " cbsz:1 abid:1"),
    ("gfx942", "v_mfma_f32_16x16x4_4b_bf16", " cbsz:1 abid:1"),
    ("gfx942", "v_mfma_f32_16x16x4_4b_f16", " cbsz:2 abid:3"),
    ("gfx942", "v_mfma_f32_4x4x4_16b_f16", " cbsz:3 abid:5"),
    ("gfx942", "v_mfma_f32_4x4x1_16b_f32", " cbsz:4 abid:9"),
    ("gfx942", "v_mfma_i32_4x4x4_16b_i8", " cbsz:2 abid:2"),
    ("gfx90a", "v_mfma_f32_4x4x4bf16_1k", " cbsz:4 abid:15"),
    ("gfx90a", "v_mfma_f32_4x4x2bf16", " cbsz:1 abid:1"),
    *(("gfx942", "v_mfma_f32_16x16x4_4b_f16", f" blgp:{code}") for code in range(1, 8)),
    *(("gfx90a", "v_mfma_f32_4x4x1f32", f" blgp:{code}") for code in range(1, 8)),
    ("gfx90a", "v_mfma_f32_32x32x2f32", " blgp:1"),
    ("gfx942", "v_mfma_f32_32x32x2_f32", " blgp:4"),
    ("gfx942", "v_mfma_f32_16x16x4_f32", " blgp:7"),
    ("gfx950", "v_mfma_i32_32x32x4_2b_i8", " cbsz:1 abid:0 blgp:2"),
]
# The lane whose B lane l uses, by BLGP (CDNA2 ISA guide, section 7.1).
B_LANES = {
    0: lambda lane: lane,
    1: lambda lane: lane % 32,
    2: lambda lane: lane % 32 + 32,
    3: lambda lane: (lane + 16) % 64,
    4: lambda lane: lane % 16,
    5: lambda lane: lane % 16 + 16,
    6: lambda lane: lane % 16 + 32,
    7: lambda lane: lane % 16 + 48,
}


@pytest.mark.parametrize(("target", "mnemonic", "modifiers"), BROADCASTS)
def test_broadcasts(target: str, mnemonic: str, modifiers: str) -> None:
    case = find(target, mnemonic)
    settings = {"cbsz": 0, "abid": 0, "blgp": 0}
    settings |= {
        name: int(value) for name, value in (part.split(":") for part in modifiers.split())
    }
    dtype = np.int32 if case.a == "i8" else np.float32
    a, _, packed_a, packed_b = operands(case)
    state = make_state(target=target)
    state.vgpr[64 : 64 + len(packed_a)] = packed_a
    state.vgpr[96 : 96 + len(packed_b)] = packed_b
    texts = [find(target, name).text + part for its, name, part in BROADCASTS if its == target]
    run(state, assemble(case.text + modifiers, target, among=texts))
    d = unpack_output(case, state.vgpr[: case.d_registers], dtype)

    # Groups of 2**cbsz blocks all multiply the group's block number abid of A.
    size = 1 << settings["cbsz"]
    chosen = [block // size * size + settings["abid"] for block in range(case.blocks)]
    lanes = [B_LANES[settings["blgp"]](lane) for lane in range(64)]
    plain = make_state(target=target)
    plain.vgpr[64 : 64 + len(packed_a)] = pack_input(
        case, case.a, encode(case.a, a[:, chosen], TARGETS[target].fp8_fnuz)
    )
    plain.vgpr[96 : 96 + len(packed_b)] = packed_b[..., lanes]
    run(plain, instruction(case))
    expected = unpack_output(case, plain.vgpr[: case.d_registers], dtype)
    np.testing.assert_array_equal(d, expected)
    assert not np.array_equal(packed_b[..., lanes], packed_b) or chosen != list(range(case.blocks))


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("gfx942", "v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3] cbsz:1"),
        ("gfx942", "v_mfma_f32_32x32x8_f16 v[0:15], v[20:21], v[22:23], v[0:15] blgp:1"),
        ("gfx942", "v_mfma_f32_16x16x8_xf32 v[0:3], v[4:5], v[6:7], v[0:3] blgp:1"),
        ("gfx942", "v_mfma_f32_16x16x32_fp8_fp8 v[0:3], v[4:5], v[6:7], v[0:3] abid:1"),
        ("gfx90a", "v_mfma_f32_16x16x16f16 v[0:3], v[4:5], v[6:7], v[0:3] cbsz:1"),
        ("gfx942", "v_mfma_f32_16x16x1_4b_f32 v[0:15], v20, v21, v[0:15] cbsz:1 abid:2"),
        ("gfx942", "v_mfma_f32_16x16x1_4b_f32 v[0:15], v20, v21, v[0:15] cbsz:3"),
        ("gfx942", "v_smfmac_i32_16x16x64_i8 v[0:3], v[4:5], v[8:11], v12 abid:2"),
    ],
)
def test_a_modifier_without_meaning_is_refused(target: str, text: str) -> None:
    with pytest.raises(UnsupportedInstruction, match=r"cbsz|abid|broadcast"):
        bind(assemble(text, target), TARGETS[target])


@pytest.mark.parametrize("signs", list(itertools.product((0, 1), repeat=3)))
@pytest.mark.parametrize("mnemonic", ["v_mfma_f64_16x16x4_f64", "v_mfma_f64_4x4x4_4b_f64"])
def test_f64_operands_can_be_negated(mnemonic: str, signs: tuple[int, int, int]) -> None:
    case = find("gfx942", mnemonic)
    negated = f" neg:[{','.join(map(str, signs))}]" if any(signs) else ""
    d, expected = product(case, assemble(case.text_with(c="4.0") + negated), np.float64)
    a, b, c = (1 - 2 * sign for sign in signs)
    np.testing.assert_array_equal(d, a * b * expected + c * 4.0)


def test_int32_sums_wrap_around() -> None:
    state = make_state()
    state.vgpr[64:68] = 0x7F7F7F7F
    state.vgpr[96:100] = 0x01010101
    state.vgpr[128:132] = 0x7FFFFFFF
    run(state, instruction(I8))
    assert (state.vgpr[:4] == 0x7FFFFFFF + 32 * 127).all()


# ---- Sparse A

SPARSE = [
    # target, mnemonic, m, k, element, index sets that a register holds
    ("gfx942", "v_smfmac_f32_16x16x32_bf16", 16, 32, "bf16", 4),
    ("gfx942", "v_smfmac_f32_32x32x16_f16", 32, 16, "f16", 4),
    ("gfx942", "v_smfmac_i32_16x16x64_i8", 16, 64, "i8", 2),
    ("gfx942", "v_smfmac_f32_32x32x32_fp8_fp8", 32, 32, "fp8", 2),
    ("gfx950", "v_smfmac_f32_16x16x64_f16", 16, 64, "f16", 2),
    ("gfx950", "v_smfmac_f32_32x32x32_bf16", 32, 32, "bf16", 2),
    ("gfx950", "v_smfmac_i32_32x32x64_i8", 32, 64, "i8", 1),
    ("gfx950", "v_smfmac_f32_16x16x128_bf8_bf8", 16, 128, "bf8", 1),
]


@pytest.mark.parametrize(("target", "mnemonic", "m", "k", "kind", "sets"), SPARSE)
def test_sparse_a(target: str, mnemonic: str, m: int, k: int, kind: str, sets: int) -> None:
    rng = np.random.default_rng(4)
    stored = small_integers(kind, (m, k // 2), rng)
    pairs = np.array(list(itertools.combinations(range(4), 2)))
    picks = pairs[rng.integers(0, len(pairs), (m, k // 4))]  # the 2 of every 4 that are stored
    dense = np.zeros((m, k // 4, 4))
    np.put_along_axis(dense, picks, stored.reshape(m, k // 4, 2), axis=2)
    b = small_integers(kind, (m, k), rng)
    c = rng.integers(-50, 50, (m, m))
    fnuz = TARGETS[target].fp8_fnuz
    narrow = Case(
        target=target, mnemonic=mnemonic, m=m, n=m, k=k // 2, blocks=1, a=kind, b=kind
    )  # the layout of the stored A
    wide = Case(target=target, mnemonic=mnemonic, m=m, n=m, k=k, blocks=1, a=kind, b=kind)
    packed_a = pack_input(narrow, kind, encode(kind, stored[None], fnuz))
    packed_b = pack_input(wide, kind, encode(kind, b[None], fnuz))
    per_lane = m * k // 2 // 64
    index = np.zeros(64, np.uint32)
    for row, element in np.ndindex(m, k // 2):
        lane, position = m * (element // per_lane) + row, element % per_lane
        index[lane] |= np.uint32(int(picks[row, element // 2, element % 2]) << 2 * position)
    dtype = np.int32 if kind == "i8" else np.float32
    d, a_range = register_range(0, narrow.d_registers), register_range(64, len(packed_a))
    b_range = register_range(96, len(packed_b))
    texts = [
        f"{mnemonic} {d}, {a_range}, {b_range}, v140" + (f" abid:{chosen}" if chosen else "")
        for chosen in range(sets)
    ]
    for chosen, inst in enumerate(assemble_all(texts, target)):
        state = make_state(target=target)
        state.vgpr[64 : 64 + len(packed_a), 0] = packed_a
        state.vgpr[96 : 96 + len(packed_b), 0] = packed_b
        state.vgpr[140, 0] = index << np.uint32(2 * per_lane * chosen)
        state.vgpr[: narrow.d_registers, 0] = pack_output(narrow, c[None].astype(dtype))
        run(state, inst)
        found = unpack_output(narrow, state.vgpr[: narrow.d_registers, 0], dtype)[0]
        np.testing.assert_array_equal(found, dense.reshape(m, k) @ b.T + c)


# ---- Moves between the register files


@pytest.mark.parametrize(
    ("text", "source", "destination"),
    [
        ("v_accvgpr_read_b32 v1, a2", 258, 1),
        ("v_accvgpr_write_b32 a1, v2", 2, 257),
        ("v_accvgpr_mov_b32 a1, a2", 258, 257),
    ],
)
def test_agpr_moves_obey_exec(text: str, source: int, destination: int) -> None:
    state = make_state(waves=2, seed=5)
    set_exec(state, [0x00FF00FF00FF00FF, 1])
    before = state.vgpr.copy()
    run(state, assemble(text))
    for wave, mask in enumerate((0x00FF00FF00FF00FF, 1)):
        on = np.array([mask >> lane & 1 for lane in range(64)], bool)
        expected = np.where(on, before[source, wave], before[destination, wave])
        np.testing.assert_array_equal(state.vgpr[destination, wave], expected)
    before[destination] = state.vgpr[destination]
    np.testing.assert_array_equal(state.vgpr, before)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("v_accvgpr_write_b32 a3, 1.0", 0x3F800000),
        ("v_accvgpr_write_b32 a3, -1", 0xFFFFFFFF),
        ("v_accvgpr_write_b32 a3, s7", 0x12345678),
    ],
)
def test_agpr_writes_take_scalars_and_constants(text: str, value: int) -> None:
    state = make_state()
    state.sgpr[7] = 0x12345678
    run(state, assemble(text))
    assert (state.vgpr[256 + 3] == value).all()
