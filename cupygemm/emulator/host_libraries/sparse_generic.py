"""hipSPARSE's generic functions, on operands given by descriptors."""

from __future__ import annotations

import numpy as np
import scipy

from cupygemm.emulator.host_libraries.blas_handle import check_pointers
from cupygemm.emulator.host_libraries.library import Call, implements
from cupygemm.emulator.host_libraries.products import DATA_TYPES
from cupygemm.emulator.host_libraries.sparse_handle import (
    CONJUGATE,
    NONE,
    applied,
    check_operations,
    structural_sum,
)
from cupygemm.emulator.host_libraries.sparse_objects import (
    CSC,
    CSR,
    INDICES,
    Dense,
    Objects,
    Sparse,
)
from cupygemm.emulator.host_libraries.sparse_solve import solve_triangular
from cupygemm.emulator.runtime.status import store_size


class Generic(Objects):
    """Computations."""

    @implements(
        "hipsparseSpVV_bufferSize",
        "hipsparseSpMV_bufferSize",
        "hipsparseSpMM_bufferSize",
        "hipsparseSpSM_bufferSize",
        "hipsparseSparseToDense_bufferSize",
        "hipsparseDenseToSparse_bufferSize",
    )
    def _buffer(self, call: Call, handle: int, *arguments: int) -> None:
        self.handle(handle)
        check_pointers(call, buffer_size=arguments[-1])
        store_size(arguments[-1], 0)

    @implements("hipsparseSpVV")
    def _spvv(
        self, call: Call, handle: int, op: int, x: int, y: int, result: int, kind: int, buffer: int
    ) -> None:
        known, left, right = self.handle(handle), self.sparse(x), self.dense(y)
        check_operations(call, op=op)
        total = DATA_TYPES[kind].type(0)
        if left.nnz:
            index = INDICES[left.index_types[1]]
            places = call.read("indices of x", left.places[1], (left.nnz,), index)
            values = call.read("x", left.values, (left.nnz,), DATA_TYPES[left.dtype])
            values = values.conj() if op == CONJUGATE else values
            total = values @ right.on(call, "y")[places.astype(np.int64) - left.base]
        call.store("result", result, total, DATA_TYPES[kind], on_device=known.on_device)

    @implements("hipsparseSpMV")
    def _spmv(
        self,
        call: Call,
        handle: int,
        op: int,
        alpha: int,
        a: int,
        x: int,
        beta: int,
        y: int,
        kind: int,
        algorithm: int,
        buffer: int,
    ) -> None:
        operands = self.sparse(a), self.dense(x), self.dense(y)
        self._multiply_generic(call, handle, (op, NONE), (alpha, beta), operands, kind)

    @implements("hipsparseSpMM")
    def _spmm(
        self,
        call: Call,
        handle: int,
        op_a: int,
        op_b: int,
        alpha: int,
        a: int,
        b: int,
        beta: int,
        c: int,
        kind: int,
        algorithm: int,
        buffer: int,
    ) -> None:
        operands = self.sparse(a), self.dense(b), self.dense(c)
        self._multiply_generic(call, handle, (op_a, op_b), (alpha, beta), operands, kind)

    def _multiply_generic(
        self,
        call: Call,
        handle: int,
        operations: tuple[int, int],
        factors: tuple[int, int],
        operands: tuple[Sparse, Dense, Dense],
        kind: int,
    ) -> None:
        known = self.handle(handle)
        check_operations(call, op_a=operations[0], op_b=operations[1])
        a, b, c = operands
        compute = DATA_TYPES[kind]
        alpha = self.scalar(call, known, "alpha", factors[0], compute)
        beta = self.scalar(call, known, "beta", factors[1], compute)
        rows, inner = a.shape if operations[0] == NONE else a.shape[::-1]
        right_rows = b.shape[0 if operations[1] == NONE else -1]
        fits = inner == right_rows and c.shape[0] == rows
        call.check(fits, f"shapes {a.shape}, {b.shape} and {c.shape} do not fit")
        right = applied(b.on(call, "b"), operations[1]).astype(compute)
        result = alpha * (applied(a.read(call).astype(compute), operations[0]) @ right)
        if beta != 0:
            result = result + beta * c.on(call, "c").astype(compute)
        c.on(call, "c", "write")[...] = result

    @implements("hipsparseSpSM_analysis")
    def _spsm_analysis(self, call: Call, handle: int, *arguments: int) -> None:
        self.handle(handle)
        a = self.sparse(arguments[3])
        call.check(a.shape[0] == a.shape[1], f"a matrix of {a.shape} is not square")

    @implements("hipsparseSpSM_solve")
    def _spsm_solve(
        self,
        call: Call,
        handle: int,
        op_a: int,
        op_b: int,
        alpha: int,
        a: int,
        b: int,
        c: int,
        kind: int,
        algorithm: int,
        descr: int,
        buffer: int,
    ) -> None:
        known, matrix = self.handle(handle), self.sparse(a)
        right, out = self.dense(b), self.dense(c)
        check_operations(call, op_a=op_a, op_b=op_b)
        factor = self.scalar(call, known, "alpha", alpha, DATA_TYPES[kind])
        values = factor * applied(right.on(call, "b"), op_b)
        found = structural_sum([matrix.read(call)])
        solved = solve_triangular(found, values, op_a, matrix.fill, matrix.diagonal)
        out.on(call, "c", "write")[...] = solved

    @implements("hipsparseSparseToDense")
    def _sparse_to_dense(
        self, call: Call, handle: int, a: int, b: int, algorithm: int, buffer: int
    ) -> None:
        self.handle(handle)
        dense = self.sparse(a).read(call).toarray()
        self.dense(b).on(call, "b", "write")[...] = dense

    @implements("hipsparseDenseToSparse_analysis")
    def _dense_to_sparse_analysis(
        self, call: Call, handle: int, a: int, b: int, algorithm: int, buffer: int
    ) -> None:
        """Count the elements, and write the offsets."""
        self.handle(handle)
        made = self.sparse(b)
        found = self.dense(a).on(call, "a") != 0
        made.nnz = int(found.sum())
        if made.format in {CSR, CSC}:
            made.compressed().write_offsets(call, found.sum(axis=1 if made.format == CSR else 0))

    @implements("hipsparseDenseToSparse_convert")
    def _dense_to_sparse(
        self, call: Call, handle: int, a: int, b: int, algorithm: int, buffer: int
    ) -> None:
        self.handle(handle)
        made = self.sparse(b)
        dense, dtype = self.dense(a).on(call, "a"), DATA_TYPES[made.dtype]
        if made.format in {CSR, CSC}:
            found = scipy.sparse.csr_matrix(dense if made.format == CSR else dense.T)
            made.compressed().write(call, found, dtype)
            return
        places = np.nonzero(dense)
        made.nnz = len(places[0])
        if made.nnz:
            for view, place in zip(made.coordinates(call, "write"), places, strict=True):
                view[...] = place + made.base
            call.write("values", made.values, (made.nnz,), dtype)[...] = dense[places]
