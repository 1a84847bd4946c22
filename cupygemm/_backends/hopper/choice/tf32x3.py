"""Products of fp32 as three products of tf32 terms, and when cuBLAS's fp32 product is faster.

An fp32 number is the sum of a high and a low tf32 term, with a relative error of 2**-24. Tensor
cores multiply tf32 about nine times as fast as the other cores multiply fp32. The product of the
low terms, 2**-24 of the whole, is omitted, so for small k the error would exceed that of a sum in
fp32. Low terms below 2**-136 are lost, and sums may overflow to the wrong infinity or to NaN if the
product is far outside the range of fp32. Users must therefore request this precision.
"""

from __future__ import annotations

from cupygemm._backends.hopper.choice.select import HopperSelection
from cupygemm._backends.hopper.config import HopperArch
from cupygemm._backends.hopper.cost.constants import FP32
from cupygemm._backends.hopper.cost.parameters import Fp32Constants
from cupygemm._records.problem import GemmProblem

MIN_K = 16
"""Sums of at least as many terms, each with an error of three units in the last place, stay within
the bound of fp32, one unit per term."""
MAX_COPY_BYTES = 16 << 30
"""Temporary memory for the parts of both operands."""


def require(problem: GemmProblem, selection: HopperSelection, arch: HopperArch) -> None:
    """Raise ValueError if cuBLAS should compute a product of fp32.

    Parameters
    ----------
    problem : GemmProblem
        A product of fp32.
    selection : HopperSelection
        The selection for the product of terms; without a ranking if its kernel was measured.
    arch : HopperArch
    """
    if problem.k < MIN_K:
        raise ValueError(
            f"for k = {problem.k}, products of tf32 terms are less exact than those of fp32; they "
            f"are as exact from k = {MIN_K} on"
        )
    elements = _elements(problem)
    if 12 * elements > MAX_COPY_BYTES:
        raise ValueError(f"the tf32 terms of the operands would take {12 * elements >> 30} GiB")
    if selection.ranking is None:
        return
    parts = selection.cycles + copy_cycles(problem)
    direct = cublas_cycles(problem, arch)
    if direct < parts:
        raise ValueError(
            f"cuBLAS multiplies fp32 exactly in {direct:.0f} cycles, and products of tf32 terms "
            f"take {parts:.0f} (modelled)"
        )


def cublas_cycles(problem: GemmProblem, arch: HopperArch, constants: Fp32Constants = FP32) -> float:
    """Return cuBLAS's modelled cycles for a product of fp32."""
    results = problem.m * problem.n * problem.num_batches
    memory = 4 * (_elements(problem) + results) / arch.hbm_bytes_per_clock
    multiply_adds = problem.flops / 2 / (constants.fma_per_clock * arch.num_sms)
    return constants.launch + max(multiply_adds, memory)


def copy_cycles(problem: GemmProblem, constants: Fp32Constants = FP32) -> float:
    """Return the modelled cycles of splitting both operands."""
    return 2 * constants.copy + 16 * _elements(problem) / constants.copy_bytes_per_clock


def _elements(problem: GemmProblem) -> int:
    """Return the number of elements of both operands."""
    return (problem.m + problem.n) * problem.k * problem.num_batches
