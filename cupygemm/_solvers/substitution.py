"""Triangular systems: substitution in blocks, and products for what is off the diagonal."""

from __future__ import annotations

from cupygemm._request.arrays import Array
from cupygemm._solvers import blocks
from cupygemm._solvers.kernels import TRIANGULAR_SOLVE, TRIANGULAR_VECTOR, load
from cupygemm._solvers.matrices import Matrices
from cupygemm._solvers.products import subtract_product
from cupygemm._solvers.updates import update_right_hand_sides

_THREADS = 64
_FEW_COLUMNS = 8
Position = tuple[int, int]


def substitute(
    t: Matrices,
    at: Position,
    n: int,
    b: Matrices,
    target: Position,
    columns: int,
    *,
    lower: bool,
    unit: bool = False,
    transposed: bool = False,
    conjugate: bool = False,
) -> None:
    """Solve ``op(T) X = B`` in place, with a triangular block T of matrices.

    Parameters
    ----------
    t : Matrices
        T is a block of them. If there is one of them and several of `b`, it serves all.
    at : tuple of int
        The first row and column of T.
    n : int
        The rows of T.
    b : Matrices
        B is a block of them.
    target : tuple of int
        The first row and column of B.
    columns : int
        The columns of B.
    lower : bool
        Whether T is its block's lower triangle.
    unit : bool
        Whether to take ones for T's diagonal.
    transposed, conjugate : bool
        What op does.
    """
    if n == 0 or columns == 0:
        return
    if columns <= _FEW_COLUMNS:
        _substitute_few(
            t,
            at,
            n,
            b,
            target,
            columns,
            lower=lower,
            unit=unit,
            transposed=transposed,
            conjugate=conjugate,
        )
        return
    leaf = blocks.LIMITS.substituted
    if n <= leaf:
        _launch(
            t,
            at,
            n,
            b,
            target,
            columns,
            forward=lower != transposed,
            unit=unit,
            transposed=transposed,
            conjugate=conjugate,
        )
        return
    half = leaf * (blocks.power_of_two(-(-n // leaf)) // 2)
    first = (at, half, target)
    second = ((at[0] + half, at[1] + half), n - half, (target[0] + half, target[1]))
    forward = lower != transposed
    for part, (corner, size, place) in enumerate((first, second) if forward else (second, first)):
        substitute(
            t,
            corner,
            size,
            b,
            place,
            columns,
            lower=lower,
            unit=unit,
            transposed=transposed,
            conjugate=conjugate,
        )
        if part == 0:
            _subtract(t, at, half, n, b, target, columns, lower, transposed, conjugate)


def _substitute_few(
    t: Matrices,
    at: Position,
    n: int,
    b: Matrices,
    target: Position,
    columns: int,
    *,
    lower: bool,
    unit: bool,
    transposed: bool,
    conjugate: bool,
) -> None:
    """Solve for few right-hand sides: a block of rows, and an update of all rows that remain."""
    leaf = min(64 if b.dtype.itemsize <= 8 else 32, blocks.LIMITS.vector)
    forward = lower != transposed
    starts = range(0, n, leaf)
    for start in starts if forward else reversed(starts):
        size = min(leaf, n - start)
        corner = (at[0] + start, at[1] + start)
        place = (target[0] + start, target[1])
        _launch(
            t,
            corner,
            size,
            b,
            place,
            columns,
            forward=forward,
            unit=unit,
            transposed=transposed,
            conjugate=conjugate,
        )
        rest, rows = (start + size, n - start - size) if forward else (0, start)
        if rows:
            across = (start, rest) if transposed else (rest, start)
            update_right_hand_sides(
                t,
                (at[0] + across[0], at[1] + across[1]),
                b,
                place,
                (target[0] + rest, target[1]),
                (rows, columns, size),
                transposed=transposed,
                conjugate=conjugate,
            )


def _subtract(
    t: Matrices,
    at: Position,
    half: int,
    n: int,
    b: Matrices,
    target: Position,
    columns: int,
    lower: bool,
    transposed: bool,
    conjugate: bool,
) -> None:
    """Subtract what the half that is solved contributes to the other half."""
    high, low = slice(at[0], at[0] + half), slice(at[0] + half, at[0] + n)
    left, right = slice(at[1], at[1] + half), slice(at[1] + half, at[1] + n)
    off: Array = t.block(low, left) if lower else t.block(high, right)
    if transposed:
        off = off.swapaxes(-1, -2)
    if conjugate and off.dtype.kind == "c":
        off = off.conj()
    across = slice(target[1], target[1] + columns)
    top = b.block(slice(target[0], target[0] + half), across)
    bottom = b.block(slice(target[0] + half, target[0] + n), across)
    if lower != transposed:
        subtract_product(off, top, bottom)
    else:
        subtract_product(off, bottom, top)


def _launch(
    t: Matrices,
    at: Position,
    n: int,
    b: Matrices,
    target: Position,
    columns: int,
    *,
    forward: bool,
    unit: bool,
    transposed: bool,
    conjugate: bool,
) -> None:
    row, column = (1, t.pitch) if transposed else (t.pitch, 1)
    b_row = b.pitch
    if not forward:  # the same problem from the last row up
        at = (at[0] + n - 1, at[1] + n - 1)
        target = (target[0] + n - 1, target[1])
        row, column, b_row = -row, -column, -b_row
    config = {"unit": unit, "conjugate": conjugate and t.dtype.kind == "c"}
    if columns <= _FEW_COLUMNS:
        threads = 64 if b.dtype.itemsize <= 8 else 32
        launch = load(TRIANGULAR_VECTOR, b.dtype, threads, **config)
        groups = columns
    else:
        launch = load(
            TRIANGULAR_SOLVE,
            b.dtype,
            _THREADS,
            block=16 if b.dtype.kind == "c" else 32,
            rows_adjacent=transposed,
            **config,
        )
        groups = -(-columns // _THREADS)
    launch(
        (groups, b.batches),
        t.address(*at),
        b.address(*target),
        row,
        column,
        t.stride if t.batches > 1 else 0,
        b_row,
        1,
        b.stride,
        n,
        columns,
    )
