"""Values moved between lanes: DPP patterns, reads and writes of lanes, swaps."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.instruction import M0
from cupygemm.emulator.units.vector import dpp
from cupygemm.emulator.waves.state import State
from tests.emulator.harness import assemble_all, set_exec
from tests.emulator.vector_cases import M32, execute, fresh_state, put

LANES = range(64)
# The source of each lane; None if it has none.
PATTERNS: dict[str, Callable[[int], int | None]] = {
    "quad_perm:[0,1,2,3]": lambda lane: lane,
    "quad_perm:[3,2,1,0]": lambda lane: lane ^ 3,
    "quad_perm:[1,1,0,2]": lambda lane: lane & ~3 | (1, 1, 0, 2)[lane & 3],
    **{
        f"row_shl:{n}": lambda lane, n=n: lane + n if lane % 16 + n < 16 else None
        for n in (1, 7, 15)
    },
    **{f"row_shr:{n}": lambda lane, n=n: lane - n if lane % 16 >= n else None for n in (1, 4, 15)},
    **{f"row_ror:{n}": lambda lane, n=n: lane & ~15 | (lane - n) % 16 for n in (1, 8, 13)},
    "wave_shl:1": lambda lane: lane + 1 if lane < 63 else None,
    "wave_rol:1": lambda lane: (lane + 1) % 64,
    "wave_shr:1": lambda lane: lane - 1 if lane else None,
    "wave_ror:1": lambda lane: (lane - 1) % 64,
    "row_mirror": lambda lane: lane & ~15 | 15 - lane % 16,
    "row_half_mirror": lambda lane: lane & ~7 | 7 - lane % 8,
    "row_bcast:15": lambda lane: (lane & ~15) - 1 if lane >= 16 else None,
    "row_bcast:31": lambda lane: 31 if lane >= 32 else None,
    **{f"row_newbcast:{n}": lambda lane, n=n: lane & ~15 | n for n in (0, 9)},
}
MASKS = [(0xF, 0xF), (0xA, 0xF), (0xF, 0x5), (0x6, 0x9)]
ALL_ON, SOME_ON = (1 << 64) - 1, 0xFF00F0F0CCCC7FFE


def dpp_text(pattern: str, masks: tuple[int, int], bound: bool) -> str:
    suffix = " bound_ctrl:0" if bound else ""
    return f"v_mov_b32_dpp v0, v2 {pattern} row_mask:{masks[0]:#x} bank_mask:{masks[1]:#x}{suffix}"


DPP_TEXTS = [
    dpp_text(pattern, masks, bound)
    for pattern in PATTERNS
    for masks in MASKS
    for bound in (False, True)
]


def random_lanes(seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.getrandbits(32) for _ in LANES]


def fresh(mask: int = ALL_ON, waves: int = 1, target: str = "gfx942") -> State:
    state = fresh_state(waves, target)
    set_exec(state, mask)
    return state


@pytest.mark.parametrize("mask", [ALL_ON, SOME_ON])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_dpp_moves(pattern: str, mask: int) -> None:
    instructions = dict(zip(DPP_TEXTS, assemble_all(DPP_TEXTS), strict=True))
    values, old = random_lanes(1), random_lanes(2)
    for masks in MASKS:
        for bound in (False, True):
            state = fresh(mask)
            put(state, 0, old)
            put(state, 2, values)
            execute(state, instructions[dpp_text(pattern, masks, bound)])
            expected = list(old)
            for lane in LANES:
                on = mask >> lane & masks[0] >> lane // 16 & masks[1] >> lane % 16 // 4 & 1
                source = PATTERNS[pattern](lane)
                valid = source is not None and mask >> source & 1
                if on and valid:
                    assert source is not None
                    expected[lane] = values[source]
                elif on and bound:
                    expected[lane] = 0
            assert state.vgpr[0, 0].tolist() == expected, (masks, bound)


def test_dpp_of_an_operation_moves_only_the_first_source() -> None:
    (instruction,) = assemble_all(
        ["v_sub_f32_dpp v0, -v2, |v4| row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:0"]
    )
    state = fresh()
    put(state, 2, [0x3F800000] * 64)  # 1.0
    put(state, 4, [0xC0000000] * 64)  # -2.0
    execute(state, instruction)
    expected = [0xC0000000 if lane % 16 == 0 else 0xC0400000 for lane in LANES]
    assert state.vgpr[0, 0].tolist() == expected


def test_dpp_writes_no_carry_where_it_writes_no_lane() -> None:
    (instruction,) = assemble_all(
        ["v_add_co_u32_dpp v0, vcc, v2, v2 row_shr:8 row_mask:0xf bank_mask:0xf"]
    )
    state = fresh()
    put(state, 2, [M32] * 64)
    execute(state, instruction)
    assert state.sgpr[106, 0] == 0xFF00FF00


def test_sum_over_a_wave_by_dpp() -> None:
    # The compiler's reduction: shifts within rows, then broadcasts across them.
    steps = [
        f"v_add_u32_dpp v2, v2, v2 row_shr:{n} row_mask:0xf bank_mask:0xf bound_ctrl:0"
        for n in (1, 2, 4, 8)
    ]
    steps += [
        "v_add_u32_dpp v2, v2, v2 row_bcast:15 row_mask:0xa bank_mask:0xf",
        "v_add_u32_dpp v2, v2, v2 row_bcast:31 row_mask:0xc bank_mask:0xf",
        "v_readlane_b32 s4, v2, 63",
    ]
    state = fresh()
    values = random_lanes(3)
    put(state, 2, values)
    execute(state, *assemble_all(steps))
    assert int(state.sgpr[4, 0]) == sum(values) & M32


@pytest.mark.parametrize("control", [0x100, 0x110, 0x120, 0x131, 0x144, 0x160, 0x1FF])
def test_reserved_patterns_are_refused(control: int) -> None:
    with pytest.raises(UnsupportedInstruction, match=f"0x{control:x}"):
        dpp.pattern(control)


def test_dpp_of_a_64_bit_move_broadcasts_pairs() -> None:
    (instruction,) = assemble_all(
        ["v_mov_b64_dpp v[0:1], v[2:3] row_newbcast:5 row_mask:0xf bank_mask:0xf"]
    )
    state = fresh()
    low, high = random_lanes(4), random_lanes(5)
    put(state, 2, [a | b << 32 for a, b in zip(low, high, strict=True)])
    execute(state, instruction)
    assert state.vgpr[0, 0].tolist() == [low[lane & ~15 | 5] for lane in LANES]
    assert state.vgpr[1, 0].tolist() == [high[lane & ~15 | 5] for lane in LANES]


# -- lanes and scalars -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mask", "lane"), [(ALL_ON, 0), (0xFF00, 8), (1 << 63, 63), (0, 0), (SOME_ON, 1)]
)
def test_readfirstlane_takes_the_lowest_active_lane(mask: int, lane: int) -> None:
    (instruction,) = assemble_all(["v_readfirstlane_b32 s4, v2"])
    state = fresh(mask, waves=2)
    values = random_lanes(6) + random_lanes(7)
    put(state, 2, values)
    execute(state, instruction)
    assert state.sgpr[4].tolist() == [values[lane], values[64 + lane]]


def test_readlane_ignores_exec() -> None:
    texts = ["v_readlane_b32 s4, v2, 37", "v_readlane_b32 s5, v2, s6", "v_readlane_b32 s7, v2, m0"]
    constant, scalar, m0 = assemble_all(texts)
    state = fresh(1, waves=2)
    values = random_lanes(8) + random_lanes(9)
    put(state, 2, values)
    state.sgpr[6] = [5, 64 + 63]  # the low six bits count
    state.sgpr[M0] = [10, 11]
    execute(state, constant, scalar, m0)
    assert state.sgpr[4].tolist() == [values[37], values[64 + 37]]
    assert state.sgpr[5].tolist() == [values[5], values[64 + 63]]
    assert state.sgpr[7].tolist() == [values[10], values[64 + 11]]


def test_writelane_ignores_exec() -> None:
    texts = ["v_writelane_b32 v0, s4, 3", "v_writelane_b32 v0, -1, s6"]
    state = fresh(0, waves=2)
    old = random_lanes(10) + random_lanes(11)
    put(state, 0, old)
    state.sgpr[4], state.sgpr[6] = [111, 222], [62, 63]
    execute(state, *assemble_all(texts))
    old[3], old[64 + 3], old[62], old[64 + 63] = 111, 222, M32, M32
    assert state.vgpr[0].reshape(-1).tolist() == old


def test_swap_exchanges_active_lanes() -> None:
    (instruction,) = assemble_all(["v_swap_b32 v0, v2"])
    state = fresh(SOME_ON)
    first, second = random_lanes(12), random_lanes(13)
    put(state, 0, first)
    put(state, 2, second)
    execute(state, instruction)
    on = [SOME_ON >> lane & 1 for lane in LANES]
    pairs = list(zip(first, second, on, strict=True))
    assert state.vgpr[0, 0].tolist() == [b if bit else a for a, b, bit in pairs]
    assert state.vgpr[2, 0].tolist() == [a if bit else b for a, b, bit in pairs]


@pytest.mark.parametrize("width", [16, 32])
def test_permlane_swap_exchanges_rows(width: int) -> None:
    (instruction,) = assemble_all([f"v_permlane{width}_swap_b32 v0, v2"], "gfx950")
    state = fresh(target="gfx950")
    first, second = random_lanes(14), random_lanes(15)
    put(state, 0, first)
    put(state, 2, second)
    execute(state, instruction)
    for lane in LANES:
        if not lane & width:  # an even row of v2 against the odd row above it of v0
            first[lane + width], second[lane] = second[lane], first[lane + width]
    assert state.vgpr[0, 0].tolist() == first
    assert state.vgpr[2, 0].tolist() == second
