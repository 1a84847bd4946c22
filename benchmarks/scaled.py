"""Compare scaled 8-bit products with DeepGEMM and torch: ``python -m benchmarks.scaled``.

Operands are e4m3, results bf16. Kinds of products:

single   one product; scales for 1x128 of A and 128x128 of B (DeepSeek's recipe)
sorted   groups of adjacent rows, with a matrix of B for each; the same scales
masked   groups of rows that are the first rows of their matrix; the same scales
rows     like sorted, with one scale for each row of A and each column of B

Sizes of groups are on the device. Each call is recorded several times in a graph, and the graph is
replayed, so that no contender's host time counts. Cold operands rotate through more memory than L2
has. Scales have the layout that DeepGEMM and cuBLAS require: those of A are contiguous along rows.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import cupygemm
from benchmarks.models.report import geometric_mean
from benchmarks.output import print_line

BLOCK = 128
ROOM = 1024
"""Rows of each matrix of a stack, of which the first are a group."""
COLD_BYTES = 256 << 20
"""Bytes between two uses of a set of cold operands: several times the L2 of a Hopper GPU."""
FLOPS_OF_BATCH, FEWEST, MOST = 2e12, 4, 40
ROUNDS = 5
BF16 = np.dtype(ml_dtypes.bfloat16)
SINGLE = tuple(
    (m, n, k)
    for n, k in (
        (2112, 7168),
        (24576, 1536),
        (32768, 512),
        (7168, 16384),
        (4096, 7168),
        (7168, 2048),
    )
    for m in (64, 128, 4096)
)
"""(m, n, k): the linear layers of DeepSeek-V3, with few tokens and with many."""
EXPERTS = ((4096, 7168), (7168, 2048), (3072, 4096), (4096, 1536))
"""(n, k) of the experts' layers of DeepSeek-V3 and of Qwen3-235B-A22B."""
SORTED = tuple((g, rows, *nk) for g, rows in ((4, 8192), (8, 4096), (32, 256)) for nk in EXPERTS)
MASKED = tuple((g, rows, *nk) for g, rows in ((1, 1024), (4, 256), (32, 64)) for nk in EXPERTS)
"""(groups, rows of a group on average, n, k)."""


