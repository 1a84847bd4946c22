"""The demonstration: a few products on the device at hand, each compared with its error bound.

Operands are random and laid out in the ways that matter to a kernel; the reference is NumPy's
product in float64. Everything that the products need is compiled first, in parallel, so that the
times shown are those of the products alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm._plan.explanation import Explanation
from cupygemm._products.matmul import explain, matmul
from cupygemm._request.promotion import BF16, F16, F32, F64
from cupygemm.testing import errors_and_bounds, random_operands

Operands = tuple[Any, Any, Any]  # x1, x2, out or None


@dataclass(frozen=True)
class Case:
    """One product to show.

    Attributes
    ----------
    x1, x2 : tuple of int
        Shapes as drawn, before `arrange`.
    dtype, result : numpy.dtype
    layout : str
        What is special about the operands, for the table.
    arrange : callable
        ``arrange(xp, x1, x2)`` returns views of the operands and an ``out`` or None; `xp` is CuPy,
        or NumPy for the reference.
    """

    x1: tuple[int, ...]
    x2: tuple[int, ...]
    dtype: np.dtype[Any]
    result: np.dtype[Any]
    layout: str
    arrange: Callable[[Any, Any, Any], Operands]


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes
    ----------
    shape : str
        ``"m x n x k"``, with the batch.
    dtype : str
        Of operands and result.
    layout, backend : str
    config : str
        Workgroup tile m x n x k, waves m x n, and MFMA instruction; or the backend.
    error, bound : float
        Absolute, at the element where the error is the largest part of its bound.
    seconds : float
        Wall-clock time of a repeated call; on the emulated device, of the emulation.
    mfma, instructions : int or None
        Executed by all waves; None on a GPU.
    """

    shape: str
    dtype: str
    layout: str
    config: str
    backend: str
    error: float
    bound: float
    seconds: float
    mfma: int | None
    instructions: int | None

    @property
    def ok(self) -> bool:
        """Whether the error is within its bound."""
        return self.error <= self.bound


CASES = (
    Case((256, 256), (256, 256), BF16, BF16, "C, C", lambda _, a, b: (a, b, None)),
    Case((256, 256), (256, 256), F16, F16, "C, F", lambda _, a, b: (a, b.T, None)),
    Case((500, 300), (500, 200), BF16, F32, "F, C; odd tails", lambda _, a, b: (a.T, b, None)),
    Case((257, 129), (65, 257), F16, F32, "F, F; odd", lambda _, a, b: (a.T, b.T, None)),
    Case((200, 150), (150, 130), F32, F32, "C, C", lambda _, a, b: (a, b, None)),
    Case((90, 120), (90, 110), F64, F64, "F, C", lambda _, a, b: (a.T, b, None)),
    Case((1, 4096), (4096, 96), BF16, BF16, "one row", lambda _, a, b: (a, b, None)),
    Case((1024, 512), (512, 768), BF16, BF16, "C, C", lambda _, a, b: (a, b, None)),
    Case((6, 96, 80), (6, 80, 72), BF16, BF16, "batch", lambda _, a, b: (a, b, None)),
    Case((3, 1, 64, 48), (5, 48, 40), F16, F16, "broadcast", lambda _, a, b: (a, b, None)),
    Case(
        (300, 200), (200, 180), BF16, BF16, "sub-matrix views",
        lambda _, a, b: (a[20:220, :150], b[30:180, 7:140], None),
    ),
    Case(
        (120, 100), (100, 90), F16, F32, "out in F order",
        lambda xp, a, b: (a, b, xp.empty((120, 90), F32, order="F")),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class _Prepared:
    """A case with its operands, as NumPy arrays and on the device."""

    case: Case
    x1: Any
    x2: Any
    on_device: Operands


def run_cases() -> Iterator[Outcome]:
    """Multiply, compare and time each case on CuPy's current device."""
    prepared = [_prepare(case, seed) for seed, case in enumerate(CASES)]
    for ready, explanation in zip(prepared, _compile(prepared), strict=True):
        yield _run(ready, explanation)


def _prepare(case: Case, seed: int) -> _Prepared:
    import cupy

    x1, x2 = random_operands(case.x1, case.x2, case.dtype, seed=seed)
    on_device = case.arrange(cupy, cupy.asarray(x1), cupy.asarray(x2))
    return _Prepared(case, x1, x2, on_device)


def _compile(prepared: list[_Prepared]) -> list[Explanation]:
    """Compile the kernels, and the emulated device's native code, on all processors."""
    from cupygemm import emulator
    from cupygemm.emulator import native

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # The native code takes the longest, so it goes first.
        library = pool.submit(native.library) if emulator.is_enabled() else None
        explanations = list(
            pool.map(lambda ready: explain(*ready.on_device, dtype=ready.case.result), prepared)
        )
        if library is not None:
            library.result()
    return explanations


def _run(ready: _Prepared, explanation: Explanation) -> Outcome:
    import cupy

    from cupygemm import emulator

    case = ready.case
    a, b, out = ready.on_device
    matmul(a, b, out, dtype=case.result)
    device = cupy.cuda.Device()
    device.synchronize()
    before = _executed()
    start = time.perf_counter()
    result = matmul(a, b, out, dtype=case.result)
    device.synchronize()
    seconds = time.perf_counter() - start
    # Of all its launches: parts of k are added by a second one.
    mfma, instructions = (now - then for now, then in zip(_executed(), before, strict=True))
    emulated = emulator.is_enabled()
    error, bound = errors_and_bounds(result, *case.arrange(np, ready.x1, ready.x2)[:2])
    worst = np.unravel_index(np.argmax(error / bound), error.shape)
    return Outcome(
        _shape(a.shape, b.shape, result.shape),
        f"{_short(case.dtype)} -> {_short(case.result)}",
        case.layout,
        _config(explanation),
        explanation.backend,
        float(error[worst]),
        float(bound[worst]),
        seconds,
        mfma if emulated else None,
        instructions if emulated else None,
    )


def _executed() -> tuple[int, int]:
    """Return the MFMA and the instructions that the emulated device has executed, if it runs."""
    from cupygemm import emulator

    if not emulator.is_enabled():
        return 0, 0
    from cupygemm.emulator.run import launch_totals

    return launch_totals()


def _shape(x1: tuple[int, ...], x2: tuple[int, ...], result: tuple[int, ...]) -> str:
    """Return m x n x k, and the batch before it."""
    batch = "x".join(map(str, result[:-2]))
    product = f"{result[-2]}x{result[-1]}x{x1[-1]}"
    return f"[{batch}] {product}" if batch else product


def _config(explanation: Explanation) -> str:
    config = explanation.config
    if config is None:
        return explanation.backend
    return config.brief


def _short(dtype: np.dtype[Any]) -> str:
    return {BF16: "bf16", F16: "fp16", F32: "fp32", F64: "fp64"}[dtype]
