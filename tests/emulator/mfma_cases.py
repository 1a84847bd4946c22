"""Every dense MFMA of every target, under the names that LLVM's assembler knows on that target.

From AMD's CDNA2, CDNA3 and CDNA4 ISA guides (VOP3P opcodes).
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.isa.instruction import Instruction
from tests.emulator.harness import assemble_all
from tests.emulator.mfma_layout import BITS, Case

TARGETS = ("gfx90a", "gfx942", "gfx950")

# (m = n, k, blocks) by type of D and input
_EVERYWHERE = {
    ("f32", "f32"): ((32, 1, 2), (16, 1, 4), (4, 1, 16), (32, 2, 1), (16, 4, 1)),
    ("f32", "f16"): ((32, 4, 2), (16, 4, 4), (4, 4, 16), (32, 8, 1), (16, 16, 1)),
    ("i32", "i8"): ((32, 4, 2), (16, 4, 4), (4, 4, 16)),
    ("f64", "f64"): ((16, 4, 1), (4, 4, 4)),
}
_CDNA2 = {
    ("f32", "bf16"): ((32, 2, 2), (16, 2, 4), (4, 2, 16), (32, 4, 1), (16, 8, 1)),
    ("f32", "bf16_1k"): ((32, 4, 2), (16, 4, 4), (4, 4, 16), (32, 8, 1), (16, 16, 1)),
    ("i32", "i8"): ((32, 8, 1), (16, 16, 1)),
}
_SINCE_CDNA3 = {
    ("f32", "bf16"): ((32, 4, 2), (16, 4, 4), (4, 4, 16), (32, 8, 1), (16, 16, 1)),
    ("i32", "i8"): ((32, 16, 1), (16, 32, 1)),
    **{
        ("f32", f"{a}_{b}"): ((32, 16, 1), (16, 32, 1))
        for a, b in itertools.product(("fp8", "bf8"), repeat=2)
    },
}
_CDNA3 = {("f32", "xf32"): ((32, 4, 1), (16, 8, 1))}
_CDNA4 = {
    ("f32", "f16"): ((32, 16, 1), (16, 32, 1)),
    ("f32", "bf16"): ((32, 16, 1), (16, 32, 1)),
    ("i32", "i8"): ((32, 32, 1), (16, 64, 1)),
}
_BY_TARGET = {
    "gfx90a": (_EVERYWHERE, _CDNA2),
    "gfx942": (_EVERYWHERE, _SINCE_CDNA3, _CDNA3),
    "gfx950": (_EVERYWHERE, _SINCE_CDNA3, _CDNA4),
}
_FORMAT_CODES = ("fp8", "bf8", "fp6", "bf6", "fp4")


def _cases(target: str) -> list[Case]:
    cases = []
    for table in _BY_TARGET[target]:
        for (d, types), shapes in table.items():
            a, b = types.removesuffix("_1k"), types.removesuffix("_1k")
            if "_" in a:
                a, b = a.split("_")
            for m, k, blocks in shapes:
                if target == "gfx90a":
                    name = f"v_mfma_{d}_{m}x{m}x{k}{types}"
                else:
                    parts = f"_{blocks}b" if blocks > 1 else ""
                    name = f"v_mfma_{d}_{m}x{m}x{k}{parts}_{types}"
                cases.append(
                    Case(target=target, mnemonic=name, m=m, n=m, k=k, blocks=blocks, a=a, b=b)
                )
    return cases


def _mixed_formats() -> list[Case]:
    """Every pair of formats of one f8f6f4 shape, and each format once in the other three."""
    cases = []
    for m, k in ((16, 128), (32, 64)):
        for scale in ("", "scale_"):
            for code_a, code_b in itertools.product(range(5), repeat=2):
                if (m, scale) != (16, "") and code_b != (code_a + 2) % 5:
                    continue
                name = f"v_mfma_{scale}f32_{m}x{m}x{k}_f8f6f4"
                modifiers = (f" cbsz:{code_a}" if code_a else "") + (
                    f" blgp:{code_b}" if code_b else ""
                )
                a, b = _FORMAT_CODES[code_a], _FORMAT_CODES[code_b]
                cases.append(
                    Case(
                        target="gfx950",
                        mnemonic=name,
                        m=m,
                        n=m,
                        k=k,
                        blocks=1,
                        a=a,
                        b=b,
                        modifiers=modifiers,
                    )
                )
    return cases


CASES = [case for target in TARGETS for case in _cases(target)] + _mixed_formats()


@functools.cache
def _instructions() -> dict[Case, Instruction]:
    found = {}
    for target in TARGETS:
        cases = [case for case in CASES if case.target == target]
        found |= zip(cases, assemble_all([case.text for case in cases], target), strict=True)
    return found


def instruction(case: Case) -> Instruction:
    """Return the decoded instruction of one of `CASES`."""
    return _instructions()[case]


def find(target: str, mnemonic: str) -> Case:
    """Return the case of that name."""
    return next(case for case in CASES if (case.target, case.mnemonic) == (target, mnemonic))


def small_integers(
    kind: str, shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return random integers that every format of `kind` represents exactly, as float64."""
    limit = {"fp4": 4, "fp6": 7, "bf6": 8, "fp8": 16, "bf8": 8}.get(
        kind, 100 if BITS[kind] > 8 else 127
    )
    values = rng.integers(-limit, limit, shape, endpoint=True).astype(np.float64)
    if kind in ("fp4", "fp6", "bf6", "fp8", "bf8"):
        # Keep to values of at most 2 significant bits: 0, 1, 2, 3, 4, 6, 8, 12, 16.
        exponent = np.maximum(np.frexp(values)[1] - 2, 0)
        values = np.trunc(values / 2.0**exponent) * 2.0**exponent
    return values
