"""The scaled MFMA of gfx950 against ml_dtypes: elements and exponents of OCP MX, byte by byte."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.emulator.harness import assemble_all, make_state, run
from tests.emulator.mfma_cases import CASES
from tests.emulator.mfma_layout import Case, pack_input, unpack_output

ELEMENTS = {
    "fp8": ml_dtypes.float8_e4m3fn,
    "bf8": ml_dtypes.float8_e5m2,
    "fp6": ml_dtypes.float6_e2m3fn,
    "bf6": ml_dtypes.float6_e3m2fn,
    "fp4": ml_dtypes.float4_e2m1fn,
}
SCALED = [case for case in CASES if "_scale_" in case.mnemonic]
BYTES = ((0, 0), (1, 2), (2, 3), (3, 1))  # of the register of A's and of B's exponents


def operand(
    case: Case, kind: str, rng: np.random.Generator
) -> tuple[NDArray[np.uint64], NDArray[np.uint8], NDArray[np.float64]]:
    """Return codes (row, k), four sets of exponents (set, row, block) and the numbers of each."""
    choices = np.array([-2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2])
    elements = rng.choice(choices, (case.m, case.k)).astype(ELEMENTS[kind])
    exponents = rng.integers(124, 131, (4, case.m, case.k // 32)).astype(np.uint8)
    factors = exponents.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    numbers = elements.astype(np.float64) * np.repeat(factors, 32, axis=2)
    return elements.view(np.uint8).astype(np.uint64)[None, None], exponents, numbers


@pytest.mark.parametrize("case", SCALED, ids=str)
def test_exponents_of_each_byte(case: Case) -> None:
    """Lane l's exponent is that of row l % m and of the l / m-th 32 k; op_sel says which byte."""
    rng = np.random.default_rng(0)
    state = make_state(target=case.target)
    numbers = []
    for register, scale, kind in ((64, 180, case.a), (96, 181, case.b)):
        codes, exponents, found = operand(case, kind, rng)
        packed = pack_input(case, kind, codes)
        state.vgpr[register : register + len(packed)] = packed
        lanes = exponents.transpose(2, 1, 0).reshape(64, 4)  # (block, row) are the lanes
        state.vgpr[scale, 0] = np.ascontiguousarray(lanes).view(np.uint32)[:, 0]
        numbers.append(found)
    lines = [
        case.text.replace(
            "v181", f"v181 op_sel:[{a & 1},{b & 1},0] op_sel_hi:[{a >> 1},{b >> 1},0]"
        )
        for a, b in BYTES
    ]
    for (a, b), inst in zip(BYTES, assemble_all(lines, case.target), strict=True):
        state.vgpr[128 : 128 + case.d_registers] = 0
        run(state, inst)
        d = unpack_output(case, state.vgpr[: case.d_registers], np.float32)[0, 0]
        np.testing.assert_array_equal(d, numbers[0][a] @ numbers[1][b].T)
