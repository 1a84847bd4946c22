"""Summarise the times of `benchmarks.several_gpus` as lines and tables.

"Ideal" is the time of the whole product on one GPU, by this library or cuBLAS, whichever is faster,
divided by the number of GPUs. The efficiency of a contender is the ideal time divided by its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

IDEAL = "ideal, "
Record = dict[str, Any]


def ideal(record: Record) -> float:
    """Return the ideal seconds of a case."""
    return min(time for name, time in record["seconds"].items() if name.startswith(IDEAL))


def efficiencies(record: Record) -> dict[str, float]:
    """Return the efficiency of each contender."""
    return {
        name: ideal(record) / time
        for name, time in record["seconds"].items()
        if not name.startswith(IDEAL)
    }


def fastest_of_ours(record: Record) -> str:
    """Return the name of this library's fastest contender that sends bfloat16."""
    names = [
        name
        for name in efficiencies(record)
        if name.startswith("cupygemm") and "float32" not in name
    ]
    return min(names, key=lambda name: record["seconds"][name])


def line(record: Record) -> str:
    """Return the line of a case: the ideal time, each contender's, and the host's, in ms."""
    times = ", ".join(
        f"{name} {time * 1e3:.3f} ({share:.0%})"
        for name, share in efficiencies(record).items()
        for time in [record["seconds"][name]]
    )
    if record.get("host_seconds"):
        times += "; host: " + ", ".join(
            f"{name} {time * 1e3:.3f}" for name, time in record["host_seconds"].items()
        )
    bits = "" if record["bits_of_one_gpu"] is None else f"; bits {record['bits_of_one_gpu']}"
    failed = "".join(f"; {name}: {why}" for name, why in record["failed"].items())
    return f"{_name(record)} ideal {ideal(record) * 1e3:.3f} ms: {times}{bits}{failed}"


def tables(records: Sequence[Record]) -> Iterator[str]:
    """Yield the lines of a Markdown table for each function and number of ranks."""
    for kind in dict.fromkeys((record["function"], record["ranks"]) for record in records):
        chosen = [each for each in records if (each["function"], each["ranks"]) == kind]
        names = list(dict.fromkeys(name for each in chosen for name in efficiencies(each)))
        yield ""
        yield f"{kind[0]}, {kind[1]} GPUs, ms"
        yield " | ".join(["m x n x k", "ideal", *names])
        yield " | ".join(["---"] * (2 + len(names)))
        for record in chosen:
            seconds = record["seconds"]
            cells = [f"{seconds[name] * 1e3:.3f}" if name in seconds else "-" for name in names]
            yield " | ".join([_shape(record), f"{ideal(record) * 1e3:.3f}", *cells])


def _shape(record: Record) -> str:
    return f"{record['m']}x{record['n']}x{record['k']}"


def _name(record: Record) -> str:
    return f"{record['function']} {_shape(record)} on {record['ranks']}:"
