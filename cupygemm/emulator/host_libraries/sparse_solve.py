"""hipSPARSE, triangular solves and incomplete factorisations of CSR matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from cupygemm.emulator.host_libraries.blas_handle import check_ld, check_pointers
from cupygemm.emulator.host_libraries.library import Call, implements
from cupygemm.emulator.host_libraries.sparse_handle import (
    CONJUGATE,
    LOWER,
    NONE,
    UNIT,
    Compressed,
    SparseHandles,
    applied,
    check_operations,
    structural_sum,
)
from cupygemm.emulator.runtime.status import store_int, store_size


class Solutions(SparseHandles):
    """Triangular solves and incomplete factorisations."""

    @implements("hipsparse{S,D,C,Z}csrsv2_bufferSize")
    def _csrsv2_buffer(self, call: Call, handle: int, *arguments: int) -> None:
        self.handle(handle)
        store_int(arguments[-1], 0)

    @implements("hipsparse{S,D,C,Z}csrsm2_bufferSizeExt")
    def _csrsm2_buffer(self, call: Call, handle: int, *arguments: int) -> None:
        self.handle(handle)
        store_size(arguments[-1], 0)

    @implements("hipsparse{S,D,C,Z}csrsv2_analysis")
    def _csrsv2_analysis(
        self,
        call: Call,
        handle: int,
        op: int,
        m: int,
        nnz: int,
        descr: int,
        val: int,
        row_ptr: int,
        col_ind: int,
        info: int,
        policy: int,
        buffer: int,
    ) -> None:
        self.handle(handle)
        self._analyse(call, m, (descr, val, row_ptr, col_ind), info)

    @implements("hipsparse{S,D,C,Z}csrsm2_analysis")
    def _csrsm2_analysis(
        self,
        call: Call,
        handle: int,
        algo: int,
        op_a: int,
        op_b: int,
        m: int,
        nrhs: int,
        nnz: int,
        alpha: int,
        descr: int,
        val: int,
        row_ptr: int,
        col_ind: int,
        b: int,
        ldb: int,
        info: int,
        policy: int,
        buffer: int,
    ) -> None:
        self.handle(handle)
        self._analyse(call, m, (descr, val, row_ptr, col_ind), info)

    def _analyse(
        self, call: Call, m: int, matrix: tuple[int, int, int, int], info: int
    ) -> scipy.sparse.csr_matrix:
        """Return a square matrix with sorted rows, and record its first row without a pivot."""
        descr, val, row_ptr, col_ind = matrix
        known = self.descriptor(descr)
        found = Compressed("a", (m, m), val, row_ptr, col_ind, known.base).read(call)
        found = structural_sum([found])
        zeros = np.flatnonzero(found.diagonal() == 0)
        pivot = int(zeros[0]) + known.base if zeros.size and known.diagonal != UNIT else -1
        self.info(info).pivot = pivot
        return found

    @implements("hipsparse{S,D,C,Z}csrsv2_solve")
    def _csrsv2(
        self,
        call: Call,
        handle: int,
        op: int,
        m: int,
        nnz: int,
        alpha: int,
        descr: int,
        val: int,
        row_ptr: int,
        col_ind: int,
        info: int,
        f: int,
        x: int,
        policy: int,
        buffer: int,
    ) -> None:
        known = self.handle(handle)
        check_operations(call, op=op)
        matrix = self._analyse(call, m, (descr, val, row_ptr, col_ind), info)
        if m == 0:
            return
        check_pointers(call, f=f, x=x)
        factor = self.scalar(call, known, "alpha", alpha, call.dtype)
        right = factor * call.read("f", f, (m, 1), call.dtype)
        shape = self.descriptor(descr)
        solved = solve_triangular(matrix, right, op, shape.fill, shape.diagonal)
        call.write("x", x, (m, 1), call.dtype)[...] = solved

    @implements("hipsparse{S,D,C,Z}csrsm2_solve")
    def _csrsm2(
        self,
        call: Call,
        handle: int,
        algo: int,
        op_a: int,
        op_b: int,
        m: int,
        nrhs: int,
        nnz: int,
        alpha: int,
        descr: int,
        val: int,
        row_ptr: int,
        col_ind: int,
        b: int,
        ldb: int,
        info: int,
        policy: int,
        buffer: int,
    ) -> None:
        known = self.handle(handle)
        check_operations(call, op_a=op_a, op_b=op_b)
        stored = (m, nrhs) if op_b == NONE else (nrhs, m)
        check_ld(call, ldb=(ldb, stored[0]))
        matrix = self._analyse(call, m, (descr, val, row_ptr, col_ind), info)
        if m == 0 or nrhs == 0:
            return
        check_pointers(call, b=b)
        factor = self.scalar(call, known, "alpha", alpha, call.dtype)
        values = call.matrix("b", b, stored, ldb, access="update")
        shape = self.descriptor(descr)
        right = factor * applied(values, op_b)
        solved = solve_triangular(matrix, right, op_a, shape.fill, shape.diagonal)
        values[...] = applied(solved, op_b)

    @implements("hipsparse{S,D,C,Z}csrilu02_bufferSize", "hipsparse{S,D,C,Z}csric02_bufferSize")
    def _factor_buffer(self, call: Call, handle: int, *arguments: int) -> None:
        self.handle(handle)
        store_int(arguments[-1], 0)

    @implements("hipsparse{S,D,C,Z}csrilu02_analysis", "hipsparse{S,D,C,Z}csric02_analysis")
    def _factor_analysis(
        self,
        call: Call,
        handle: int,
        m: int,
        nnz: int,
        descr: int,
        val: int,
        row_ptr: int,
        col_ind: int,
        info: int,
        policy: int,
        buffer: int,
    ) -> None:
        """Record the first row without an element on the diagonal."""
        self.handle(handle)
        base = self.descriptor(descr).base
        matrix = Compressed("a", (m, m), 0, row_ptr, col_ind, base).read(call)
        missing = np.flatnonzero(matrix.diagonal() == 0)
        self.info(info).pivot = int(missing[0]) + base if missing.size else -1

    @implements("hipsparse{S,D,C,Z}csrilu02", "hipsparse{S,D,C,Z}csric02")
    def _factorise(
        self,
        call: Call,
        handle: int,
        m: int,
        nnz: int,
        descr: int,
        val: int,
        row_ptr: int,
        col_ind: int,
        info: int,
        policy: int,
        buffer: int,
    ) -> None:
        self.handle(handle)
        base = self.descriptor(descr).base
        if m == 0:
            return
        matrix = Compressed("a", (m, m), val, row_ptr, col_ind, base).read(call)
        known = self.info(info)
        pivot = ilu0(matrix, known.boost) if "ilu" in call.function else ic0(matrix)
        known.pivot = known.pivot if pivot < 0 else pivot + base
        call.write("val_a", val, (matrix.nnz,), call.dtype)[...] = matrix.data


def solve_triangular(
    matrix: scipy.sparse.csr_matrix, right: NDArray[Any], operation: int, fill: int, diagonal: int
) -> NDArray[Any]:
    """Solve op(matrix) x = right by substitution, ignoring elements outside the triangle.

    Parameters
    ----------
    matrix : scipy.sparse.csr_matrix
    right : numpy.ndarray
        (m, n).
    operation, fill, diagonal : int
        Values of hipSPARSE's enumerations.

    Returns
    -------
    numpy.ndarray
        The solution, infinite or NaN after a zero on the diagonal.
    """
    lower = fill == LOWER
    if operation != NONE:
        operand = matrix.conj() if operation == CONJUGATE else matrix
        matrix, lower = scipy.sparse.csr_matrix(operand.T), not lower
    solved = np.array(right)
    rows = range(matrix.shape[0])
    for row in rows if lower else reversed(rows):
        part = slice(matrix.indptr[row], matrix.indptr[row + 1])
        columns, values = matrix.indices[part], matrix.data[part]
        beside = columns < row if lower else columns > row
        solved[row] -= values[beside] @ solved[columns[beside]]
        if diagonal != UNIT:
            solved[row] /= values[columns == row].sum()
    return solved


def ilu0(matrix: scipy.sparse.csr_matrix, boost: tuple[float, complex] | None = None) -> int:
    """Factorise in place, without fill-in; return the first row with a pivot of zero, or -1."""
    found, diagonal = -1, np.zeros(matrix.shape[0], matrix.dtype)
    rows = [dict(zip(*_row(matrix, row), strict=True)) for row in range(matrix.shape[0])]
    for row, elements in enumerate(rows):
        for column in sorted(each for each in elements if each < row):
            elements[column] = elements[column] / diagonal[column]
            for other, value in rows[column].items():
                if other > column and other in elements:
                    elements[other] -= elements[column] * value
        if boost is not None and abs(elements.get(row, 0)) <= boost[0]:
            elements[row] = matrix.dtype.type(boost[1])
        diagonal[row] = elements.get(row, 0)
        if diagonal[row] == 0 and found < 0:
            found = row
    _store(matrix, rows)
    return found


def ic0(matrix: scipy.sparse.csr_matrix) -> int:
    """Factorise the lower triangle in place, as L times its adjoint, without fill-in."""
    found, diagonal = -1, np.zeros(matrix.shape[0], matrix.dtype)
    rows = [dict(zip(*_row(matrix, row), strict=True)) for row in range(matrix.shape[0])]
    for row, elements in enumerate(rows):
        for column in sorted(each for each in elements if each < row):
            shared = (each for each in rows[column] if each < column and each in elements)
            total = sum(elements[each] * np.conj(rows[column][each]) for each in shared)
            elements[column] = (elements[column] - total) / diagonal[column]
        if row in elements:
            below = (abs(value) ** 2 for column, value in elements.items() if column < row)
            elements[row] = np.sqrt(elements[row] - sum(below))
            diagonal[row] = elements[row]
        if (diagonal[row] == 0 or np.isnan(diagonal[row])) and found < 0:
            found = row
    _store(matrix, rows)
    return found


def _row(matrix: scipy.sparse.csr_matrix, row: int) -> tuple[list[int], list[Any]]:
    part = slice(matrix.indptr[row], matrix.indptr[row + 1])
    return matrix.indices[part].tolist(), list(matrix.data[part])


def _store(matrix: scipy.sparse.csr_matrix, rows: list[dict[int, Any]]) -> None:
    values = [value for elements in rows for value in elements.values()]
    matrix.data[...] = values
