"""Products of fp32 as three products of tf32 parts, and when cuBLAS's one of fp32 is better.

A number of fp32 is the sum of two of tf32 up to 2**-24 of it, and tensor cores multiply those about
nine times as fast as the other cores multiply fp32. The product of the low parts, 2**-24 of the
whole, is left out, so for few terms the error would exceed that of a sum in fp32. Low parts below
2**-136 are lost, and a sum of parts may overflow to the wrong infinity or to NaN where the product
exceeds fp32 by far; so this has to be asked for.
"""

from __future__ import annotations

from cupygemm._backends.hopper.config import HopperArch
from cupygemm._backends.hopper.constants import FP32
from cupygemm._backends.hopper.cost_constants import Fp32Constants
from cupygemm._backends.hopper.select import HopperSelection
from cupygemm._records.problem import GemmProblem

MIN_K = 16
"""Terms from which on errors of three units in the last place each stay within the bound of fp32:
as many units as there are terms."""
MAX_COPY_BYTES = 16 << 30
"""Temporary memory for the parts of both operands."""


def require(problem: GemmProblem, selection: HopperSelection, arch: HopperArch) -> None:
    """Raise ValueError where cuBLAS is to compute a product of fp32.

    Parameters
    ----------
    problem : GemmProblem
        Of fp32.
    selection : HopperSelection
        Of the product of parts; without candidates where its kernel was measured.
    arch : HopperArch
    """
    if problem.k < MIN_K:
        raise ValueError(
            f"over k = {problem.k} products of tf32 parts are less exact than those of fp32; they "
            f"are not from {MIN_K} terms on"
        )
    elements = _elements(problem)
    if 12 * elements > MAX_COPY_BYTES:
        raise ValueError(f"the tf32 parts of the operands would take {12 * elements >> 30} GiB")
    if not selection.candidates:
        return
    parts = selection.candidates[0].cycles + copy_cycles(problem)
    direct = cublas_cycles(problem, arch)
    if direct < parts:
        raise ValueError(
            f"cuBLAS multiplies fp32 exactly in {direct:.0f} cycles, and products of tf32 parts "
            f"take {parts:.0f} (modelled)"
        )


def cublas_cycles(problem: GemmProblem, arch: HopperArch, constants: Fp32Constants = FP32) -> float:
    """Return how long cuBLAS takes for a product of fp32."""
    results = problem.m * problem.n * problem.num_batches
    memory = 4 * (_elements(problem) + results) / arch.hbm_bytes_per_clock
    multiply_adds = problem.flops / 2 / (constants.fma_per_clock * arch.num_sms)
    return constants.launch + max(multiply_adds, memory)


def copy_cycles(problem: GemmProblem, constants: Fp32Constants = FP32) -> float:
    """Return how long it takes to split both operands."""
    return 2 * constants.copy + 16 * _elements(problem) / constants.copy_bytes_per_clock


def _elements(problem: GemmProblem) -> int:
    """Return the number of elements of both operands."""
    return (problem.m + problem.n) * problem.k * problem.num_batches
