"""hipSPARSE's descriptors of vectors and matrices, for its generic functions."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from cupygemm.emulator.host_libraries.blas_handle import check_pointers, check_sizes
from cupygemm.emulator.host_libraries.library import Call, LibraryError, implements
from cupygemm.emulator.host_libraries.products import DATA_TYPES
from cupygemm.emulator.host_libraries.sparse_handle import (
    LOWER,
    NON_UNIT,
    Compressed,
    SparseHandles,
)
from cupygemm.emulator.runtime.status import store_int, store_size

INDICES = {1: "u2", 2: "i4", 3: "i8"}  # hipsparseIndexType_t
CSR, CSC, COO, COO_AOS = 1, 2, 3, 4  # hipsparseFormat_t
COLUMNS, ROWS = 1, 2  # hipsparseOrder_t
_FILL, _DIAGONAL = 0, 1  # hipsparseSpMatAttribute_t


@dataclass
class Dense:
    """A dense vector, or a dense matrix with an order and a leading dimension."""

    shape: tuple[int, ...]
    values: int
    dtype: int
    ld: int = 0
    order: int = COLUMNS

    def on(self, call: Call, name: str, access: str = "read") -> NDArray[Any]:
        """Return the checked view for an access."""
        strides: tuple[int, ...] = (1,)
        if len(self.shape) == 2:
            strides = (1, self.ld) if self.order == COLUMNS else (self.ld, 1)
        if 0 not in self.shape:
            check_pointers(call, **{name: self.values})
        view: NDArray[Any] = getattr(call, access)(
            name, self.values, self.shape, DATA_TYPES[self.dtype], strides
        )
        return view


@dataclass
class Sparse:
    """A sparse matrix or vector; its positions are offsets and indices, or rows and columns."""

    format: int
    shape: tuple[int, int]
    nnz: int
    places: tuple[int, int]
    values: int
    index_types: tuple[int, int]
    base: int
    dtype: int
    fill: int = LOWER
    diagonal: int = NON_UNIT

    def compressed(self) -> Compressed:
        """Return the operands of CSR, or of CSC with rows for columns."""
        shape = self.shape if self.format == CSR else self.shape[::-1]
        types = INDICES[self.index_types[1]], INDICES[self.index_types[0]]
        return Compressed("sparse matrix", shape, self.values, *self.places, self.base, *types)

    def coordinates(self, call: Call, access: str = "read") -> list[NDArray[Any]]:
        """Return views of a COO matrix's rows and columns."""
        kind, step = INDICES[self.index_types[0]], 1
        places = self.places
        if self.format == COO_AOS:
            places, step = (places[0], places[0] + np.dtype(kind).itemsize), 2
        how = getattr(call, access)
        return [
            how(name, at, (self.nnz,), kind, (step,))
            for name, at in zip(("rows", "columns"), places, strict=True)
        ]

    def read(self, call: Call) -> scipy.sparse.csr_matrix:
        """Return the matrix."""
        dtype = DATA_TYPES[self.dtype]
        if self.format in {CSR, CSC}:
            found = self.compressed().read(call, dtype)
            return found if self.format == CSR else scipy.sparse.csr_matrix(found.T)
        if self.nnz == 0:
            return scipy.sparse.csr_matrix(self.shape, dtype=dtype)
        rows, columns = (each.astype(np.int64) - self.base for each in self.coordinates(call))
        inside = min(rows.min(), columns.min()) >= 0
        inside &= rows.max() < self.shape[0] and columns.max() < self.shape[1]
        call.check(bool(inside), "an index is outside of the matrix", "execution_failed")
        values = call.read("values", self.values, (self.nnz,), dtype)
        return scipy.sparse.csr_matrix(
            scipy.sparse.coo_matrix((values, (rows, columns)), shape=self.shape)
        )


