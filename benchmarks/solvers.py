"""Times of the solvers on a GPU beside CuPy's and PyTorch's, in one process.

    python -m benchmarks.solvers --sizes 4096 8192 --dtypes float64 --output solvers.json

Each time is the least of some calls after a first one, by events around the call: it includes the
time in which the GPU waits for the host. The contenders take turns.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BATCHES = ((4096, 16), (1024, 32), (1024, 64), (1024, 96), (1024, 128), (256, 256))
PRECISIONS = ("float32", "tf32x3", "int8")
"""Of the factorisations that are refined to the backward error of float64."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[4096, 8192])
    parser.add_argument("--dtypes", nargs="*", default=["float64", "float32"])
    parser.add_argument("--only", nargs="*", help="names of computations, e.g. solve inv")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    rows = []
    for name, computations in cases(given.sizes, given.dtypes):
        if given.only and name.split()[0].partition("-")[0] not in given.only:
            continue
        found = measure(computations(), given.rounds)
        rows.append({"case": name, **found})
        sys.stdout.write(f"{name} {found}\n")
        sys.stdout.flush()
    if given.output:
        given.output.write_text(json.dumps(rows, indent=1))


def cases(
    sizes: list[int], dtypes: list[str]
) -> Iterator[tuple[str, Callable[[], dict[str, Callable[[], Any]]]]]:
    """Return the name of each computation, and what makes its contenders."""
    for dtype in dtypes:
        for n in sizes:
            refined = [f"refined-{each}" for each in PRECISIONS if dtype == "float64"]
            for kind in ("solve", *refined, "cholesky", "inv", "qr", "triangular"):
                yield f"{kind} {dtype} {n}", lambda k=kind, s=(n,), d=dtype: contenders(k, s, d)
        for kind in ("solve", "cholesky"):
            for count, n in BATCHES:
                yield (
                    f"{kind} {dtype} {count}x{n}x{n}",
                    lambda k=kind, s=(count, n), d=dtype: contenders(k, s, d),
                )


def contenders(kind: str, shape: tuple[int, ...], dtype: str) -> dict[str, Callable[[], Any]]:
    """Return the functions that compute one thing, by the name of their library."""
    import cupy
    import cupyx.scipy.linalg
    import torch

    from cupygemm import linalg

    n = shape[-1]
    a = cupy.random.standard_normal((*shape, n)).astype(dtype)
    if kind == "cholesky":
        a = a @ a.swapaxes(-1, -2) / n + cupy.eye(n, dtype=dtype)
    if kind == "triangular":
        a = cupy.tril(a) / n + cupy.eye(n, dtype=dtype)
        b = cupy.random.standard_normal((n, n)).astype(dtype)
    else:
        b = a[..., :1].copy()
    x, y = torch.as_tensor(a, device="cuda"), torch.as_tensor(b, device="cuda")
    kind, _, precision = kind.partition("-")
    return {
        "solve": {
            "cupygemm": lambda: linalg.solve(a, b),
            "CuPy": lambda: cupy.linalg.solve(a, b),
            "PyTorch": lambda: torch.linalg.solve(x, y),
        },
        "refined": {
            "cupygemm": lambda: linalg.solve(a, b, precision=precision),
            "CuPy": lambda: cupy.linalg.solve(a, b),
            "PyTorch": lambda: torch.linalg.solve(x, y),
        },
        "cholesky": {
            "cupygemm": lambda: linalg.cholesky(a),
            "CuPy": lambda: cupy.linalg.cholesky(a),
            "PyTorch": lambda: torch.linalg.cholesky(x),
        },
        "inv": {
            "cupygemm": lambda: linalg.inv(a),
            "CuPy": lambda: cupy.linalg.inv(a),
            "PyTorch": lambda: torch.linalg.inv(x),
        },
        "qr": {
            "cupygemm": lambda: linalg.qr(a),
            "CuPy": lambda: cupy.linalg.qr(a),
            "PyTorch": lambda: torch.linalg.qr(x),
        },
        "triangular": {
            "cupygemm": lambda: linalg.solve_triangular(a, b, lower=True, check_finite=False),
            "CuPy": lambda: cupyx.scipy.linalg.solve_triangular(
                a, b, lower=True, check_finite=False
            ),
            "PyTorch": lambda: torch.linalg.solve_triangular(x, y, upper=False),
        },
    }[kind]


def measure(functions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the least time of each function, in milliseconds."""
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
            least[name] = min(least[name], cupy.cuda.get_elapsed_time(start, end))
    return {name: round(value, 3) for name, value in least.items()}


if __name__ == "__main__":
    main()
