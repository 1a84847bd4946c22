"""Triangular systems: substitution in diagonal blocks, and products off the diagonal."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from cupygemm._backends.kernel_kind import Launch
from cupygemm._request.arrays import Array
from cupygemm._solvers.common import blocks, tiles
from cupygemm._solvers.common.kernels import TRIANGULAR_SOLVE, TRIANGULAR_VECTOR, load
from cupygemm._solvers.common.matrices import Matrices
from cupygemm._solvers.common.products import subtract_product, usual
from cupygemm._solvers.common.residency import resident
from cupygemm._solvers.common.tiles import Strides

_THREADS, _VECTOR_THREADS = 64, 256
_FEW_COLUMNS, _COLUMNS_OF_LAUNCH = 8, 4
Position = tuple[int, int]


def substitute(
    t: Matrices,
    b: Matrices,
    *,
    lower: bool,
    unit: bool = False,
    transposed: bool = False,
    conjugate: bool = False,
    at: Position = (0, 0),
    target: Position = (0, 0),
    extents: tuple[int, int] | None = None,
) -> None:
    """Solve ``op(T) X = B`` in place, with a triangular block T of matrices.

    Parameters
    ----------
    t : Matrices
        T is a block of these. A single matrix serves all matrices of `b`.
    b : Matrices
        B is a block of these. It may be `t`.
    lower : bool
        Whether T is its block's lower triangle.
    unit : bool
        Whether the diagonal of T is taken to be ones.
    transposed, conjugate : bool
        Whether op transposes, and whether it conjugates.
    at, target : tuple of int
        The first row and column of T, and of B.
    extents : tuple of int, optional
        The rows and columns of B; by default those of `b`.
    """
    n, columns = extents or (b.m, b.n)
    if n and columns:
        _solve(_System(t, at, n, b, target, columns, lower, unit, transposed, conjugate))


def substitute_below(t: Matrices, first: int, n: int) -> None:
    """Solve ``X L^H = B`` in place, with B below the lower triangle L on the diagonal of matrices.

    Parameters
    ----------
    t : Matrices
        Square.
    first, n : int
        The first row of L, and its rows.
    """
    below = first + n
    launch = _kernel(
        t.dtype,
        rows_adjacent=False,
        unit=False,
        conjugate=t.dtype.kind == "c",
        b_rows_adjacent=True,
    )
    launch(
        (-(-(t.n - below) // _THREADS), t.batches),
        t.address(first, first),
        t.address(below, first),
        *(t.pitch, 1, t.stride),
        *(1, t.pitch, t.stride),  # of X^T, since conj(L) X^T = B^T
        n,
        t.n - below,
    )


def zero_diagonal(t: Matrices) -> Array:
    """Return one more than the index of each matrix's first diagonal zero, or zero: int32."""
    import cupy

    first = cupy.zeros(t.batches, "int32")
    _first_zeros()(cupy.diagonal(t.view, axis1=1, axis2=2), t.n, first)
    return first


@functools.cache
def _first_zeros() -> Any:
    import cupy

    # Zeros are rare, so the time to find the first does not matter.
    operation = """
    if (x == T(0)) {
        int* const place = &first[i / n];
        const int own = int(i % n) + 1;
        for (int found = 0; found == 0 || found > own;) {
            const int before = atomicCAS(place, found, own);
            if (before == found)
                break;
            found = before;
        }
    }
    """
    return cupy.ElementwiseKernel(
        "T x, int64 n", "raw int32 first", operation, "cupygemm_first_zeros"
    )


class _System(NamedTuple):
    """A triangular system of `n` rows and `columns` right-hand sides; see `substitute`."""

    t: Matrices
    at: Position
    n: int
    b: Matrices
    target: Position
    columns: int
    lower: bool
    unit: bool
    transposed: bool
    conjugate: bool

    @property
    def forward(self) -> bool:
        """Return whether this is forward substitution."""
        return self.lower != self.transposed

    @property
    def conjugates(self) -> bool:
        """Return whether conjugation changes T's elements."""
        return self.conjugate and self.t.dtype.kind == "c"

    def part(self, first: int, n: int) -> _System:
        """Return the system of a diagonal block: `n` rows, from row `first` of T on."""
        at = (self.at[0] + first, self.at[1] + first)
        return self._replace(at=at, n=n, target=(self.target[0] + first, self.target[1]))

    def places(self) -> tuple[int, Strides, int, Strides]:
        """Return the address and the strides of T and of B, with T as a lower triangle."""
        t, b, at, target = self.t, self.b, self.at, self.target
        row, column = (1, t.pitch) if self.transposed else (t.pitch, 1)
        b_row = b.pitch
        if not self.forward:  # from the last row up
            at = (at[0] + self.n - 1, at[1] + self.n - 1)
            target = (target[0] + self.n - 1, target[1])
            row, column, b_row = -row, -column, -b_row
        stride = t.stride if t.batches > 1 else 0
        return t.address(*at), (row, column, stride), b.address(*target), (b_row, 1, b.stride)


