"""hipBLAS, levels 1 and 2: vectors, and matrices with vectors."""

from __future__ import annotations

import numpy as np
import scipy

from cupygemm.emulator.host_libraries.blas_handle import (
    NONE,
    UPPER,
    HipBlasHandles,
    applied,
    check_enums,
    check_ld,
    check_pointers,
    check_sizes,
    vector,
)
from cupygemm.emulator.host_libraries.library import Call, implements


class Vectors(HipBlasHandles):
    """Level 1."""

    @implements("hipblasI{s,d,c,z}amax", "hipblasI{s,d,c,z}amin")
    def _extremum(self, call: Call, handle: int, n: int, x: int, incx: int, result: int) -> None:
        known = self.handle(handle)
        check_pointers(call, result=result)
        place = 0
        if n > 0 and incx > 0:
            check_pointers(call, x=x)
            found = vector(call, "x", x, n, incx)
            sizes = abs(found.real) + abs(found.imag)
            place = 1 + int(np.argmax(sizes) if call.function.endswith("max") else np.argmin(sizes))
        self.store(call, known, result, place, np.int32)

    @implements("hipblas{S,D,Sc,Dz}asum", "hipblas{S,D,Sc,Dz}nrm2")
    def _norm(self, call: Call, handle: int, n: int, x: int, incx: int, result: int) -> None:
        known = self.handle(handle)
        check_pointers(call, result=result)
        real = np.dtype("f4" if call.letters[0] == "S" else "f8")
        norm = 0.0
        if n > 0 and incx > 0:
            check_pointers(call, x=x)
            found = np.ascontiguousarray(vector(call, "x", x, n, incx))
            if call.function.endswith("asum"):
                norm = (abs(found.real) + abs(found.imag)).sum(dtype=real)
            else:
                norm = scipy.linalg.blas.get_blas_funcs("nrm2", (found,))(found)
        self.store(call, known, result, norm, real)

    @implements("hipblas{S,D,C,Z}axpy")
    def _axpy(
        self, call: Call, handle: int, n: int, alpha: int, x: int, incx: int, y: int, incy: int
    ) -> None:
        known = self.handle(handle)
        if n <= 0:
            return
        factor = self.scalar(call, known, "alpha", alpha, call.dtype)
        if factor == 0:
            return
        check_pointers(call, x=x, y=y)
        added = factor * vector(call, "x", x, n, incx)
        if incy == 0:
            added = added.sum(keepdims=True)
            vector(call, "y", y, 1, 1, access="update")[...] += added
        else:
            vector(call, "y", y, n, incy, access="update")[...] += added

    @implements("hipblas{S,D}dot", "hipblas{C,Z}dotu", "hipblas{C,Z}dotc")
    def _dot(
        self, call: Call, handle: int, n: int, x: int, incx: int, y: int, incy: int, result: int
    ) -> None:
        known = self.handle(handle)
        check_pointers(call, result=result)
        total = call.dtype.type(0)
        if n > 0:
            check_pointers(call, x=x, y=y)
            left = np.ascontiguousarray(vector(call, "x", x, n, incx))
            right = np.ascontiguousarray(vector(call, "y", y, n, incy))
            total = np.vdot(left, right) if call.function.endswith("dotc") else left @ right
        self.store(call, known, result, total, call.dtype)

    @implements("hipblas{S,D,C,Z,Cs,Zd}scal")
    def _scal(self, call: Call, handle: int, n: int, alpha: int, x: int, incx: int) -> None:
        known = self.handle(handle)
        if n <= 0 or incx <= 0:
            return
        check_pointers(call, alpha=alpha, x=x)
        own = np.dtype({"S": "f4", "D": "f8", "C": "c8", "Z": "c16"}[call.letters[0]])
        factor = self.scalar(call, known, "alpha", alpha, call.dtype)
        if factor == 0:
            vector(call, "x", x, n, incx, access="write", dtype=own)[...] = 0
        else:
            vector(call, "x", x, n, incx, access="update", dtype=own)[...] *= factor


