"""Refinement of one system with one right-hand side, in a few launches for each step.

What `refinement` and `gmres` do for stacks of systems takes the host longer than the device: some
50 launches for a step. Here the launches are prepared once for systems of one size
(launch_rows.py), and a step of GMRES is::

    mix rows | apply the factors: products with blocks, one by one | mix back | times A | 4 launches

where the last ones make the vector orthogonal to those before (krylov_step.hpp).
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from cupygemm._backends.device import current_device
from cupygemm._backends.kernel_kind import Call
from cupygemm._backends.launch_rows import LaunchRows, region
from cupygemm._request.arrays import Array
from cupygemm._solvers.common.kernels import (
    ERROR_PARTS,
    KRYLOV_END,
    KRYLOV_STEP,
    ROW_NORMS,
    ROW_PRODUCTS,
    load,
)
from cupygemm._solvers.refinement import butterflies
from cupygemm._solvers.refinement.windowed_lu import WindowedFactors

LONGEST_CYCLE = 16
_THREADS = 256
_MOST = LONGEST_CYCLE + 1
_MAXIMA = 6
_FACTOR_TYPE = np.dtype("f")
(
    _A,
    _B,
    _ROWS,
    _COLUMNS,
    _X,
    _R,
    _BASIS,
    _DIRECTIONS,
    _W,
    _PARTS,
    _H,
    _LARGEST,
    _FACTORS,
    _LOWER,
    _UPPER,
    _MIXED,
    _BETWEEN,
    _SOLVED,
) = map(region, range(1, 19))


class _Shape(NamedTuple):
    """What the launches depend on.

    Attributes
    ----------
    n, size : int
        The rows of the system, and of the one that is factored.
    width : int
        The rows of the blocks whose inverses are known.
    factors_row : int
        The elements between rows of the factors.
    dtype : numpy.dtype
    """

    n: int
    size: int
    width: int
    factors_row: int
    dtype: np.dtype[Any]


class _Prepared(NamedTuple):
    """The launches of a refinement: which rows do what.

    Attributes
    ----------
    errors : range
        The residual, and the largest magnitudes.
    start : range
        The first vector of a basis.
    apply : range
        The factors.
    steps : list of range
        What follows them, for each step.
    ends : list of int
        The end of a cycle, for each number of steps; the first is that of the first solution.
    """

    launches: LaunchRows
    errors: range
    start: range
    apply: range
    steps: list[range]
    ends: list[int]


class OneVector:
    """A solution of a scaled system R A C, and its refinement.

    Parameters
    ----------
    a : cupy.ndarray
        (n, n), contiguous, real.
    b, rows, columns : cupy.ndarray
        (n,), contiguous, of its type: the right-hand side, and the diagonals of R and C.
    factors : WindowedFactors
        Of the mixed R A C.
    flags : list of cupy.ndarray
        Of one element each: what `fetch` returns beside the errors.

    Attributes
    ----------
    x : cupy.ndarray
        (n,): the solution.
    """

    def __init__(
        self,
        a: Array,
        b: Array,
        rows: Array,
        columns: Array,
        factors: WindowedFactors,
        flags: list[Array],
    ) -> None:
        import cupy

        n, size = len(a), len(factors.order)
        empty = functools.partial(cupy.empty, dtype=a.dtype)
        self.x = cupy.zeros(n, a.dtype)
        self._columns, self._order = columns, factors.order
        self._basis, self._directions = empty((_MOST, n)), empty((LONGEST_CYCLE, n))
        self._mixed, between, self._solved = cupy.empty((3, size), _FACTOR_TYPE)
        groups = -(-n // _THREADS)
        # The largest magnitudes by workgroup, and then the norms and the flags.
        norms = _row_norms(a, rows, columns).max(axis=1)
        known = [norms, *(each.astype(a.dtype) for each in flags)]
        self._found = cupy.concatenate([cupy.zeros(_MAXIMA * groups, a.dtype), *known])
        self._count = _MAXIMA * groups
        arrays = (
            *(a, b, rows, columns, self.x, b.copy(), self._basis, self._directions, empty(n)),
            *(empty((3, groups, _MOST)), empty((_MOST, _MOST)), self._found),
            *(factors.factors, factors.lower, factors.upper),
            *(self._mixed, between, self._solved),
        )
        self._kept = arrays
        row = factors.factors.strides[0] // _FACTOR_TYPE.itemsize
        shape = _Shape(n, size, factors.lower.shape[1], row, a.dtype)
        self._prepared = _prepared(shape, current_device())
        self._launches = self._prepared.launches.at(*(each.data.ptr for each in arrays))
        # Without a solution, b is the residual.
        self._launches.enqueue_in_order(self._prepared.errors[1:])

    def begin(self) -> None:
        """Store a first solution."""
        self._launches.enqueue_in_order(self._prepared.start)
        self._precondition(0)
        self._finish(0)

    def improve(self, steps: int) -> None:
        """Add a correction by some steps of GMRES, at most `LONGEST_CYCLE`."""
        self._launches.enqueue_in_order(self._prepared.start)
        for step in range(steps):
            self._precondition(step)
            self._launches.enqueue_in_order(self._prepared.steps[step])
        self._finish(steps)

    def fetch(self) -> tuple[float, list[float]]:
        """Wait for the normwise backward error and the flags, and return them.

        The error is that of the system or of the scaled system, whichever is larger.
        """
        values = self._found.get()
        r, x, b, *scaled = values[: self._count].reshape(-1, _MAXIMA).max(axis=0).tolist()
        norm, norm_scaled, *flags = values[self._count :].tolist()
        error = r / ((norm * x + b) or 1)
        error_scaled = scaled[0] / ((norm_scaled * scaled[1] + scaled[2]) or 1)
        return float(np.maximum(error, error_scaled)), flags

    def _precondition(self, step: int) -> None:
        """Store the direction of a step."""
        butterflies.left_in_order(self._basis[step], self._order, self._mixed)
        self._launches.enqueue_in_order(self._prepared.apply)
        butterflies.right_scaled(self._solved, self._columns, self._directions[step])

    def _finish(self, steps: int) -> None:
        """Add what the steps found, and compute the errors."""
        end = self._prepared.ends[steps]
        self._launches.enqueue_in_order(range(end, end + 1))
        self._launches.enqueue_in_order(self._prepared.errors)


def _row_norms(a: Array, rows: Array, columns: Array) -> Array:
    """Return the sums of magnitudes of the rows of A, and of R A C, (2, n)."""
    import cupy

    n = len(a)
    sums = cupy.empty((2, n), a.dtype)
    places = (each.data.ptr for each in (a, rows, columns, *sums))
    load(ROW_NORMS, a.dtype, _THREADS)((-(-n // (_THREADS // 32)), 1), *places, n, n, n)
    return sums


@functools.lru_cache(maxsize=64)
def _prepared(shape: _Shape, index: int) -> _Prepared:
    calls: list[Call] = []

    def added(more: list[Call]) -> range:
        calls.extend(more)
        return range(len(calls) - len(more), len(calls))

    errors = added(_errors(shape))
    start = added([_orthogonal(shape, -1, stage) for stage in (2, 3)])
    apply = added(_apply(shape))
    steps = [added(_step(shape, step)) for step in range(LONGEST_CYCLE)]
    ends = added([_end(shape, step) for step in range(LONGEST_CYCLE + 1)])
    return _Prepared(LaunchRows(calls), errors, start, apply, steps, list(ends))


def _errors(shape: _Shape) -> list[Call]:
    """Return the launches of the residual, and of the largest magnitudes."""
    n = shape.n
    residual = _product(shape.dtype, (_A, n), _X, _R, (n, n), base=_B)
    arguments = _R, _X, _B, _ROWS, _COLUMNS, _LARGEST, n, 0
    return [residual, Call(_load(shape, ERROR_PARTS), (-(-n // _THREADS), 1), arguments)]


def _apply(shape: _Shape) -> list[Call]:
    """Return the launches of ``U^-1 L^-1``, in place of a vector that is lost."""
    size, width, row, item = shape.size, shape.width, shape.factors_row, _FACTOR_TYPE.itemsize
    multiply = functools.partial(_product, _FACTOR_TYPE)
    calls = []

    def block(inverses: int, source: int, target: int, first: int, others: range) -> None:
        """Solve for a block of rows, and subtract what it contributes to others."""
        inverse = inverses + item * first * width
        found = target + item * first
        calls.append(multiply((inverse, width), source + item * first, found, (width, width)))
        if others:
            rest = source + item * others.start
            of_factors = _FACTORS + item * (others.start * row + first)
            extents = len(others), width
            calls.append(multiply((of_factors, row), found, rest, extents, base=rest))

    firsts = range(0, size, width)
    for first in firsts:
        block(_LOWER, _MIXED, _BETWEEN, first, range(first + width, size))
    for first in reversed(firsts):
        block(_UPPER, _BETWEEN, _SOLVED, first, range(first))
    return calls


def _step(shape: _Shape, step: int) -> list[Call]:
    """Return the launches that make the next vector of a basis from a direction."""
    n, item = shape.n, shape.dtype.itemsize
    direction = _DIRECTIONS + item * step * n
    product = _product(shape.dtype, (_A, n), direction, _W, (n, n), scale=_ROWS)
    return [product, *(_orthogonal(shape, step, stage) for stage in range(4))]


def _orthogonal(shape: _Shape, step: int, stage: int) -> Call:
    """Return a launch of krylov_step.hpp; step -1 begins a cycle."""
    n, item = shape.n, shape.dtype.itemsize
    column = _H + item * _MOST * (step if step >= 0 else _MOST - 1)
    arguments = (
        _R if step < 0 and stage == 2 else _W,
        _ROWS,
        _BASIS + item * (step + 1) * n if stage == 3 else _W,
        _BASIS,
        _PARTS,
        column,
        _LARGEST,
        n,
        n,
        step + 1,
        stage,
        0,
    )
    return Call(_load(shape, KRYLOV_STEP), (-(-n // _THREADS), 1), arguments)


def _end(shape: _Shape, steps: int) -> Call:
    """Return the launch that ends a cycle; no steps stand for the first solution."""
    n = shape.n
    arguments = _H, _DIRECTIONS, _X, n, n, max(steps, 1), int(steps == 0), 0
    return Call(_load(shape, KRYLOV_END), (-(-n // _THREADS), 1), arguments)


def _load(shape: _Shape, kind: Any) -> Any:
    return load(kind, shape.dtype, _THREADS, most=_MOST, maxima=_MAXIMA)


def _product(
    dtype: np.dtype[Any],
    matrix: tuple[int, int],
    x: int,
    y: int,
    extents: tuple[int, int],
    *,
    base: int = 0,
    scale: int = 0,
) -> Call:
    """Return the launch of ``y = scale * (base - matrix @ x)``, or of the product alone."""
    launch = load(ROW_PRODUCTS, dtype, _THREADS)
    rows = _THREADS // 32
    arguments = matrix[0], x, base, scale, y, matrix[1], *extents
    return Call(launch, (-(-extents[0] // rows), 1), arguments)
