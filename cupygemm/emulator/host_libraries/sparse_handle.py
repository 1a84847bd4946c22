"""hipSPARSE's handles and matrix descriptors, and sparse matrices read from device memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from cupygemm.emulator.host_libraries.blas_handle import BlasHandles, check_pointers, check_sizes
from cupygemm.emulator.host_libraries.library import Call, LibraryError, implements
from cupygemm.emulator.runtime.status import store_int, store_size

NONE, TRANSPOSE, CONJUGATE = 0, 1, 2  # hipsparseOperation_t
LOWER, UPPER = 0, 1  # hipsparseFillMode_t
NON_UNIT, UNIT = 0, 1  # hipsparseDiagType_t
VERSION = 400000  # hipSPARSE 4.0.0, of ROCm 7.0


@dataclass
class Descriptor:
    """A hipsparseMatDescr_t."""

    kind: int = 0
    fill: int = LOWER
    diagonal: int = NON_UNIT
    base: int = 0


@dataclass
class Info:
    """The result of an analysis, for the functions that query a zero pivot.

    Attributes
    ----------
    pivot : int
        The first row without a pivot, from the index base; -1 if there is none.
    boost : tuple of float and complex, or None
        The tolerance, and the value that replaces a smaller pivot.
    """

    pivot: int = -1
    boost: tuple[float, complex] | None = None


class SparseHandles(BlasHandles):
    """Handles, descriptors and infos, by number."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self._descriptors: dict[int, Descriptor] = {}
        self._infos: dict[int, Info] = {}

    def descriptor(self, descriptor: int) -> Descriptor:
        """Return a matrix descriptor."""
        if descriptor not in self._descriptors:
            message = f"matrix descriptor 0x{descriptor:x} does not exist"
            raise LibraryError("invalid_value", message)
        return self._descriptors[descriptor]

    def info(self, info: int) -> Info:
        """Return an info."""
        if info not in self._infos:
            raise LibraryError("invalid_value", f"info 0x{info:x} does not exist")
        return self._infos[info]

    @implements("hipsparseGetVersion")
    def _get_version(self, call: Call, handle: int, version: int) -> None:
        self.handle(handle)
        store_int(version, VERSION)

    @implements("hipsparseCreate")
    def _create(self, call: Call, handle: int) -> None:
        self.create(call, handle)

    @implements("hipsparseDestroy")
    def _destroy(self, call: Call, handle: int) -> None:
        self.destroy(handle)

    @implements("hipsparseSetStream")
    def _set_stream(self, call: Call, handle: int, stream: int) -> None:
        self.set_stream(handle, stream)

    @implements("hipsparseGetStream")
    def _get_stream(self, call: Call, handle: int, stream: int) -> None:
        self.get_stream(handle, stream)

    @implements("hipsparseSetPointerMode")
    def _set_pointer_mode(self, call: Call, handle: int, mode: int) -> None:
        self.set_pointer_mode(call, handle, mode)

    @implements("hipsparseCreateMatDescr")
    def _create_descriptor(self, call: Call, where: int) -> None:
        check_pointers(call, descr=where)
        number = next(self._handles)
        self._descriptors[number] = Descriptor()
        store_size(where, number)

    @implements("hipsparseDestroyMatDescr")
    def _destroy_descriptor(self, call: Call, descriptor: int) -> None:
        self.descriptor(descriptor)
        del self._descriptors[descriptor]

    @implements(
        "hipsparseSetMatType",
        "hipsparseSetMatFillMode",
        "hipsparseSetMatDiagType",
        "hipsparseSetMatIndexBase",
    )
    def _set(self, call: Call, descriptor: int, value: int) -> None:
        name = call.function.removeprefix("hipsparseSetMat")
        known = {"Type": ("kind", 4), "FillMode": ("fill", 2), "DiagType": ("diagonal", 2)}
        attribute, count = known.get(name, ("base", 2))
        call.check(0 <= value < count, f"{name} {value} is no enumerator")
        setattr(self.descriptor(descriptor), attribute, value)

    @implements(
        "hipsparseCreateCsrsv2Info",
        "hipsparseCreateCsrsm2Info",
        "hipsparseCreateCsrgemm2Info",
        "hipsparseCreateCsrilu02Info",
        "hipsparseCreateCsric02Info",
        "hipsparseCreateBsrilu02Info",
        "hipsparseCreateBsric02Info",
    )
    def _create_info(self, call: Call, where: int) -> None:
        check_pointers(call, info=where)
        number = next(self._handles)
        self._infos[number] = Info()
        store_size(where, number)

    @implements(
        "hipsparseDestroyCsrsv2Info",
        "hipsparseDestroyCsrsm2Info",
        "hipsparseDestroyCsrgemm2Info",
        "hipsparseDestroyCsrilu02Info",
        "hipsparseDestroyCsric02Info",
        "hipsparseDestroyBsrilu02Info",
        "hipsparseDestroyBsric02Info",
    )
    def _destroy_info(self, call: Call, info: int) -> None:
        self.info(info)
        del self._infos[info]

    @implements(
        "hipsparseXcsrsv2_zeroPivot",
        "hipsparseXcsrsm2_zeroPivot",
        "hipsparseXcsrilu02_zeroPivot",
        "hipsparseXcsric02_zeroPivot",
    )
    def _zero_pivot(self, call: Call, handle: int, info: int, position: int) -> None:
        known, found = self.handle(handle), self.info(info).pivot
        call.store("position", position, found, np.int32, on_device=known.on_device)
        call.check(found < 0, f"row {found} has no pivot", "zero_pivot")

    @implements(
        "hipsparse{S,D,C,Z}csrilu02_numericBoost",
    )
    def _set_boost(
        self, call: Call, handle: int, info: int, enable: int, tolerance: int, value: int
    ) -> None:
        known = self.handle(handle)
        if not enable:
            self.info(info).boost = None
            return
        limit = self.scalar(call, known, "tol", tolerance, np.float64)
        boost = self.scalar(call, known, "boost_val", value, call.dtype)
        self.info(info).boost = float(limit), boost.item()


