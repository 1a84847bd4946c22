"""Matrix instructions: layouts of every shape and exact integer products, on every target."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.targets import TARGETS
from cupygemm.emulator.units import bind
from cupygemm.emulator.waves.state import State
from tests.emulator.harness import make_state, run
from tests.emulator.mfma_cases import CASES, instruction, small_integers
from tests.emulator.mfma_layout import Case, encode, pack_input, pack_output, unpack_output


def output_type(case: Case) -> type[np.generic]:
    """Return the dtype of C and D."""
    return {"f64": np.float64, "i8": np.int32}.get(case.a, np.float32)


def load(
    case: Case, state: State, a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[Any]
) -> None:
    """Put A (waves, blocks, m, k), B (waves, blocks, n, k) and C into the registers of the case."""
    fnuz = TARGETS[case.target].fp8_fnuz
    packed_a = pack_input(case, case.a, encode(case.a, a, fnuz))
    packed_b = pack_input(case, case.b, encode(case.b, b, fnuz))
    packed_c = pack_output(case, c)
    state.vgpr[64 : 64 + len(packed_a)] = packed_a
    state.vgpr[96 : 96 + len(packed_b)] = packed_b
    state.vgpr[128 : 128 + len(packed_c)] = packed_c
    state.vgpr[180:182] = 0x7F7F7F7F  # block scales of one


def execute(case: Case, state: State) -> NDArray[Any]:
    """Run the instruction and return D (waves, blocks, m, n)."""
    run(state, instruction(case))
    return unpack_output(case, state.vgpr[: case.d_registers], output_type(case))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_product_of_small_integers_is_exact(case: Case) -> None:
    rng = np.random.default_rng(1)
    waves = 2
    a = small_integers(case.a, (waves, case.blocks, case.m, case.k), rng)
    b = small_integers(case.b, (waves, case.blocks, case.n, case.k), rng)
    c = rng.integers(-1000, 1000, (waves, case.blocks, case.m, case.n)).astype(output_type(case))
    state = make_state(waves=waves, target=case.target, seed=2)
    load(case, state, a, b, c)
    untouched = state.vgpr[case.d_registers :].copy()

    d = execute(case, state)

    np.testing.assert_array_equal(d, np.einsum("wbik,wbjk->wbij", a, b) + c)
    np.testing.assert_array_equal(state.vgpr[case.d_registers :], untouched)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_element_of_a_reaches_one_row_of_d(case: Case) -> None:
    rng = np.random.default_rng(3)
    waves = 24
    blocks, rows, ks = (rng.integers(0, size, waves) for size in (case.blocks, case.m, case.k))
    a = np.zeros((waves, case.blocks, case.m, case.k))
    a[np.arange(waves), blocks, rows, ks] = 1
    b = small_integers(case.b, (waves, case.blocks, case.n, case.k), rng)
    state = make_state(waves=waves, target=case.target)
    load(case, state, a, b, np.zeros((waves, case.blocks, case.m, case.n), output_type(case)))

    d = execute(case, state)

    for wave, (block, row, k) in enumerate(zip(blocks, rows, ks, strict=True)):
        np.testing.assert_array_equal(d[wave, block, row], b[wave, block, :, k])
        d[wave, block, row] = 0
    assert not d.any()


def test_every_instruction_is_a_different_one() -> None:
    names = {(case.target, case.mnemonic, case.modifiers) for case in CASES}
    assert len(names) == len(CASES)
    opcodes = {
        (case.target, instruction(case).raw >> 16 & 0x7F)
        for case in CASES
        if "f8f6f4" not in case.mnemonic
    }
    assert len(opcodes) == sum("f8f6f4" not in case.mnemonic for case in CASES)


@pytest.mark.parametrize(
    ("case", "target"),
    [
        (case, target)
        for case in CASES
        for target in TARGETS
        if not case.modifiers
        and case.a not in ("f32", "f64")
        # Where another target has the instruction it has it under the same decoded name.
        and instruction(case).mnemonic
        not in {instruction(other).mnemonic for other in CASES if other.target == target}
    ],
    ids=str,
)
def test_target_without_the_instruction_refuses_it(case: Case, target: str) -> None:
    with pytest.raises(UnsupportedInstruction, match=target):
        bind(instruction(case), TARGETS[target])


def test_a_new_generation_has_the_instructions_of_the_newest() -> None:
    """A target is one row: no table of the matrix unit needs to name it."""
    newest = max(TARGETS.values(), key=lambda target: target.generation)
    new = dataclasses.replace(newest, name="new", generation=newest.generation + 1)
    for case in CASES:
        if case.target == newest.name:
            bind(instruction(case), new)


def test_eight_bytes_before_f8f6f4_are_not_part_of_it() -> None:
    from tests.emulator.harness import assemble_all

    case = next(case for case in CASES if case.mnemonic == "v_mfma_f32_16x16x128_f8f6f4")
    decoded = assemble_all(["s_nop 0", "s_nop 1", case.text], "gfx950")
    assert [inst.mnemonic for inst in decoded] == ["s_nop", "s_nop", case.mnemonic]
