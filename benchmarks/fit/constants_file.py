"""Write the constants of a cost model to the Python module that the model reads.

The module holds a dictionary with the origin of the constants, and the records, with one field per
line, so that a refit is a diff that can be reviewed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.fit.fitting import Errors
from benchmarks.fit.samples import SampleFile

_LINE_LENGTH = 100


def provenance(files: Sequence[SampleFile], held_out: Errors) -> dict[str, Any]:
    """Return the origin of constants: machine, number of samples, and held-out errors."""
    return origin_of(files) | {
        "median_error": round(held_out.median, 3),
        "chosen_over_fastest": round(held_out.regret, 4),
    }


def origin_of(files: Sequence[SampleFile]) -> dict[str, Any]:
    """Return the origin of samples: machine, dates and size."""

    def of(name: str) -> str:
        values = (machine.get(name) for file in files for machine in file.machines)
        return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))

    return {
        "device": of("device"),
        "driver": of("driver"),
        "date": of("date"),
        "products": sum(len(file.samples) for file in files),
        "kernels": sum(len(sample.timings) for file in files for sample in file.samples),
    }


def text_of(module: ModuleType, origin: Mapping[str, Any], records: Mapping[str, Any]) -> str:
    """Return the source of a module of constants with other values.

    Parameters
    ----------
    module : module
        The present one, whose documentation and imports are kept.
    origin : mapping
        ``PROVENANCE``.
    records : mapping of str to dataclass
        By the names that the model imports, all of the module's.
    """
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    head = source[: source.index("PROVENANCE = ")]
    lines = ["PROVENANCE = {"]
    lines += [f"    {_quoted(key)}: {_quoted(value)}," for key, value in origin.items()]
    lines.append("}")
    for name, record in records.items():
        lines.append(f"{name} = {type(record).__name__}(")
        for field in fields(record):
            lines += _lines(field.name, getattr(record, field.name))
        lines.append(")")
    return head + "\n".join(lines) + "\n"


def write(module: ModuleType, origin: Mapping[str, Any], records: Mapping[str, Any]) -> Path:
    """Write a module of constants, and return its path."""
    path = Path(str(module.__file__))
    path.write_text(text_of(module, origin, records), encoding="utf-8")
    return path


def _lines(name: str, value: Any) -> list[str]:
    """Return an argument as ruff formats it, with long tables on separate lines."""
    if not isinstance(value, Mapping):
        return [f"    {name}={value!r},"]
    entries = [f"{_quoted(key)}: {each!r}" for key, each in value.items()]
    line = f"    {name}={{{', '.join(entries)}}},"
    if len(line) <= _LINE_LENGTH:
        return [line]
    return [f"    {name}={{", *(f"        {entry}," for entry in entries), "    },"]


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
