"""Products of fp64: when cuBLAS's is faster than that of a kernel of this library.

Both run on the same tensor cores and are bound by them, or by the GPU's power. Ours wins where the
operands' rows do not begin at multiples of 16 bytes, which takes a third of cuBLAS's speed, in
batches of matrices that are not small, and in the largest products. cuBLAS has better tiles for few
rows and for small products. Products with an epilogue are ours always: it costs them little.
"""

from __future__ import annotations

from cupygemm._backends.hopper.config import TMA_BYTES, HopperArch
from cupygemm._backends.hopper.cost import memory_cycles
from cupygemm._backends.hopper.select import HopperSelection
from cupygemm._records.problem import GemmProblem

# Of cuBLAS, from measurements on an H200 (driver 580, 2026-11-21).
_LAUNCH = 6000  # cycles
_FMA_PER_CLOCK = 125  # of an SM, whose tensor cores do 128
_FMA_PER_CLOCK_OF_BATCHES = 113
_UNALIGNED = 1.4
_COPY_BYTES_PER_CLOCK = 1600  # of the GPU, read and written, by our copies


def require(problem: GemmProblem, selection: HopperSelection, arch: HopperArch) -> None:
    """Raise ValueError where cuBLAS is to compute a product of fp64.

    Parameters
    ----------
    problem : GemmProblem
        Of fp64.
    selection : HopperSelection
        Of its kernel; without candidates where that was measured.
    arch : HopperArch
    """
    if problem.epilogue is not None or not selection.candidates:
        return
    ours = selection.candidates[0].cycles
    rate = _FMA_PER_CLOCK_OF_BATCHES if problem.batch else _FMA_PER_CLOCK
    cublas = problem.flops / 2 / (rate * arch.num_sms)
    if min(problem.a_align, problem.b_align) < TMA_BYTES:
        cublas *= _UNALIGNED
    for alignment, rows in ((problem.a_align, problem.m), (problem.b_align, problem.n)):
        if alignment < TMA_BYTES:
            ours += 16 * rows * problem.k * problem.num_batches / _COPY_BYTES_PER_CLOCK
    cublas = _LAUNCH + max(cublas, memory_cycles(problem))
    if cublas < ours:
        raise ValueError(
            f"cuBLAS multiplies fp64 in {cublas:.0f} cycles, and tiles of "
            f"{selection.config.tile_m}x{selection.config.tile_n} take {ours:.0f} (modelled)"
        )
