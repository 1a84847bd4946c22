"""hipSPARSE, conversions between formats, sorting and counting."""

from __future__ import annotations

import numpy as np
import scipy

from cupygemm.emulator.host_libraries.blas_handle import check_ld, check_pointers, check_sizes
from cupygemm.emulator.host_libraries.library import Call, implements
from cupygemm.emulator.host_libraries.sparse_handle import Compressed, SparseHandles
from cupygemm.emulator.runtime.status import store_size


class Conversions(SparseHandles):
    """Conversions between formats, sorting and counting."""

    @implements("hipsparse{S,D,C,Z}gthr")
    def _gather(
        self, call: Call, handle: int, nnz: int, y: int, x_val: int, x_ind: int, base: int
    ) -> None:
        self.handle(handle)
        check_sizes(call, nnz=nnz)
        if nnz == 0:
            return
        check_pointers(call, y=y, x_val=x_val, x_ind=x_ind)
        places = call.read("x_ind", x_ind, (nnz,), np.int32).astype(np.int64) - base
        call.check(places.min() >= 0, "an index of x is negative", "execution_failed")
        used = np.zeros(int(places.max()) + 1, np.bool_)
        used[places] = True
        source = call.read("y", y, used.shape, call.dtype, used=used)
        call.write("x_val", x_val, (nnz,), call.dtype)[...] = source[places]

    @implements("hipsparseXcoo2csr")
    def _coo2csr(
        self, call: Call, handle: int, rows: int, nnz: int, m: int, row_ptr: int, base: int
    ) -> None:
        self.handle(handle)
        check_sizes(call, nnz=nnz, m=m)
        if m == 0:
            return
        check_pointers(call, row_ptr=row_ptr)
        counts = np.zeros(m, np.int64)
        if nnz:
            check_pointers(call, coo_row_ind=rows)
            found = call.read("coo_row_ind", rows, (nnz,), np.int32).astype(np.int64) - base
            inside = found.min() >= 0 and found.max() < m
            call.check(bool(inside), "a row is outside of the matrix", "execution_failed")
            counts = np.bincount(found, minlength=m)
        Compressed("csr", (m, 0), 0, row_ptr, 0, base).write_offsets(call, counts)

    @implements("hipsparseXcsr2coo")
    def _csr2coo(
        self, call: Call, handle: int, row_ptr: int, nnz: int, m: int, rows: int, base: int
    ) -> None:
        self.handle(handle)
        check_sizes(call, nnz=nnz, m=m)
        if m == 0 or nnz == 0:
            return
        check_pointers(call, row_ptr=row_ptr, coo_row_ind=rows)
        offsets = Compressed("csr", (m, 0), 0, row_ptr, 0, base).read_offsets(call)
        call.check(offsets[-1] == nnz, f"nnz={nnz}, but the offsets end at {offsets[-1]}")
        out = call.write("coo_row_ind", rows, (nnz,), np.int32)
        out[...] = base + np.repeat(np.arange(m), np.diff(offsets))

    @implements("hipsparse{S,D,C,Z}csr2csc")
    def _csr2csc(
        self,
        call: Call,
        handle: int,
        m: int,
        n: int,
        nnz: int,
        csr_val: int,
        csr_row_ptr: int,
        csr_col_ind: int,
        csc_val: int,
        csc_row_ind: int,
        csc_col_ptr: int,
        action: int,
        base: int,
    ) -> None:
        self.handle(handle)
        check_sizes(call, m=m, n=n, nnz=nnz)
        call.check(action in {0, 1}, f"{action} is no hipsparseAction_t")
        source = Compressed("csr", (m, n), csr_val if action else 0, csr_row_ptr, csr_col_ind, base)
        target = Compressed("csc", (n, m), csc_val if action else 0, csc_col_ptr, csc_row_ind, base)
        matrix = source.read(call)
        rows = np.repeat(np.arange(m), np.diff(matrix.indptr))
        order = np.argsort(matrix.indices, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(matrix.indices, minlength=n))])
        transposed = scipy.sparse.csr_matrix(
            (matrix.data[order], rows[order], offsets), shape=(n, m)
        )
        if n:
            target.write(call, transposed)

    @implements("hipsparse{S,D,C,Z}csr2dense", "hipsparse{S,D,C,Z}csc2dense")
    def _to_dense(
        self,
        call: Call,
        handle: int,
        m: int,
        n: int,
        descr: int,
        val: int,
        first: int,
        second: int,
        a: int,
        lda: int,
    ) -> None:
        self.handle(handle)
        base = self.descriptor(descr).base
        check_sizes(call, m=m, n=n)
        check_ld(call, lda=(lda, m))
        if m == 0 or n == 0:
            return
        check_pointers(call, a=a)
        if call.function.endswith("csr2dense"):
            dense = Compressed("csr", (m, n), val, first, second, base).read(call).toarray()
        else:
            dense = Compressed("csc", (n, m), val, second, first, base).read(call).toarray().T
        call.matrix("a", a, (m, n), lda, access="write")[...] = dense

    @implements("hipsparse{S,D,C,Z}nnz")
    def _count(
        self,
        call: Call,
        handle: int,
        direction: int,
        m: int,
        n: int,
        descr: int,
        a: int,
        lda: int,
        counts: int,
        total: int,
    ) -> None:
        known = self.handle(handle)
        self.descriptor(descr)
        check_sizes(call, m=m, n=n)
        call.check(direction in {0, 1}, f"{direction} is no hipsparseDirection_t")
        check_ld(call, lda=(lda, m))
        found = np.zeros((m, n), np.bool_)
        if m and n:
            check_pointers(call, a=a, counts=counts)
            found = call.matrix("a", a, (m, n), lda) != 0
            lines = m if direction == 0 else n
            out = call.write("nnz_per_row_col", counts, (lines,), np.int32)
            out[...] = found.sum(axis=1 - direction)
        call.store("nnz_total", total, found.sum(), np.int32, on_device=known.on_device)

    @implements("hipsparse{S,D,C,Z}dense2csr")
    def _dense2csr(
        self,
        call: Call,
        handle: int,
        m: int,
        n: int,
        descr: int,
        a: int,
        lda: int,
        counts: int,
        val: int,
        row_ptr: int,
        col_ind: int,
    ) -> None:
        self.handle(handle)
        target = Compressed("csr", (m, n), val, row_ptr, col_ind, self.descriptor(descr).base)
        self._from_dense(call, (m, n), a, lda, target, transposed=False)

    @implements("hipsparse{S,D,C,Z}dense2csc")
    def _dense2csc(
        self,
        call: Call,
        handle: int,
        m: int,
        n: int,
        descr: int,
        a: int,
        lda: int,
        counts: int,
        val: int,
        row_ind: int,
        col_ptr: int,
    ) -> None:
        self.handle(handle)
        target = Compressed("csc", (n, m), val, col_ptr, row_ind, self.descriptor(descr).base)
        self._from_dense(call, (m, n), a, lda, target, transposed=True)

    @staticmethod
    def _from_dense(
        call: Call,
        shape: tuple[int, int],
        a: int,
        lda: int,
        target: Compressed,
        *,
        transposed: bool,
    ) -> None:
        check_sizes(call, m=shape[0], n=shape[1])
        check_ld(call, lda=(lda, shape[0]))
        if 0 in shape:
            return
        check_pointers(call, a=a)
        dense = call.matrix("a", a, shape, lda)
        target.write(call, scipy.sparse.csr_matrix(dense.T if transposed else dense))

    @implements("hipsparse{S,D,C,Z}nnz_compress")
    def _count_above(
        self,
        call: Call,
        handle: int,
        m: int,
        descr: int,
        val: int,
        row_ptr: int,
        counts: int,
        nnz_c: int,
        tolerance: float,
    ) -> None:
        known = self.handle(handle)
        base = self.descriptor(descr).base
        limit = _limit(call, tolerance)
        check_sizes(call, m=m)
        total = 0
        if m:
            check_pointers(call, row_ptr=row_ptr, nnz_per_row=counts)
            offsets = Compressed("a", (m, 0), 0, row_ptr, 0, base).read_offsets(call)
            kept = np.zeros(m, np.int64)
            if offsets[-1]:
                above = abs(call.read("val_a", val, (int(offsets[-1]),), call.dtype)) > limit
                rows = np.repeat(np.arange(m), np.diff(offsets))
                kept = np.bincount(rows[above], minlength=m)
            call.write("nnz_per_row", counts, (m,), np.int32)[...] = kept
            total = int(kept.sum())
        call.store("nnz_c", nnz_c, total, np.int32, on_device=known.on_device)

    @implements("hipsparse{S,D,C,Z}csr2csr_compress")
    def _keep_above(
        self,
        call: Call,
        handle: int,
        m: int,
        n: int,
        descr: int,
        val_a: int,
        col_ind_a: int,
        row_ptr_a: int,
        nnz_a: int,
        counts: int,
        val_c: int,
        col_ind_c: int,
        row_ptr_c: int,
        tolerance: float,
    ) -> None:
        self.handle(handle)
        base = self.descriptor(descr).base
        if m == 0 or n == 0:
            return
        matrix = Compressed("a", (m, n), val_a, row_ptr_a, col_ind_a, base).read(call)
        above = abs(matrix.data) > _limit(call, tolerance)
        rows = np.repeat(np.arange(m), np.diff(matrix.indptr))[above]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=m))])
        kept = scipy.sparse.csr_matrix(
            (matrix.data[above], matrix.indices[above], offsets), shape=(m, n)
        )
        Compressed("c", (m, n), val_c, row_ptr_c, col_ind_c, base).write(call, kept)

    @implements("hipsparseCreateIdentityPermutation")
    def _identity(self, call: Call, handle: int, n: int, p: int) -> None:
        self.handle(handle)
        check_sizes(call, n=n)
        if n:
            check_pointers(call, p=p)
            call.write("p", p, (n,), np.int32)[...] = np.arange(n)

    @implements(
        "hipsparseXcoosort_bufferSizeExt",
        "hipsparseXcsrsort_bufferSizeExt",
        "hipsparseXcscsort_bufferSizeExt",
    )
    def _sort_buffer(
        self, call: Call, handle: int, m: int, n: int, nnz: int, first: int, second: int, size: int
    ) -> None:
        self.handle(handle)
        check_sizes(call, m=m, n=n, nnz=nnz)
        check_pointers(call, buffer_size=size)
        store_size(size, 0)

    @implements("hipsparseXcoosortByRow", "hipsparseXcoosortByColumn")
    def _sort_coo(
        self,
        call: Call,
        handle: int,
        m: int,
        n: int,
        nnz: int,
        rows: int,
        columns: int,
        p: int,
        buffer: int,
    ) -> None:
        self.handle(handle)
        check_sizes(call, m=m, n=n, nnz=nnz)
        if nnz == 0:
            return
        check_pointers(call, coo_rows=rows, coo_cols=columns)
        first = call.update("coo_rows", rows, (nnz,), np.int32)
        second = call.update("coo_cols", columns, (nnz,), np.int32)
        keys = (second, first) if call.function.endswith("Row") else (first, second)
        self._reorder(call, np.lexsort(keys), [first, second], p)

    @implements("hipsparseXcsrsort", "hipsparseXcscsort")
    def _sort_compressed(
        self,
        call: Call,
        handle: int,
        m: int,
        n: int,
        nnz: int,
        descr: int,
        offsets: int,
        indices: int,
        p: int,
        buffer: int,
    ) -> None:
        self.handle(handle)
        base = self.descriptor(descr).base
        check_sizes(call, m=m, n=n, nnz=nnz)
        if nnz == 0:
            return
        lines = m if call.function.endswith("csrsort") else n
        check_pointers(call, offsets=offsets, indices=indices)
        ends = Compressed("a", (lines, 0), 0, offsets, 0, base).read_offsets(call)
        call.check(ends[-1] == nnz, f"nnz={nnz}, but the offsets end at {ends[-1]}")
        inner = call.update("indices", indices, (nnz,), np.int32)
        line = np.repeat(np.arange(lines), np.diff(ends))
        self._reorder(call, np.lexsort((inner, line)), [inner], p)

    @staticmethod
    def _reorder(call: Call, order: np.ndarray, arrays: list[np.ndarray], p: int) -> None:
        """Reorder arrays, and a permutation if there is one."""
        if p:
            arrays = [*arrays, call.update("p", p, (len(order),), np.int32)]
        for array in arrays:
            array[...] = array[order]


def _limit(call: Call, tolerance: float) -> float:
    """Return a tolerance; a complex one is passed by address, and only its real part counts."""
    if call.dtype.kind == "c":
        return float(call.scalar("tol", int(tolerance), call.dtype).real)
    return tolerance
