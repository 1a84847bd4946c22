"""Time matmul beside CuPy's and torch's on a CUDA device: ``python -m benchmarks.compare``.

Operands are uniform random in [-0.5, 0.5), for the clock of a power-bound GPU depends on the data.
Contenders take turns, so that all meet the same clocks, and the median over the rounds counts. Two
times are taken of each: on the device, between events, behind a kernel that keeps the queue full
while the host enqueues; and of a call, by the host's clock, over calls in a row and one wait.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
Call = Callable[[], Any]
DTYPES = ("bf16", "fp16", "int8")
ROUNDS = 7
SECONDS = 0.03  # of work in one measurement
_SPIN = r"""
extern "C" __global__ void spin(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {}
}
"""
_CYCLES_PER_CALL = 30_000  # longer than the host takes to enqueue one


@dataclass(frozen=True)
class Case:
    """One product."""

    m: int
    n: int
    k: int
    batch: int = 0

    @property
    def name(self) -> str:
        shape = f"{self.m}x{self.n}x{self.k}"
        return f"{self.batch} of {shape}" if self.batch else shape

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k * max(self.batch, 1)


CASES = (
    *(Case(size, size, size) for size in (512, 1024, 2048, 4096, 8192, 16384)),
    Case(16, 8192, 8192),
    Case(64, 8192, 8192),
    Case(128, 8192, 8192),
    Case(4096, 14336, 4096),
    Case(65536, 256, 256),
    Case(256, 256, 65536),
    Case(8192, 8192, 256),
    Case(4095, 4097, 4099),
    Case(512, 512, 512, 64),
    Case(1024, 1024, 1024, 16),
)


INT8_CASES = tuple(Case(size, size, size) for size in (4096, 8192))


def contenders(case: Case, dtype: str) -> dict[str, Call]:
    """Return what multiplies, by name; who cannot is left out."""
    import cupy as cp

    import cupygemm

    if dtype == "int8":
        return int8_contenders(case)
    stack = (case.batch,) if case.batch else ()
    shapes = ((*stack, case.m, case.k), (*stack, case.k, case.n))
    numpy_dtype = BF16 if dtype == "bf16" else np.dtype(np.float16)
    a, b = (
        cp.random.uniform(-0.5, 0.5, shape, dtype=np.float32).astype(numpy_dtype)
        for shape in shapes
    )
    calls: dict[str, Call] = {"cupygemm": lambda: cupygemm.matmul(a, b)}
    if not (case.batch and dtype == "bf16"):  # cupy.matmul raises TypeError
        calls["cupy"] = lambda: cp.matmul(a, b)
    try:
        import torch
    except ImportError:
        return calls
    torch_dtype = torch.bfloat16 if dtype == "bf16" else torch.float16
    x, y = (torch.rand(shape, device="cuda").sub_(0.5).to(torch_dtype) for shape in shapes)
    calls["torch"] = lambda: torch.matmul(x, y)
    return calls


def int8_contenders(case: Case) -> dict[str, Call]:
    """Return what multiplies int8 to int32: x1 row-major, x2 column-major, as torch wants it.

    `cupy.matmul` sums int8 in int8, so its result is another.
    """
    import cupy as cp

    import cupygemm

    a = cp.random.randint(-128, 128, (case.m, case.k)).astype(np.int8)
    b = cp.random.randint(-128, 128, (case.n, case.k)).astype(np.int8).T
    c = cp.ascontiguousarray(b)
    calls: dict[str, Call] = {
        "cupygemm": lambda: cupygemm.matmul(a, b, dtype=np.int32),
        "cupygemm, x2 row-major": lambda: cupygemm.matmul(a, c, dtype=np.int32),
        "cupy": lambda: cp.matmul(a, b),
    }
    try:
        import torch
    except ImportError:
        return calls
    x, y = (
        torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda")
        for shape in ((case.m, case.k), (case.n, case.k))
    )
    calls["torch"] = lambda: torch._int_mm(x, y.t())
    return calls


class Timer:
    """Measures calls on the current device."""

    def __init__(self) -> None:
        import cupy as cp

        self._cp = cp
        self._spin = cp.RawKernel(_SPIN, "spin")
        self._start, self._end = cp.cuda.Event(), cp.cuda.Event()

    def on_device(self, call: Call, count: int) -> float:
        """Return seconds of the device for a call."""
        self._spin((1,), (1,), (np.int64(count * _CYCLES_PER_CALL),))
        self._start.record()
        for _ in range(count):
            call()
        self._end.record()
        self._end.synchronize()
        elapsed: float = self._cp.cuda.get_elapsed_time(self._start, self._end)
        return elapsed * 1e-3 / count

    def of_call(self, call: Call, count: int) -> float:
        """Return seconds of the host's clock for a call."""
        self._cp.cuda.Device().synchronize()
        start = time.perf_counter()
        for _ in range(count):
            call()
        self._cp.cuda.Device().synchronize()
        return (time.perf_counter() - start) / count


