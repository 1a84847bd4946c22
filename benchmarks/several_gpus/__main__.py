"""The command line: ``python -m benchmarks.several_gpus``, see ``--help``.

It starts a process for each GPU. With ``CUPYGEMM_EMULATE=gfx942:2`` and small shapes, it runs
without a GPU, and the times are those of the emulator.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import queue
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.output import print_line
from benchmarks.several_gpus import report
from benchmarks.several_gpus.cases import FUNCTIONS, SHAPES, Case, parse
from benchmarks.several_gpus.rank import Meeting, Record, run

EXCHANGES = ("copies", "stores", "nccl", "auto")
ROUNDS = 7
_JOIN_SECONDS, _LOOK_SECONDS = 30, 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the cases and print a table of each function."""
    options = _parser().parse_args(arguments)
    cases = [
        parse(function, shape, options.ranks)
        for function in options.functions
        for shape in options.shapes
    ]
    records: list[Record] = []
    machine = {} if options.output is None else _environment()
    for record in _measured(cases, options):
        records.append(record)
        print_line(report.line(record))
        if options.output:
            document = {"environment": machine, "records": records}
            options.output.write_text(json.dumps(document, indent=1) + "\n")
    for line in report.tables(records):
        print_line(line)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.several_gpus", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2, help="GPUs to use; default: 2")
    parser.add_argument("--functions", nargs="+", choices=FUNCTIONS, default=FUNCTIONS)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="MxNxK")
    parser.add_argument("--exchanges", nargs="+", choices=EXCHANGES, default=("auto",))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--without-torch", action="store_true", help="leave its contenders out")
    parser.add_argument("--output", type=Path, help="write all figures here, as JSON")
    return parser


def _measured(cases: Sequence[Case], options: argparse.Namespace) -> Iterator[Record]:
    """Yield the record of each case, from the processes of the ranks."""
    from cupy.cuda import nccl

    context = multiprocessing.get_context("spawn")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    meeting = Meeting(
        unique_id=nccl.get_unique_id(),
        port=port,
        barrier=context.Barrier(options.ranks),
        times=context.Array("d", options.ranks),
        results=context.Queue(),
    )
    common = (options.ranks, meeting, cases, options.exchanges, options.rounds)
    switches = {"with_torch": not options.without_torch}
    processes = [
        context.Process(target=run, args=(rank, *common), kwargs=switches, daemon=True)
        for rank in range(options.ranks)
    ]
    for process in processes:
        process.start()
    try:
        while (record := _next(meeting.results, processes)) is not None:
            if "fault" in record:
                sys.exit(f"benchmarks.several_gpus: {record['fault']}")
            yield record
        for process in processes:
            process.join(_JOIN_SECONDS)
    finally:
        for process in processes:
            process.kill()


def _next(results: Any, processes: Sequence[Any]) -> Record | None:
    """Return the next record, or one with an error if a process has died silently."""
    while True:
        try:
            return results.get(timeout=_LOOK_SECONDS)  # type: ignore[no-any-return]
        except queue.Empty:
            for rank, process in enumerate(processes):
                if process.exitcode:
                    return {"fault": f"rank {rank} ended with status {process.exitcode}"}


def _environment() -> dict[str, Any]:
    from benchmarks.compare import environment

    return environment()


if __name__ == "__main__":
    main()
