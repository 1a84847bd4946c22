"""The stand-in rocSOLVER: `cupy.linalg` against NumPy, and calls from C."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.emulator.host_libraries.calls import LETTERS, NULL, Library, operand, padded, unpadded

UPPER, LOWER = 121, 122
RNG = np.random.default_rng(12)
DTYPES = pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
MATRIX = operand(RNG, (6, 6), "c16")

CASES: dict[str, Callable[[Any, Any], Any]] = {
    "solve": lambda xp, a: xp.linalg.solve(a, a[:, :2] + 1),
    "solve_batched": lambda xp, a: xp.linalg.solve(xp.stack([a, a.T]), xp.stack([a, a])),
    "inv": lambda xp, a: xp.linalg.inv(a),
    "inv_batched": lambda xp, a: xp.linalg.inv(xp.stack([a, a.T])),
    "slogdet": lambda xp, a: xp.linalg.slogdet(xp.stack([a, 2 * a]))[1],
    "cholesky": lambda xp, a: xp.linalg.cholesky(a @ a.conj().T + 6 * xp.eye(6)),
    "cholesky_batched": lambda xp, a: xp.linalg.cholesky(
        xp.stack([a @ a.conj().T + 6 * xp.eye(6), 2 * xp.eye(6)])
    ),
    "eigvalsh": lambda xp, a: xp.linalg.eigvalsh(a + a.conj().T),
    "eigvalsh_upper": lambda xp, a: xp.linalg.eigvalsh(a, UPLO="U"),
    "eigh_batched": lambda xp, a: xp.linalg.eigh(xp.stack([a, a + a.conj().T]))[0],
    "svd": lambda xp, a: xp.linalg.svd(a[:, :4], compute_uv=False),
    "svd_batched": lambda xp, a: xp.linalg.svd(xp.stack([a, a.T]))[1],
    "qr_r": lambda xp, a: abs(xp.linalg.qr(a[:, :4], mode="r")),
    "lstsq": lambda xp, a: xp.linalg.lstsq(a[:, :4], a[:, 4:], rcond=None)[0],
    "pinv": lambda xp, a: xp.linalg.pinv(a[:, :3]),
    "matrix_rank": lambda xp, a: xp.linalg.matrix_rank(a),
}


@pytest.mark.covering
@DTYPES
@pytest.mark.parametrize("name", CASES)
def test_linalg(cp: ModuleType, name: str, dtype: str) -> None:
    matrix = MATRIX.astype(dtype) if np.dtype(dtype).kind == "c" else MATRIX.real.astype(dtype)
    found, expected = CASES[name](cp, cp.asarray(matrix)), CASES[name](np, matrix)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(found.get(), expected, rtol=2000 * eps, atol=2000 * eps)


@DTYPES
@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_factors_multiply_to_the_matrix(cp: ModuleType, shape: tuple[int, int], dtype: str) -> None:
    matrix = operand(RNG, shape, dtype)
    array = cp.asarray(matrix)
    close = {"rtol": 500 * np.finfo(dtype).eps, "atol": 500 * np.finfo(dtype).eps}
    for full in (False, True):
        u, s, v = (each.get() for each in cp.linalg.svd(array, full_matrices=full))
        k = min(shape)
        assert u.shape == (shape[0], shape[0] if full else k)
        np.testing.assert_allclose((u[:, :k] * s) @ v[:k], matrix, **close)
        np.testing.assert_allclose(u.conj().T @ u, np.eye(u.shape[1]), **close)
    for mode in ("reduced", "complete"):
        q, r = (each.get() for each in cp.linalg.qr(array, mode=mode))
        np.testing.assert_allclose(q @ r, matrix, **close)
        np.testing.assert_allclose(q.conj().T @ q, np.eye(q.shape[1]), **close)


def test_a_matrix_that_is_not_positive_definite(cp: ModuleType) -> None:
    import cupyx

    raising = cupyx.errstate(linalg="raise")
    with raising, pytest.raises(np.linalg.LinAlgError, match="dpotrf"):
        cp.linalg.cholesky(-cp.eye(3))


@pytest.fixture
def solver(cp: ModuleType) -> tuple[Library, ctypes.c_void_p]:
    return Library("librocsolver.so.0"), Library("librocblas.so.5").handle("rocblas_create_handle")


@pytest.mark.parametrize("letter", "SDCZ")
@pytest.mark.parametrize("uplo", [UPPER, LOWER])
def test_potrf_touches_one_triangle(cp: ModuleType, solver: Any, letter: str, uplo: int) -> None:
    library, handle = solver
    a = operand(RNG, (4, 4), LETTERS[letter])
    a = a @ a.conj().T + 4 * np.eye(4, dtype=a.dtype)
    used = np.triu(np.ones((4, 4), bool)) if uplo == UPPER else np.tril(np.ones((4, 4), bool))
    stored = np.where(used, a, a.dtype.type(7))
    at, info = padded(cp, stored, 6), cp.full(1, 9, np.int32)
    assert getattr(library, f"rocsolver_{letter.lower()}potrf")(handle, uplo, 4, at, 6, info) == 0
    assert info[0] == 0
    found = unpadded(at, 4)
    assert (found[~used] == 7).all()
    factor = np.where(used, found, 0)
    product = factor.conj().T @ factor if uplo == UPPER else factor @ factor.conj().T
    np.testing.assert_allclose(product, a, rtol=1e-5, atol=1e-5)
    stored[2, 2] = -1
    at = padded(cp, stored, 6)
    assert getattr(library, f"rocsolver_{letter.lower()}potrf")(handle, uplo, 4, at, 6, info) == 0
    assert info[0] == 3, "the order of the minor that is not positive"


@pytest.mark.parametrize("letter", "SDCZ")
def test_getrf_of_a_singular_matrix(cp: ModuleType, solver: Any, letter: str) -> None:
    library, handle = solver
    a = operand(RNG, (5, 3), LETTERS[letter])
    a[:, 1] = 0
    at, ipiv, info = padded(cp, a, 5), cp.empty(3, np.int32), cp.empty(1, np.int32)
    getrf = getattr(library, f"rocsolver_{letter.lower()}getrf")
    assert getrf(handle, 5, 3, at, 5, ipiv, info) == 0
    assert info[0] == 2
    assert ipiv[0] == 1 + np.argmax(abs(a[:, 0].real) + abs(a[:, 0].imag))


@pytest.mark.parametrize("letter", "SDCZ")
@pytest.mark.parametrize("shape", [(5, 3), (3, 5)])
def test_gebrd(cp: ModuleType, solver: Any, letter: str, shape: tuple[int, int]) -> None:
    """The bidiagonal matrix has the singular values of the matrix."""
    library, handle = solver
    a = operand(RNG, shape, LETTERS[letter])
    real = "f4" if letter in "SC" else "f8"
    at, d, e = padded(cp, a, 6), cp.empty(3, real), cp.empty(2, real)
    factors = cp.empty(3, a.dtype), cp.empty(3, a.dtype)
    gebrd = getattr(library, f"rocsolver_{letter.lower()}gebrd")
    assert gebrd(handle, *shape, at, 6, d, e, *factors) == 0
    beside = np.diag(e.get(), 1 if shape[0] >= shape[1] else -1)
    found = np.linalg.svd(np.diag(d.get()) + beside, compute_uv=False)
    expected = np.linalg.svd(a, compute_uv=False)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_statuses(cp: ModuleType, solver: Any) -> None:
    library, handle = solver
    a, info = cp.eye(4), cp.zeros(1, np.int32)
    assert library.rocsolver_dpotrf(NULL, LOWER, 4, a, 4, info) == 1
    assert library.rocsolver_dpotrf(handle, 5, 4, a, 4, info) == 11
    assert library.rocsolver_dpotrf(handle, LOWER, -1, a, 4, info) == 4
    assert library.rocsolver_dpotrf(handle, LOWER, 4, a, 3, info) == 4
    assert library.rocsolver_dpotrf(handle, LOWER, 4, NULL, 4, info) == 3
    assert library.rocsolver_dpotrf(handle, LOWER, 4, a, 4, NULL) == 3
    assert library.rocsolver_dpotrf(handle, LOWER, 5, a, 5, info) == 6, "a leaves its array"
    info[...] = 9
    assert library.rocsolver_dpotrf(handle, LOWER, 0, NULL, 1, info) == 0
    assert info[0] == 0
    stream = np.zeros(1, np.uint64)
    own = cp.cuda.Stream(non_blocking=True)
    blas = Library("librocblas.so.5")
    assert blas.rocblas_set_stream(handle, ctypes.c_void_p(own.ptr)) == 0
    assert blas.rocblas_get_stream(handle, stream) == 0
    assert stream[0] == own.ptr
    assert blas.rocblas_destroy_handle(handle) == 0
    assert blas.rocblas_destroy_handle(handle) == 1