@dataclass(frozen=True)
class Compressed:
    """The operands of a CSR matrix, or of a CSC matrix with rows for columns.

    Attributes
    ----------
    name : str
        The letter of the arguments' names, for reports.
    shape : tuple of int
    values : int
        Address; 0 if only the matrix's pattern is used.
    offsets, indices : int
        Addresses.
    base : int
        Index of the first row.
    index_type, offset_type : str
    nnz : int or None
        None if only the offsets determine it.
    """

    name: str
    shape: tuple[int, int]
    values: int
    offsets: int
    indices: int
    base: int = 0
    index_type: str = "i4"
    offset_type: str = "i4"
    nnz: int | None = None

    def read(self, call: Call, dtype: Any = None) -> scipy.sparse.csr_matrix:
        """Return the matrix; duplicate elements stay.

        Raises
        ------
        LibraryError
            Offsets decrease, or an index is outside the matrix.
        """
        check_sizes(call, rows=self.shape[0], columns=self.shape[1])
        offsets = self.read_offsets(call)
        nnz = int(offsets[-1]) if len(offsets) else 0
        indices = np.empty(0, np.int64)
        dtype = np.dtype(dtype or call.dtype)
        values = np.ones(nnz, dtype)
        if nnz:
            check_pointers(call, **{f"indices of {self.name}": self.indices})
            found = call.read(f"indices of {self.name}", self.indices, (nnz,), self.index_type)
            indices = found.astype(np.int64) - self.base
            inside = indices.min() >= 0 and indices.max() < self.shape[1]
            call.check(bool(inside), f"an index of {self.name} is outside", "execution_failed")
            if self.values:
                values = call.read(f"values of {self.name}", self.values, (nnz,), dtype).copy()
        return scipy.sparse.csr_matrix((values, indices, offsets), shape=self.shape)

    def read_offsets(self, call: Call) -> NDArray[np.int64]:
        """Return the offsets of the rows, from 0."""
        rows = self.shape[0]
        if rows == 0:
            return np.zeros(1, np.int64)
        check_pointers(call, **{f"offsets of {self.name}": self.offsets})
        read = call.read(f"offsets of {self.name}", self.offsets, (rows + 1,), self.offset_type)
        offsets = read.astype(np.int64) - self.base
        grows = offsets[0] >= 0 and bool((np.diff(offsets) >= 0).all())
        call.check(grows, f"the offsets of {self.name} decrease", "execution_failed")
        found: NDArray[np.int64] = offsets - offsets[0]
        return found

    def write_offsets(self, call: Call, counts: NDArray[Any]) -> None:
        """Write the row offsets, computed from the numbers of elements per row."""
        out = call.write(
            f"offsets of {self.name}", self.offsets, (self.shape[0] + 1,), self.offset_type
        )
        out[0] = self.base
        out[1:] = self.base + np.cumsum(counts)

    def write(
        self,
        call: Call,
        matrix: scipy.sparse.csr_matrix,
        dtype: Any = None,
        *,
        offsets: bool = True,
    ) -> None:
        """Write a matrix: the indices, and the offsets and the values if requested."""
        if offsets:
            self.write_offsets(call, np.diff(matrix.indptr))
        if matrix.nnz == 0:
            return
        check_pointers(call, **{f"indices of {self.name}": self.indices})
        name = f"indices of {self.name}"
        call.write(name, self.indices, (matrix.nnz,), self.index_type)[...] = (
            matrix.indices + self.base
        )
        if self.values:
            out = call.write(
                f"values of {self.name}", self.values, (matrix.nnz,), dtype or call.dtype
            )
            out[...] = matrix.data


