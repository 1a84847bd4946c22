"""The properties of problems and configurations that the cost model reads, as numbers or columns.

A cost is arithmetic on the fields of `Shapes` and of a configuration. Each field is a number, or an
array with one entry for each kernel. The selector has columns of configurations, grouped products
have columns of problems, and the fit has columns of both.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cupygemm._backends.hopper.compilation.source import parts_dtype
from cupygemm._backends.hopper.config import (
    CAMP_BYTES,
    LINE_BYTES,
    MAX_BOX,
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
        The most rows of a k-major operand that are loaded for a tile; infinite if the operand has
        as many as the largest tile, or is not k-major.
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
    pitch_a, pitch_b = row_bytes(problem, "a"), row_bytes(problem, "b")
    a_along_k, b_along_k = problem.a_major == "k", problem.b_major == "k"
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
        a_along_k=a_along_k,
        b_along_k=b_along_k,
        from_registers=a_in_registers(problem),
        a_indices=_loaded_rows(m) if a_along_k and m < MAX_BOX else math.inf,
        b_indices=_loaded_rows(n) if b_along_k and n < MAX_BOX else math.inf,
        a_crosses=1 - math.gcd(pitch_a, LINE_BYTES) / LINE_BYTES,
        b_crosses=1 - math.gcd(pitch_b, LINE_BYTES) / LINE_BYTES,
        a_camps=pitch_a % CAMP_BYTES == 0,
        b_camps=pitch_b % CAMP_BYTES == 0,
        num_results=m * n * batches,
        moved_bytes=float(((m + n) * k * size + m * n * out_size) * batches),
        heating_work=0.0 if problem.a_dtype == "f64" else float(m * n * k * batches * size),
    )


def _loaded_rows(extent: int) -> float:
    """Return the most rows of a k-major operand that are loaded: whole groups of the swizzle."""
    return float(-(-extent // SWIZZLE_LINES) * SWIZZLE_LINES)


def columns_of(shapes: Iterable[Shapes]) -> Shapes:
    """Return the columns of many problems."""
    return Shapes(*map(np.array, zip(*shapes, strict=True)))


def pair_of(first: Shapes, second: Shapes | None = None) -> Shapes:
    """Return one or two problems: what both share as numbers, other properties as arrays of two."""
    if second is None:
        return first
    return Shapes(*(x if x == y else np.array((x, y)) for x, y in zip(first, second, strict=True)))


def entries(record: Record, rows: Rows) -> Record:
    """Return some rows of a record of columns and numbers."""
    found = [x[rows] if isinstance(x, np.ndarray) else x for x in record]
    return tuple.__new__(type(record), found)


def without_constants(record: Record) -> Record:
    """Return a record of columns with a number in place of each column of equal entries."""
    found = [x[0] if len(x) and (x == x[0]).all() else x for x in record]
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


_FLAGS = ("promote", "mma_sync", "transposed_c", "ping_pong")


class ConfigColumns(NamedTuple):
    """Columns of configurations, with the names of `HopperConfig`'s properties.

    Numbers are in float64, which holds them exactly: NumPy divides and rounds integers more slowly.
    """

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
    span_m: Number
    span_n: Number
    group_m: Number
    split_k: Number
    stream_k: Number
    promote: Number
    mma_sync: Number
    transposed_c: Number
    ping_pong: Number

    @classmethod
    def of(cls, configs: Sequence[HopperConfig]) -> ConfigColumns:
        """Return the columns of configurations."""
        rows = list(map(operator.attrgetter(*cls._fields), configs))
        numbers = np.array(rows, np.float64).reshape(-1, len(cls._fields)).T.copy()
        columns = zip(cls._fields, numbers, strict=True)
        return cls(*(column > 0 if name in _FLAGS else column for name, column in columns))