def _solve(system: _System) -> None:
    n, b, columns = system.n, system.b, system.columns
    leaf = blocks.LIMITS.substituted
    if columns <= _FEW_COLUMNS:
        _solve_few(system)
    elif tiles.solves_tiles(n, b, columns):
        tiles.solve(b.dtype, *system.places(), (n, columns, b.batches), unit=system.unit)
    elif n <= leaf:
        _launch(system)
    else:
        half = leaf * (blocks.power_of_two(-(-n // leaf)) // 2)
        first, second = system.part(0, half), system.part(half, n - half)
        if not system.forward:
            first, second = second, first
        _solve(first)
        _subtract(system, half)
        _solve(second)


def _solve_few(system: _System) -> None:
    """Solve for few right-hand sides, in one launch per four."""
    import cupy

    n, b, columns = system.n, system.b, system.columns
    block = 64 if b.dtype.itemsize <= 8 and n > 32 else 32
    leaf = min(block, blocks.LIMITS.vector)
    num_blocks = -(-n // leaf)
    _, units = blocks.current_limits()
    t_place, t_strides, b_place, b_strides = system.places()
    for first in range(0, columns, _COLUMNS_OF_LAUNCH):
        count = min(columns - first, _COLUMNS_OF_LAUNCH)
        launch = load(
            TRIANGULAR_VECTOR,
            b.dtype,
            _VECTOR_THREADS if num_blocks > 1 else block,
            block=block,
            columns=1 if count == 1 else _COLUMNS_OF_LAUNCH,
            rows_adjacent=system.transposed,
            unit=system.unit,
            conjugate=system.conjugates,
        )
        together = units * (resident(launch) if blocks.has_tile_kernels(b.dtype) else 1)
        groups = min(num_blocks, max(together // b.batches, 1))
        messages = cupy.zeros((b.batches, count, n), b.dtype) if groups > 1 else None
        launch(
            (groups, b.batches),
            t_place,
            b_place + first * b.dtype.itemsize,
            *t_strides,
            *b_strides,
            0 if messages is None else messages.data.ptr,
            n,
            count,
            leaf,
            groups,
        )


def _launch(system: _System) -> None:
    """Solve a system of few rows in one launch."""
    b, columns = system.b, system.columns
    launch = _kernel(
        b.dtype,
        rows_adjacent=system.transposed,
        unit=system.unit,
        conjugate=system.conjugates,
    )
    grid = (-(-columns // _THREADS), b.batches)
    t_place, t_strides, b_place, b_strides = system.places()
    launch(grid, t_place, b_place, *t_strides, *b_strides, system.n, columns)


def _kernel(
    dtype: np.dtype[Any],
    *,
    rows_adjacent: bool,
    unit: bool,
    conjugate: bool,
    b_rows_adjacent: bool = False,
) -> Launch:
    return load(
        TRIANGULAR_SOLVE,
        dtype,
        _THREADS,
        block=16 if dtype.kind == "c" else 32,
        rows_adjacent=rows_adjacent,
        unit=unit,
        conjugate=conjugate,
        b_rows_adjacent=b_rows_adjacent,
    )


def _subtract(system: _System, half: int) -> None:
    """Subtract the contribution of the solved half; the halves meet at row `half`."""
    t, b, at, target = system.t, system.b, system.at, system.target
    high, low = slice(at[0], at[0] + half), slice(at[0] + half, at[0] + system.n)
    left, right = slice(at[1], at[1] + half), slice(at[1] + half, at[1] + system.n)
    off: Array = t.block(low, left) if system.lower else t.block(high, right)
    if system.transposed:
        off = off.swapaxes(-1, -2)
    if system.conjugates:
        off = off.conj()
    across = slice(target[1], target[1] + system.columns)
    top = b.block(slice(target[0], target[0] + half), across)
    bottom = b.block(slice(target[0] + half, target[0] + system.n), across)
    solved, other = (top, bottom) if system.forward else (bottom, top)
    subtract_product(off, solved, other, usual(b.dtype))
