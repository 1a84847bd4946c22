"""hipSPARSE's typed functions for sums and products of CSR matrices."""

from __future__ import annotations

import numpy as np
import scipy

from cupygemm.emulator.host_libraries.library import Call, implements
from cupygemm.emulator.host_libraries.sparse_handle import (
    NONE,
    Compressed,
    SparseHandles,
    applied,
    check_operations,
    structural_product,
    structural_sum,
)
from cupygemm.emulator.runtime.status import store_size


class Sums(SparseHandles):
    """Sums and products of sparse matrices: first their pattern, then their values."""

    @implements("hipsparseXcsrgeamNnz")
    def _geam_count(
        self,
        call: Call,
        handle: int,
        m: int,
        n: int,
        descr_a: int,
        nnz_a: int,
        ptr_a: int,
        ind_a: int,
        descr_b: int,
        nnz_b: int,
        ptr_b: int,
        ind_b: int,
        descr_c: int,
        ptr_c: int,
        total: int,
    ) -> None:
        known = self.handle(handle)
        parts = [
            Compressed("a", (m, n), 0, ptr_a, ind_a, self.descriptor(descr_a).base),
            Compressed("b", (m, n), 0, ptr_b, ind_b, self.descriptor(descr_b).base),
        ]
        found = structural_sum([part.read(call, "f4") for part in parts])
        target = Compressed("c", (m, n), 0, ptr_c, 0, self.descriptor(descr_c).base)
        target.write_offsets(call, np.diff(found.indptr))
        call.store("nnz_total", total, found.nnz, np.int32, on_device=known.on_device)

    @implements("hipsparseXcsrgeam2Nnz")
    def _geam2_count(self, call: Call, *arguments: int) -> None:
        self._geam_count(call, *arguments[:-1])

    @implements("hipsparse{S,D,C,Z}csrgeam")
    def _geam(
        self,
        call: Call,
        handle: int,
        m: int,
        n: int,
        alpha: int,
        descr_a: int,
        nnz_a: int,
        val_a: int,
        ptr_a: int,
        ind_a: int,
        beta: int,
        descr_b: int,
        nnz_b: int,
        val_b: int,
        ptr_b: int,
        ind_b: int,
        descr_c: int,
        val_c: int,
        ptr_c: int,
        ind_c: int,
    ) -> None:
        known = self.handle(handle)
        a = Compressed("a", (m, n), val_a, ptr_a, ind_a, self.descriptor(descr_a).base).read(call)
        b = Compressed("b", (m, n), val_b, ptr_b, ind_b, self.descriptor(descr_b).base).read(call)
        a.data *= self.scalar(call, known, "alpha", alpha, call.dtype)
        b.data *= self.scalar(call, known, "beta", beta, call.dtype)
        target = Compressed("c", (m, n), val_c, ptr_c, ind_c, self.descriptor(descr_c).base)
        target.write(call, structural_sum([a, b]))

    @implements("hipsparse{S,D,C,Z}csrgeam2")
    def _geam2(self, call: Call, *arguments: int) -> None:
        self._geam(call, *arguments[:-1])

    @implements("hipsparse{S,D,C,Z}csrgeam2_bufferSizeExt")
    def _geam2_buffer(self, call: Call, handle: int, *arguments: int) -> None:
        self.handle(handle)
        store_size(arguments[-1], 0)

    @implements("hipsparseXcsrgemmNnz")
    def _gemm_count(
        self,
        call: Call,
        handle: int,
        op_a: int,
        op_b: int,
        m: int,
        n: int,
        k: int,
        descr_a: int,
        nnz_a: int,
        ptr_a: int,
        ind_a: int,
        descr_b: int,
        nnz_b: int,
        ptr_b: int,
        ind_b: int,
        descr_c: int,
        ptr_c: int,
        total: int,
    ) -> None:
        known = self.handle(handle)
        a, b = self._factors(
            call, (op_a, op_b), (m, n, k), (descr_a, 0, ptr_a, ind_a), (descr_b, 0, ptr_b, ind_b)
        )
        found = structural_product(a, b)
        target = Compressed("c", (m, n), 0, ptr_c, 0, self.descriptor(descr_c).base)
        target.write_offsets(call, np.diff(found.indptr))
        call.store("nnz_total", total, found.nnz, np.int32, on_device=known.on_device)

    @implements("hipsparse{S,D,C,Z}csrgemm")
    def _gemm(
        self,
        call: Call,
        handle: int,
        op_a: int,
        op_b: int,
        m: int,
        n: int,
        k: int,
        descr_a: int,
        nnz_a: int,
        val_a: int,
        ptr_a: int,
        ind_a: int,
        descr_b: int,
        nnz_b: int,
        val_b: int,
        ptr_b: int,
        ind_b: int,
        descr_c: int,
        val_c: int,
        ptr_c: int,
        ind_c: int,
    ) -> None:
        self.handle(handle)
        a, b = self._factors(
            call,
            (op_a, op_b),
            (m, n, k),
            (descr_a, val_a, ptr_a, ind_a),
            (descr_b, val_b, ptr_b, ind_b),
        )
        target = Compressed("c", (m, n), val_c, ptr_c, ind_c, self.descriptor(descr_c).base)
        target.write(call, structural_product(a, b))

    def _factors(
        self,
        call: Call,
        operations: tuple[int, int],
        sizes: tuple[int, int, int],
        a: tuple[int, int, int, int],
        b: tuple[int, int, int, int],
    ) -> tuple[scipy.sparse.csr_matrix, scipy.sparse.csr_matrix]:
        check_operations(call, op_a=operations[0], op_b=operations[1])
        m, n, k = sizes
        shapes = (m, k), (k, n)
        found = []
        for name, op, shape, (descr, *places) in zip("ab", operations, shapes, (a, b), strict=True):
            stored = shape if op == NONE else shape[::-1]
            values, offsets, indices = places
            base = self.descriptor(descr).base
            part = Compressed(name, stored, values, offsets, indices, base)
            dtype = call.dtype if call.letters else "f4"
            found.append(scipy.sparse.csr_matrix(applied(part.read(call, dtype), op)))
        return found[0], found[1]

    @implements("hipsparse{S,D,C,Z}csrgemm2_bufferSizeExt")
    def _gemm2_buffer(self, call: Call, handle: int, *arguments: int) -> None:
        self.handle(handle)
        self.info(arguments[-2])
        store_size(arguments[-1], 0)

    @implements("hipsparseXcsrgemm2Nnz")
    def _gemm2_count(
        self,
        call: Call,
        handle: int,
        m: int,
        n: int,
        k: int,
        descr_a: int,
        nnz_a: int,
        ptr_a: int,
        ind_a: int,
        descr_b: int,
        nnz_b: int,
        ptr_b: int,
        ind_b: int,
        descr_d: int,
        nnz_d: int,
        ptr_d: int,
        ind_d: int,
        descr_c: int,
        ptr_c: int,
        total: int,
        info: int,
        buffer: int,
    ) -> None:
        known = self.handle(handle)
        self.info(info)
        a, b = self._factors(
            call, (NONE, NONE), (m, n, k), (descr_a, 0, ptr_a, ind_a), (descr_b, 0, ptr_b, ind_b)
        )
        parts = [structural_product(a, b)] if ptr_a and ptr_b else []
        if ptr_d:
            base = self.descriptor(descr_d).base
            parts.append(Compressed("d", (m, n), 0, ptr_d, ind_d, base).read(call, "f4"))
        found = structural_sum(parts)
        target = Compressed("c", (m, n), 0, ptr_c, 0, self.descriptor(descr_c).base)
        target.write_offsets(call, np.diff(found.indptr))
        call.store("nnz_total", total, found.nnz, np.int32, on_device=known.on_device)

    @implements("hipsparse{S,D,C,Z}csrgemm2")
    def _gemm2(
        self,
        call: Call,
        handle: int,
        m: int,
        n: int,
        k: int,
        alpha: int,
        descr_a: int,
        nnz_a: int,
        val_a: int,
        ptr_a: int,
        ind_a: int,
        descr_b: int,
        nnz_b: int,
        val_b: int,
        ptr_b: int,
        ind_b: int,
        beta: int,
        descr_d: int,
        nnz_d: int,
        val_d: int,
        ptr_d: int,
        ind_d: int,
        descr_c: int,
        val_c: int,
        ptr_c: int,
        ind_c: int,
        info: int,
        buffer: int,
    ) -> None:
        known = self.handle(handle)
        a, b = self._factors(
            call,
            (NONE, NONE),
            (m, n, k),
            (descr_a, val_a, ptr_a, ind_a),
            (descr_b, val_b, ptr_b, ind_b),
        )
        product = structural_product(a, b)
        if alpha:
            product.data *= self.scalar(call, known, "alpha", alpha, call.dtype)
        parts = [product]
        if beta and ptr_d:
            base = self.descriptor(descr_d).base
            added = Compressed("d", (m, n), val_d, ptr_d, ind_d, base).read(call)
            added.data *= self.scalar(call, known, "beta", beta, call.dtype)
            parts.append(added)
        target = Compressed("c", (m, n), val_c, ptr_c, ind_c, self.descriptor(descr_c).base)
        target.write(call, structural_sum(parts))
