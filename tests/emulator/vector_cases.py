"""Helpers of the vector ALU's tests: run an instruction on columns of integers, lane by lane.

An instruction under test reads its operands from v[2:3], v[4:5] and v[6:7] and writes v[0:1]; a
mask goes to or comes from a scalar pair. Values are the bits of the operands, as Python integers.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Sequence

import numpy as np

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.waves.state import LANES, State, pack_mask, unpack_mask
from tests.emulator.harness import make_state, run

DEFAULT_MODE = 0x3F0  # nearest even, subnormals kept, DX10_CLAMP, IEEE: the mode of HIP kernels
M16, M32, M64 = (1 << 16) - 1, (1 << 32) - 1, (1 << 64) - 1


def _hexadecimal(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


EDGES = {
    8: _hexadecimal("0 1 2 3 7 8 f 10 1f 20 3f 7f 80 ff"),
    16: _hexadecimal("0 1 2 3 f 10 11 ff 7ffe 7fff 8000 8001 fffe ffff"),
    32: _hexadecimal(
        "0 1 2 5 1f 20 ffff 10000 7fffff 800000 ffffff 1000000 12345678 "
        "7fffffff 80000000 80000001 fffffffe ffffffff"
    ),
    64: _hexadecimal(
        "0 1 3f 40 80000000 ffffffff 100000000 123456789abcdef0 "
        "7fffffffffffffff 8000000000000000 fffffffffffffffe ffffffffffffffff"
    ),
}
# Zero, the smallest and the largest subnormal, the smallest normal, 1 and its two neighbours,
# 2/3, 1.5, 2.5, a large odd number, the largest finite number, Inf, a quiet and a signalling NaN;
# the loop below adds the same with the other sign.
FLOAT_EDGES = {
    16: _hexadecimal("0 1 3ff 400 3bff 3c00 3c01 3955 3e00 4100 63ff 7bff 7c00 7e00 7d01"),
    32: _hexadecimal(
        "0 1 7fffff 800000 3f7fffff 3f800000 3f800001 3f2aaaab 3fc00000 40200000 4affffff "
        "7f7fffff 7f800000 7fc00000 7fa00001"
    ),
    64: _hexadecimal(
        "0 1 fffffffffffff 10000000000000 3fefffffffffffff 3ff0000000000000 3ff0000000000001 "
        "3fe5555555555555 3ff8000000000000 4004000000000000 433fffffffffffff "
        "7fefffffffffffff 7ff0000000000000 7ff8000000000000 7ff4000000000001"
    ),
}
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
