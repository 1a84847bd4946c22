"""hipBLAS, batched LU factorisations of arrays of pointers, with or without pivoting."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from cupygemm.emulator.host_libraries.blas_handle import (
    LEFT,
    LOWER,
    NON_UNIT,
    NONE,
    UNIT,
    UPPER,
    HipBlasHandles,
    check_enums,
    check_ld,
    check_pointers,
    check_sizes,
)
from cupygemm.emulator.host_libraries.blas_matrices import trsm
from cupygemm.emulator.host_libraries.library import Call, implements


def lu(a: NDArray[Any], *, pivoted: bool = True) -> tuple[NDArray[Any], NDArray[np.int32], int]:
    """Factorise a matrix like LAPACK's getrf.

    Parameters
    ----------
    a : numpy.ndarray
        (m, n), float32, float64, complex64 or complex128.
    pivoted : bool
        Whether to exchange rows.

    Returns
    -------
    factors : numpy.ndarray
        L below the diagonal, and U.
    pivots : numpy.ndarray
        Int32, (min(m, n),): the row with which each row was exchanged, counted from 1.
    info : int
        0, or the first zero on the diagonal of U, counted from 1.
    """
    if pivoted:
        factors, pivots, info = scipy.linalg.lapack.get_lapack_funcs("getrf", (a,))(a)
        return factors, pivots + 1, info
    factors = np.array(a)
    pivots = np.arange(1, min(a.shape) + 1, dtype=np.int32)
    info = 0
    for j in range(min(a.shape)):
        if factors[j, j] == 0:
            info = info or j + 1
            continue
        factors[j + 1 :, j] /= factors[j, j]
        factors[j + 1 :, j + 1 :] -= np.outer(factors[j + 1 :, j], factors[j, j + 1 :])
    return factors, pivots, info


def exchange(b: NDArray[Any], pivots: NDArray[Any], *, back: bool = False) -> NDArray[Any]:
    """Apply the row exchanges of `pivots` to `b`, or undo them."""
    rows = np.arange(b.shape[0])
    steps = range(len(pivots))
    for j in reversed(steps) if back else steps:
        rows[[j, pivots[j] - 1]] = rows[[pivots[j] - 1, j]]
    return b[rows]


def lu_solve(
    factors: NDArray[Any], pivots: NDArray[Any] | None, b: NDArray[Any], op: int
) -> NDArray[Any]:
    """Solve op(a) x = b with the factors of `lu`, like LAPACK's getrs."""
    if op == NONE:
        b = b if pivots is None else exchange(b, pivots)
        b = trsm(factors, b, 1, (LEFT, LOWER, op, UNIT))
        return trsm(factors, b, 1, (LEFT, UPPER, op, NON_UNIT))
    b = trsm(factors, b, 1, (LEFT, UPPER, op, NON_UNIT))
    b = trsm(factors, b, 1, (LEFT, LOWER, op, UNIT))
    return b if pivots is None else exchange(b, pivots, back=True)


class Factors(HipBlasHandles):
    """The batched functions with LAPACK's names."""

    @implements("hipblas{S,D,C,Z}getrfBatched")
    def _getrf(
        self,
        call: Call,
        handle: int,
        n: int,
        a: int,
        lda: int,
        ipiv: int,
        info: int,
        batch_count: int,
    ) -> None:
        self.handle(handle)
        check_sizes(call, n=n, batch_count=batch_count)
        check_ld(call, lda=(lda, n))
        if batch_count == 0:
            return
        check_pointers(call, info=info)
        infos = call.write("info", info, (batch_count,), np.int32)
        infos[...] = 0
        if n == 0:
            return
        check_pointers(call, a=a)
        for place, address in enumerate(call.pointers("a", a, batch_count)):
            matrix = call.matrix("a", address, (n, n), lda, access="update")
            matrix[...], pivots, infos[place] = lu(matrix, pivoted=ipiv != 0)
            if ipiv:
                call.write("ipiv", ipiv + 4 * n * place, (n,), np.int32)[...] = pivots

    @implements("hipblas{S,D,C,Z}getriBatched")
    def _getri(
        self,
        call: Call,
        handle: int,
        n: int,
        a: int,
        lda: int,
        ipiv: int,
        c: int,
        ldc: int,
        info: int,
        batch_count: int,
    ) -> None:
        self.handle(handle)
        check_sizes(call, n=n, batch_count=batch_count)
        check_ld(call, lda=(lda, n), ldc=(ldc, n))
        if batch_count == 0:
            return
        check_pointers(call, info=info)
        infos = call.write("info", info, (batch_count,), np.int32)
        infos[...] = 0
        if n == 0:
            return
        check_pointers(call, a=a, c=c)
        lists = [call.pointers(name, at, batch_count) for name, at in (("a", a), ("c", c))]
        for place, (source, target) in enumerate(zip(*lists, strict=True)):
            factors = call.matrix("a", source, (n, n), lda)
            pivots = call.read("ipiv", ipiv + 4 * n * place, (n,), np.int32) if ipiv else None
            zeros = np.flatnonzero(np.diagonal(factors) == 0)
            if zeros.size:
                infos[place] = zeros[0] + 1
                continue
            inverse = lu_solve(factors, pivots, np.eye(n, dtype=call.dtype), NONE)
            call.matrix("c", target, (n, n), ldc, access="write")[...] = inverse

    @implements("hipblas{S,D,C,Z}getrsBatched")
    def _getrs(
        self,
        call: Call,
        handle: int,
        op: int,
        n: int,
        nrhs: int,
        a: int,
        lda: int,
        ipiv: int,
        b: int,
        ldb: int,
        info: int,
        batch_count: int,
    ) -> None:
        # Its info is in host memory: minus the number of the first invalid argument.
        self.handle(handle)
        check_pointers(call, info=info)
        problem = next(
            (
                number
                for number, wrong in (
                    (2, n < 0),
                    (3, nrhs < 0),
                    (5, lda < max(1, n)),
                    (8, ldb < max(1, n)),
                    (10, batch_count < 0),
                )
                if wrong
            ),
            0,
        )
        ctypes.c_int.from_address(info).value = -problem
        check_enums(call, op=op)
        call.check(problem == 0, f"argument {problem}, after the handle and op, is out of range")
        if batch_count == 0 or n == 0 or nrhs == 0:
            return
        check_pointers(call, a=a, b=b, ipiv=ipiv)
        lists = [call.pointers(name, at, batch_count) for name, at in (("a", a), ("b", b))]
        for place, (source, target) in enumerate(zip(*lists, strict=True)):
            factors = call.matrix("a", source, (n, n), lda)
            pivots = call.read("ipiv", ipiv + 4 * n * place, (n,), np.int32)
            values = call.matrix("b", target, (n, nrhs), ldb, access="update")
            values[...] = lu_solve(factors, pivots, values, op)
