"""The stand-ins librocblas.so.5, whose handles CuPy binds, and librocsolver.so.0.

SciPy's LAPACK computes. Memory that rocSOLVER documents only as overwritten is filled with NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from cupygemm.emulator.host_libraries.blas_factors import lu_solve
from cupygemm.emulator.host_libraries.blas_handle import (
    CONJUGATE,
    LEFT,
    LOWER,
    NONE,
    TRANSPOSE,
    BlasHandles,
    check_enums,
    check_ld,
    check_pointers,
    check_sizes,
    triangle,
)
from cupygemm.emulator.host_libraries.library import Call, implements
from cupygemm.emulator.host_libraries.solver_spectra import Spectra

ROCBLAS_STATUSES = {
    "not_initialized": 1,  # rocblas_status_invalid_handle
    "not_supported": 2,
    "invalid_pointer": 3,
    "invalid_size": 4,
    "alloc_failed": 5,
    "internal_error": 6,
    "execution_failed": 6,
    "invalid_value": 11,
    "invalid_enum": 11,
}


class RocBlas(BlasHandles):
    """The handles of rocBLAS, which rocSOLVER shares."""

    stem = "rocblas"
    soname = "librocblas.so.5"
    statuses = ROCBLAS_STATUSES

    @implements("rocblas_create_handle")
    def _create(self, call: Call, handle: int) -> None:
        self.create(call, handle)

    @implements("rocblas_destroy_handle")
    def _destroy(self, call: Call, handle: int) -> None:
        self.destroy(handle)

    @implements("rocblas_set_stream")
    def _set_stream(self, call: Call, handle: int, stream: int) -> None:
        self.set_stream(handle, stream)

    @implements("rocblas_get_stream")
    def _get_stream(self, call: Call, handle: int, stream: int) -> None:
        self.get_stream(handle, stream)


class Cholesky(BlasHandles):
    """Cholesky factorisations and solutions with them."""

    @implements("rocsolver_{s,d,c,z}potrf")
    def _potrf(
        self, call: Call, handle: int, uplo: int, n: int, a: int, lda: int, info: int
    ) -> None:
        self._factor_definite(call, handle, uplo, n, [a], lda, info)

    @implements("rocsolver_{s,d,c,z}potrf_batched")
    def _potrf_batched(
        self,
        call: Call,
        handle: int,
        uplo: int,
        n: int,
        a: int,
        lda: int,
        info: int,
        batch_count: int,
    ) -> None:
        check_sizes(call, batch_count=batch_count)
        matrices = call.pointers("a", a, batch_count) if a and n > 0 else [0] * batch_count
        self._factor_definite(call, handle, uplo, n, matrices, lda, info)

    def _factor_definite(
        self, call: Call, handle: int, uplo: int, n: int, matrices: list[int], lda: int, info: int
    ) -> None:
        self.handle(handle)
        check_enums(call, uplo=uplo)
        check_sizes(call, n=n)
        check_ld(call, lda=(lda, n))
        if not matrices:
            return
        check_pointers(call, info=info, **({"a": matrices[0]} if n else {}))
        infos = call.write("info", info, (len(matrices),), np.int32)
        infos[...] = 0
        if n == 0:
            return
        used = triangle(n, uplo)
        factorise = scipy.linalg.lapack.get_lapack_funcs("potrf", dtype=call.dtype)
        for place, address in enumerate(matrices):
            matrix = call.matrix("a", address, (n, n), lda, access="update", used=used)
            factor, infos[place] = factorise(matrix, lower=int(uplo == LOWER), clean=0)
            np.copyto(matrix, factor, where=used)

    @implements("rocsolver_{s,d,c,z}potrs")
    def _potrs(
        self,
        call: Call,
        handle: int,
        uplo: int,
        n: int,
        nrhs: int,
        a: int,
        lda: int,
        b: int,
        ldb: int,
    ) -> None:
        self._solve_definite(call, handle, uplo, (n, nrhs), ([a], lda), ([b], ldb))

    @implements("rocsolver_{s,d,c,z}potrs_batched")
    def _potrs_batched(
        self,
        call: Call,
        handle: int,
        uplo: int,
        n: int,
        nrhs: int,
        a: int,
        lda: int,
        b: int,
        ldb: int,
        batch_count: int,
    ) -> None:
        check_sizes(call, batch_count=batch_count)
        if batch_count and n > 0 and nrhs > 0:
            check_pointers(call, a=a, b=b)
        lists = [
            call.pointers(name, at, batch_count) if at else [0] * batch_count
            for name, at in (("a", a), ("b", b))
        ]
        self._solve_definite(call, handle, uplo, (n, nrhs), (lists[0], lda), (lists[1], ldb))

    def _solve_definite(
        self,
        call: Call,
        handle: int,
        uplo: int,
        shape: tuple[int, int],
        a: tuple[list[int], int],
        b: tuple[list[int], int],
    ) -> None:
        self.handle(handle)
        (n, nrhs), (at_a, lda), (at_b, ldb) = shape, a, b
        check_enums(call, uplo=uplo)
        check_sizes(call, n=n, nrhs=nrhs)
        check_ld(call, lda=(lda, n), ldb=(ldb, n))
        if n == 0 or nrhs == 0:
            return
        used = triangle(n, uplo)
        solve = scipy.linalg.lapack.get_lapack_funcs("potrs", dtype=call.dtype)
        for left, right in zip(at_a, at_b, strict=True):
            check_pointers(call, a=left, b=right)
            factor = call.matrix("a", left, (n, n), lda, used=used)
            values = call.matrix("b", right, (n, nrhs), ldb, access="update")
            values[...] = solve(factor, values, lower=int(uplo == LOWER))[0]


class Lu(BlasHandles):
    """LU factorisations and solutions with them."""

    @implements("rocsolver_{s,d,c,z}getrf")
    def _getrf(
        self, call: Call, handle: int, m: int, n: int, a: int, lda: int, ipiv: int, info: int
    ) -> None:
        self.handle(handle)
        check_sizes(call, m=m, n=n)
        check_ld(call, lda=(lda, m))
        check_pointers(call, info=info)
        found = 0
        if m and n:
            check_pointers(call, a=a, ipiv=ipiv)
            matrix = call.matrix("a", a, (m, n), lda, access="update")
            factorise = scipy.linalg.lapack.get_lapack_funcs("getrf", dtype=call.dtype)
            matrix[...], pivots, found = factorise(matrix)
            call.write("ipiv", ipiv, (min(m, n),), np.int32)[...] = pivots + 1
        call.write("info", info, (), np.int32)[...] = found

    @implements("rocsolver_{s,d,c,z}getrs")
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
    ) -> None:
        self.handle(handle)
        check_enums(call, op=op)
        check_sizes(call, n=n, nrhs=nrhs)
        check_ld(call, lda=(lda, n), ldb=(ldb, n))
        if n == 0 or nrhs == 0:
            return
        check_pointers(call, a=a, ipiv=ipiv, b=b)
        factors = call.matrix("a", a, (n, n), lda)
        pivots = call.read("ipiv", ipiv, (n,), np.int32)
        values = call.matrix("b", b, (n, nrhs), ldb, access="update")
        values[...] = lu_solve(factors, pivots, values, op)


class Qr(BlasHandles):
    """QR factorisations and their orthogonal factors."""

    @implements("rocsolver_{s,d,c,z}geqrf")
    def _geqrf(self, call: Call, handle: int, m: int, n: int, a: int, lda: int, tau: int) -> None:
        self._factor_qr(call, handle, (m, n), [a], lda, (tau, 0))

    @implements("rocsolver_{s,d,c,z}geqrf_batched")
    def _geqrf_batched(
        self,
        call: Call,
        handle: int,
        m: int,
        n: int,
        a: int,
        lda: int,
        tau: int,
        stride_tau: int,
        batch_count: int,
    ) -> None:
        check_sizes(call, batch_count=batch_count)
        matrices = call.pointers("a", a, batch_count) if a and m > 0 and n > 0 else []
        self._factor_qr(call, handle, (m, n), matrices, lda, (tau, stride_tau))

    def _factor_qr(
        self,
        call: Call,
        handle: int,
        shape: tuple[int, int],
        matrices: list[int],
        lda: int,
        tau: tuple[int, int],
    ) -> None:
        self.handle(handle)
        m, n = shape
        check_sizes(call, m=m, n=n)
        check_ld(call, lda=(lda, m))
        if m == 0 or n == 0:
            return
        factorise = scipy.linalg.lapack.get_lapack_funcs("geqrf", dtype=call.dtype)
        for place, address in enumerate(matrices):
            check_pointers(call, a=address, tau=tau[0])
            matrix = call.matrix("a", address, shape, lda, access="update")
            matrix[...], factors, _, _ = factorise(matrix)
            where = tau[0] + place * tau[1] * call.dtype.itemsize
            call.write("tau", where, (min(m, n),), call.dtype)[...] = factors

    @implements("rocsolver_{s,d}orgqr", "rocsolver_{c,z}ungqr")
    def _generate(
        self, call: Call, handle: int, m: int, n: int, k: int, a: int, lda: int, tau: int
    ) -> None:
        self.handle(handle)
        check_sizes(call, m=m, n=n, k=k)
        call.check(k <= n <= m, f"m={m}, n={n}, k={k}: k <= n <= m must hold", "invalid_size")
        check_ld(call, lda=(lda, m))
        if m == 0 or n == 0:
            return
        check_pointers(call, a=a, **({"tau": tau} if k else {}))
        row, column = np.indices((m, n))
        matrix = call.matrix("a", a, (m, n), lda, used=(row > column) & (column < k))
        factors = call.read("tau", tau, (k,), call.dtype) if k else np.empty(0, call.dtype)
        if k == 0:
            result: NDArray[Any] = np.eye(m, n, dtype=call.dtype)
        else:
            name = "ungqr" if call.dtype.kind == "c" else "orgqr"
            generate = scipy.linalg.lapack.get_lapack_funcs(name, dtype=call.dtype)
            result = generate(matrix, factors)[0]
        call.matrix("a", a, (m, n), lda, access="write")[...] = result

    @implements("rocsolver_{s,d}ormqr", "rocsolver_{c,z}unmqr")
    def _multiply(
        self,
        call: Call,
        handle: int,
        side: int,
        op: int,
        m: int,
        n: int,
        k: int,
        a: int,
        lda: int,
        tau: int,
        c: int,
        ldc: int,
    ) -> None:
        self.handle(handle)
        is_complex = call.dtype.kind == "c"
        check_enums(call, side=side, op=op)
        valid = op in {NONE, CONJUGATE if is_complex else TRANSPOSE}
        call.check(valid, f"op {op} does not fit {call.function}")
        order = m if side == LEFT else n
        check_sizes(call, m=m, n=n, k=k)
        call.check(k <= order, f"k={k} is more than {order}", "invalid_size")
        check_ld(call, lda=(lda, order), ldc=(ldc, m))
        if m == 0 or n == 0 or k == 0:
            return
        check_pointers(call, a=a, tau=tau, c=c)
        row, column = np.indices((order, k))
        reflectors = call.matrix("a", a, (order, k), lda, used=row > column)
        factors = call.read("tau", tau, (k,), call.dtype)
        values = call.matrix("c", c, (m, n), ldc, access="update")
        multiply = scipy.linalg.lapack.get_lapack_funcs(
            "unmqr" if is_complex else "ormqr", dtype=call.dtype
        )
        letter = "N" if op == NONE else "C" if is_complex else "T"
        work = max(1, n if side == LEFT else m) * 64
        values[...] = multiply(
            "L" if side == LEFT else "R",
            letter,
            np.array(reflectors, order="F"),
            factors,
            np.array(values, order="F"),
            work,
        )[0]


class RocSolver(Cholesky, Lu, Qr, Spectra):
    """The functions of rocSOLVER that CuPy binds."""

    stem = "rocsolver"
    soname = "librocsolver.so.0"
    statuses = ROCBLAS_STATUSES
