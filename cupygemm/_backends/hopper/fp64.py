"""Products of fp64: when cuBLAS's is faster than that of a kernel of this library.

Both run on the same tensor cores and are bound by them, or by the GPU's power. Ours wins where the
operands' rows do not begin at multiples of 16 bytes, which takes a third of cuBLAS's speed, in
batches of matrices that are not small, and in the largest products. cuBLAS has better tiles for few
rows and for small products. Products with an epilogue are ours always: it costs them little.
"""

from __future__ import annotations

from cupygemm._backends.hopper.config import TMA_BYTES, HopperArch
from cupygemm._backends.hopper.constants import FP64
from cupygemm._backends.hopper.cost import memory_cycles
from cupygemm._backends.hopper.cost_constants import Fp64Constants
from cupygemm._backends.hopper.cost_shapes import shapes_of
from cupygemm._backends.hopper.select import HopperSelection
from cupygemm._records.problem import GemmProblem


def require(problem: GemmProblem, selection: HopperSelection, arch: HopperArch) -> None:
    """Raise ValueError where cuBLAS is to compute a product of fp64.

    Parameters
    ----------
    problem : GemmProblem
        A product of fp64 operands.
    selection : HopperSelection
        The selection of its kernel; without a ranking if `tune` has measured it.
    arch : HopperArch
    """
    if problem.epilogue is not None or selection.ranking is None:
        return
    ours = selection.cycles + copy_cycles(problem)
    cublas = cublas_cycles(problem, arch)
    if cublas < ours:
        raise ValueError(
            f"cuBLAS multiplies fp64 in {cublas:.0f} cycles, and tiles of "
            f"{selection.config.tile_m}x{selection.config.tile_n} take {ours:.0f} (modelled)"
        )


def cublas_cycles(problem: GemmProblem, arch: HopperArch, constants: Fp64Constants = FP64) -> float:
    """Return how long cuBLAS takes for a product of fp64."""
    rate = constants.fma_per_clock_of_batches if problem.batch else constants.fma_per_clock
    multiply_adds = problem.flops / 2 / (rate * arch.num_sms)
    if min(problem.a_align, problem.b_align) < TMA_BYTES:
        multiply_adds *= constants.unaligned
    return constants.launch + max(multiply_adds, float(memory_cycles(shapes_of(problem))))


def copy_cycles(problem: GemmProblem, constants: Fp64Constants = FP64) -> float:
    """Return how long the copies of operands take that TMA cannot read."""
    rows = problem.m if problem.a_align < TMA_BYTES else 0
    rows += problem.n if problem.b_align < TMA_BYTES else 0
    return 16 * rows * problem.k * problem.num_batches / constants.copy_bytes_per_clock
