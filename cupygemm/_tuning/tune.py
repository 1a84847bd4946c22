"""`tune`: measure the most promising configurations of products and keep the fastest.

The selector's cost model ranks the configurations. The best few are compiled and run on the device,
and the fastest goes into a database that plans use (`cupygemm._plan.winners`). The emulated device
has no time to measure: there, `tune` returns the model's ranking and keeps nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._backends.device import Device, device
from cupygemm._backends.protocol import Backend
from cupygemm._plan import winners
from cupygemm._plan.table import PLANS
from cupygemm._records.dtypes import FLOAT8_DTYPES
from cupygemm._request.options import require_positive
from cupygemm._tuning.product import Product, products_of, progress_bar
from cupygemm._tuning.timer import DeviceTimer

BATCH_SECONDS = 0.01
"""The approximate duration of a batch of calls; it is shorter if a stream cannot hold as many."""
BATCHES = 5


@dataclass(frozen=True)
class Tuned:
    """The result of tuning one product.

    Attributes
    ----------
    product : str
    device : str
    kind : {"measured", "modelled"}
        Whether the figures are times of the device or cycles of the cost model.
    figures : tuple of (config, float)
        The configurations with their microseconds or modelled cycles, the best first.
    """

    product: str
    device: str
    kind: str
    figures: tuple[tuple[Any, float], ...]

    def __str__(self) -> str:
        unit = "us" if self.kind == "measured" else "cycles"
        lines = [f"{self.product} on {self.device} ({self.kind})"]
        lines += [f"  {figure:10.1f} {unit}  {config}" for config, figure in self.figures]
        return "\n".join(lines)


def tune(
    shapes: Iterable[Sequence[int]],
    dtypes: Iterable[DTypeLike] | DTypeLike = "bfloat16",
    *,
    dtype: DTypeLike | None = None,
    layouts: Iterable[str] = ("NN",),
    candidates: int = 8,
    progress: bool = True,
) -> list[Tuned]:
    """Measure configurations of products on the device, and use the fastest from then on.

    Parameters
    ----------
    shapes, dtypes, dtype, layouts
        As for `warmup`.
    candidates : int
        The number of each backend's highest-ranked configurations to measure. Variants of the
        fastest one, such as other orders of its tiles, are measured too.
    progress : bool
        Show a progress bar if the standard error is a terminal.

    Returns
    -------
    list of Tuned
        One for each product that has a kernel of this library, or several algorithms of cuBLASLt.

    Raises
    ------
    ValueError
        A shape, a layout or the number of candidates is invalid.
    TypeError
        A type is unknown, or the device does not multiply it.
    cupygemm._build.cache.CacheError
        The database cannot be written.

    See Also
    --------
    explain : Describe which configuration is used, and that it was measured.

    Notes
    -----
    The fastest configurations are kept, by the name of the device, in an SQLite file in the
    directory of the compiled kernels. They apply to products of exactly these extents, types and
    layouts, with operands aligned to 16 bytes. The emulated device has no time to measure: there,
    the figures are the model's, and none is kept.
    """
    from cupy.cuda.runtime import getDevice

    place = device(getDevice())
    work = products_of("tune", shapes, dtypes, dtype, layouts)
    require_positive("tune", "candidates", candidates)
    results = []
    with progress_bar("tuning", len(work), shown=progress) as done:
        for product in work:
            found = _tune_one(product, place, candidates)
            if found is not None:
                results.append(found)
            done(str(product))
    PLANS.clear()
    return results


def _tune_one(product: Product, place: Device, count: int) -> Tuned | None:
    """Tune one product; return None if this library has no kernel for it."""
    request = product.request
    problems = {backend: backend.problem(request) for backend in place.backends}
    problem = next((found for found in problems.values() if found is not None), None)
    if problem is None:
        return None
    backends = [backend for backend, found in problems.items() if found == problem]
    if place.is_emulated:
        ranked = backends[0].candidates(request)[:count]
        modelled = tuple((candidate.config, candidate.cycles) for candidate in ranked)
        return Tuned(product=str(product), device=place.name, kind="modelled", figures=modelled)
    operands = [_filled(*described) for described in _described(product)]

    def timed(backend: Backend, config: Any) -> tuple[Backend, Any, float]:
        compiled = backend.compile(request, config, reason="measured")
        return backend, config, measure(backend.launch(request, compiled), operands)

    measured = [
        timed(backend, candidate.config)
        for backend in backends
        for candidate in backend.candidates(request)[:count]
    ]
    fastest, config, _ = min(measured, key=lambda each: each[2])
    measured += [timed(fastest, variant) for variant in fastest.variants(request, config)]
    measured.sort(key=lambda each: each[2])
    _, config, seconds = measured[0]
    winners.record(place.name, problem, config, seconds=seconds, candidates=len(measured))
    figures = tuple((config, seconds * 1e6) for _, config, seconds in measured)
    return Tuned(product=str(product), device=place.name, kind="measured", figures=figures)


def measure(run: Callable[..., Any], operands: Sequence[Any]) -> float:
    """Return the seconds of a call on the device, the median over several batches of calls."""
    run(*operands, None)  # the first call loads the kernel
    timer = DeviceTimer(lambda: run(*operands, None))
    calls = max(1, round(BATCH_SECONDS / max(timer.seconds(3), 1e-6)))
    return float(np.median([timer.seconds(calls) for _ in range(BATCHES)]))


def _described(product: Product) -> list[tuple[Any, Any, Any]]:
    return [(x.shape, x.strides, x.dtype) for x in product.operands()]


def _filled(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
    """Return an array with these strides, filled with varied numbers, on which power depends."""
    import cupy

    numbers = (cupy.arange(math.prod(shape), dtype=cupy.int32) * 40503 % 251).astype(
        cupy.float32
    ) / 125 - 1
    if dtype in FLOAT8_DTYPES or dtype.kind in "iu":
        values = (numbers * 50).astype(cupy.int8).view(dtype)
    else:
        values = numbers.astype(dtype)
    return cupy.ndarray(shape, dtype, values.data, strides)
