"""hipSPARSE's typed functions for products of a CSR matrix and a dense operand."""

from __future__ import annotations

from cupygemm.emulator.host_libraries.blas_handle import check_ld, check_pointers, check_sizes
from cupygemm.emulator.host_libraries.library import Call, implements
from cupygemm.emulator.host_libraries.sparse_handle import (
    NONE,
    Compressed,
    SparseHandles,
    applied,
    check_operations,
)


class Products(SparseHandles):
    """Products of a sparse and a dense operand."""

    @implements("hipsparse{S,D,C,Z}csrmv")
    def _csrmv(
        self,
        call: Call,
        handle: int,
        op: int,
        m: int,
        n: int,
        nnz: int,
        alpha: int,
        descr: int,
        val: int,
        row_ptr: int,
        col_ind: int,
        x: int,
        beta: int,
        y: int,
    ) -> None:
        rows, columns = (m, n) if op == NONE else (n, m)
        sparse = Compressed("a", (m, n), val, row_ptr, col_ind, self.descriptor(descr).base)
        dense = (x, columns, columns), (y, rows, rows)
        self._multiply_csr(call, handle, (op, NONE), sparse, 1, (alpha, beta), dense)

    @implements("hipsparse{S,D,C,Z}csrmm")
    def _csrmm(
        self,
        call: Call,
        handle: int,
        op: int,
        m: int,
        n: int,
        k: int,
        nnz: int,
        alpha: int,
        descr: int,
        val: int,
        row_ptr: int,
        col_ind: int,
        b: int,
        ldb: int,
        beta: int,
        c: int,
        ldc: int,
    ) -> None:
        self._csrmm2(
            call,
            handle,
            op,
            NONE,
            m,
            n,
            k,
            nnz,
            alpha,
            descr,
            val,
            row_ptr,
            col_ind,
            b,
            ldb,
            beta,
            c,
            ldc,
        )

    @implements("hipsparse{S,D,C,Z}csrmm2")
    def _csrmm2(
        self,
        call: Call,
        handle: int,
        op_a: int,
        op_b: int,
        m: int,
        n: int,
        k: int,
        nnz: int,
        alpha: int,
        descr: int,
        val: int,
        row_ptr: int,
        col_ind: int,
        b: int,
        ldb: int,
        beta: int,
        c: int,
        ldc: int,
    ) -> None:
        rows, inner = (m, k) if op_a == NONE else (k, m)
        sparse = Compressed("a", (m, k), val, row_ptr, col_ind, self.descriptor(descr).base)
        dense = (b, inner if op_b == NONE else n, ldb), (c, rows, ldc)
        self._multiply_csr(call, handle, (op_a, op_b), sparse, n, (alpha, beta), dense)

    def _multiply_csr(
        self,
        call: Call,
        handle: int,
        operations: tuple[int, int],
        sparse: Compressed,
        n: int,
        factors: tuple[int, int],
        dense: tuple[tuple[int, int, int], tuple[int, int, int]],
    ) -> None:
        """Compute c = alpha op(a) op(b) + beta c; b and c are address, rows and ld."""
        known = self.handle(handle)
        op_a, op_b = operations
        check_operations(call, op_a=op_a, op_b=op_b)
        check_sizes(call, m=sparse.shape[0], n=n, k=sparse.shape[1])
        (b, rows_b, ldb), (c, rows_c, ldc) = dense
        if rows_c == 0 or n == 0:
            return
        beta = self.scalar(call, known, "beta", factors[1], call.dtype)
        check_pointers(call, c=c)
        if 0 in sparse.shape:  # rocSPARSE checks no leading dimension, and reads neither a nor b
            scaled = beta * call.matrix("c", c, (rows_c, n), ldc) if beta != 0 else 0
            call.matrix("c", c, (rows_c, n), ldc, access="write")[...] = scaled
            return
        check_ld(call, ldb=(ldb, rows_b), ldc=(ldc, rows_c))
        alpha = self.scalar(call, known, "alpha", factors[0], call.dtype)
        check_pointers(call, b=b)
        inner = sparse.shape[1 if op_a == NONE else 0]
        right = call.matrix("b", b, (rows_b, n if op_b == NONE else inner), ldb)
        result = alpha * (applied(sparse.read(call), op_a) @ applied(right, op_b))
        if beta != 0:
            result = result + beta * call.matrix("c", c, (rows_c, n), ldc)
        call.matrix("c", c, (rows_c, n), ldc, access="write")[...] = result
