"""The stand-in hipSPARSE: `cupyx.scipy.sparse` and `cupyx.cusparse` against SciPy; statuses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

from cupygemm.emulator.host_libraries.sparse_solve import ic0, ilu0
from tests.emulator.host_libraries.calls import Library, operand
from tests.tables import swept

RNG = np.random.default_rng(14)
DTYPES = pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
SOME_DTYPES = pytest.mark.parametrize("dtype", ["f4", "c16", *swept("f8", "c8")])
NONE, TRANSPOSE, CONJUGATE = 0, 1, 2


@pytest.fixture
def sparse(cp: ModuleType) -> ModuleType:
    import cupyx.scipy.sparse

    return cupyx.scipy.sparse


@pytest.fixture
def cusparse(cp: ModuleType) -> ModuleType:
    import cupyx.cusparse

    return cupyx.cusparse


def random_sparse(shape: tuple[int, int], dtype: str, density: float = 0.4) -> Any:
    """Return a CSR matrix in which some rows are empty."""
    dense = operand(RNG, shape, dtype) * (RNG.random(shape) < density)
    dense[shape[0] // 2] = 0
    return scipy.sparse.csr_matrix(dense.astype(dtype))


def dense(array: Any) -> np.ndarray[Any, Any]:
    array = array.toarray() if hasattr(array, "toarray") else array
    found: np.ndarray[Any, Any] = array.get() if hasattr(array, "get") else np.asarray(array)
    return found


def close(found: Any, expected: Any) -> None:
    expected = dense(expected)
    eps = 100 * np.finfo(expected.dtype).eps
    np.testing.assert_allclose(dense(found), expected, rtol=eps, atol=eps)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "matvec": lambda xp, a, b, v: a @ v[: a.shape[1], 0],
    "matvec_of_the_transpose": lambda xp, a, b, v: a.T @ v[: a.shape[0], 0],
    "matmat": lambda xp, a, b, v: a @ v[: a.shape[1]],
    "product": lambda xp, a, b, v: a @ b.T,
    "sum": lambda xp, a, b, v: a + b,
    "difference": lambda xp, a, b, v: a - 2 * b,
    "multiply": lambda xp, a, b, v: a.multiply(b),
    "to_csc": lambda xp, a, b, v: a.tocsc(),
    "to_coo": lambda xp, a, b, v: a.tocoo().tocsr(),
    "from_dense": lambda xp, a, b, v: type(a)(a.toarray()),
    "slices": lambda xp, a, b, v: a[1:5, ::2],
    "row_sums": lambda xp, a, b, v: a.sum(axis=1),
    "from_csc": lambda xp, a, b, v: a.tocsc().tocsr() @ v[: a.shape[1]],
}


@pytest.mark.covering
@DTYPES
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(cp: ModuleType, sparse: ModuleType, name: str, dtype: str) -> None:
    a, b = random_sparse((7, 5), dtype), random_sparse((7, 5), dtype)
    vectors = operand(RNG, (7, 3), dtype)
    found = OPERATIONS[name](cp, *map(sparse.csr_matrix, (a, b)), cp.asarray(vectors))
    close(found, OPERATIONS[name](np, a, b, vectors))


@pytest.mark.covering
@DTYPES
@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_conversions_of_dense_matrices(
    cp: ModuleType, cusparse: ModuleType, kind: str, dtype: str
) -> None:
    matrix = random_sparse((6, 4), dtype)
    converted = cusparse.denseToSparse(cp.asarray(matrix.toarray()), kind)
    assert converted.nnz == matrix.nnz
    close(converted, matrix)
    close(cusparse.sparseToDense(converted), matrix)


@SOME_DTYPES
def test_sums_and_products_keep_their_pattern(
    cp: ModuleType, sparse: ModuleType, cusparse: ModuleType, dtype: str
) -> None:
    """An element that cancels to zero stays an element, as in hipSPARSE."""
    a, b = random_sparse((6, 5), dtype), random_sparse((6, 5), dtype)
    one = sparse.csr_matrix(a)
    total = cusparse.csrgeam2(one, one, 1, -1)
    assert total.nnz == a.nnz
    close(total, a - a)
    product = cusparse.csrgemm2(one, sparse.csr_matrix(b.T.tocsr()), alpha=2)
    close(product, 2 * (a @ b.T))
    added = (a @ b.T).tocsr()
    added.sort_indices()
    other, addend = sparse.csr_matrix(b.T.tocsr()), sparse.csr_matrix(added)
    close(cusparse.csrgemm2(one, other, d=addend, alpha=2, beta=3), 5 * (a @ b.T))


@pytest.mark.parametrize("shape", [(0, 4), (5, 0), (0, 0)])
@pytest.mark.parametrize("columns", [None, 0, 3])
def test_products_without_elements(
    cp: ModuleType, sparse: ModuleType, shape: tuple[int, int], columns: int | None
) -> None:
    a = scipy.sparse.csr_matrix(shape)
    b = np.ones(shape[1:] if columns is None else (shape[1], columns))
    close(sparse.csr_matrix(a) @ cp.asarray(b), a @ b)


def test_a_product_without_terms_scales_the_result(
    cp: ModuleType, sparse: ModuleType, cusparse: ModuleType
) -> None:
    a, y, c = sparse.csr_matrix((3, 0)), cp.arange(3.0), cp.ones((3, 2), order="F")
    close(cusparse.csrmv(a, cp.ones(0), y, beta=2), [0.0, 2.0, 4.0])
    close(cusparse.csrmm2(a, cp.ones((0, 2), order="F"), c, beta=2), np.full((3, 2), 2.0))
    close(cusparse.csrmv(a, cp.ones(0), cp.full(3, cp.nan)), np.zeros(3))


@pytest.mark.parametrize("dtype", ["f4", *swept("f8", "c8", "c16")])
def test_sorting(cp: ModuleType, sparse: ModuleType, cusparse: ModuleType, dtype: str) -> None:
    matrix = random_sparse((6, 5), dtype)
    order = np.concatenate(
        [np.arange(a, b)[::-1] for a, b in zip(matrix.indptr, matrix.indptr[1:], strict=False)]
    )
    shuffled = sparse.csr_matrix(
        tuple(map(cp.asarray, (matrix.data[order], matrix.indices[order], matrix.indptr))),
        shape=matrix.shape,
    )
    cusparse.csrsort(shuffled)
    np.testing.assert_array_equal(shuffled.indices.get(), matrix.indices)
    close(shuffled, matrix)
    coo = matrix.tocoo()
    permutation = RNG.permutation(matrix.nnz)
    parts = [cp.asarray(part[permutation]) for part in (coo.data, coo.row, coo.col)]
    mixed = sparse.coo_matrix((parts[0], (parts[1], parts[2])), shape=matrix.shape)
    for by in "rc":
        cusparse.coosort(mixed, by)
        keys = (coo.col, coo.row) if by == "r" else (coo.row, coo.col)
        expected = np.lexsort(keys)
        np.testing.assert_array_equal(mixed.row.get(), coo.row[expected])
        close(mixed, matrix)


@pytest.mark.covering
@DTYPES
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("transposed", [False, True, "H"])
def test_triangular_solutions(
    cp: ModuleType,
    sparse: ModuleType,
    cusparse: ModuleType,
    lower: bool,
    unit: bool,
    transposed: Any,
    dtype: str,
) -> None:
    full = (random_sparse((6, 6), dtype) + 4 * scipy.sparse.eye(6)).tocsr().astype(dtype)
    right = operand(RNG, (6, 2), dtype)
    # Elements of the other triangle do not count.
    found = cp.asfortranarray(cp.asarray(right))
    cusparse.csrsm2(sparse.csr_matrix(full), found, lower=lower, unit_diag=unit, transa=transposed)
    expected = scipy.linalg.solve_triangular(
        full.toarray(),
        right,
        lower=lower,
        unit_diagonal=unit,
        trans={False: "N", True: "T", "H": "C"}[transposed],
    )
    close(found, expected)
    solved = cusparse.spsm(
        sparse.csr_matrix(full), cp.asarray(right), lower=lower, unit_diag=unit, transa=transposed
    )
    close(solved, expected)


@DTYPES
def test_incomplete_factors_are_exact_without_fill_in(dtype: str) -> None:
    bands = scipy.sparse.diags_array([1.0, -5, 2], offsets=[-1, 0, 1], shape=(6, 6))
    matrix = bands.tocsr().astype(dtype)
    expected = matrix.toarray()
    assert ilu0(matrix) == -1
    factors = matrix.toarray()
    close((np.tril(factors, -1) + np.eye(6, dtype=dtype)) @ np.triu(factors), expected)
    definite = scipy.sparse.diags_array([1.0, 5, 1], offsets=[-1, 0, 1], shape=(6, 6)).tocsr()
    definite = definite.astype(dtype)
    expected = definite.toarray()
    assert ic0(definite) == -1
    factor = np.tril(definite.toarray())
    close(factor @ factor.conj().T, expected)


def test_a_missing_pivot_is_told(cp: ModuleType, sparse: ModuleType, cusparse: ModuleType) -> None:
    matrix = scipy.sparse.csr_matrix(np.array([[1.0, 2, 0], [0, 0, 1], [3, 0, 1]]))
    with pytest.raises(Exception, match=r"a\(1,1\) is missing"):
        cusparse.csrilu02(sparse.csr_matrix(matrix))


@pytest.mark.slow
def test_solvers(cp: ModuleType, sparse: ModuleType) -> None:
    from cupyx.scipy.sparse import linalg

    matrix = scipy.sparse.diags_array([-1.0, 4, -1], offsets=[-1, 0, 1], shape=(30, 30)).tocsr()
    right = RNG.standard_normal(30)
    on_device = sparse.csr_matrix(matrix)
    found, info = linalg.cg(on_device, cp.asarray(right), rtol=1e-12)
    assert info == 0
    expected = scipy.sparse.linalg.spsolve(matrix, right)
    # Each element's error is as large as 1e-12 times the norm of `right`, however small it is.
    np.testing.assert_allclose(found.get(), expected, rtol=0, atol=1e-11)
    largest = linalg.eigsh(on_device, k=2, return_eigenvectors=False)
    expected = np.linalg.eigvalsh(matrix.toarray())[-2:]
    np.testing.assert_allclose(np.sort(largest.get()), expected, rtol=1e-9)


def test_matrix_descriptors_and_statuses(cp: ModuleType) -> None:
    library = Library("libhipsparse.so.4")
    handle = library.handle("hipsparseCreate")
    descriptor = library.handle("hipsparseCreateMatDescr")
    assert library.hipsparseSetMatIndexBase(descriptor, 2) == 3
    assert library.hipsparseSetMatIndexBase(descriptor, 1) == 0
    row_ptr, columns = cp.asarray([1, 3, 4], "i4"), cp.asarray([1, 3, 2], "i4")
    values, out = cp.asarray([5.0, 6, 7]), cp.zeros((3, 2))
    call = library.hipsparseDcsr2dense
    assert call(handle, 2, 3, descriptor, values, row_ptr, columns, out, 2) == 0
    assert out.get().T.tolist() == [[5, 0, 6], [0, 7, 0]]
    assert call(handle, 2, 3, descriptor, values, row_ptr, columns, out, 1) == 3, "lda"
    assert call(handle, 2, 2, descriptor, values, row_ptr, columns, out, 2) == 6, "a column"
    bad = cp.asarray([1, 4, 3], "i4")
    assert call(handle, 2, 3, descriptor, values, bad, columns, out, 2) == 6, "offsets decrease"
    other = ctypes.c_void_p(99)
    assert call(other, 2, 3, descriptor, values, row_ptr, columns, out, 2) == 1
    assert library.hipsparseDestroyMatDescr(descriptor) == 0
    assert library.hipsparseDestroyMatDescr(descriptor) == 3
    assert library.hipsparseDestroy(handle) == 0


def test_generic_descriptors_tell_what_they_hold(cp: ModuleType) -> None:
    library = Library("libhipsparse.so.4")
    made = ctypes.c_void_p()
    row_ptr, columns = cp.asarray([0, 2, 3], "i8"), cp.asarray([0, 2, 1], "i4")
    values = cp.asarray([5.0, 6, 7])
    wide = ctypes.c_longlong
    status = library._loaded.hipsparseCreateCsr(
        ctypes.byref(made),
        wide(2),
        wide(3),
        wide(3),
        ctypes.c_void_p(row_ptr.data.ptr),
        ctypes.c_void_p(columns.data.ptr),
        ctypes.c_void_p(values.data.ptr),
        3,
        2,
        0,
        1,
    )
    assert status == 0
    numbers, kinds = np.zeros(6, np.int64), np.full(5, -1, np.int32)
    at = [numbers[place:] for place in range(6)] + [kinds[place:] for place in range(4)]
    assert library.hipsparseCsrGet(made, *at) == 0
    pointers = [array.data.ptr for array in (row_ptr, columns, values)]
    assert numbers.tolist() == [2, 3, 3, *pointers]
    assert kinds.tolist() == [3, 2, 0, 1, -1]
    handle = library.handle("hipsparseCreate")
    vectors = []
    for array in (cp.asarray([1.0, 2, 3]), cp.empty(2)):
        vector = ctypes.c_void_p()
        at_values = ctypes.c_void_p(array.data.ptr)
        create = library._loaded.hipsparseCreateDnVec
        assert create(ctypes.byref(vector), wide(array.size), at_values, 1) == 0
        vectors.append((vector, array))
    one, zero = np.ones(1), np.zeros(1)
    x, y = vectors[0][0], vectors[1][0]
    assert library.hipsparseSpMV(handle, NONE, one, made, x, zero, y, 1, 0, one) == 0
    assert vectors[1][1].get().tolist() == [23, 14]
    assert library.hipsparseSpMV(handle, TRANSPOSE, one, made, x, zero, y, 1, 0, one) == 3
    assert library.hipsparseSpMV(handle, 7, one, made, x, zero, y, 1, 0, one) == 3
    assert library.hipsparseDestroySpMat(made) == 0
    assert library.hipsparseDestroySpMat(made) == 3


def test_factorisations_of_blocks_are_refused_by_name(cp: ModuleType) -> None:
    from cupy_backends.cuda.libs import cusparse

    with pytest.raises(cusparse.CuSparseError, match="does not support hipsparseSbsrilu02_buffer"):
        cusparse.sbsrilu02_bufferSize(cp.cuda.device.get_cusparse_handle(), *[0] * 9)
