"""The properties of problems and configurations that the cost model reads, as numbers or columns.

A cost is arithmetic on the fields of `Shapes` and of a configuration. Each field is a number, or an
array with one entry for each kernel. The selector has columns of configurations, grouped products
have columns of problems, and the fit has columns of both.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cupygemm._backends.hopper.compilation.source import parts_dtype
from cupygemm._backends.hopper.config import (
    CAMP_BYTES,
    LINE_BYTES,
    SWIZZLE_LINES,
    HopperConfig,
    a_in_registers,
)
from cupygemm._backends.hopper.operands.stack import copied_pitch
from cupygemm._records.dtypes import ITEMSIZE
from cupygemm._records.problem import GemmProblem

Number = Any
"""A number, or an array of numbers."""
Rows = NDArray[np.int64] | slice | int
Record = TypeVar("Record", bound=tuple[Any, ...])


class Shapes(NamedTuple):
    """The properties of one or of many problems that the cost model reads.

    Attributes
    ----------
    m, n, k, num_batches : int
    has_batch : bool
    size, out_size, part_size : int
        The bytes of an element of the operands, of the result, and of sums of parts of k.
    a_along_k, b_along_k : bool
        Whether elements along k are adjacent.
    from_registers : bool
        Whether A comes from registers.
    a_indices, b_indices : float
        The most rows of a k-major operand that are loaded; infinite for other operands.
    a_crosses, b_crosses : float
        The share of rows that do not begin at a cache line.
    a_camps, b_camps : bool
        Whether rows begin at multiples of 4 KiB.
    num_results : int
        The elements of the results of a batch.
    moved_bytes : float
        The bytes of the operands and of the result.
    heating_work : float
        Multiply-adds times bytes of an element, which heat the GPU; 0 for fp64, which heats it
        little.
    """

    m: Number
    n: Number
    k: Number
    num_batches: Number
    has_batch: Number
    size: Number
    out_size: Number
    part_size: Number
    a_along_k: Number
    b_along_k: Number
    from_registers: Number
    a_indices: Number
    b_indices: Number
    a_crosses: Number
    b_crosses: Number
    a_camps: Number
    b_camps: Number
    num_results: Number
    moved_bytes: Number
    heating_work: Number


@functools.lru_cache(maxsize=1024)
def shapes_of(problem: GemmProblem) -> Shapes:
    """Return the properties of one problem that the cost model reads."""
    found: dict[str, Any] = {}
    for name, extent, major in (
        ("a", problem.m, problem.a_major),
        ("b", problem.n, problem.b_major),
    ):
        pitch, along_k = row_bytes(problem, name), major == "k"
        boxes = -(-extent // SWIZZLE_LINES) * SWIZZLE_LINES
        found |= {
            f"{name}_along_k": along_k,
            f"{name}_indices": float(boxes) if along_k else math.inf,
            f"{name}_crosses": 1 - math.gcd(pitch, LINE_BYTES) / LINE_BYTES,
            f"{name}_camps": pitch % CAMP_BYTES == 0,
        }
    m, n, k, batches = problem.m, problem.n, problem.k, problem.num_batches
    size, out_size = ITEMSIZE[problem.a_dtype], ITEMSIZE[problem.out_dtype]
    return Shapes(
        m=m,
        n=n,
        k=k,
        num_batches=batches,
        has_batch=bool(problem.batch),
        size=size,
        out_size=out_size,
        part_size=ITEMSIZE[parts_dtype(problem)],
        from_registers=a_in_registers(problem),
        num_results=m * n * batches,
        moved_bytes=float(((m + n) * k * size + m * n * out_size) * batches),
        heating_work=0.0 if problem.a_dtype == "f64" else float(m * n * k * batches * size),
        **found,
    )


def columns_of(shapes: Iterable[Shapes]) -> Shapes:
    """Return the columns of many problems."""
    return Shapes(*map(np.array, zip(*shapes, strict=True)))


def either(plain: Shapes, transposed: Shapes, is_transposed: NDArray[np.bool_]) -> Shapes:
    """Return columns that hold one problem or the other for each kernel."""
    return Shapes(
        *(
            x if x == y else np.where(is_transposed, y, x)
            for x, y in zip(plain, transposed, strict=True)
        )
    )


def entries(record: Record, rows: Rows) -> Record:
    """Return some rows of a record of columns and numbers, or of nested records."""
    found = [
        x[rows] if isinstance(x, np.ndarray) else entries(x, rows) if isinstance(x, tuple) else x
        for x in record
    ]
    return tuple.__new__(type(record), found)


def by_flag(flag: Number, value: Number, other: Number) -> Number:
    """Return one value or the other, by a flag or by an array of them."""
    return (
        np.where(flag, value, other) if isinstance(flag, np.ndarray) else value if flag else other
    )


def row_bytes(problem: GemmProblem, name: str) -> int:
    """Return the bytes from one row of operand "a" or "b" to the next, if packed or copied."""
    is_a = name == "a"
    major, align = (
        (problem.a_major, problem.a_align) if is_a else (problem.b_major, problem.b_align)
    )
    adjacent = problem.k if major == "k" else problem.m if is_a else problem.n
    row = adjacent * ITEMSIZE[problem.a_dtype]
    return copied_pitch(row) if align == LINE_BYTES else -(-row // align) * align


class ConfigColumns:
    """Columns of configurations, with the names of `HopperConfig`'s fields.

    Attributes
    ----------
    bases : tuple of HopperConfig
    rows : numpy.ndarray
        The index in `bases` of each entry; entries may also differ in `split_k` and `stream_k`.
    of_bases : ConfigColumns
        The columns of `bases`, from which these entries are taken.
    """

    FIELDS = (
        "tile_m",
        "tile_n",
        "tile_k",
        "num_consumers",
        "num_stages",
        "epilogue_buffers",
        "cluster_m",
        "cluster_n",
        "cluster_k",
        "cluster_size",
        "group_m",
        "split_k",
        "stream_k",
        "promote",
        "mma_sync",
        "transposed_c",
        "ping_pong",
    )
    tile_m: Number
    tile_n: Number
    tile_k: Number
    num_consumers: Number
    num_stages: Number
    epilogue_buffers: Number
    cluster_m: Number
    cluster_n: Number
    cluster_k: Number
    cluster_size: Number
    group_m: Number
    split_k: Number
    stream_k: Number
    promote: Number
    mma_sync: Number
    transposed_c: Number
    ping_pong: Number

    def __init__(self, bases: Sequence[HopperConfig]) -> None:
        self.bases = tuple(bases)
        self.rows = np.arange(len(self.bases))
        self.of_bases = self
        for name in self.FIELDS:
            column = [getattr(config, name) for config in self.bases]
            setattr(self, name, np.array(column) if column else np.empty(0, np.int64))

    def __getattr__(self, name: str) -> Number:
        """Return a column, which is gathered from the columns of `bases` on first use."""
        if name not in self.FIELDS:
            raise AttributeError(name)
        column = getattr(self.of_bases, name)[self.rows]
        setattr(self, name, column)
        return column

    def taken(self, rows: NDArray[np.int64], split_k: Number, stream_k: Number) -> ConfigColumns:
        """Return some of the configurations, with other divisions of k."""
        found = ConfigColumns.__new__(ConfigColumns)
        found.bases, found.rows, found.of_bases = self.bases, rows, self.of_bases
        found.split_k, found.stream_k = split_k, stream_k
        return found

    def at(self, rows: Rows) -> ConfigColumns:
        """Return some of these rows."""
        return self.taken(self.rows[rows], self.split_k[rows], self.stream_k[rows])
