"""The demonstration: a few products on the current device, each compared with its error bound.

Operands are random, and their layouts cover the cases that matter to a kernel. The reference is
NumPy's product in float64. All kernels are compiled first, in parallel, so the times shown exclude
compilation.
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
from cupygemm._records.dtypes import ELEMENT_OF, ELEMENT_TYPES
from cupygemm._request.promotion import BF16, F16, F32, F64
from cupygemm.testing import errors_and_bounds, random_operands

Operands = tuple[Any, Any, Any]  # x1, x2, out or None


def _as_drawn(_: Any, a: Any, b: Any) -> Operands:
    return a, b, None


@dataclass(frozen=True, kw_only=True)
class Case:
    """One product to show.

    Attributes
    ----------
    x1, x2 : tuple of int
        Shapes as drawn, before `arrange`.
    dtype : numpy.dtype
    result : numpy.dtype or None
        The type of the result; None if it is `dtype`.
    layout : str
        The special property of the operands, for the table.
    arrange : callable
        ``arrange(xp, x1, x2)`` returns views of the operands and an ``out`` or None; `xp` is CuPy,
        or NumPy for the reference.
    """

    x1: tuple[int, ...]
    x2: tuple[int, ...]
    dtype: np.dtype[Any]
    layout: str
    result: np.dtype[Any] | None = None
    arrange: Callable[[Any, Any, Any], Operands] = _as_drawn

    @property
    def result_dtype(self) -> np.dtype[Any]:
        """Return the type of the result."""
        return self.dtype if self.result is None else self.result


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a case.

    Attributes
    ----------
    shape : str
        ``"m x n x k"``, with the batch.
    dtype : str
        The types of the operands and of the result.
    layout, backend : str
    config : str
        Workgroup tile m x n x k, waves m x n, and MFMA instruction; or the backend.
    error, bound : float
        Absolute, at the element with the largest ratio of error to bound.
    seconds : float
        Wall-clock time of a repeated call; on the emulated device, the time of the emulation.
    mfma, instructions : int or None
        The numbers of MFMA and of all instructions that the waves executed; None on a GPU.
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


def _transpose_both(_: Any, a: Any, b: Any) -> Operands:
    return a.T, b.T, None


def _transpose_first(_: Any, a: Any, b: Any) -> Operands:
    return a.T, b, None


def _transpose_second(_: Any, a: Any, b: Any) -> Operands:
    return a, b.T, None


def _sub_matrices(_: Any, a: Any, b: Any) -> Operands:
    return a[20:220, :150], b[30:180, 7:140], None


def _out_in_f_order(xp: Any, a: Any, b: Any) -> Operands:
    return a, b, xp.empty((a.shape[0], b.shape[1]), F32, order="F")


CASES = (
    Case(x1=(256, 256), x2=(256, 256), dtype=BF16, layout="C, C"),
    Case(x1=(256, 256), x2=(256, 256), dtype=F16, layout="C, F", arrange=_transpose_second),
    Case(
        x1=(500, 300),
        x2=(500, 200),
        dtype=BF16,
        result=F32,
        layout="F, C; odd tails",
        arrange=_transpose_first,
    ),
    Case(
        x1=(257, 129),
        x2=(65, 257),
        dtype=F16,
        result=F32,
        layout="F, F; odd",
        arrange=_transpose_both,
    ),
    Case(x1=(200, 150), x2=(150, 130), dtype=F32, layout="C, C"),
    Case(x1=(90, 120), x2=(90, 110), dtype=F64, layout="F, C", arrange=_transpose_first),
    Case(x1=(1, 4096), x2=(4096, 96), dtype=BF16, layout="one row"),
    Case(x1=(1024, 512), x2=(512, 768), dtype=BF16, layout="C, C"),
    Case(x1=(6, 96, 80), x2=(6, 80, 72), dtype=BF16, layout="batch"),
    Case(x1=(3, 1, 64, 48), x2=(5, 48, 40), dtype=F16, layout="broadcast"),
    Case(
        x1=(300, 200),
        x2=(200, 180),
        dtype=BF16,
        layout="sub-matrix views",
        arrange=_sub_matrices,
    ),
    Case(
        x1=(120, 100),
        x2=(100, 90),
        dtype=F16,
        result=F32,
        layout="out in F order",
        arrange=_out_in_f_order,
    ),
)


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
            pool.map(
                lambda ready: explain(*ready.on_device, dtype=ready.case.result_dtype), prepared
            )
        )
        if library is not None:
            library.result()
    return explanations


def _run(ready: _Prepared, explanation: Explanation) -> Outcome:
    import cupy

    from cupygemm import emulator

    case = ready.case
    a, b, out = ready.on_device
    matmul(a, b, out, dtype=case.result_dtype)
    device = cupy.cuda.Device()
    device.synchronize()
    before = _executed()
    start = time.perf_counter()
    result = matmul(a, b, out, dtype=case.result_dtype)
    device.synchronize()
    seconds = time.perf_counter() - start
    # The counts include all launches of the call: with split_k, a second kernel adds the splits.
    mfma, instructions = (now - then for now, then in zip(_executed(), before, strict=True))
    emulated = emulator.is_enabled()
    x1, x2, _ = case.arrange(np, ready.x1, ready.x2)
    error, bound = errors_and_bounds(result, x1, x2)
    worst = np.unravel_index(np.argmax(error / bound), error.shape)
    return Outcome(
        shape=_shape(a.shape, b.shape, result.shape),
        dtype=f"{_short(case.dtype)} -> {_short(case.result_dtype)}",
        layout=case.layout,
        config=_config(explanation),
        backend=explanation.backend,
        error=float(error[worst]),
        bound=float(bound[worst]),
        seconds=seconds,
        mfma=mfma if emulated else None,
        instructions=instructions if emulated else None,
    )


def _executed() -> tuple[int, int]:
    """Return the numbers of MFMA and instructions executed so far, if the device is emulated."""
    from cupygemm import emulator

    if not emulator.is_enabled():
        return 0, 0
    from cupygemm.emulator.run import launch_totals

    return launch_totals()


def _shape(x1: tuple[int, ...], x2: tuple[int, ...], result: tuple[int, ...]) -> str:
    """Return the text m x n x k, preceded by the batch."""
    batch = "x".join(map(str, result[:-2]))
    product = f"{result[-2]}x{result[-1]}x{x1[-1]}"
    return f"[{batch}] {product}" if batch else product


def _config(explanation: Explanation) -> str:
    config = explanation.config
    if config is None:
        return explanation.backend
    return config.brief


def _short(dtype: np.dtype[Any]) -> str:
    (alias,) = ELEMENT_TYPES[ELEMENT_OF[dtype]].aliases
    return alias