def measure(calls: dict[str, Call], timer: Timer) -> dict[str, dict[str, float]]:
    """Return both times of each contender."""
    counts = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        counts[name] = max(2, min(300, int(SECONDS / timer.on_device(call, 2))))
    times: dict[str, dict[str, list[float]]] = {name: {"device": [], "call": []} for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            times[name]["device"].append(timer.on_device(call, counts[name]))
            times[name]["call"].append(timer.of_call(call, counts[name]))
    return {
        name: {kind: statistics.median(each) for kind, each in kinds.items()}
        for name, kinds in times.items()
    }


def run(dtypes: list[str], cases: tuple[Case, ...]) -> list[dict[str, Any]]:
    """Measure every case, printing a line for each."""
    import cupy as cp

    timer = Timer()
    records = []
    for dtype in dtypes:
        _print(f"\n{dtype:24s} {'TFLOP/s on the device':>31s}    {'ratio: device (call)':>20s}")
        _print(f"{'':24s} {'cupygemm':>9s} {'cupy':>10s} {'torch':>10s}    to torch, to cupy")
        for case in INT8_CASES if dtype == "int8" else cases:
            times = measure(contenders(case, dtype), timer)
            record = {"dtype": dtype, "case": case.name, "flops": case.flops, "seconds": times}
            records.append(record)
            _print(_line(case, times))
            cp.get_default_memory_pool().free_all_blocks()
    return records


def _line(case: Case, times: dict[str, dict[str, float]]) -> str:
    rates = [
        f"{case.flops / times[name]['device'] / 1e12:10.1f}" if name in times else f"{'-':>10s}"
        for name in ("cupygemm", "cupy", "torch")
    ]
    ratios = [
        f"{times[name]['device'] / times['cupygemm']['device']:6.2f} "
        f"({times[name]['call'] / times['cupygemm']['call']:.2f})"
        for name in ("torch", "cupy")
        if name in times
    ]
    return f"{case.name:23s} {' '.join(rates)}    {'  '.join(ratios)}"


def geometric_means(records: list[dict[str, Any]]) -> dict[str, float]:
    """Return the means of torch's device time over ours, by dtype."""
    means = {}
    for dtype in dict.fromkeys(record["dtype"] for record in records):
        logs = [
            math.log(times["torch"]["device"] / times["cupygemm"]["device"])
            for record in records
            if record["dtype"] == dtype and "torch" in (times := record["seconds"])
        ]
        if logs:
            means[dtype] = math.exp(statistics.fmean(logs))
    return means


def environment() -> dict[str, str]:
    """Return what the figures depend on."""
    import cupy as cp

    import cupygemm

    found = {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "device": cp.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "cuda_driver": str(cp.cuda.runtime.driverGetVersion()),
        "cupygemm": cupygemm.__version__,
        "cupy": cp.__version__,
    }
    try:
        import torch

        found["torch"] = torch.__version__
    except ImportError:
        pass
    return found


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("--device", choices=("cuda",), default="cuda")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--cases", nargs="+", help="names, as the table prints them")
    parser.add_argument("--output", type=Path, help="write all figures here, as JSON")
    options = parser.parse_args()
    cases = tuple(case for case in CASES if not options.cases or case.name in options.cases)
    machine = environment()
    _print(", ".join(f"{name} {value}" for name, value in machine.items()))
    records = run(options.dtypes, cases)
    means = geometric_means(records)
    for dtype, mean in means.items():
        _print(f"\n{dtype}: geometric mean of torch's device time over cupygemm's: {mean:.3f}")
    if options.output:
        document = {"environment": machine, "geometric_means": means, "records": records}
        options.output.write_text(json.dumps(document, indent=1) + "\n")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
