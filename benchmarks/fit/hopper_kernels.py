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

import ml_dtypes
import numpy as np

from benchmarks.fit.samples import Config, Product, Sample, Timing
from cupygemm._backends.device import Device, device
from cupygemm._backends.hopper.config import HopperArch, HopperConfig
from cupygemm._backends.hopper.plan import HopperChoice, choose
from cupygemm._backends.hopper.product import make_preparation, make_runner
from cupygemm._backends.hopper.select import select
from cupygemm._request.options import Options
from cupygemm._request.request import Posed, pose
from cupygemm._tuning.product import Product as ProductOfShape
from cupygemm._tuning.timer import DeviceTimer

DTYPES: dict[str, Any] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "tf32": np.dtype(np.float32),
    "tf32x3": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "i8": np.dtype(np.int8),
    "i32": np.dtype(np.int32),
    "e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
}
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
        if arch is None:
            place = device(0)
            if not isinstance(place.arch, HopperArch):
                raise SystemExit(f"sweep: {place.name} is no GPU of compute capability 9.0")
            arch = place.arch
        self.arch = arch
        self.device = Device(0, arch.part, arch, is_hip=False, is_emulated=False)

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
        ranked = select(self._problem(product), self.arch).candidates
        chosen, rest = list(ranked[:first]), ranked[first:]
        near, far = rest[:_NEAR], rest[_NEAR:]
        chosen += rng.sample(near, min(len(near), (others + 1) // 2))
        chosen += rng.sample(far, min(len(far), others // 2))
        return [asdict(candidate.config) for candidate in chosen]

    def compile(self, product: Product, config: Config) -> None:
        """Compile the kernel into the cache."""
        _ = self._choice(self._posed(product), config).gemm

    def measure(self, product: Product, configs: Sequence[Config]) -> Sample:
        """Return the times of kernels, the medians of rounds in which they take turns."""
        import cupy as cp

        posed = self._posed(product)
        x1, x2 = (_operand(each) for each in self._described(product).operands())
        out = cp.empty(posed.shape.result, posed.types.container)
        choices = [self._choice(posed, config) for config in configs]
        calls = [_call(make_runner(posed, choice), x1, x2, out) for choice in choices]
        turned = {choice.config.c_turned: choice for choice in choices}
        copies = {key: _copies(posed, choice, x1, x2) for key, choice in turned.items()}
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

    def _described(self, product: Product) -> ProductOfShape:
        dtype, result = DTYPES[product.operands], DTYPES[product.result]
        return ProductOfShape(product.shape, dtype, result, product.layout)

    def _posed(self, product: Product) -> Posed:
        precision: Any = product.operands if product.operands.startswith("tf32") else "ieee"
        posed = pose(
            *self._described(product).operands(),
            options=Options(DTYPES[product.result], precision=precision),
            products=self.device.products,
            row_bytes=self.device.row_bytes,
        )
        if posed.layout is None:
            raise ValueError(f"no kernel of this library multiplies {product}")
        return posed

    def _problem(self, product: Product) -> Any:
        layout = self._posed(product).layout
        assert layout is not None
        return layout.problem

    def _choice(self, posed: Posed, config: Config) -> HopperChoice:
        assert posed.layout is not None
        return choose(posed.layout, self.arch, HopperConfig(**config))


def _operand(described: Any) -> Any:
    """Return an array of random numbers that lies as described, transposed or not."""
    import cupy as cp

    *batch, rows, columns = described.shape
    transposed = described.strides[-1] != described.dtype.itemsize
    extents = (*batch, columns, rows) if transposed else (*batch, rows, columns)
    if described.dtype.itemsize == 1:  # of both signs, and no NaN of an 8-bit float
        values = cp.random.randint(0, 120, extents) + 128 * cp.random.randint(0, 2, extents)
        values = values.astype(np.uint8)
    else:
        wide = np.float64 if described.dtype.itemsize == 8 else np.float32
        values = cp.random.uniform(-0.5, 0.5, extents, dtype=wide)
        values = values.astype(described.dtype, copy=False)
    return cp.swapaxes(values, -1, -2) if transposed else values


def _call(run: Callable[..., Any], x1: Any, x2: Any, out: Any) -> Callable[[], Any]:
    return lambda: run(x1, x2, out)


def _copies(posed: Posed, choice: HopperChoice, x1: Any, x2: Any) -> Callable[[], Any] | None:
    """Return what copies the operands as the kernel needs them, if it needs copies."""
    assert posed.layout is not None
    prepare = make_preparation(choice)
    if prepare is None or (choice.a_copy is None and choice.b_copy is None):
        return None
    a, b = (x2, x1) if posed.layout.swapped else (x1, x2)
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
