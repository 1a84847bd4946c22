"""Triangular systems: substitution in blocks, and products for what is off the diagonal."""

from __future__ import annotations

from cupygemm._request.arrays import Array
from cupygemm._solvers import blocks, tiles
from cupygemm._solvers.kernels import TRIANGULAR_SOLVE, TRIANGULAR_VECTOR, load
from cupygemm._solvers.matrices import Matrices
from cupygemm._solvers.products import subtract_product, usual

_THREADS, _VECTOR_THREADS = 64, 256
_FEW_COLUMNS, _COLUMNS_OF_LAUNCH = 8, 4
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
            forward=lower != transposed,
            unit=unit,
            transposed=transposed,
            conjugate=conjugate,
        )
        return
    if tiles.solves_tiles(n, b, columns):
        t_place, b_place, *strides = _strides(
            t, at, b, target, n, forward=lower != transposed, transposed=transposed
        )
        row, column, stride, b_row, b_column, b_stride = strides
        tiles.solve(
            b.dtype,
            t_place,
            (row, column, stride),
            b_place,
            (b_row, b_column, b_stride),
            (n, columns, b.batches),
            unit=unit,
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
    forward: bool,
    unit: bool,
    transposed: bool,
    conjugate: bool,
) -> None:
    """Solve for few right-hand sides, in one launch for each four of them."""
    import cupy

    block = 64 if b.dtype.itemsize <= 8 and n > 32 else 32
    leaf = min(block, blocks.LIMITS.vector)
    num_blocks = -(-n // leaf)
    _, units = blocks.current_limits()
    groups = min(num_blocks, max(units // b.batches, 1))
    strides = _strides(t, at, b, target, n, forward=forward, transposed=transposed)
    for first in range(0, columns, _COLUMNS_OF_LAUNCH):
        count = min(columns - first, _COLUMNS_OF_LAUNCH)
        flags = cupy.zeros(b.batches * num_blocks, "uint32") if groups > 1 else None
        launch = load(
            TRIANGULAR_VECTOR,
            b.dtype,
            _VECTOR_THREADS if num_blocks > 1 else block,
            block=block,
            columns=1 if count == 1 else _COLUMNS_OF_LAUNCH,
            rows_adjacent=transposed,
            unit=unit,
            conjugate=conjugate and t.dtype.kind == "c",
        )
        launch(
            (groups, b.batches),
            strides[0],
            strides[1] + first * b.dtype.itemsize,
            *strides[2:],
            0 if flags is None else flags.data.ptr,
            n,
            count,
            leaf,
            groups,
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
    rounding = usual(b.dtype)
    if lower != transposed:
        subtract_product(off, top, bottom, rounding)
    else:
        subtract_product(off, bottom, top, rounding)


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
    launch = load(
        TRIANGULAR_SOLVE,
        b.dtype,
        _THREADS,
        block=16 if b.dtype.kind == "c" else 32,
        rows_adjacent=transposed,
        unit=unit,
        conjugate=conjugate and t.dtype.kind == "c",
    )
    launch(
        (-(-columns // _THREADS), b.batches),
        *_strides(t, at, b, target, n, forward=forward, transposed=transposed),
        n,
        columns,
    )


def _strides(
    t: Matrices,
    at: Position,
    b: Matrices,
    target: Position,
    n: int,
    *,
    forward: bool,
    transposed: bool,
) -> tuple[int, ...]:
    """Return the addresses and strides with which the problem is one of a lower triangle."""
    row, column = (1, t.pitch) if transposed else (t.pitch, 1)
    b_row = b.pitch
    if not forward:  # from the last row up
        at = (at[0] + n - 1, at[1] + n - 1)
        target = (target[0] + n - 1, target[1])
        row, column, b_row = -row, -column, -b_row
    stride = t.stride if t.batches > 1 else 0
    return t.address(*at), b.address(*target), row, column, stride, b_row, 1, b.stride
