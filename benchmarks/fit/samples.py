"""Samples: measured times of kernels, and the file that holds them.

A file is JSON, with one record per line, compressed by xz. There are three kinds of records::

    {"machine": {"device": "NVIDIA H200", "driver": "580.159.04", "date": "2026-11-22", ...}}
    {"config": 0, "tile_m": 128, "tile_n": 256, ...}
    {"product": {"shape": [4096, 4096, 4096], "operands": "bf16", ...},
     "kernels": [[0, 231.7], [1, 240.2, 12.5]], "vendor": 251.0}

A kernel is listed with the number of its configuration, its time, the time of copies of operands
before it, if any, and its time with cold operands, if measured. Records are appended in separate xz
streams, so an interrupted sweep loses only its last seconds, and a later one continues the file.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Product:
    """A product that is measured.

    Attributes
    ----------
    shape : tuple of int
        (m, n, k), preceded by the extent of a batch, if any.
    operands, result : str
        Types as in `cupygemm._records.problem.DType`.
    layout : str
        "N" for a C-ordered operand and "T" for a transposed view of one, x1's before x2's.
    group : str
        The part of the design that it belongs to, for example ``"layer"``.
    """

    shape: tuple[int, ...]
    operands: str
    result: str
    layout: str
    group: str

    def __str__(self) -> str:
        extents = "x".join(map(str, self.shape))
        return f"{self.group}: {extents} {self.operands}->{self.result} {self.layout}"

    @property
    def multiply_adds(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def with_group(self, group: str) -> Product:
        return replace(self, group=group)


Config = Mapping[str, Any]
"""The fields of a configuration by name, those at their defaults included."""


@dataclass(frozen=True)
class Timing:
    """The time of a kernel in the unit of the file.

    Attributes
    ----------
    config : mapping
    time : float
        With the same operands as in the previous call.
    copies : float
        The time of the copies of operands before the kernel.
    cold : float or None
        The time with operands that L2 does not hold.
    """

    config: Config
    time: float
    copies: float = 0.0
    cold: float | None = None


@dataclass(frozen=True)
class Sample:
    """The measured times of one product.

    Attributes
    ----------
    product : Product
    timings : tuple of Timing
    vendor : float or None
        The time of the vendor's library.
    """

    product: Product
    timings: tuple[Timing, ...]
    vendor: float | None = None


@dataclass
class SampleFile:
    """A file of samples that can be read and appended to."""

    path: Path
    machines: list[dict[str, Any]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    _ids: dict[str, int] = field(default_factory=dict)
    _pending: list[dict[str, Any]] = field(default_factory=list)
    _size: int = 0  # size of the file, without an incomplete stream at its end

    @classmethod
    def open(cls, path: Path) -> SampleFile:
        """Return a file with its samples; without samples if it does not exist yet."""
        found = cls(path)
        if path.exists():
            found._read()
        return found

    @property
    def products(self) -> set[Product]:
        return {sample.product for sample in self.samples}

    def add_machine(self, machine: Mapping[str, Any]) -> None:
        """Add the facts on which the times of this session depend."""
        self.machines.append(dict(machine))
        self._pending.append({"machine": dict(machine)})

    def add(self, sample: Sample) -> None:
        """Add a sample; `flush` writes it."""
        self.samples.append(sample)
        kernels: list[list[float]] = []
        for timing in sample.timings:
            number = self._number(timing.config)
            kernel = [number, _rounded(timing.time)]
            if timing.copies or timing.cold is not None:
                kernel.append(_rounded(timing.copies))
            if timing.cold is not None:
                kernel.append(_rounded(timing.cold))
            kernels.append(kernel)
        record: dict[str, Any] = {"product": asdict(sample.product), "kernels": kernels}
        if sample.vendor is not None:
            record["vendor"] = _rounded(sample.vendor)
        self._pending.append(record)

    def flush(self) -> None:
        """Append all records added since the last call."""
        if self._pending:
            lines = "".join(
                json.dumps(each, separators=(",", ":")) + "\n" for each in self._pending
            )
            with self.path.open("ab") as file:
                file.truncate(self._size)
                self._size += file.write(lzma.compress(lines.encode(), preset=9))
            self._pending.clear()

    def _number(self, config: Config) -> int:
        key = json.dumps(config, sort_keys=True)
        if key not in self._ids:
            self._ids[key] = len(self._ids)
            self._pending.append({"config": self._ids[key], **config})
        return self._ids[key]

    def _read(self) -> None:
        configs: dict[int, Config] = {}
        lines, self._size = _lines(self.path.read_bytes())
        for line in lines:
            record = json.loads(line)
            if "machine" in record:
                self.machines.append(record["machine"])
            elif "config" in record:
                number = record.pop("config")
                configs[number] = record
                self._ids[json.dumps(record, sort_keys=True)] = number
            else:
                self.samples.append(_sample(record, configs))


def compact(sources: Sequence[Path], target: Path) -> SampleFile:
    """Merge the samples of files in one file, as one xz stream, and return it.

    The target may be one of the files.
    """
    merged = SampleFile(target)
    for found in [SampleFile.open(source) for source in sources]:
        for machine in found.machines:
            merged.add_machine(machine)
        for sample in found.samples:
            merged.add(sample)
    target.unlink(missing_ok=True)
    merged.flush()
    return merged


def _lines(data: bytes) -> tuple[list[str], int]:
    """Return the lines of a file's complete streams, and the streams' size.

    An interrupted write leaves an incomplete stream at the end.
    """
    text, rest = b"", data
    while rest:
        stream = lzma.LZMADecompressor()
        try:
            part = stream.decompress(rest)
        except lzma.LZMAError:
            break
        if not stream.eof:
            break
        text, rest = text + part, stream.unused_data
    return text.decode().splitlines(), len(data) - len(rest)


def _sample(record: Mapping[str, Any], configs: Mapping[int, Config]) -> Sample:
    described = record["product"]
    product = Product(**{**described, "shape": tuple(described["shape"])})
    timings = tuple(Timing(configs[number], *times) for number, *times in record["kernels"])
    return Sample(product, timings, record.get("vendor"))


def _rounded(value: float) -> float:
    """Round to four significant digits, more than the precision of the measurement."""
    return float(f"{value:.4g}")
