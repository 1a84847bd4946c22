"""What the tests of the vector ALU share: run an instruction on columns of integers, lane by lane.

An instruction under test reads its operands from v[2:3], v[4:5] and v[6:7] and writes v[0:1]; a
mask goes to or comes from a scalar pair. Values are the bits of the operands, as Python integers.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Sequence

import numpy as np

from cupygemm.emulator.isa import Instruction
from cupygemm.emulator.state import LANES, State, pack_mask, unpack_mask
from tests.emulator.harness import make_state, run

DEFAULT_MODE = 0x3F0  # nearest even, subnormals kept, DX10_CLAMP, IEEE: what HIP kernels run with
M16, M32, M64 = (1 << 16) - 1, (1 << 32) - 1, (1 << 64) - 1
EDGES = {
    8: [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 127, 128, 255],
    16: [0, 1, 2, 3, 15, 16, 17, 255, 0x7FFE, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF],
    32: [0, 1, 2, 5, 31, 32, 0xFFFF, 0x10000, 0x7FFFFF, 0x800000, 0xFFFFFF, 0x1000000, 0x12345678,
         0x7FFFFFFF, 0x80000000, 0x80000001, M32 - 1, M32],
    64: [0, 1, 63, 64, 1 << 31, M32, 1 << 32, 0x123456789ABCDEF0, (1 << 63) - 1, 1 << 63, M64 - 1,
         M64],
}  # fmt: skip
FLOAT_EDGES = {
    # zero, smallest and largest subnormal, smallest normal, 1 less and more an ulp, 2/3, 1.5, 2.5,
    # a large odd number, largest, Inf, quiet and signalling NaN, each with both signs
    16: [0, 1, 0x3FF, 0x400, 0x3BFF, 0x3C00, 0x3C01, 0x3955, 0x3E00, 0x4100, 0x63FF, 0x7BFF, 0x7C00,
         0x7E00, 0x7D01],
    32: [0, 1, 0x7FFFFF, 0x800000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3F2AAAAB, 0x3FC00000,
         0x40200000, 0x4AFFFFFF, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7FA00001],
    64: [0, 1, (1 << 52) - 1, 1 << 52, 0x3FEFFFFFFFFFFFFF, 0x3FF0000000000000, 0x3FF0000000000001,
         0x3FE5555555555555, 0x3FF8000000000000, 0x4004000000000000, 0x433FFFFFFFFFFFFF,
         0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0x7FF8000000000000, 0x7FF4000000000001],
}  # fmt: skip
for _width, _edges in FLOAT_EDGES.items():
    _edges += [value | 1 << _width - 1 for value in _edges]


def signed(value: int, bits: int) -> int:
    """Return the low `bits` of a value as a signed integer."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def columns(
    widths: Sequence[int], *, floats: Iterable[int] = (), count: int = 512, seed: int = 0
) -> list[tuple[int, ...]]:
    """Return `count` tuples of operand bits: edge values against each other, then random ones.

    Operands whose position is in `floats` take the edge values of floats.
    """
    rng = random.Random(seed)
    edges = [(FLOAT_EDGES if i in set(floats) else EDGES)[w] for i, w in enumerate(widths)]
    most = 3 * count // 4
    if math.prod(map(len, edges)) > most:  # too many to list, let alone to run
        rows = [tuple(map(rng.choice, edges)) for _ in range(most)]
    else:
        rows = list(itertools.product(*edges))
    while len(rows) < count:
        rows.append(
            tuple(
                rng.getrandbits(w) if rng.random() < 0.7 else rng.choice(e)
                for w, e in zip(widths, edges, strict=True)
            )
        )
    return rows


def fresh_state(waves: int, target: str = "gfx942", mode: int = DEFAULT_MODE) -> State:
    """Return a state of `waves` waves, every lane on, in a float mode."""
    state = make_state(waves=waves, target=target, seed=7)
    state.mode = mode
    state.modes[:] = mode
    state.sgpr[126:128] = M32
    return state


def put(state: State, register: int, values: Sequence[int]) -> None:
    """Write 64-bit values, one per lane, to a register pair."""
    lanes = np.array([value & M64 for value in values], np.uint64).reshape(-1, LANES)
    state.vgpr[register] = lanes.astype(np.uint32)
    state.vgpr[register + 1] = (lanes >> np.uint64(32)).astype(np.uint32)


def get(state: State, register: int, width: int) -> list[int]:
    """Read a register or a pair, one integer per lane."""
    low = state.vgpr[register].reshape(-1)
    if width <= 32:
        return [int(value) & (1 << width) - 1 for value in low]
    high = state.vgpr[register + 1].reshape(-1)
    return [int(a) | int(b) << 32 for a, b in zip(low, high, strict=True)]


def put_mask(state: State, register: int, bits: Sequence[int]) -> None:
    """Write one bit per lane to a scalar register pair."""
    masks = pack_mask(np.array(bits, np.bool_).reshape(-1, LANES))
    state.sgpr[register] = masks.astype(np.uint32)
    state.sgpr[register + 1] = (masks >> np.uint64(32)).astype(np.uint32)


def get_mask(state: State, register: int) -> list[int]:
    """Read a scalar register pair as one bit per lane."""
    low, high = state.sgpr[register].astype(np.uint64), state.sgpr[register + 1].astype(np.uint64)
    return [int(bit) for bit in unpack_mask(low | high << np.uint64(32)).reshape(-1)]


def evaluate(
    instruction: Instruction,
    rows: Sequence[tuple[int, ...]],
    width: int,
    *,
    old: int = 0,
    target: str = "gfx942",
    mode: int = DEFAULT_MODE,
) -> list[int]:
    """Run an instruction on rows of operands and return v0 or v[0:1] of each lane.

    `old` is what v[0:1] holds before.
    """
    state = fresh_state(len(rows) // LANES, target, mode)
    put(state, 0, [old] * len(rows))
    for position, column in enumerate(zip(*rows, strict=True)):
        put(state, 2 + 2 * position, column)
    execute(state, instruction)
    return get(state, 0, width)


def execute(state: State, *instructions: Instruction) -> None:
    """Run instructions in the float mode of the state, NumPy silent as the run loop has it."""
    with np.errstate(all="ignore"):
        run(state, *instructions)


def mismatches(
    got: Sequence[object], expected: Sequence[object], rows: Sequence[tuple[int, ...]]
) -> list[str]:
    """Describe the first lanes that differ."""
    wrong = [
        f"({', '.join(map(hex, row))}): got {_show(g)}, expected {_show(e)}"
        for g, e, row in zip(got, expected, rows, strict=True)
        if g != e
    ]
    return wrong[:5]


def _show(value: object) -> str:
    return hex(value) if isinstance(value, int) else str(value)