def applied(matrix: Any, operation: int) -> Any:
    """Return op(matrix) of a sparse or dense matrix."""
    if operation == NONE:
        return matrix
    return matrix.T if operation == TRANSPOSE else matrix.conj().T


def check_operations(call: Call, **values: int) -> None:
    """Check arguments that are a hipsparseOperation_t."""
    for name, value in values.items():
        call.check(value in {NONE, TRANSPOSE, CONJUGATE}, f"{name}: {value} is no operation")


def structural_sum(parts: list[scipy.sparse.csr_matrix]) -> scipy.sparse.csr_matrix:
    """Return a sum with an element wherever a term has one, zero or not; its rows are sorted."""
    shape = parts[0].shape
    dtype = np.result_type(*[part.dtype for part in parts])
    keys, values = [], []
    for part in parts:
        rows = np.repeat(np.arange(shape[0], dtype=np.int64), np.diff(part.indptr))
        keys.append(rows * shape[1] + part.indices)
        values.append(part.data)
    places, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    data = np.zeros(len(places), dtype)
    np.add.at(data, inverse, np.concatenate(values))
    rows = places // max(shape[1], 1)
    offsets = np.searchsorted(rows, np.arange(shape[0] + 1))
    return scipy.sparse.csr_matrix((data, places % max(shape[1], 1), offsets), shape=shape)


def structural_product(
    a: scipy.sparse.csr_matrix, b: scipy.sparse.csr_matrix
) -> scipy.sparse.csr_matrix:
    """Return a product with all structural nonzeros; its rows are sorted."""
    ones = [
        scipy.sparse.csr_matrix((np.ones(m.nnz), m.indices, m.indptr), shape=m.shape)
        for m in (a, b)
    ]
    pattern = scipy.sparse.csr_matrix(ones[0] @ ones[1])
    zeros = np.zeros(pattern.nnz, np.result_type(a.dtype, b.dtype))
    pattern = scipy.sparse.csr_matrix((zeros, pattern.indices, pattern.indptr), shape=pattern.shape)
    return structural_sum([pattern, scipy.sparse.csr_matrix(a @ b)])
