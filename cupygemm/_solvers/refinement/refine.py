"""Systems that are factored in a low precision and refined to that of their operands.

::

    scale | factor in low precision | x = U^-1 L^-1 b | error | GMRES, some steps | error | ...
                                                        host                        host

After each ``error`` the host decides how many steps come next: as many as the rate so far calls
for. If they stop helping, the matrix is factored in the precision of the operands. (E. Carson and
N. Higham, "Accelerating the solution of linear systems by iterative refinement in three
precisions", 2018; A. Haidar, S. Tomov, J. Dongarra and N. Higham, "Harnessing GPU tensor cores for
fast FP16 arithmetic to speed up mixed-precision iterative refinement solvers", 2018.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cupygemm._request.arrays import Array
from cupygemm._solvers.common.errors import is_capturing
from cupygemm._solvers.common.matrices import adjoint
from cupygemm._solvers.common.products import EXACT, ROUNDINGS
from cupygemm._solvers.refinement.low_factors import factored
from cupygemm._solvers.refinement.one_vector import LONGEST_CYCLE
from cupygemm._solvers.refinement.solutions import first_solution

Path = Literal["direct", "refined", "fallback"]
_MOST_ITERATIONS = 50


@dataclass(frozen=True)
class SolveInfo:
    """How `cupygemm.linalg.solve` found a solution.

    Attributes
    ----------
    path : {"direct", "refined", "fallback"}
        ``"direct"``: one factorisation in the precision of the operands. ``"refined"``: one in the
        lower precision, and refinement. ``"fallback"``: refinement did not converge for some
        matrix, and all were factored in the precision of the operands.
    precision : str
        The precision of the factorisation that the solution comes from.
    iterations : int
        How often the low-precision factors were applied.
    waits : int
        How often the call waited for the device.
    backward_error : numpy.ndarray or None
        The largest normwise backward error of each matrix's solutions, (...), computed as
        ``norm(b - a x) / (norm(a) norm(x) + norm(b))`` in the maximum norm, of the system or of the
        system with scaled rows and columns, whichever is larger; None if the solution was not
        refined.
    """

    path: Path
    precision: str
    iterations: int
    waits: int
    backward_error: np.ndarray[Any, Any] | None = None


def refined_precision(precision: str | None, dtype: np.dtype[Any]) -> str | None:
    """Return the precision to factor in; None if it is that of the operands.

    Raises
    ------
    ValueError
        The precision is unknown, or complex matrices do not have it.
    """
    if precision is None:
        return None
    if precision not in ROUNDINGS:
        raise ValueError(
            f"solve: precision is {precision!r}; it must be None or one of {list(ROUNDINGS)}"
        )
    if ROUNDINGS[precision] == EXACT:
        return precision if dtype.char in "dD" else None
    if dtype.kind == "c":
        raise ValueError(
            f"solve: precision is {precision!r}, which has no complex products; use 'float32'"
        )
    return precision


def refine(
    a: Array,
    b: Array,
    precision: str,
    *,
    positive: bool,
    finite: Array | None,
) -> tuple[Array | None, SolveInfo]:
    """Return solutions that reach the backward error of their type; None if there are none.

    Parameters
    ----------
    a : cupy.ndarray
        (batches, n, n), of the type to refine in. Of positive definite matrices, only the lower
        triangles are read.
    b : cupy.ndarray
        (batches, n, k), of the same type.
    precision : str
        A key of `ROUNDINGS`.
    positive : bool
        Whether the matrices are positive definite.
    finite : cupy.ndarray, optional
        From `finite_flag`.

    Raises
    ------
    ValueError
        A graph is recorded, or an operand has a NaN or an infinity.
    """
    if is_capturing():
        raise ValueError(
            "solve: refinement cannot be recorded in a graph, since the host decides when it ends; "
            "leave precision out"
        )
    a = mirrored(a) if positive else a
    solution = first_solution(a, b, factored(a, precision, positive=positive), finite)
    found, singular = solution.fetch()
    epsilon = float(np.finfo(a.dtype).eps)
    goal, enough = 2 * epsilon, max(2.0, math.sqrt(a.shape[-1])) * epsilon
    iterations, waits, steps = 1, 1, 0
    error = rate = float(found.max())
    previous = math.inf
    while not singular and goal < error < math.inf and iterations < _MOST_ITERATIONS:
        stagnates = error > previous / 2
        if stagnates and (error <= enough or steps == LONGEST_CYCLE):
            break
        needed = LONGEST_CYCLE if stagnates else _steps(error, goal, rate)
        steps = min(needed, _MOST_ITERATIONS - iterations)
        solution.improve(steps)
        found, _ = solution.fetch()
        iterations, waits, previous = iterations + steps, waits + 1, error
        error = float(found.max())
        rate = (error / previous) ** (1 / steps)
    accepted = not singular and bool((found <= enough).all())
    info = SolveInfo("refined" if accepted else "fallback", precision, iterations, waits, found)
    return (solution.columns() if accepted else None), info


def _steps(error: float, goal: float, rate: float) -> int:
    """Return the steps that reach the goal if each multiplies the error by a rate."""
    steps = math.log(goal / error) / math.log(min(max(rate, 1e-30), 0.5))
    return min(max(math.ceil(steps), 1), LONGEST_CYCLE)


def mirrored(a: Array) -> Array:
    """Return Hermitian matrices from their lower triangles."""
    import cupy

    below = cupy.tril(a, -1)
    whole: Array = below + adjoint(below)
    diagonal = cupy.arange(a.shape[-1])
    whole[:, diagonal, diagonal] = a[:, diagonal, diagonal].real
    return whole