@dataclass(frozen=True)
class Case:
    """A product: its kind, and (m, n, k) or (groups, rows, n, k)."""

    kind: str
    extents: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.kind} {'x'.join(map(str, self.extents))}"

    @property
    def sizes(self) -> list[int]:
        """Number of rows of each group, within 30 % of the mean; multiples of 128 if sorted."""
        if self.kind == "single":
            return [self.extents[0]]
        groups, rows, *_ = self.extents
        draw = np.random.default_rng((groups, rows)).uniform(0.7, 1.3, groups)
        sizes = [max(1, int(rows * share)) for share in draw]
        if self.kind == "masked":
            return [min(size, ROOM) for size in sizes]
        return [-(-size // BLOCK) * BLOCK for size in sizes]

    @property
    def flops(self) -> float:
        n, k = self.extents[-2:]
        return 2.0 * sum(self.sizes) * n * k


CASES = {
    kind: tuple(Case(kind, extents) for extents in found)
    for kind, found in (
        ("single", SINGLE),
        ("sorted", SORTED),
        ("masked", MASKED),
        ("rows", SORTED),
    )
}


@dataclass(frozen=True)
class Operands:
    """A set of arrays: A, B as (..., n, k), their scales, and the result."""

    a: Any
    b: Any
    scale_a: Any
    scale_b: Any
    out: Any


def operands(case: Case, seed: int) -> Operands:
    """Return random operands of a case."""
    import cupy as cp

    n, k = case.extents[-2:]
    groups, rows = len(case.sizes), sum(case.sizes)
    lead = (groups, ROOM) if case.kind == "masked" else (rows,)
    stack = () if case.kind == "single" else (groups,)
    draw = cp.random.RandomState(seed)

    def floats(*shape: int) -> Any:
        return draw.uniform(0.5, 2, shape, dtype=np.float32)

    def bytes_of(*shape: int) -> Any:  # magnitudes below 2
        return draw.randint(0, 256, shape, dtype=np.uint8) & 0xBF

    blocks = -(-k // BLOCK)
    if case.kind == "rows":
        scale_a, scale_b = floats(*lead), floats(*stack, n)
    else:
        scale_a = floats(*lead[:-1], blocks, lead[-1]).swapaxes(-1, -2)
        scale_b = floats(*stack, -(-n // BLOCK), blocks).swapaxes(-1, -2)
    out = cp.empty((*lead, n), BF16)
    return Operands(bytes_of(*lead, k), bytes_of(*stack, n, k), scale_a, scale_b, out)


def ours(case: Case, x: Operands, sizes: Any) -> Callable[[], Any]:
    """Return the call of this library."""
    b = x.b.swapaxes(-1, -2)
    formats: dict[str, Any] = {"format_a": "e4m3fn", "format_b": "e4m3fn", "dtype": BF16}
    if case.kind == "single":
        return lambda: cupygemm.scaled_matmul(x.a, b, x.scale_a, x.scale_b, out=x.out, **formats)
    rows = case.extents[1]
    return lambda: cupygemm.grouped_matmul(
        x.a,
        b,
        x.out,
        sizes=sizes,
        scale_a=x.scale_a,
        scale_b=x.scale_b,
        expected_rows=rows,
        **formats,
    )


def deep_gemm_call(case: Case, x: Operands, sizes: Any) -> Callable[[], Any] | None:
    """Return DeepGEMM's call; None if it lacks the product."""
    import deep_gemm
    import torch

    if case.kind == "rows":
        return None
    a = (_tensor(x.a).view(torch.float8_e4m3fn), _tensor(x.scale_a))
    b = (_tensor(x.b).view(torch.float8_e4m3fn), _tensor(x.scale_b.swapaxes(-1, -2)))
    out, numbers = _tensor(x.out), _tensor(sizes)
    if case.kind == "single":
        return lambda: deep_gemm.fp8_gemm_nt(a, b, out)
    if case.kind == "masked":
        rows = case.extents[1]
        return lambda: deep_gemm.fp8_m_grouped_gemm_nt_masked(a, b, out, numbers, rows)
    group = torch.arange(len(sizes), dtype=torch.int32, device="cuda")
    layout = torch.repeat_interleave(group, numbers.long()).contiguous()
    return lambda: deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, out, layout)


def torch_call(case: Case, x: Operands, sizes: Any) -> Callable[[], Any] | None:
    """Return torch's call; None if it lacks the product."""
    import torch

    a, b = (_tensor(array).view(torch.float8_e4m3fn) for array in (x.a, x.b))
    b, scale_a, scale_b = b.transpose(-1, -2), _tensor(x.scale_a), _tensor(x.scale_b)
    if case.kind == "single":
        return lambda: torch._scaled_mm(
            a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16
        )
    if case.kind != "rows":
        return None
    ends = torch.cumsum(_tensor(sizes), 0, dtype=torch.int32)
    return lambda: torch._scaled_grouped_mm(
        a, b, scale_a, scale_b, offs=ends, out_dtype=torch.bfloat16
    )


PEERS = {"DeepGEMM": deep_gemm_call, "torch": torch_call}


def measure(case: Case, peers: list[str], *, cold: bool, rounds: int) -> dict[str, float]:
    """Return the microseconds of each contender, the median of rounds in turns."""
    import cupy as cp

    first = operands(case, 0)
    bytes_of_set = sum(x.nbytes for x in vars(first).values())
    count = 1 + -(-COLD_BYTES // bytes_of_set) if cold else 1
    sets = [first, *(operands(case, seed) for seed in range(1, count))]
    sizes = cp.asarray(np.array(case.sizes, np.int32))
    graphs = {}
    calls = max(len(sets), FEWEST, min(MOST, int(FLOPS_OF_BATCH / case.flops)))
    calls = -(-calls // len(sets)) * len(sets)
    for name, make in {"cupygemm": ours, **{peer: PEERS[peer] for peer in peers}}.items():
        found = [make(case, x, sizes) for x in sets]
        if found[0] is not None:
            try:
                graphs[name] = recorded([found[i % len(found)] for i in range(calls)])
            except (RuntimeError, NotImplementedError, AssertionError) as err:
                print_line(f"{case.name}: {name} fails: {str(err)[:200]}")
    turns: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, replay in graphs.items():
            turns[name].append(replay() / calls)
    return {name: statistics.median(times) for name, times in turns.items()}


def recorded(calls: list[Callable[[], Any]]) -> Callable[[], float]:
    """Record calls in a graph; return a function that replays it and returns the microseconds."""
    import cupy as cp

    cp.cuda.runtime.deviceSynchronize()  # operands were made on other streams
    stream = cp.cuda.Stream(non_blocking=True)
    with stream, _torch_on(stream):
        for call in dict.fromkeys(calls):
            call()
            call()
        stream.synchronize()
        stream.begin_capture()
        for call in calls:
            call()
        graph = stream.end_capture()
    graph.launch(stream)

    def replay() -> float:
        begin, end = cp.cuda.Event(), cp.cuda.Event()
        begin.record(stream)
        graph.launch(stream)
        end.record(stream)
        end.synchronize()
        return float(cp.cuda.get_elapsed_time(begin, end) * 1e3)

    return replay


def error(case: Case) -> float:
    """Return our largest error in some rows, in units of the bound of bf16's rounding."""
    import cupy as cp

    x = operands(case, 1)
    x.out.view(np.uint16)[...] = 0xFFFF
    ours(case, x, cp.asarray(np.array(case.sizes, np.int32)))()
    worst, start, grouped = 0.0, 0, case.kind != "single"
    for group, size in enumerate(case.sizes):
        at = np.array(sorted({0, size // 2, size - 1}))
        index = (group, at) if case.kind == "masked" else start + at
        start += size
        if 2 < group < len(case.sizes) - 1:
            continue
        columns = slice(256)
        b = _wide(x.b[group, columns] if grouped else x.b[columns])
        scale_b = (x.scale_b[group] if grouped else x.scale_b).astype(np.float64)
        a, scale_a = _wide(x.a[index]), x.scale_a[index].astype(np.float64)
        if case.kind == "rows":
            a, b = a * scale_a[:, None], b * scale_b[columns, None]
        else:
            a = a * cp.repeat(scale_a, BLOCK, axis=1)[:, : a.shape[1]]
            by_column = cp.repeat(scale_b, BLOCK, axis=1)[:, : b.shape[0]]
            b = b * cp.repeat(by_column, BLOCK, axis=0)[: b.shape[1]].T
        bound = (abs(a) @ abs(b).T) * 2.0**-12 + abs(a @ b.T) * 2.0**-8
        worst = max(worst, float((abs(_wide(x.out[index][:, columns]) - a @ b.T) / bound).max()))
    return worst


def _wide(x: Any) -> Any:
    import cupy as cp

    host = x.get()
    host = host.view(ml_dtypes.float8_e4m3fn) if host.dtype == np.uint8 else host
    return cp.asarray(host.astype(np.float64))


def _tensor(array: Any) -> Any:
    """Return a CuPy array as a torch tensor of the same memory."""
    import torch

    if array.dtype == BF16:
        return torch.from_dlpack(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_dlpack(array)


def _torch_on(stream: Any) -> Any:
    """Return a context in which torch uses a stream of CuPy, if torch is imported."""
    import contextlib

    torch = sys.modules.get("torch")
    if torch is None:
        return contextlib.nullcontext()
    return torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr))


def _installed(names: list[str]) -> Iterator[str]:
    for name in names:
        try:
            __import__({"DeepGEMM": "deep_gemm"}.get(name, name))
        except Exception as err:  # noqa: BLE001, a binary for another torch may raise anything
            print_line(f"{name} is absent ({type(err).__name__}: {err})")
        else:
            yield name


def _measure_kind(
    kind: str, peers: list[str], options: argparse.Namespace
) -> list[dict[str, object]]:
    """Measure the products of a kind; print the times and the mean ratio to each peer."""
    records: list[dict[str, object]] = []
    ratios: dict[str, list[float]] = {}
    for case in CASES[kind]:
        worst = error(case) if options.check else math.nan
        times = measure(case, peers, cold=options.cold, rounds=options.rounds)
        records.append({"case": case.name, "cold": options.cold, "us": times, "error": worst})
        for name, time in times.items():
            ratios.setdefault(name, []).append(time / times["cupygemm"])
        text = ", ".join(f"{name} {time:.1f}" for name, time in times.items())
        print_line(f"{case.name}: {text}; error {worst:.2f}")
    for name, found in ratios.items():
        if name != "cupygemm":
            print_line(f"{kind}: {name} / ours {geometric_mean(found):.3f} ({min(found):.2f})")
    return records


def main(arguments: list[str] | None = None) -> None:
    """Measure the requested kinds, and print the ratios to each peer."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaled", description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--cold", action="store_true", help="rotate the operands")
    parser.add_argument("--check", action="store_true", help="compare with float64 first")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--list", action="store_true", help="print the products and stop")
    parser.add_argument("--output", type=Path, help="write JSON")
    options = parser.parse_args(arguments)
    if options.list:
        for kind in options.kinds:
            for case in CASES[kind]:
                print_line(f"{case.name}: {case.flops:.3g} operations")
        return
    peers = list(_installed(options.peers))
    records = [record for kind in options.kinds for record in _measure_kind(kind, peers, options)]
    if options.output:
        options.output.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