class MatrixVectors(HipBlasHandles):
    """Level 2."""

    @implements("hipblas{S,D,C,Z}gemv")
    def _gemv(
        self,
        call: Call,
        handle: int,
        op: int,
        m: int,
        n: int,
        alpha: int,
        a: int,
        lda: int,
        x: int,
        incx: int,
        beta: int,
        y: int,
        incy: int,
    ) -> None:
        known = self.handle(handle)
        check_enums(call, op=op)
        check_sizes(call, m=m, n=n)
        check_ld(call, lda=(lda, m))
        call.check(incx != 0 and incy != 0, f"increments {incx} and {incy}: 0 is none")
        if m == 0 or n == 0:
            return
        factor = self.scalar(call, known, "alpha", alpha, call.dtype)
        keep = self.scalar(call, known, "beta", beta, call.dtype)
        rows, columns = (m, n) if op == NONE else (n, m)
        result = np.zeros(rows, call.dtype)
        if factor != 0:
            check_pointers(call, a=a, x=x)
            matrix = applied(call.matrix("a", a, (m, n), lda), op)
            result += factor * (matrix @ vector(call, "x", x, columns, incx))
        check_pointers(call, y=y)
        if keep != 0:
            result += keep * vector(call, "y", y, rows, incy)
        vector(call, "y", y, rows, incy, access="write")[...] = result

    @implements("hipblas{S,D}ger", "hipblas{C,Z}geru", "hipblas{C,Z}gerc")
    def _ger(
        self,
        call: Call,
        handle: int,
        m: int,
        n: int,
        alpha: int,
        x: int,
        incx: int,
        y: int,
        incy: int,
        a: int,
        lda: int,
    ) -> None:
        known = self.handle(handle)
        check_sizes(call, m=m, n=n)
        check_ld(call, lda=(lda, m))
        call.check(incx != 0 and incy != 0, f"increments {incx} and {incy}: 0 is none")
        if m == 0 or n == 0:
            return
        factor = self.scalar(call, known, "alpha", alpha, call.dtype)
        if factor == 0:
            return
        check_pointers(call, x=x, y=y, a=a)
        left, right = vector(call, "x", x, m, incx), vector(call, "y", y, n, incy)
        if call.function.endswith("gerc"):
            right = right.conj()
        call.matrix("a", a, (m, n), lda, access="update")[...] += factor * np.outer(left, right)

    @implements("hipblas{S,D}sbmv")
    def _sbmv(
        self,
        call: Call,
        handle: int,
        uplo: int,
        n: int,
        k: int,
        alpha: int,
        a: int,
        lda: int,
        x: int,
        incx: int,
        beta: int,
        y: int,
        incy: int,
    ) -> None:
        known = self.handle(handle)
        check_enums(call, uplo=uplo)
        check_sizes(call, n=n, k=k)
        check_ld(call, lda=(lda, k + 1))
        call.check(incx != 0 and incy != 0, f"increments {incx} and {incy}: 0 is none")
        if n == 0:
            return
        factor = self.scalar(call, known, "alpha", alpha, call.dtype)
        keep = self.scalar(call, known, "beta", beta, call.dtype)
        result = np.zeros(n, call.dtype)
        if factor != 0:
            check_pointers(call, a=a, x=x)
            row, column = np.indices((k + 1, n))
            used = row + column >= k if uplo == UPPER else row + column < n
            band = np.asfortranarray(call.matrix("a", a, (k + 1, n), lda, used=used))
            right = np.ascontiguousarray(vector(call, "x", x, n, incx))
            multiply = scipy.linalg.blas.get_blas_funcs("sbmv", (band,))
            result += multiply(k, factor, band, right, lower=int(uplo != UPPER))
        check_pointers(call, y=y)
        if keep != 0:
            result += keep * vector(call, "y", y, n, incy)
        vector(call, "y", y, n, incy, access="write")[...] = result
