"""hipBLAS, level 3 without GEMM: sums, symmetric updates and triangular systems, on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from cupygemm.emulator.host_libraries.blas_handle import (
    CONJUGATE,
    LEFT,
    LOWER,
    NONE,
    UNIT,
    HipBlasHandles,
    applied,
    check_enums,
    check_ld,
    check_pointers,
    check_sizes,
    triangle,
    vector,
)
from cupygemm.emulator.host_libraries.library import Call, implements


class Matrices(HipBlasHandles):
    """Level 3 without GEMM."""

    @implements("hipblas{S,D,C,Z}geam")
    def _geam(
        self,
        call: Call,
        handle: int,
        op_a: int,
        op_b: int,
        m: int,
        n: int,
        alpha: int,
        a: int,
        lda: int,
        beta: int,
        b: int,
        ldb: int,
        c: int,
        ldc: int,
    ) -> None:
        known = self.handle(handle)
        check_enums(call, op_a=op_a, op_b=op_b)
        check_sizes(call, m=m, n=n)
        shapes = [(m, n) if op == NONE else (n, m) for op in (op_a, op_b)]
        check_ld(call, lda=(lda, shapes[0][0]), ldb=(ldb, shapes[1][0]), ldc=(ldc, m))
        if m == 0 or n == 0:
            return
        check_pointers(call, c=c)
        result = np.zeros((m, n), call.dtype)
        for name, factor_at, at, shape, ld, op in (
            ("a", alpha, a, shapes[0], lda, op_a),
            ("b", beta, b, shapes[1], ldb, op_b),
        ):
            factor = self.scalar(call, known, name, factor_at, call.dtype)
            if factor != 0:
                check_pointers(call, **{name: at})
                result += factor * applied(call.matrix(name, at, shape, ld), op)
        call.matrix("c", c, (m, n), ldc, access="write")[...] = result

    @implements("hipblas{S,D,C,Z}dgmm")
    def _dgmm(
        self,
        call: Call,
        handle: int,
        side: int,
        m: int,
        n: int,
        a: int,
        lda: int,
        x: int,
        incx: int,
        c: int,
        ldc: int,
    ) -> None:
        self.handle(handle)
        check_enums(call, side=side)
        check_sizes(call, m=m, n=n)
        check_ld(call, lda=(lda, m), ldc=(ldc, m))
        if m == 0 or n == 0:
            return
        check_pointers(call, a=a, x=x, c=c)
        length = m if side == LEFT else n
        diagonal = vector(call, "x", x, length, incx)
        factors = diagonal[:, None] if side == LEFT else diagonal
        result = call.matrix("a", a, (m, n), lda) * factors
        call.matrix("c", c, (m, n), ldc, access="write")[...] = result

    @implements("hipblas{S,D,C,Z}syrk")
    def _syrk(
        self,
        call: Call,
        handle: int,
        uplo: int,
        op: int,
        n: int,
        k: int,
        alpha: int,
        a: int,
        lda: int,
        beta: int,
        c: int,
        ldc: int,
    ) -> None:
        known = self.handle(handle)
        check_enums(call, uplo=uplo, op=op)
        complex_and_conjugate = op == CONJUGATE and call.dtype.kind == "c"
        call.check(not complex_and_conjugate, "a complex syrk does not conjugate: use herk")
        check_sizes(call, n=n, k=k)
        check_ld(call, lda=(lda, n if op == NONE else k), ldc=(ldc, n))
        if n == 0:
            return
        check_pointers(call, c=c)
        factor = self.scalar(call, known, "alpha", alpha, call.dtype)
        keep = self.scalar(call, known, "beta", beta, call.dtype)
        result = np.zeros((n, n), call.dtype)
        if factor != 0 and k != 0:
            check_pointers(call, a=a)
            matrix = call.matrix("a", a, (n, k) if op == NONE else (k, n), lda)
            left = matrix if op == NONE else matrix.T
            result += factor * (left @ left.T)
        used = triangle(n, uplo)
        if keep != 0:
            result += keep * call.matrix("c", c, (n, n), ldc, used=used)
        out = call.matrix("c", c, (n, n), ldc, access="write", used=used)
        np.copyto(out, result, where=used)

    @implements("hipblas{S,D,C,Z}trsm")
    def _trsm(
        self,
        call: Call,
        handle: int,
        side: int,
        uplo: int,
        op: int,
        diag: int,
        m: int,
        n: int,
        alpha: int,
        a: int,
        lda: int,
        b: int,
        ldb: int,
    ) -> None:
        self._solve_triangular(
            call, handle, (side, uplo, op, diag), (m, n), alpha, ([a], lda), ([b], ldb)
        )

    @implements("hipblas{S,D,C,Z}trsmBatched")
    def _trsm_batched(
        self,
        call: Call,
        handle: int,
        side: int,
        uplo: int,
        op: int,
        diag: int,
        m: int,
        n: int,
        alpha: int,
        a: int,
        lda: int,
        b: int,
        ldb: int,
        batch_count: int,
    ) -> None:
        self.handle(handle)
        check_sizes(call, batch_count=batch_count)
        if batch_count and m > 0 and n > 0:
            check_pointers(call, a=a, b=b)
        lists = [
            call.pointers(name, at, batch_count) if at else [] for name, at in (("a", a), ("b", b))
        ]
        self._solve_triangular(
            call, handle, (side, uplo, op, diag), (m, n), alpha, (lists[0], lda), (lists[1], ldb)
        )

    def _solve_triangular(
        self,
        call: Call,
        handle: int,
        forms: tuple[int, int, int, int],
        shape: tuple[int, int],
        alpha: int,
        a: tuple[list[int], int],
        b: tuple[list[int], int],
    ) -> None:
        known = self.handle(handle)
        side, uplo, op, diag = forms
        (m, n), (at_a, lda), (at_b, ldb) = shape, a, b
        check_enums(call, side=side, uplo=uplo, op=op, diag=diag)
        check_sizes(call, m=m, n=n)
        order = m if side == LEFT else n
        check_ld(call, lda=(lda, order), ldb=(ldb, m))
        if m == 0 or n == 0:
            return
        factor = self.scalar(call, known, "alpha", alpha, call.dtype)
        used = triangle(order, uplo, unit=diag == UNIT)
        for left, right in zip(at_a, at_b, strict=True):
            check_pointers(call, b=right)
            if factor == 0:
                call.matrix("b", right, (m, n), ldb, access="write")[...] = 0
                continue
            check_pointers(call, a=left)
            matrix = call.matrix("a", left, (order, order), lda, used=used)
            values = call.matrix("b", right, (m, n), ldb, access="update")
            values[...] = trsm(matrix, values, factor, forms)


def trsm(
    a: NDArray[Any], b: NDArray[Any], alpha: Any, forms: tuple[int, int, int, int]
) -> NDArray[Any]:
    """Solve op(a) x = alpha b or x op(a) = alpha b; `forms` are side, uplo, op and diag."""
    side, uplo, op, diag = forms
    solve = scipy.linalg.blas.get_blas_funcs("trsm", (a,))
    found: NDArray[Any] = solve(
        alpha,
        np.array(a, order="F"),
        np.array(b, order="F"),
        side=int(side != LEFT),
        lower=int(uplo == LOWER),
        trans_a={NONE: 0, CONJUGATE: 2}.get(op, 1),
        diag=int(diag == UNIT),
    )
    return found
