"""Refit the cost model of CDNA's kernels.

The samples of the emulated device are modelled cycles, without the time between two kernels. The
assumed cycles between kernels are added to them, so that kernels compare as in the model. Kernels
bound by the assumed bandwidth of one compute unit are left out, and constants that are assumptions
keep their values. With samples from an AMD GPU, all constants are fitted, to all kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from benchmarks.fit import fitting
from benchmarks.fit.cdna_kernels import MODELLED
from benchmarks.fit.layouts import layout_of
from benchmarks.fit.report import Report
from benchmarks.fit.samples import SampleFile
from cupygemm._backends.cdna import constants as present
from cupygemm._backends.cdna.arch import ARCHS, Arch
from cupygemm._backends.cdna.config import GemmConfig
from cupygemm._backends.cdna.cost_constants import ASSUMED, KernelConstants
from cupygemm._backends.cdna.select import estimate
from cupygemm._records.problem import GemmProblem

RECORDS = ("KERNELS",)
"""The records of the module of constants."""


class Subject(NamedTuple):
    """A kernel whose cycles the model predicts."""

    config: GemmConfig
    problem: GemmProblem
    arch: Arch


def rows_of(file: SampleFile) -> list[fitting.Row]:
    """Return the kernels of a file, with times in cycles of the target's clock."""
    is_modelled = _is_modelled(file)
    device = file.machines[0]["device"]
    arch = next(arch for name, arch in ARCHS.items() if name in device)
    rows = []
    for sample in file.samples:
        problem = layout_of(sample.product).problem
        product = sample.product.with_group(f"{arch.name}, {sample.product.group}")
        for timing in sample.timings:
            subject = Subject(GemmConfig(**timing.config), problem, arch)
            if not is_modelled:
                rows.append(fitting.Row(product, subject, timing.time * arch.clock_mhz))
                continue
            cycles = timing.time + _cycles_between_kernels(subject)
            if not _is_bound_by_memory(subject, cycles):
                rows.append(fitting.Row(product, subject, cycles))
    return rows


def predict(constants: KernelConstants, subjects: Sequence[Subject]) -> list[float]:
    """Return the cycles of kernels."""
    return [estimate(*subject, constants).cycles for subject in subjects]


def _is_modelled(file: SampleFile) -> bool:
    (unit,) = {machine["unit"] for machine in file.machines}
    return bool(unit == MODELLED)


def _cycles_between_kernels(subject: Subject) -> float:
    """Return the cycles that the model assumes between the kernels of a product."""
    without = replace(present.KERNELS, next_kernel_cycles=0.0)
    with_all, with_none = (predict(each, [subject])[0] for each in (present.KERNELS, without))
    return with_all - with_none


def _is_bound_by_memory(subject: Subject, cycles: float) -> bool:
    """Whether the assumed memory bandwidth accounts for all of the cycles, or nearly all."""
    bare = replace(
        present.KERNELS,
        start_cycles=dict.fromkeys(present.KERNELS.start_cycles, 0.0),
        load_ns=0.0,
        add_cycles=0.0,
        add_round_cycles=0.0,
    )
    least = estimate(*subject, bare)
    return least.bound == "memory" and least.cycles > 0.9 * cycles


def refit(files: Sequence[SampleFile], **options: Any) -> dict[str, Report]:
    """Return a report for each record of constants, by its name in the module."""
    rows = [row for file in files for row in rows_of(file)]
    fixed = ASSUMED if all(map(_is_modelled, files)) else ()
    options = {"name": "KERNELS", "fixed": fixed, **options}
    return {"KERNELS": Report.of(present.KERNELS, rows, predict, **options)}


def notes(files: Sequence[SampleFile], reports: Mapping[str, Report]) -> list[str]:
    """Return a note about the constants that the samples cannot determine."""
    if not all(map(_is_modelled, files)):
        return []
    return [f"not fitted, since the samples are modelled: {', '.join(ASSUMED)}"]