class Objects(SparseHandles):
    """Descriptors."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self._objects: dict[int, Any] = {}

    def dense(self, number: int) -> Dense:
        """Return a dense vector or matrix."""
        found: Dense = self._object(number, Dense)
        return found

    def sparse(self, number: int) -> Sparse:
        """Return a sparse vector or matrix."""
        found: Sparse = self._object(number, Sparse)
        return found

    def _object(self, number: int, kind: type) -> Any:
        found = self._objects.get(number)
        if not isinstance(found, kind):
            raise LibraryError("invalid_value", f"descriptor 0x{number:x} does not exist")
        return found

    def _keep(self, call: Call, where: int, made: Any) -> None:
        check_pointers(call, descriptor=where)
        number = next(self._handles)
        self._objects[number] = made
        store_size(where, number)

    @implements("hipsparseCreateSpVec")
    def _sp_vec(
        self,
        call: Call,
        where: int,
        size: int,
        nnz: int,
        indices: int,
        values: int,
        index_type: int,
        base: int,
        data_type: int,
    ) -> None:
        check_sizes(call, size=size, nnz=nnz)
        _check_types(call, data_type, index_type)
        types = index_type, index_type
        made = Sparse(COO, (1, size), nnz, (0, indices), values, types, base, data_type)
        self._keep(call, where, made)

    @implements("hipsparseCreateCsr", "hipsparseCreateCsc")
    def _compressed(
        self,
        call: Call,
        where: int,
        rows: int,
        cols: int,
        nnz: int,
        offsets: int,
        indices: int,
        values: int,
        offset_type: int,
        index_type: int,
        base: int,
        data_type: int,
    ) -> None:
        check_sizes(call, rows=rows, cols=cols, nnz=nnz)
        _check_types(call, data_type, offset_type, index_type)
        kind = CSR if call.function.endswith("Csr") else CSC
        types = offset_type, index_type
        made = Sparse(kind, (rows, cols), nnz, (offsets, indices), values, types, base, data_type)
        self._keep(call, where, made)

    @implements("hipsparseCreateCoo")
    def _coo(
        self,
        call: Call,
        where: int,
        rows: int,
        cols: int,
        nnz: int,
        row_ind: int,
        col_ind: int,
        values: int,
        index_type: int,
        base: int,
        data_type: int,
    ) -> None:
        check_sizes(call, rows=rows, cols=cols, nnz=nnz)
        _check_types(call, data_type, index_type)
        types, places = (index_type, index_type), (row_ind, col_ind)
        made = Sparse(COO, (rows, cols), nnz, places, values, types, base, data_type)
        self._keep(call, where, made)

    @implements("hipsparseCreateCooAoS")
    def _coo_aos(
        self,
        call: Call,
        where: int,
        rows: int,
        cols: int,
        nnz: int,
        indices: int,
        values: int,
        index_type: int,
        base: int,
        data_type: int,
    ) -> None:
        check_sizes(call, rows=rows, cols=cols, nnz=nnz)
        _check_types(call, data_type, index_type)
        types = index_type, index_type
        made = Sparse(COO_AOS, (rows, cols), nnz, (indices, 0), values, types, base, data_type)
        self._keep(call, where, made)

    @implements("hipsparseCreateDnVec")
    def _dn_vec(self, call: Call, where: int, size: int, values: int, data_type: int) -> None:
        check_sizes(call, size=size)
        _check_types(call, data_type)
        self._keep(call, where, Dense((size,), values, data_type))

    @implements("hipsparseCreateDnMat")
    def _dn_mat(
        self,
        call: Call,
        where: int,
        rows: int,
        cols: int,
        ld: int,
        values: int,
        data_type: int,
        order: int,
    ) -> None:
        check_sizes(call, rows=rows, cols=cols)
        _check_types(call, data_type)
        call.check(order in {COLUMNS, ROWS}, f"{order} is no hipsparseOrder_t")
        least = rows if order == COLUMNS else cols
        call.check(ld >= least, f"ld={ld} is less than {least}")
        self._keep(call, where, Dense((rows, cols), values, data_type, ld, order))

    @implements("hipsparseSpSM_createDescr")
    def _spsm(self, call: Call, where: int) -> None:
        self._keep(call, where, "SpSM")

    @implements(
        "hipsparseDestroySpVec",
        "hipsparseDestroySpMat",
        "hipsparseDestroyDnVec",
        "hipsparseDestroyDnMat",
        "hipsparseSpSM_destroyDescr",
    )
    def _forget(self, call: Call, number: int) -> None:
        self._object(number, object)
        if self._objects.pop(number, None) is None:
            raise LibraryError("invalid_value", f"descriptor 0x{number:x} does not exist")

    @implements(
        "hipsparseSpVecGetValues",
        "hipsparseSpMatGetValues",
        "hipsparseDnVecGetValues",
        "hipsparseDnMatGetValues",
    )
    def _get_values(self, call: Call, number: int, values: int) -> None:
        store_size(values, self._object(number, object).values)

    @implements(
        "hipsparseSpVecSetValues",
        "hipsparseSpMatSetValues",
        "hipsparseDnVecSetValues",
        "hipsparseDnMatSetValues",
    )
    def _set_values(self, call: Call, number: int, values: int) -> None:
        self._object(number, object).values = values

    @implements("hipsparseSpMatGetSize")
    def _get_size(self, call: Call, number: int, rows: int, cols: int, nnz: int) -> None:
        known = self.sparse(number)
        for where, value in zip((rows, cols, nnz), (*known.shape, known.nnz), strict=True):
            store_size(where, value)

    @implements("hipsparseSpMatGetFormat")
    def _get_format(self, call: Call, number: int, where: int) -> None:
        store_int(where, self.sparse(number).format)

    @implements("hipsparseSpMatGetIndexBase", "hipsparseSpVecGetIndexBase")
    def _get_base(self, call: Call, number: int, where: int) -> None:
        store_int(where, self.sparse(number).base)

    @implements("hipsparseSpMatSetAttribute")
    def _set_attribute(self, call: Call, number: int, attribute: int, data: int, size: int) -> None:
        known = self.sparse(number)
        call.check(attribute in {_FILL, _DIAGONAL}, f"attribute {attribute}")
        check_pointers(call, data=data)
        value = ctypes.c_int.from_address(data).value
        call.check(value in {0, 1}, f"attribute {attribute} cannot be {value}")
        setattr(known, "fill" if attribute == _FILL else "diagonal", value)

    @implements("hipsparseCsrSetPointers")
    def _set_pointers(
        self, call: Call, number: int, offsets: int, indices: int, values: int
    ) -> None:
        known = self.sparse(number)
        known.places, known.values = (offsets, indices), values

    @implements("hipsparseSpVecGet")
    def _sp_vec_get(self, call: Call, number: int, *where: int) -> None:
        known = self.sparse(number)
        wide = (known.shape[1], known.nnz, known.places[1], known.values)
        _store(where, wide, (known.index_types[1], known.base, known.dtype))

    @implements("hipsparseCooGet")
    def _coo_get(self, call: Call, number: int, *where: int) -> None:
        known = self.sparse(number)
        wide = (*known.shape, known.nnz, *known.places, known.values)
        _store(where, wide, (known.index_types[0], known.base, known.dtype))

    @implements("hipsparseCooAoSGet")
    def _coo_aos_get(self, call: Call, number: int, *where: int) -> None:
        known = self.sparse(number)
        wide = (*known.shape, known.nnz, known.places[0], known.values)
        _store(where, wide, (known.index_types[0], known.base, known.dtype))

    @implements("hipsparseCsrGet")
    def _csr_get(self, call: Call, number: int, *where: int) -> None:
        known = self.sparse(number)
        wide = (*known.shape, known.nnz, *known.places, known.values)
        _store(where, wide, (*known.index_types, known.base, known.dtype))

    @implements("hipsparseDnVecGet")
    def _dn_vec_get(self, call: Call, number: int, *where: int) -> None:
        known = self.dense(number)
        _store(where, (known.shape[0], known.values), (known.dtype,))

    @implements("hipsparseDnMatGet")
    def _dn_mat_get(self, call: Call, number: int, *where: int) -> None:
        known = self.dense(number)
        _store(where, (*known.shape, known.ld, known.values), (known.dtype, known.order))


def _store(where: tuple[int, ...], wide: tuple[int, ...], narrow: tuple[int, ...]) -> None:
    """Store 64-bit results, then enumerators."""
    for place, value in zip(where, wide, strict=False):
        store_size(place, value)
    for place, value in zip(where[len(wide) :], narrow, strict=True):
        store_int(place, value)


def _check_types(call: Call, data_type: int, *index_types: int) -> None:
    call.check(data_type in DATA_TYPES, f"hipDataType {data_type} is not supported")
    for each in index_types:
        call.check(each in INDICES, f"{each} is no hipsparseIndexType_t")
