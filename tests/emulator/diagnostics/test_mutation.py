"""A sample of the mutation harness, and the analyses behind its verdicts.

`python -m tests.emulator.mutation` runs every mutant of every subject; these tests run all mutants
of small kernels and every eighth mutant of a GEMM for each target.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from cupygemm._backends.cdna.mainloops import configs_for
from tests.emulator import mutation
from tests.emulator import mutation_subjects as subjects
from tests.emulator.mutation import Laboratory, Mutant, mutants_of
from tests.emulator.wait_analysis import LDS_ACCESS, analyse, program
from tests.hip.harness import SOURCES, load


def assert_none_escaped(report: mutation.Report) -> None:
    """Fail with a list of the mutants that escaped."""
    escaped = [(v.mutant, v.reason) for v in report.verdicts if v.status == "escaped"]
    assert escaped == []


def empty(*shape: int, dtype: str = "i4") -> np.ndarray:
    """Return an output."""
    return np.zeros(shape, dtype)


SMALL = {
    "reduction": lambda: subjects.corpus(
        "reduce.hip",
        "sum_f32",
        [subjects.f32(1000), empty(2, dtype="f4"), np.int32(1000)],
        grid=(2, 1, 1),
        block=(256, 1, 1),
    ),
    "histogram": lambda: subjects.corpus(
        "atomics.hip",
        "histogram",
        [np.arange(500).astype("u1"), empty(256, dtype="u4"), np.int32(500)],
        block=(128, 1, 1),
    ),
    "tiles": lambda: subjects.corpus(
        "products.hip",
        "matmul_f32",
        [subjects.f32(32, 32), subjects.f32(32, 32), empty(32, 32, dtype="f4"), np.int32(32)],
        grid=(2, 2, 1),
        block=(16, 16, 1),
    ),
    "barriers in a loop": lambda: subjects.corpus(
        "control.hip", "rounds", [subjects.i32(192), empty(192), np.int32(3)], block=(192, 1, 1)
    ),
    "loads straight to LDS": lambda: subjects.corpus(
        "memory.hip", "straight_to_lds", [subjects.i32(256), empty(256)], block=(256, 1, 1)
    ),
    "buffers": lambda: subjects.corpus(
        "memory.hip",
        "buffer_widths",
        [np.arange(2048).astype("u1"), empty(2048, dtype="u1"), np.int32(2048)],
        block=(64, 1, 1),
    ),
}


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", SMALL)
def test_small_kernels(name: str, tmp_path: Path) -> None:
    report = Laboratory(SMALL[name](), tmp_path).report()
    assert_none_escaped(report)
    assert report.count("caught") >= 0.6 * len(report.verdicts)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(("arch", "majors"), [("gfx90a", "kk"), ("gfx942", "kn"), ("gfx950", "mk")])
def test_gemm(arch: str, majors: str, tmp_path: Path) -> None:
    config = min(configs_for("bf16", arch), key=lambda c: c.tile_m * c.tile_n * c.num_threads)
    subject = subjects.gemm(arch, config, "bf16", majors, odd=True)
    laboratory = Laboratory(subject, tmp_path, orders=("lockstep", "reverse"))
    report = laboratory.report(list(mutants_of(laboratory.nodes))[::8])
    assert_none_escaped(report)
    assert report.count("caught") >= 0.6 * len(report.verdicts)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "level"), [("gfx942", "-O3"), ("gfx90a", "-O3")])
def test_the_analysis_finds_nothing_in_what_the_compiler_made(target: str, level: str) -> None:
    analysed = 0
    for name in SOURCES:
        if name == "narrow.hip" and target == "gfx90a":
            continue
        code = load(name, target, level).code
        for kernel in code.kernels.values():
            try:
                nodes = program(code.image, kernel.entry, kernel.code_bytes, target)
            except ValueError:
                continue  # it calls functions
            found = analyse(nodes, kernel.entry)
            assert not found.hazards, kernel.name
            assert not found.crossings, kernel.name
            analysed += 1
    assert analysed > 60


def test_the_analysis_finds_what_a_missing_wait_leaves(tmp_path: Path) -> None:
    """Each wait of this kernel is needed, for a register or for the barrier that follows."""
    code = load("reduce.hip", "gfx942", "-O3").code
    kernel = code.kernels["max_tree"]
    nodes = program(code.image, kernel.entry, kernel.code_bytes, "gfx942")
    waits = [pc for pc, node in nodes.items() if node.inst.mnemonic == "s_waitcnt"]
    for pc in waits:
        image = bytearray(code.image)
        image[pc : pc + 4] = bytes.fromhex("000080bf")
        changed = program(bytes(image), kernel.entry, kernel.code_bytes, "gfx942")
        found = analyse(changed, kernel.entry)
        assert found.hazards or {name for _, name in found.crossings} == {LDS_ACCESS}


def test_mutants() -> None:
    """Every counter of every wait, and every barrier."""
    code = load("reduce.hip", "gfx942", "-O3").code
    kernel = code.kernels["sum_f32"]
    nodes = program(code.image, kernel.entry, kernel.code_bytes, "gfx942")
    found = list(mutants_of(nodes))
    counters = sum(len(re.findall(r"(vm|lgkm)cnt", node.inst.text)) for node in nodes.values())
    barriers = sum(node.inst.mnemonic == "s_barrier" for node in nodes.values())
    assert sum(m.kind.startswith("drop") for m in found) == counters
    assert sum(m.kind == "barrier" for m in found) == barriers
    relaxed = next(m for m in found if m.kind == "relax vmcnt" and m.before == "s_waitcnt vmcnt(0)")
    assert relaxed.after == "s_waitcnt vmcnt(1)"
    assert all(isinstance(m, Mutant) and len(m.code) == 4 for m in found)
