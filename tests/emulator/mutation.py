"""Remove one wait or one barrier of a kernel at a time, and see whether the emulator detects it.

    python -m tests.emulator.mutation              # every subject, every mutant
    python -m tests.emulator.mutation gemm         # those whose name contains "gemm"

A mutant is the kernel's machine code with one s_waitcnt replaced by s_nop, one of its counters
removed, one counter relaxed by one, or one s_barrier replaced by s_nop. It runs with the waves in
lockstep, forward, in reverse and in random orders, and is

    caught      a run raises a `KernelFault`
    harmless    no run does, all results are bitwise equal, and an independent analysis, which
                shares no code with the emulator's hazard checks, agrees: on every path a later
                wait covers each use of a register (`wait_analysis`), and all LDS accesses of one
                wave remain ordered with those of the others (`trace`)
    unexecuted  the runs never reach the instruction, or only paths that they never take are
                affected
    escaped     anything else: the emulator should have reported it

The exit status is 1 if any escaped.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elftools.elf.elffile import ELFFile

from cupygemm.emulator.errors import KernelFault
from cupygemm.emulator.execution.schedule import Order
from cupygemm.emulator.isa.disassembly_modifiers import waitcnt_text
from cupygemm.emulator.run import LaunchStats
from tests.emulator.trace import conflicts, early_uses, record
from tests.emulator.wait_analysis import Findings, Node, analyse, program

ORDERS: tuple[Order, ...] = ("lockstep", "forward", "reverse", ("random", 1), ("random", 2))
_NOP = bytes.fromhex("000080bf")
_COUNTERS = {"vmcnt": 63, "expcnt": 7, "lgkmcnt": 15}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run: the bytes of every output array, and the launch's statistics."""

    outputs: tuple[bytes, ...]
    stats: LaunchStats


@dataclass(frozen=True)
class Subject:
    """A kernel to mutate and how to run it.

    Attributes
    ----------
    name : str
    path : Path
        Code object.
    target, kernel : str
    runs : sequence of callable
        Each runs the kernel of the code object at a path, in an order of the waves. Several runs
        reach code that one alone does not.
    """

    name: str
    path: Path
    target: str
    kernel: str
    runs: Sequence[Callable[[Path, Order], Outcome]]


@dataclass(frozen=True)
class Mutant:
    """One change: its place, the original instruction, and its replacement."""

    pc: int
    kind: str
    before: str
    after: str
    code: bytes


@dataclass
class Verdict:
    """The outcome of a mutant."""

    mutant: Mutant
    status: str
    reason: str


@dataclass
class Report:
    """The verdicts on one subject."""

    subject: str
    verdicts: list[Verdict] = field(default_factory=list)

    def count(self, status: str, kind: str = "") -> int:
        """Return the number of mutants with that status, and kind if one is given."""
        return sum(v.status == status and v.mutant.kind.startswith(kind) for v in self.verdicts)


def mutants_of(nodes: dict[int, Node]) -> Iterator[Mutant]:
    """Yield every mutant of a function."""
    for pc, node in nodes.items():
        text = node.inst.text
        if node.inst.mnemonic == "s_barrier":
            yield Mutant(pc=pc, kind="barrier", before=text, after="s_nop 0", code=_NOP)
        elif node.inst.mnemonic == "s_waitcnt":
            yield from _wait_mutants(pc, text, node.inst.fields["simm16"])


def _wait_mutants(pc: int, text: str, simm16: int) -> Iterator[Mutant]:
    values = {
        "vmcnt": simm16 & 0xF | simm16 >> 10 & 0x30,
        "expcnt": simm16 >> 4 & 7,
        "lgkmcnt": simm16 >> 8 & 0xF,
    }
    used = [name for name in ("vmcnt", "lgkmcnt") if values[name] < _COUNTERS[name]]
    if len(used) > 1:
        yield Mutant(pc=pc, kind="wait", before=text, after="s_nop 0", code=_NOP)
    for name in used:
        for kind, value in (("drop", _COUNTERS[name]), ("relax", values[name] + 1)):
            if kind == "relax" and value >= _COUNTERS[name]:
                continue
            changed = values | {name: value}
            bits = (
                changed["vmcnt"] & 0xF
                | changed["vmcnt"] >> 4 << 14
                | changed["expcnt"] << 4
                | changed["lgkmcnt"] << 8
            )
            code = (0xBF8C0000 | bits).to_bytes(4, "little")
            yield Mutant(
                pc=pc,
                kind=f"{kind} {name}",
                before=text,
                after=f"s_waitcnt {waitcnt_text(bits)}",
                code=code,
            )


class Baseline:
    """One run of the unchanged kernel: its results in every order, and its record."""

    def __init__(
        self,
        run: Callable[[Path, Order], Outcome],
        path: Path,
        orders: Sequence[Order],
        nodes: dict[int, Node],
    ) -> None:
        self.run = run
        self.outcomes = [run(path, order) for order in orders]
        self.waves = record(lambda: run(path, orders[0]))
        self.conflicts = conflicts(self.waves, nodes)

    @property
    def outputs(self) -> tuple[bytes, ...]:
        """The results, bitwise equal in every order."""
        return self.outcomes[0].outputs

    @property
    def executions(self) -> dict[int, int]:
        """Executions by byte offset from the kernel's entry."""
        return self.outcomes[0].stats.executions


