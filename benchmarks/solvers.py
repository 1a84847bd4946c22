"""Compare the solvers on a GPU with CuPy's and PyTorch's: ``python -m benchmarks.solvers``.

Each time is the least of several calls after a first one, by events around the call: it includes
the time in which the GPU waits for the host. The contenders take turns in one process. ``python -m
benchmarks.history add`` keeps the file that ``--output`` names.

``solve`` has one right-hand side for each matrix, ``solve_triangular`` a square one. The elements
are normal random numbers; "heavy diagonal" means that 2 sqrt(n) is added to the diagonal. Solutions
refined from a lower precision are compared with those of the others in the operands' type.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIBRARIES = ("cupygemm", "CuPy", "PyTorch")
HEAVY = ", heavy diagonal"
Call = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """One computation.

    Attributes
    ----------
    function : str
        A function of `cupygemm.linalg`.
    dtype : str
        The element type.
    n : int
        The number of rows of a square matrix.
    count : int
        The number of matrices of a stack; 1 for a single matrix.
    precision : str
        The precision of the factorisation, if it is not that of the operands, and whether the
        matrix has a heavy diagonal.
    """

    function: str
    dtype: str
    n: int
    count: int = 1
    precision: str = ""

    @property
    def name(self) -> str:
        function = f"{self.function}({self.precision})" if self.precision else self.function
        stack = f"{self.count} of " if self.count > 1 else ""
        return f"{function} {self.dtype} {stack}{self.n}"


_LARGE = {
    "solve": (4096, 8192, 16384),
    "inv": (4096, 8192),
    "cholesky": (4096, 8192),
    "qr": (4096, 8192),
    "solve_triangular": (4096, 8192),
}
_STACKED = ("solve", "cholesky", "inv", "qr")
_STACKS = ((4096, 16), (1024, 32), (1024, 64), (1024, 96), (1024, 128), (256, 256))
_COMPLEX_STACKED = ("solve", "cholesky", "inv")
_COMPLEX_STACKS = ((4096, 16), (1024, 64))
_REFINED = tuple(
    Case("solve", "float64", n, precision=precision)
    for n in (8192, 16384)
    for precision in ("float16" + HEAVY, "float32", "tf32x3", "int8")
)


def _stacks(dtype: str) -> list[Case]:
    is_complex = dtype.startswith("complex")
    functions = _COMPLEX_STACKED if is_complex else _STACKED
    stacks = _COMPLEX_STACKS if is_complex else _STACKS
    return [Case(function, dtype, n, count) for function in functions for count, n in stacks]


_REAL = tuple(
    case
    for dtype in ("float64", "float32")
    for case in (
        *(Case(function, dtype, n) for function, sizes in _LARGE.items() for n in sizes),
        *(_REFINED if dtype == "float64" else ()),
        *_stacks(dtype),
    )
)
CASES = {case.name: case for case in (*_REAL, *_stacks("complex128"), *_stacks("complex64"))}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the times."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.solvers", description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, metavar="CASE", help="their names")
    parser.add_argument("--rounds", type=int, default=3, help="calls of each library")
    parser.add_argument("--output", type=Path, help="write all figures here, as JSON")
    options = parser.parse_args(arguments)
    from benchmarks.compare import environment

    figures: list[dict[str, Any]] = []
    document = {"environment": environment(), "figures": figures}
    for name in options.cases or CASES:
        found = measure(contenders(CASES[name]), options.rounds)
        figures += (
            {"benchmark": "measured.MeasuredSolver.track_call_time", "params": [name, who]}
            | {"value": seconds}
            for who, seconds in found.items()
        )
        times = (f"{who} {1e3 * seconds:.3f}" for who, seconds in found.items())
        sys.stdout.write(f"{name}: {', '.join(times)} ms\n")
        sys.stdout.flush()
        if options.output:  # after each case, so that an interrupted run keeps its figures
            options.output.write_text(json.dumps(document, indent=1) + "\n")


def contenders(case: Case) -> dict[str, Call]:
    """Return the functions that compute a case, by the name of their library."""
    import cupy
    import cupyx.scipy.linalg
    import torch

    from cupygemm import linalg

    a, b = operands(case)
    x, y = torch.as_tensor(a, device="cuda"), torch.as_tensor(b, device="cuda")
    precision = case.precision.removesuffix(HEAVY) or None
    solve_triangular = cupyx.scipy.linalg.solve_triangular
    functions: dict[str, tuple[Call, Call, Call]] = {
        "solve": (
            lambda: linalg.solve(a, b, precision=precision),
            lambda: cupy.linalg.solve(a, b),
            lambda: torch.linalg.solve(x, y),
        ),
        "solve_triangular": (
            lambda: linalg.solve_triangular(a, b, lower=True, check_finite=False),
            lambda: solve_triangular(a, b, lower=True, check_finite=False),
            lambda: torch.linalg.solve_triangular(x, y, upper=False),
        ),
    }
    found = functions.get(case.function)
    if found is None:
        ours, cupys, torchs = (
            getattr(each, case.function) for each in (linalg, cupy.linalg, torch.linalg)
        )
        found = (lambda: ours(a), lambda: cupys(a), lambda: torchs(x))
    return dict(zip(LIBRARIES, found, strict=True))


def operands(case: Case) -> tuple[Any, Any]:
    """Return the matrix or the stack of matrices, and the right-hand sides."""
    import cupy

    n, dtype = case.n, case.dtype
    shape = (case.count, n, n) if case.count > 1 else (n, n)
    a = cupy.random.standard_normal(shape).astype(dtype)
    if dtype.startswith("complex"):
        a.imag = cupy.random.standard_normal(shape)
    one = cupy.eye(n, dtype=dtype)
    if case.function == "cholesky":
        a = a @ a.swapaxes(-1, -2).conj() / n + one
    if case.function == "solve_triangular":
        return cupy.tril(a) / n + one, a
    if case.precision.endswith(HEAVY):
        a += 2 * n**0.5 * one
    return a, a[..., :1].copy()


def measure(functions: dict[str, Call], rounds: int) -> dict[str, float]:
    """Return the shortest time of each function, in seconds."""
    import cupy

    least = dict.fromkeys(functions, float("inf"))
    for call in functions.values():
        call()
    for _ in range(rounds):
        for name, call in functions.items():
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            cupy.cuda.Device().synchronize()
            start.record()
            call()
            end.record()
            cupy.cuda.Device().synchronize()
            least[name] = min(least[name], cupy.cuda.get_elapsed_time(start, end) / 1e3)
    return least


if __name__ == "__main__":
    main()
