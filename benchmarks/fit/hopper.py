"""Refit the cost models of Hopper's kernels, and of cuBLAS where it competes with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.fit import fitting
from benchmarks.fit.layouts import layout_of
from benchmarks.fit.report import Report
from benchmarks.fit.samples import Sample, SampleFile
from cupygemm._backends.hopper.choice import fp64, tf32x3
from cupygemm._backends.hopper.choice.orientation import as_computed
from cupygemm._backends.hopper.config import HopperArch, HopperConfig
from cupygemm._backends.hopper.cost import constants as present
from cupygemm._backends.hopper.cost.model import costs, pieces
from cupygemm._backends.hopper.cost.parameters import KernelConstants
from cupygemm._backends.hopper.cost.shapes import ConfigColumns, Shapes, columns_of, shapes_of
from cupygemm._records.problem import GemmProblem

RECORDS = ("KERNELS", "FP64", "FP32")
"""The records of the module of constants."""
# Thresholds differ by a factor of at least two, and must stay in order.
RANGES = dict.fromkeys(
    ("warm_bytes_all", "warm_bytes_none", "cold_bytes_none", "cold_bytes_all", "long_work"), 0.3
)
VENDOR_MODELS: tuple[tuple[str, Any, str], ...] = (
    ("FP64", fp64, "f64"),
    ("FP32", tf32x3, "tf32x3"),
)
"""Records of constants, the models that they belong to, and the operands of these."""
VENDOR, COPIES = "vendor", "copies"


class Subject(NamedTuple):
    """A kernel whose cycles the model predicts."""

    config: HopperConfig
    problem: GemmProblem
    arch: HopperArch
    cold: bool = False
    by_sm: bool = False


class Other(NamedTuple):
    """A cuBLAS product or a copy whose cycles a model predicts."""

    what: str
    problem: GemmProblem
    arch: HopperArch


def arch_of(file: SampleFile) -> HopperArch:
    """Return the models' record of the GPU of a file's sweeps."""
    usual = HopperArch().hbm_bytes_per_clock
    found = {
        (machine["device"], machine["num_sms"], machine.get("hbm_bytes_per_clock", usual))
        for machine in file.machines
    }
    if len(found) != 1:
        raise SystemExit(f"{file.path} has samples of {len(found)} GPUs: {found}; refit them apart")
    ((part, num_sms, hbm_bytes_per_clock),) = found
    return HopperArch(part=part, num_sms=num_sms, hbm_bytes_per_clock=hbm_bytes_per_clock)


def rows_of(file: SampleFile) -> list[fitting.Row]:
    """Return the kernels of a file, with times in cycles, without copies of operands.

    The kernels of files whose names begin with "by_sm" give each SM the tile of its number.
    """
    arch, rows = arch_of(file), []
    by_sm = file.path.name.startswith("by_sm")
    for sample in file.samples:
        asked = layout_of(sample.product).problem
        ways = {turned: as_computed(asked, transposed_c=turned) for turned in (False, True)}
        for timing in sample.timings:
            config = HopperConfig(**timing.config)
            # The rest may be smaller than the error of the difference.
            if timing.copies < 0.8 * timing.time:
                subject = Subject(config, ways[config.transposed_c], arch, by_sm=by_sm)
                cycles = (timing.time - timing.copies) * arch.clock_mhz
                rows.append(fitting.Row(sample.product, subject, cycles))
                if timing.cold is not None:
                    product = sample.product.with_group(sample.product.group + fitting.COLD)
                    cycles = (timing.cold - timing.copies) * arch.clock_mhz
                    rows.append(fitting.Row(product, subject._replace(cold=True), cycles))
    return rows


class Columns(NamedTuple):
    """Kernels that are predicted together: all of fp64 or none, all cold or none."""

    places: Any
    configs: ConfigColumns
    shapes: Shapes
    arch: HopperArch
    cold: bool
    by_sm: Any


_last: list[Any] = [None, ()]  # the subjects of the last call with their columns


def columns_of_subjects(subjects: Sequence[Subject]) -> Sequence[Columns]:
    """Return kernels in columns; those of the last call are cached."""
    if _last[0] is not subjects:
        parts: dict[tuple[Any, ...], list[int]] = {}
        for place, subject in enumerate(subjects):
            key = subject.config.mma_sync, subject.cold, subject.arch
            parts.setdefault(key, []).append(place)
        found = [
            Columns(
                np.array(places),
                ConfigColumns.of([subjects[place].config for place in places]),
                columns_of(shapes_of(subjects[place].problem) for place in places),
                arch,
                cold,
                np.array([subjects[place].by_sm for place in places]),
            )
            for (_, cold, arch), places in parts.items()
        ]
        _last[:] = [subjects, found]
    return _last[1]


def predict(constants: KernelConstants, subjects: Sequence[Subject]) -> Any:
    """Return the cycles of kernels, without the correction."""
    cycles = np.empty(len(subjects))
    for part in columns_of_subjects(subjects):
        of = pieces(part.configs, part.shapes, part.arch, constants)
        cost = costs(part.shapes, of, constants, cold=part.cold)
        cycles[part.places] = cost.cycles
    return cycles


def rows_of_vendor(file: SampleFile, operands: str) -> list[fitting.Row]:
    """Return the times of cuBLAS for products of a type, and of copies that our kernels need."""
    arch, rows = arch_of(file), []
    for sample in file.samples:
        if sample.product.operands != operands or sample.vendor is None:
            continue
        problem = layout_of(sample.product).problem
        rows.append(_other(sample, VENDOR, problem, arch, sample.vendor))
        copies = [timing.copies for timing in sample.timings if timing.copies]
        if copies:
            rows.append(_other(sample, COPIES, problem, arch, min(copies)))
    return rows


def _other(
    sample: Sample, what: str, problem: GemmProblem, arch: HopperArch, time: float
) -> fitting.Row:
    product = sample.product.with_group(what)
    return fitting.Row(product, Other(what, problem, arch), time * arch.clock_mhz)


def predictor_of_vendor(model: Any) -> Callable[[Any, Sequence[Other]], list[float]]:
    """Return the prediction of `fp64` or `tf32x3`."""

    def predicted(constants: Any, subjects: Sequence[Other]) -> list[float]:
        return [
            max(1.0, model.copy_cycles(subject.problem, constants))
            if subject.what == COPIES
            else model.cublas_cycles(subject.problem, subject.arch, constants)
            for subject in subjects
        ]

    return predicted


def refit(files: Sequence[SampleFile], **options: Any) -> dict[str, Report]:
    """Return a report for each record of constants, by its name in the module.

    Records without samples in the files are omitted.
    """
    models: list[tuple[str, list[fitting.Row], Any]] = [
        ("KERNELS", [row for file in files for row in rows_of(file)], predict)
    ]
    for name, model, operands in VENDOR_MODELS:
        rows = [row for file in files for row in rows_of_vendor(file, operands)]
        models.append((name, rows, predictor_of_vendor(model)))
    return {
        name: Report.of(
            getattr(present, name), rows, predicted, name=name, ranges=RANGES, **options
        )
        for name, rows, predicted in models
        if all(fitting.split(rows))
    }


def notes(files: Sequence[SampleFile], reports: Mapping[str, Report]) -> list[str]:
    """Return notes on the models' choices between our kernels and cuBLAS, before and after."""
    lines = []
    for name, model, operands in VENDOR_MODELS:
        if name not in reports or "KERNELS" not in reports:
            continue
        regrets = [
            _regret_beside_cublas(files, model, operands, kernels, others)
            for kernels, others in (
                (reports["KERNELS"].before, reports[name].before),
                (reports["KERNELS"].chosen, reports[name].chosen),
            )
        ]
        lines.append(
            f"{operands}, our kernels or cuBLAS's, products held out: regret "
            f"{regrets[0]:.4f} -> {regrets[1]:.4f}"
        )
    return lines


def _regret_beside_cublas(
    files: Sequence[SampleFile], model: Any, operands: str, kernels: KernelConstants, others: Any
) -> float:
    """Return the geometric mean of the chosen time divided by the shorter of ours and cuBLAS's."""
    logs = []
    for file in files:
        arch = arch_of(file)
        for sample in file.samples:
            product, vendor = sample.product, sample.vendor
            if product.operands != operands or vendor is None or not fitting.is_held_out(product):
                continue
            asked = layout_of(product).problem
            subjects = [
                Subject(config, as_computed(asked, transposed_c=config.transposed_c), arch)
                for config in (HopperConfig(**timing.config) for timing in sample.timings)
            ]
            predicted = predict(kernels, subjects)
            first = min(range(len(predicted)), key=predicted.__getitem__)
            ours = predicted[first] + model.copy_cycles(asked, others)
            takes_ours = ours <= model.cublas_cycles(asked, arch, others)
            chosen = sample.timings[first].time if takes_ours else vendor
            least = min(vendor, *(timing.time for timing in sample.timings))
            logs.append(math.log(chosen / least))
    return math.exp(sum(logs) / max(1, len(logs)))
