"""Measure cuBLASLt's algorithms, and train the network that ranks them: see ``--help``.

``python -m benchmarks.fit.cublaslt sweep --seconds 90 --out cublaslt.jsonl.xz`` times every
algorithm that the heuristics offer for random products of fp64, complex64 and complex128, and
``train --write`` trains the weights of `cupygemm._backends.cublaslt.model` and writes them if they
choose better on a quarter of the products, which is held out.

A file has one JSON record per line::

    {"device": "NVIDIA H200", "driver": "580.159.04", "num_sms": 132, ...}
    {"shape": [512, 512, 512], "operands": "f64", "layout": "NN",
     "algorithms": [[35, 13, 1, 0, 0, 0, 9, 4, 0, 0.32, 8.9], ...]}

An algorithm is the values of `LtConfig`, the waves of the heuristics, and microseconds: the median
of rounds in turns, warm. They are in the order of the heuristics.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import lzma
import random
import statistics
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fit.layouts import DTYPES, layout_of
from benchmarks.fit.network import LEAST_GAIN, NETWORKS, Table, joined, train_table
from benchmarks.fit.samples import Product
from cupygemm._backends.cublaslt import model
from cupygemm._backends.cublaslt.algorithm import LtConfig, config_of
from cupygemm._backends.network import Network, written_network

DATA = Path(__file__).parent / "data" / "cublaslt_h200.jsonl.xz"
CLOCK_MHZ = 1755.0
HIDDEN, STEPS = 24, 200
ROUNDS = 4
_OPERANDS = ("f64", "c128", "f64", "c128", "c64")
_LAYOUTS = ("NN", "NT", "TN", "TT", "NN", "NT")
_FLOPS = (1e6, 4e10)
_HELD_OUT = 4  # one of so many products
_WIDTH = len(fields(LtConfig))


@dataclass(frozen=True)
class Sample:
    """The times of the algorithms for a product, microseconds."""

    product: Product
    configs: tuple[LtConfig, ...]
    waves: tuple[float, ...]
    times: tuple[float, ...]
    num_sms: int

    @property
    def is_held_out(self) -> bool:
        """Whether no weights are trained on it; the same for all layouts of a shape."""
        return zlib.crc32(repr(self.product.shape).encode()) % _HELD_OUT == 0


def design(seed: int) -> Iterator[Product]:
    """Yield random products without end: squares and near them, and extents drawn one by one."""
    rng = random.Random(seed)  # noqa: S311
    while True:
        for operands in _OPERANDS:
            yield Product(_shape(rng, operands), operands, operands, rng.choice(_LAYOUTS), "wide")


def _shape(rng: random.Random, operands: str) -> tuple[int, int, int]:
    while True:
        step, side = rng.choice((1, 8, 16, 32, 64)), 2 ** rng.uniform(5.5, 12)
        if rng.random() < 0.4:
            sides = [side * rng.choice((1, 1, 1, 0.25, 0.5, 0.75, 1.5, 2)) for _ in range(3)]
        else:
            sides = [2 ** rng.uniform(4.5, 12.7) for _ in range(3)]
        m, n, k = (max(step, step * round(each / step)) for each in sides)
        flops = (2.0 if operands == "f64" else 8.0) * m * n * k
        if _FLOPS[0] < flops < _FLOPS[1]:
            return m, n, k


def measure(product: Product) -> dict[str, Any]:
    """Return the record of a product: its algorithms and their times."""
    import cupy as cp

    from benchmarks.models.measure import BATCH_SECONDS, MOST_CALLS
    from cupygemm._backends.cublaslt.product import describe, stack_of
    from cupygemm._backends.cublaslt.select import MOST_ALGORITHMS, WORKSPACE_BYTES
    from cupygemm._tuning.timer import DeviceTimer

    (m, n, k), dtype = product.shape, DTYPES[product.operands]
    x1, x2 = _operand(m, k, dtype, product.layout[0]), _operand(k, n, dtype, product.layout[1])
    out, workspace = cp.empty((m, n), dtype), cp.empty(WORKSPACE_BYTES, np.uint8)
    layout = layout_of(product)
    a, b = (x2, x1) if layout.swapped else (x1, x2)
    described = describe(layout, stack_of(layout), 0)
    addresses = (b.data.ptr, a.data.ptr, out.data.ptr, workspace.data.ptr, WORKSPACE_BYTES)
    stream = cp.cuda.get_current_stream().ptr
    found, timers = [], []
    for each in described.algorithms(MOST_ALGORITHMS, workspace_bytes=WORKSPACE_BYTES):
        launch = described.launch(each.algorithm)

        def call(launch: Any = launch) -> None:
            launch(*addresses, stream)

        try:
            call()
        except RuntimeError:  # an offered algorithm may fail to run
            continue
        timer = DeviceTimer(call)
        count = round(BATCH_SECONDS / max(timer.seconds(2), 1e-6))
        timers.append((timer, max(1, min(MOST_CALLS, count))))
        found.append([*astuple(config_of(each.algorithm)), round(each.waves, 4)])
    turns: list[list[float]] = [[] for _ in timers]
    for turn in range(ROUNDS):  # there and back: a product heats the GPU for the next one
        order = range(len(timers))[:: 1 if turn % 2 else -1]
        for number in order:
            timer, count = timers[number]
            turns[number].append(timer.seconds(count))
    for record, times in zip(found, turns, strict=True):
        record.append(round(statistics.median(times) * 1e6, 2))
    layout_name = product.layout
    shown = {"shape": product.shape, "operands": product.operands, "layout": layout_name}
    return shown | {"algorithms": found}


def _operand(rows: int, columns: int, dtype: np.dtype[Any], letter: str) -> Any:
    """Return random numbers in C order ("N"), or a transposed view of them."""
    import cupy as cp

    shape = (rows, columns) if letter == "N" else (columns, rows)
    real = np.empty(0, dtype).real.dtype
    count = 2 if dtype.kind == "c" else 1
    values = cp.random.uniform(-0.5, 0.5, (shape[0], count * shape[1]), dtype=real).view(dtype)
    return values if letter == "N" else values.T


def sweep(out: Path, seconds: float, seed: int) -> int:
    """Append the records of products to a file until the time is over; return their number."""
    from benchmarks.fit.hopper_kernels import HopperKernels

    deadline, count = time.monotonic() + seconds, 0
    machine = HopperKernels().machine() | {"date": dt.datetime.now(dt.UTC).date().isoformat()}
    with lzma.open(out, "at") as file:
        file.write(json.dumps(machine) + "\n")
        for product in design(seed):
            if time.monotonic() > deadline:
                return count
            record = measure(product)
            if len(record["algorithms"]) > 1:
                file.write(json.dumps(record) + "\n")
                count += 1
    return count


def read(paths: Sequence[Path]) -> tuple[list[dict[str, Any]], list[Sample]]:
    """Return the machines and the samples of files."""
    machines, samples = [], []
    for path in paths:
        for line in lzma.decompress(path.read_bytes()).splitlines():
            record = json.loads(line)
            if "algorithms" not in record:
                machines.append(record)
                continue
            rows, operands = record["algorithms"], record["operands"]
            names = [field.name for field in fields(LtConfig)]
            samples.append(
                Sample(
                    Product(tuple(record["shape"]), operands, operands, record["layout"], "wide"),
                    tuple(LtConfig(**dict(zip(names, row, strict=False))) for row in rows),
                    tuple(row[_WIDTH] for row in rows),
                    tuple(row[_WIDTH + 1] for row in rows),
                    machines[-1]["num_sms"],
                )
            )
    return machines, samples


def table_of(samples: Sequence[Sample]) -> Table:
    """Return the inputs of the network, and the logarithms of modelled and measured cycles."""
    parts = [
        model.table(layout_of(each.product).problem, each.configs, each.waves, each.num_sms)
        for each in samples
    ]
    counts = [len(each.times) for each in samples]
    return Table(
        np.concatenate([inputs for inputs, _ in parts]).astype(float),
        np.concatenate([modelled for _, modelled in parts]),
        np.log(np.concatenate([each.times for each in samples]) * CLOCK_MHZ),
        np.repeat(np.arange(len(samples)), counts),
        np.ones(len(samples)),
    )


def regrets(samples: Sequence[Sample], network: Network | None) -> dict[str, float]:
    """Return the mean regret by type: the choice's time over the fastest's; without: the first."""
    table = table_of(samples)
    predicted = np.zeros(len(table.measured))
    if network is not None:
        predicted = table.modelled + network(table.features.astype(np.float32))
    found: dict[str, list[float]] = {}
    for number, sample in enumerate(samples):
        rows = table.product == number
        chosen = sample.times[int(np.argmin(predicted[rows]))]
        regret = np.log(chosen / min(sample.times))
        found.setdefault(sample.product.operands, []).append(regret)
        found.setdefault("all", []).append(regret)
    return {name: float(np.exp(np.mean(values))) for name, values in sorted(found.items())}


def train(paths: Sequence[Path], *, write: bool, steps: int = STEPS) -> str:
    """Train the network and return a report; write the weights if requested and better."""
    machines, samples = read(paths)
    kept = [each for each in samples if not each.is_held_out]
    held_out = [each for each in samples if each.is_held_out]
    table = table_of(kept)
    network = joined(
        [train_table(table, steps=steps, seed=seed, hidden=HIDDEN) for seed in range(NETWORKS)]
    )
    ways = {"first": None, "new": network}
    if model.PATH.exists():
        ways["present"] = model.network()
    found = {name: regrets(held_out, each) for name, each in ways.items()}
    lines = [f"regret of {len(held_out)} of {len(samples)} products, held out:"]
    for name, of_types in found.items():
        lines.append(f"  {name:8s}" + "  ".join(f"{t} {v:.4f}" for t, v in of_types.items()))
    before = found.get("present", found["first"])["all"]
    if write and found["new"]["all"] < before - LEAST_GAIN:
        names = ("device", "driver", "date")
        origin = {name: machines[-1][name] for name in names} | {
            "products": len(samples),
            "chosen_over_fastest": round(found["new"]["all"], 4),
        }
        model.PATH.write_text(written_network(network, model.FEATURES, origin), encoding="utf-8")
        lines.append(f"{model.PATH} is written")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit.cublaslt")
    commands = parser.add_subparsers(required=True, metavar="command", dest="command")
    sweeps = commands.add_parser("sweep", help="time the algorithms on the GPU at hand")
    sweeps.add_argument("--out", type=Path, required=True, help="a file, to which it appends")
    sweeps.add_argument("--seconds", type=float, default=90)
    sweeps.add_argument("--seed", type=int, default=0)
    trains = commands.add_parser("train", help="train the network")
    trains.add_argument("--data", type=Path, nargs="+", default=[DATA])
    trains.add_argument("--write", action="store_true", help="write the weights if better")
    trains.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args(arguments)
    if options.command == "sweep":
        count = sweep(options.out, options.seconds, options.seed)
        sys.stdout.write(f"{count} products\n")
    else:
        report = train(options.data, write=options.write, steps=options.steps)
        sys.stdout.write(report + "\n")


if __name__ == "__main__":
    main()
