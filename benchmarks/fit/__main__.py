"""The command line: ``python -m benchmarks.fit sweep``, see ``--help``."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.fit.constants_file import origin_of, provenance, write
from benchmarks.fit.design import (
    KINDS,
    RESULTS,
    design,
    held_out_design,
    models_design,
    near_design,
    of_type,
)
from benchmarks.fit.samples import Product, SampleFile, compact
from benchmarks.fit.sweep import FIRST, OTHERS, Kernels, dry_run, sweep
from cupygemm._backends.hopper.cost.correction import FEATURES

if TYPE_CHECKING:
    from cupygemm._backends.network import Network

DATA = Path(__file__).parent / "data"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit")
    commands = parser.add_subparsers(required=True, metavar="command")
    _add_sweep(commands.add_parser("sweep", help="measure kernels on the GPU at hand"))
    _add_merge(commands.add_parser("merge", help="merge the samples of files into one"))
    for name, data in (("hopper", "hopper.jsonl.xz"), ("cdna", "gfx*_emulated.jsonl.xz")):
        _add_refit(
            commands.add_parser(name, help="refit the constants of the cost model"), name, data
        )
    _add_network(commands.add_parser("network", help="train the correction of Hopper's model"))
    options = parser.parse_args(arguments)
    options.run(options)


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cuda", "rocm", "emulated"), default="cuda")
    parser.add_argument("--target", choices=("gfx90a", "gfx942", "gfx950"), default="gfx942")
    parser.add_argument("--out", type=Path, required=True, help="a file, which is continued")
    parser.add_argument("--seconds", type=float, default=420, help="budget, compilation included")
    parser.add_argument("--products", type=int, help="largest number of products")
    parser.add_argument(
        "--design",
        choices=("all", "models", "near", "held-out"),
        default="all",
        help="models: layers of public models; near: extents near them; held-out: layers that "
        "no fit sees; these three also cold, on CUDA",
    )
    parser.add_argument(
        "--rows",
        type=int,
        nargs=2,
        default=(1, 1024),
        metavar=("LEAST", "MOST"),
        help="of the products of the designs near and held-out; default: 1 1024",
    )
    parser.add_argument(
        "--operands",
        choices=RESULTS,
        help="of the design near, warm only but for f16; default: bf16, and f16 for a tenth",
    )
    parser.add_argument("--by-sm", action="store_true", help="only kernels placed by SM, on CUDA")
    parser.add_argument(
        "--kinds",
        action="store_true",
        help="also the best kernels of each way to share k, and each only as it would run, on CUDA",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the design")
    parser.add_argument("--first", type=int, default=FIRST, help="kernels that the model prefers")
    parser.add_argument("--others", type=int, default=OTHERS, help="random kernels")
    parser.add_argument("--workers", type=int, help="processes that compile; default: cores - 1")
    parser.add_argument(
        "--dry-run", type=int, metavar="N", help="only print and compile N products; needs no GPU"
    )
    parser.set_defaults(run=_sweep)


def _add_refit(parser: argparse.ArgumentParser, name: str, data: str) -> None:
    present = sorted(DATA.glob(data))
    parser.add_argument(
        "--data", type=Path, nargs="+", default=present, help=f"files of samples; default: {data}"
    )
    parser.add_argument("--write", action="store_true", help="write the constants if better")
    parser.add_argument("--max-steps", type=int, default=12, help="of the optimisation")
    parser.set_defaults(run=_refit, name=name)


def _add_network(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, nargs="+", help="default: all of Hopper")
    parser.add_argument("--write", action="store_true", help="write the weights if better")
    parser.add_argument("--steps", type=int, default=600, help="of the optimisation")
    parser.add_argument(
        "--resume", action="store_true", help="begin with the present weights, not with random ones"
    )
    parser.add_argument(
        "--only",
        choices=FEATURES,
        metavar="FEATURE",
        help="train only the present weights of a feature, on kernels for which it is not 0",
    )
    parser.set_defaults(run=_train)


def _train(options: argparse.Namespace) -> None:
    """Train the network, print the gain, and write the network if requested and better."""
    from benchmarks.fit import fitting, hopper, network
    from cupygemm._backends.hopper.cost import correction

    paths = options.data or sorted((*DATA.glob("by_sm*.jsonl.xz"), *DATA.glob("hopper*.jsonl.xz")))
    files = [SampleFile.open(path) for path in paths]
    rows = [row for file in files for row in hopper.rows_of(file)]
    if not rows:
        raise SystemExit(f"network: no samples in {options.data}; run a sweep first")
    outcome = network.retrain(
        rows,
        hopper.present.KERNELS,
        _present_network(),
        steps=options.steps,
        resume=options.resume or options.only is not None,
        only=options.only,
    )
    sys.stdout.write(f"{outcome}\n")
    if options.write and outcome.is_better:
        regrets = network.regrets(
            fitting.split(rows)[1], hopper.present.KERNELS, outcome.network
        )  # of all products held out, also if only some of them have `options.only`
        origin = origin_of(files) | {"chosen_over_fastest": round(network.mean_regret(regrets), 4)}
        correction.PATH.write_text(correction.to_json(outcome.network, origin))
        sys.stdout.write(f"{correction.PATH} is written\n")


def _present_network() -> Network | None:
    """Return the network in the package; None if its features have changed."""
    from cupygemm._backends.hopper.cost import correction

    try:
        return correction.network()
    except ValueError as error:
        sys.stdout.write(f"{error}. New weights are compared with the model alone\n")
        return None


def _add_merge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True, help="may be one of the files")
    parser.set_defaults(run=_merge)


def _merge(options: argparse.Namespace) -> None:
    merged = compact(options.files, options.out)
    sys.stdout.write(
        f"{options.out} has {len(merged.samples)} products, {options.out.stat().st_size} bytes\n"
    )


def _refit(options: argparse.Namespace) -> None:
    """Refit, print the errors, and write the constants if requested and better."""
    from benchmarks.fit import cdna, hopper

    files = [SampleFile.open(path) for path in options.data]
    if not any(file.samples for file in files):
        raise SystemExit(f"{options.name}: no samples in {options.data}; run a sweep first")
    subject = {"cdna": cdna, "hopper": hopper}[options.name]
    reports = subject.refit(files, max_steps=options.max_steps)
    lines = [*map(str, reports.values()), *subject.notes(files, reports)]
    sys.stdout.write("\n\n".join(lines) + "\n")
    if not options.write:
        return
    kept = [name for name, report in reports.items() if not report.is_better]
    if len(kept) == len(reports):
        sys.stdout.write("nothing is written: no constants are better\n")
        return
    module = subject.present
    records = {
        name: reports[name].chosen if name in reports else getattr(module, name)
        for name in subject.RECORDS
    }
    held_out = reports["KERNELS"].new if "KERNELS" not in kept else reports["KERNELS"].old
    path = write(module, provenance(files, held_out), records)
    sys.stdout.write(f"{path} is written; kept: {', '.join(kept) or 'none'}\n")


def _sweep(options: argparse.Namespace) -> None:
    shown = {"first": options.first, "others": options.others}
    if options.dry_run is not None:
        from benchmarks.fit.hopper_kernels import H200, HopperKernels

        drawn = _design(options)
        kernels = HopperKernels(H200, by_sm=options.by_sm, kinds=options.kinds)
        dry_run(kernels, drawn, options.dry_run, **shown)
        return
    kernels, products = _subject(options)
    out = SampleFile.open(options.out)
    shown["workers"] = 0 if options.device == "emulated" else options.workers
    products = itertools.islice(products, options.products)
    count = sweep(kernels, products, out, options.seconds, **shown)
    timings = sum(len(sample.timings) for sample in out.samples)
    sys.stdout.write(
        f"{count} products measured now; {options.out} has {len(out.samples)} products and "
        f"{timings} kernels, {options.out.stat().st_size} bytes\n"
    )


def _design(options: argparse.Namespace) -> Iterator[Product]:
    """Return the requested products."""
    rows = tuple(options.rows)
    if options.design == "held-out":
        return held_out_design(options.seed, rows)
    if options.design == "near":
        near = near_design(options.seed, rows)
        if options.operands is not None:
            return of_type(near, options.operands)
        return (each.with_group(KINDS) for each in near) if options.kinds else near
    return {"all": design, "models": models_design}[options.design](options.seed)


def _subject(options: argparse.Namespace) -> tuple[Kernels, Iterator[Product]]:
    """Return the kernels of the device, and the products to measure on it."""
    if options.device == "cuda":
        from benchmarks.fit.hopper_kernels import HopperKernels

        cold = options.design != "all" and options.operands in (None, "f16")
        kernels = HopperKernels(cold=cold, by_sm=options.by_sm, kinds=options.kinds)
        return kernels, _design(options)
    if options.device == "emulated":
        from cupygemm import emulator

        emulator.enable(options.target)
    from benchmarks.fit.cdna_kernels import CdnaKernels, emulated_design

    drawn = emulated_design if options.device == "emulated" else design
    return CdnaKernels(), drawn(options.seed)


if __name__ == "__main__":
    main()