class Laboratory:
    """Runs the mutants of one subject.

    Parameters
    ----------
    subject : Subject
    folder : Path
        Where mutated code objects are written.
    orders : sequence of Order
        The orders of the waves; the record of the first one is replayed.
    """

    def __init__(self, subject: Subject, folder: Path, orders: Sequence[Order] = ORDERS) -> None:
        from cupygemm.emulator.code_object import load
        from cupygemm.emulator.device import Memory

        self.subject = subject
        self.orders = orders
        self.file = folder / "mutant.hsaco"
        self.data = subject.path.read_bytes()
        section = ELFFile(io.BytesIO(self.data)).get_section_by_name(".text")
        self.shift = section["sh_offset"] - section["sh_addr"]
        code = load(self.data, Memory(), subject.target)
        self.kernel = code.kernels[subject.kernel]
        self.image = bytes(code.image)
        self.nodes = self._program(self.image)
        self.healthy = self._analyse(self.nodes)
        self.baselines = [Baseline(run, subject.path, orders, self.nodes) for run in subject.runs]
        for baseline in self.baselines:
            if len({outcome.outputs for outcome in baseline.outcomes}) > 1:
                raise ValueError(f"{subject.name} depends on the order of its waves")

    def _program(self, image: bytes) -> dict[int, Node]:
        kernel = self.kernel
        return program(image, kernel.entry, kernel.code_bytes, self.subject.target)

    def _analyse(self, nodes: dict[int, Node]) -> Findings:
        entry = self.kernel.entry
        preload = 256 if self.kernel.descriptor.preload_length else 0
        return analyse(nodes, entry + preload)

    def report(self, chosen: Sequence[Mutant] | None = None) -> Report:
        """Judge the chosen mutants, or all."""
        mutants = list(mutants_of(self.nodes)) if chosen is None else chosen
        return Report(self.subject.name, [self.judge(mutant) for mutant in mutants])

    def judge(self, mutant: Mutant) -> Verdict:
        """Run a mutant in every order of every run and return the verdict."""
        at = mutant.pc + self.shift
        data = bytearray(self.data)
        data[at : at + 4] = mutant.code
        self.file.write_bytes(data)
        image = bytearray(self.image)
        image[mutant.pc : mutant.pc + 4] = mutant.code
        nodes = self._program(bytes(image))
        verdicts = []
        for baseline in self.baselines:
            verdicts.append(self._judge_run(mutant, nodes, baseline))
            if verdicts[-1].status in ("caught", "escaped"):
                return verdicts[-1]
        return next((v for v in verdicts if v.status == "harmless"), verdicts[0])

    def _judge_run(self, mutant: Mutant, nodes: dict[int, Node], baseline: Baseline) -> Verdict:
        if not baseline.executions.get(mutant.pc - self.kernel.entry):
            return Verdict(mutant, "unexecuted", "the runs never get there")
        for order in self.orders:
            try:
                outcome = baseline.run(self.file, order)
            except KernelFault as fault:
                return Verdict(mutant, "caught", fault.kind)
            if outcome.outputs != baseline.outputs:
                return Verdict(mutant, "escaped", f"other results in order {order}, no report")
        return self._judge_silence(mutant, nodes, baseline)

    def _judge_silence(self, mutant: Mutant, nodes: dict[int, Node], baseline: Baseline) -> Verdict:
        early = early_uses(baseline.waves, nodes)
        if early:
            pc, name = min(early)
            return Verdict(mutant, "escaped", f"{name} is used early by {nodes[pc].inst.text}")
        unordered = conflicts(baseline.waves, nodes) - baseline.conflicts
        if unordered:
            texts = " and ".join(nodes[pc].inst.text for pc in min(unordered))
            return Verdict(mutant, "escaped", f"nothing orders {texts}")
        found = self._analyse(nodes)
        if found.hazards - self.healthy.hazards:
            return Verdict(
                mutant, "unexecuted", "in danger only on a path that the runs never take"
            )
        if mutant.kind == "barrier" or found.crossings - self.healthy.crossings:
            return Verdict(mutant, "harmless", "it orders no two waves' accesses to the same LDS")
        return Verdict(mutant, "harmless", "a later wait covers every use, on every path")


def table(reports: Sequence[Report]) -> str:
    """Return the reports as text, one line for each subject and the total."""
    statuses = ("caught", "harmless", "unexecuted", "escaped")
    lines = [f"{'subject':44} {'mutants':>8}" + "".join(f"{s:>11}" for s in statuses)]
    total: Counter[str] = Counter()
    for report in reports:
        counts = {status: report.count(status) for status in statuses}
        total.update(counts)
        lines.append(
            f"{report.subject:44} {len(report.verdicts):8}"
            + "".join(f"{counts[status]:11}" for status in statuses)
        )
    lines.append(
        f"{'total':44} {sum(total.values()):8}" + "".join(f"{total[s]:11}" for s in statuses)
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    from tests.emulator.mutation_subjects import subjects

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", default="", help="part of the subjects' names")
    parser.add_argument("--verbose", action="store_true", help="print every mutant")
    options = parser.parse_args(arguments)
    reports = []
    for subject in subjects(options.name):
        with tempfile.TemporaryDirectory() as folder:
            report = Laboratory(subject, Path(folder)).report()
        reports.append(report)
        for verdict in report.verdicts:
            mutant = verdict.mutant
            if options.verbose or verdict.status == "escaped":
                sys.stdout.write(
                    f"{verdict.status:10} {subject.name} +0x{mutant.pc:x} {mutant.kind}: "
                    f"{mutant.before} -> {mutant.after}: {verdict.reason}\n"
                )
    sys.stdout.write(table(reports) + "\n")
    return 1 if any(report.count("escaped") for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
