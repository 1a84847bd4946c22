"""Hopper's kernels as a sweep measures them: which run, how they are compiled, and how long.

This is the only module of the sweep that knows the backend's functions. Without a GPU, everything
but `machine` and `measure` works.
"""

from __future__ import annotations

import datetime as dt
import random
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.fit.layouts import DTYPES, layout_of
from benchmarks.fit.samples import Config, Product, Sample, Timing
from cupygemm._backends.hopper.config import HopperArch, HopperConfig
from cupygemm._backends.hopper.plan import HopperChoice, choose
from cupygemm._backends.hopper.product import make_preparation, make_product
from cupygemm._backends.hopper.select import select
from cupygemm._request.layout import Layout
from cupygemm._tuning.timer import DeviceTimer

ROUNDS = 3
_NEAR = 32  # candidates that the model ranks next; half of the random ones are drawn from them
# Seconds of a batch of calls: more of long calls, whose clock depends on the power they draw.
_SHORT, _LONG, _CALLS = 0.002, 0.012, 30
_MOST_CALLS = 100
H200 = HopperArch(part="NVIDIA H200")


class HopperKernels:
    """The kernels for an NVIDIA GPU of compute capability 9.0.

    Parameters
    ----------
    arch : HopperArch, optional
        Of a GPU that is not at hand; left out, CuPy's current device.
    """

    unit = "us"

    def __init__(self, arch: HopperArch | None = None) -> None:
        self.arch = _arch_at_hand() if arch is None else arch

    def machine(self) -> dict[str, Any]:
        """Return what the times depend on."""
        import cupy as cp

        from cupygemm._backends.hopper.nvrtc import find_nvrtc

        properties = cp.cuda.runtime.getDeviceProperties(0)
        return {
            "device": properties["name"].decode(),
            "driver": _driver(),
            "date": dt.datetime.now(dt.UTC).date().isoformat(),
            "unit": self.unit,
            "num_sms": properties["multiProcessorCount"],
            "cuda": cp.cuda.runtime.driverGetVersion(),
            "compiler": f"NVRTC {find_nvrtc().version}",
            "cupy": cp.__version__,
            "caches": "as repeated calls with the same operands leave them",
        }

    def candidates(self, product: Product, first: int, others: int) -> list[Config]:
        """Return configurations: those that the cost model ranks first, and random others."""
        rng = random.Random(str(product))  # noqa: S311
        ranked = select(layout_of(product).problem, self.arch).candidates
        chosen, rest = list(ranked[:first]), ranked[first:]
        near, far = rest[:_NEAR], rest[_NEAR:]
        chosen += rng.sample(near, min(len(near), (others + 1) // 2))
        chosen += rng.sample(far, min(len(far), others // 2))
        return [asdict(candidate.config) for candidate in chosen]

    def compile(self, product: Product, config: Config) -> None:
        """Compile the kernel into the cache."""
        _ = self._choice(layout_of(product), config).gemm

    def measure(self, product: Product, configs: Sequence[Config]) -> Sample:
        """Return the times of kernels, the medians of rounds in which they take turns."""
        import cupy as cp

        layout = layout_of(product)
        *batch, m, n, k = product.shape
        x1 = _operand((*batch, m, k), DTYPES[product.operands], product.layout[0])
        x2 = _operand((*batch, k, n), DTYPES[product.operands], product.layout[1])
        result = DTYPES[product.result]  # CuPy has no 8-bit floats
        out = cp.empty((*batch, m, n), np.uint8 if result.itemsize == 1 else result)
        a, b = (x2, x1) if layout.swapped else (x1, x2)
        choices = [self._choice(layout, config) for config in configs]
        calls = [_call(make_product(choice), a, b, out) for choice in choices]
        turned = {choice.config.c_turned: choice for choice in choices}
        copies = {key: _copies(choice, a, b) for key, choice in turned.items()}
        calls += [call for call in copies.values() if call is not None]
        has_vendor = product.operands in ("f64", "tf32x3")
        if has_vendor:
            calls.append(lambda: cp.matmul(x1, x2, out=out))
        times = iter(_times(calls))
        kernels = [next(times) for _ in choices]
        of_copies = {key: 0.0 if call is None else next(times) for key, call in copies.items()}
        timings = tuple(
            Timing(config, time, of_copies[choice.config.c_turned])
            for config, choice, time in zip(configs, choices, kernels, strict=True)
        )
        return Sample(product, timings, next(times) if has_vendor else None)

    def _choice(self, layout: Layout, config: Config) -> HopperChoice:
        return choose(layout, self.arch, HopperConfig(**config))


def _arch_at_hand() -> HopperArch:
    """Return what CuPy's first device is to the selector."""
    import cupy as cp

    if cp.cuda.runtime.is_hip:
        raise SystemExit("sweep: CuPy is built for ROCm; --device cuda needs cupy-cuda13x")
    properties = cp.cuda.runtime.getDeviceProperties(0)
    name, capability = properties["name"].decode(), (properties["major"], properties["minor"])
    if capability != (9, 0):
        raise SystemExit(f"sweep: {name} has compute capability {capability}; Hopper has (9, 0)")
    return HopperArch(part=name, num_sms=properties["multiProcessorCount"])


def _operand(shape: tuple[int, ...], dtype: np.dtype[Any], letter: str) -> Any:
    """Return an array of random numbers: in C order ("N"), or a transposed view of one ("T")."""
    import cupy as cp

    *batch, rows, columns = shape
    extents = shape if letter == "N" else (*batch, columns, rows)
    if dtype.itemsize == 1:  # of both signs, and no NaN of an 8-bit float
        values = cp.random.randint(0, 120, extents) + 128 * cp.random.randint(0, 2, extents)
        values = values.astype(np.uint8)
    else:
        wide = np.float64 if dtype.itemsize == 8 else np.float32
        values = cp.random.uniform(-0.5, 0.5, extents, dtype=wide).astype(dtype, copy=False)
    return values if letter == "N" else cp.swapaxes(values, -1, -2)


def _call(launch: Callable[..., None], a: Any, b: Any, out: Any) -> Callable[[], Any]:
    addresses = a.data.ptr, b.data.ptr, out.data.ptr
    return lambda: launch(*addresses)


def _copies(choice: HopperChoice, a: Any, b: Any) -> Callable[[], Any] | None:
    """Return what copies the operands as the kernel needs them, if it needs copies."""
    prepare = make_preparation(choice)
    if prepare is None or (choice.a_copy is None and choice.b_copy is None):
        return None
    return lambda: prepare(a.data.ptr, b.data.ptr)


def _times(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """Return the microseconds of calls, each the median of its turns."""
    timers = [DeviceTimer(call) for call in calls]
    counts = []
    for call, timer in zip(calls, timers, strict=True):
        call()  # loads the kernel
        seconds = max(timer.seconds(2), 1e-6)
        batch = min(_LONG, max(_SHORT, _CALLS * seconds))
        counts.append(max(2, min(_MOST_CALLS, round(batch / seconds))))
    rounds = [
        [timer.seconds(count) for timer, count in zip(timers, counts, strict=True)]
        for _ in range(ROUNDS)
    ]
    return [statistics.median(turns) * 1e6 for turns in zip(*rounds, strict=True)]


def _driver() -> str:
    """Return the version of the driver, which CuPy does not tell."""
    try:
        command = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return text.splitlines()[0].strip()
