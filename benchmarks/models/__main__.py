"""The command line: ``python -m benchmarks.models``, see ``--help``.

``--list`` prints the products, and ``--dry-run`` also the kernel that would compute each; both work
without a GPU.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.models import report
from benchmarks.models.kernels import choice_of, compile_all
from benchmarks.models.layers import FEW, HELD_OUT, MODELS, MORE, Layer, products
from benchmarks.models.measure import COLD_BYTES, ROUNDS, STATES, measure, operands_of
from benchmarks.models.peers import OURS, PEERS, Case
from benchmarks.models.rotation import num_sets
from benchmarks.output import print_line

DTYPES: dict[str, np.dtype[Any]] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp16": np.dtype(np.float16),
    "fp32": np.dtype(np.float32),
    "tf32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
    "complex128": np.dtype(np.complex128),
}
ORDERS = ("(n, k)", "(k, n)")


Chosen = tuple[Layer, str, Case]
"""A product, with its layer and the name of its type."""


def cases(options: argparse.Namespace) -> list[Chosen]:
    """Return the requested products, or a random sample for each number of tokens."""
    every = list(_every_case(options))
    if options.sample is None:
        return every
    rng = random.Random(options.seed)  # noqa: S311
    chosen = set()
    for tokens in dict.fromkeys(case.m for _, _, case in every):
        numbers = [i for i, (_, _, case) in enumerate(every) if case.m == tokens]
        chosen |= set(rng.sample(numbers, min(options.sample, len(numbers))))
    return [every[i] for i in sorted(chosen)]


def _every_case(options: argparse.Namespace) -> Iterator[Chosen]:
    for name in options.dtypes:
        for order in options.orders:
            for tokens, layer in products(options.models, options.tokens):
                case = Case(tokens, layer.n, layer.k, DTYPES[name], order, tf32=name == "tf32")
                yield layer, name, case


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the products, or print what would be measured."""
    options = _parser().parse_args(arguments)
    if options.list or options.dry_run:
        for layer, name, case in cases(options):
            print_line(_described(layer, name, case) + (_chosen(case) if options.dry_run else ""))
        return
    if options.processes:
        compile_all([case for _, _, case in cases(options)], options.processes)
    records = _measured(options)
    for line in (*report.tables(records), "", *report.beside_random_shapes(records), ""):
        print_line(line)
    for line in report.worst(records):
        print_line(line)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument(
        "--models",
        nargs="+",
        choices=(*MODELS, *HELD_OUT, *MORE),
        default=FEW,
        metavar="MODEL",
        help=f"of: {', '.join((*MODELS, *HELD_OUT, *MORE))}; default: {', '.join(FEW)}",
    )
    parser.add_argument(
        "--held-out",
        action="store_const",
        dest="models",
        const=tuple(HELD_OUT),
        help="the models on which the choice of kernels is not trained",
    )
    parser.add_argument("--tokens", nargs="+", type=int, help="default: as each model sees them")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=["bf16"])
    parser.add_argument(
        "--orders",
        nargs="+",
        choices=ORDERS,
        default=ORDERS,
        metavar="ORDER",
        help="how W is stored: '(n, k)', '(k, n)'; default: both",
    )
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS)
    parser.add_argument(
        "--sample", type=int, metavar="N", help="N products of each number of tokens, at random"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample; default: 0")
    parser.add_argument(
        "--processes", type=int, default=0, help="first compile our kernels in N processes"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time limit")
    parser.add_argument("--output", type=Path, help="write all figures here, as JSON")
    parser.add_argument("--list", action="store_true", help="print the products; needs no GPU")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the products and their kernels; needs no GPU"
    )
    return parser


def _measured(options: argparse.Namespace) -> list[report.Record]:
    """Measure cases until the time limit, and write the figures after each one."""
    from benchmarks.compare import environment
    from benchmarks.models.peers import installed
    from benchmarks.models.rotation import Arena

    deadline = time.monotonic() + options.seconds
    machine = {**environment(), **installed(), "cold_bytes": str(COLD_BYTES)}
    print_line(", ".join(f"{name} {value}" for name, value in machine.items()))
    records: list[report.Record] = []
    arena: Arena | None = None
    for layer, name, case in cases(options):
        if time.monotonic() > deadline:
            print_line(f"the time is over: {len(records)} products were measured")
            break
        if arena is None or arena.dtype != case.dtype:
            arena = Arena(case.dtype)
        found = measure(case, arena, tuple(options.peers), options.rounds)
        records.append(
            {
                "model": layer.model,
                "layer": layer.name,
                "case": case.name,
                "dtype": name,
                "order": case.order,
                "m": case.m,
                "n": case.n,
                "k": case.k,
                "config": _config(case),
                **found,
            }
        )
        print_line(_line(records[-1]))
        if options.output:
            document = {"environment": machine, "records": records}
            options.output.write_text(json.dumps(document, indent=1) + "\n")
    return records


def _line(record: report.Record) -> str:
    """Return the line of a product: our times, and the peers' ratios."""
    parts = [f"{record['case']:18s} {record['dtype']} W {record['order']}"]
    for state in STATES:
        ratios = " ".join(
            f"{peer} {ratio:.2f}" for peer, ratio in report.ratios(record, state).items()
        )
        parts.append(f"{state} {record['us'][state][OURS]:.2f} us: {ratios}")
    return "  ".join([*parts, record["config"]])


def _described(layer: Layer, name: str, case: Case) -> str:
    """Return a line with a product and the size of its cold operands."""
    inputs, output = operands_of(case)
    one = sum(each.room for each in (*inputs, output))
    cold = num_sets(one, COLD_BYTES)
    return (
        f"{layer.model}, {layer.name}: {case.name} {name}, W stored {case.order}; "
        f"{one / 1e6:.1f} MB warm, {cold} sets of them ({cold * one / 1e6:.0f} MB) cold"
    )


def _chosen(case: Case) -> str:
    config = _config(case)
    return f"; {config}" if config else "; no kernel of this library"


def _config(case: Case) -> str:
    """Return the name of the configuration that the selector chooses on an H200."""
    choice = choice_of(case)
    return "" if choice is None else choice.config.name


if __name__ == "__main__":
    main()
