"""The stand-in hipBLAS: called as C calls it, against NumPy; its statuses; CuPy's products."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.emulator.host_libraries.calls import (
    LETTERS,
    NULL,
    Library,
    operand,
    padded,
    pointers,
    unpadded,
)
from tests.tables import swept

N, T, C = 111, 112, 113
UPPER, LOWER, NON_UNIT, UNIT, LEFT, RIGHT = 121, 122, 131, 132, 141, 142
APPLIED = {N: lambda x: x, T: lambda x: x.T, C: lambda x: x.conj().T}
RNG = np.random.default_rng(11)
FAMILIES = pytest.mark.parametrize("letter", "SDCZ")


@pytest.fixture
def blas(cp: ModuleType) -> Iterator[tuple[Library, ctypes.c_void_p]]:
    library = Library("libhipblas.so.3")
    handle = library.handle("hipblasCreate")
    yield library, handle
    assert library.hipblasDestroy(handle) == 0


def close(found: Any, expected: Any) -> None:
    eps = np.finfo(np.asarray(expected).dtype).eps
    np.testing.assert_allclose(found, expected, rtol=60 * eps, atol=60 * eps)


def number(letter: str, value: complex) -> np.ndarray[Any, Any]:
    return np.array([value], LETTERS[letter])


@pytest.mark.covering
@FAMILIES
@pytest.mark.parametrize(("op_a", "op_b"), [(N, N), (T, N), (N, C), (C, T)])
def test_gemm(cp: ModuleType, blas: Any, letter: str, op_a: int, op_b: int) -> None:
    library, handle = blas
    m, n, k = 5, 7, 3
    a = operand(RNG, (m, k) if op_a == N else (k, m), LETTERS[letter])
    b = operand(RNG, (k, n) if op_b == N else (n, k), LETTERS[letter])
    c = operand(RNG, (m, n), LETTERS[letter])
    alpha, beta = number(letter, 1.5), number(letter, -0.5)
    on_device = padded(cp, a, 9), padded(cp, b, 8), padded(cp, c, 6)
    status = getattr(library, f"hipblas{letter}gemm")(
        handle, op_a, op_b, m, n, k, alpha, on_device[0], 9, on_device[1], 8, beta, on_device[2], 6
    )
    assert status == 0
    close(unpadded(on_device[2], m), alpha * (APPLIED[op_a](a) @ APPLIED[op_b](b)) + beta * c)


@FAMILIES
def test_batched_products(cp: ModuleType, blas: Any, letter: str) -> None:
    library, handle = blas
    dtype = LETTERS[letter]
    a, b = operand(RNG, (3, 4, 2), dtype), operand(RNG, (3, 2, 5), dtype)
    columns = [cp.asarray(np.ascontiguousarray(x.swapaxes(1, 2))) for x in (a, b)]
    out = cp.empty((3, 5, 4), dtype)
    one, zero = number(letter, 1), number(letter, 0)
    wide = ctypes.c_longlong
    status = getattr(library, f"hipblas{letter}gemmStridedBatched")(
        handle,
        N,
        N,
        4,
        5,
        2,
        one,
        columns[0],
        4,
        wide(8),
        columns[1],
        2,
        wide(10),
        zero,
        out,
        4,
        wide(20),
        3,
    )
    assert status == 0
    close(out.get().swapaxes(1, 2), a @ b)
    out = cp.empty((3, 5, 4), dtype)
    lists = [pointers(cp, list(each)) for each in (*columns, out)]
    status = getattr(library, f"hipblas{letter}gemmBatched")(
        handle, N, N, 4, 5, 2, one, lists[0], 4, lists[1], 2, zero, lists[2], 4, 3
    )
    assert status == 0
    close(out.get().swapaxes(1, 2), a @ b)


def test_a_product_with_a_beta_of_zero_does_not_read_its_result(cp: ModuleType, blas: Any) -> None:
    library, handle = blas
    a, out = cp.ones((4, 4), np.float32), cp.full((4, 4), np.nan, np.float32)
    one, zero = number("S", 1), number("S", 0)
    arguments = (handle, N, N, 4, 4, 4, one, a, 4, a, 4, zero, out, 4)
    assert library.hipblasSgemm(*arguments) == 0
    assert (out == 4).all()
    # With alpha 0, neither factor is read, and null pointers will do.
    assert library.hipblasSgemm(handle, N, N, 4, 4, 4, zero, NULL, 4, NULL, 4, zero, out, 4) == 0
    assert (out == 0).all()


@pytest.mark.parametrize(
    ("types", "compute"),
    [("f2 f2 f2", 2), ("f2 f2 f4", 2), ("i1 i1 i4", 9), ("f4 f4 f4", 2), ("c8 c8 c8", 2)],
)
def test_gemm_ex(cp: ModuleType, blas: Any, types: str, compute: int) -> None:
    library, handle = blas
    codes = {"f4": 0, "f8": 1, "f2": 2, "i1": 3, "c8": 4, "i4": 10}
    left, right, out = types.split()
    a, b = RNG.integers(-4, 5, (6, 3)).astype(left), RNG.integers(-4, 5, (3, 2)).astype(right)
    result = cp.empty((2, 6), out)
    scalar = "i4" if compute == 9 else "c8" if out == "c8" else "f4"
    one, zero = np.ones(1, scalar), np.zeros(1, scalar)
    status = library.hipblasGemmEx(
        handle,
        N,
        N,
        6,
        2,
        3,
        one,
        cp.asarray(a.T.copy()),
        codes[left],
        6,
        cp.asarray(b.T.copy()),
        codes[right],
        3,
        zero,
        result,
        codes[out],
        6,
        compute,
        160,
    )
    assert status == 0
    wide = np.result_type(np.dtype(out), "f4")
    np.testing.assert_array_equal(result.get().T.astype(wide), a.astype(wide) @ b.astype(wide))


@FAMILIES
@pytest.mark.parametrize("increment", [1, 3, -2])
def test_vectors(cp: ModuleType, blas: Any, letter: str, increment: int) -> None:
    library, handle = blas
    dtype, n = LETTERS[letter], 5
    values, other = operand(RNG, (2, n * 3), dtype)
    step = slice(None, n * increment, increment) if increment > 0 else slice(8, None, -2)
    x, y = values[step], other[:n]
    on_device = cp.asarray(values), cp.asarray(other)
    out = np.zeros(1, dtype)
    for name in ("dotu", "dotc") if letter in "CZ" else ("dot",):
        call = getattr(library, f"hipblas{letter}{name}")
        assert call(handle, n, on_device[0], increment, on_device[1], 1, out) == 0
        close(out[0], np.vdot(x, y) if name == "dotc" else x @ y)
    axpy = getattr(library, f"hipblas{letter}axpy")
    assert axpy(handle, n, number(letter, 2), on_device[0], increment, on_device[1], 1) == 0
    close(on_device[1].get()[:n], 2 * x + y)
    if increment > 0:
        real = np.zeros(1, dtype.replace("c8", "f4").replace("c16", "f8"))
        own = {"C": "Sc", "Z": "Dz"}.get(letter, letter)
        assert getattr(library, f"hipblas{own}nrm2")(handle, n, on_device[0], increment, real) == 0
        close(real[0], np.linalg.norm(x).astype(real.dtype))
        assert getattr(library, f"hipblas{own}asum")(handle, n, on_device[0], increment, real) == 0
        close(real[0], (abs(x.real) + abs(x.imag)).sum())
        place = np.zeros(1, np.int32)
        amax = getattr(library, f"hipblasI{letter.lower()}amax")
        assert amax(handle, n, on_device[0], increment, place) == 0
        assert place[0] == 1 + np.argmax(abs(x.real) + abs(x.imag))


def test_a_handle_keeps_its_stream_and_pointer_mode(cp: ModuleType, blas: Any) -> None:
    library, handle = blas
    mode, stream = np.full(1, 9, np.int32), np.zeros(1, np.uint64)
    assert library.hipblasGetPointerMode(handle, mode) == 0
    assert mode[0] == 0
    assert library.hipblasSetPointerMode(handle, 1) == 0
    x, result = cp.asarray([3.0, 4.0]), cp.empty(1, np.float64)
    assert library.hipblasDnrm2(handle, 2, x, 1, result) == 0
    assert result[0] == 5
    assert library.hipblasDscal(handle, 2, np.ones(1), x, 1) == 5, "alpha must be on the device"
    own = cp.cuda.Stream(non_blocking=True)
    assert library.hipblasSetStream(handle, ctypes.c_void_p(own.ptr)) == 0
    assert library.hipblasGetStream(handle, stream) == 0
    assert stream[0] == own.ptr
    assert library.hipblasSetPointerMode(handle, 7) == 10


@FAMILIES
@pytest.mark.parametrize("op", [N, T, C])
def test_gemv_and_ger(cp: ModuleType, blas: Any, letter: str, op: int) -> None:
    library, handle = blas
    dtype = LETTERS[letter]
    a = operand(RNG, (4, 6), dtype)
    rows, columns = (4, 6) if op == N else (6, 4)
    x, y = operand(RNG, (columns,), dtype), operand(RNG, (rows,), dtype)
    at, to = padded(cp, a, 5), cp.asarray(y)
    alpha, beta = number(letter, 2), number(letter, 3)
    gemv = getattr(library, f"hipblas{letter}gemv")
    assert gemv(handle, op, 4, 6, alpha, at, 5, cp.asarray(x), 1, beta, to, 1) == 0
    close(to.get(), 2 * APPLIED[op](a) @ x + 3 * y)
    left, right = operand(RNG, (4,), dtype), operand(RNG, (6,), dtype)
    for name in ("geru", "gerc") if letter in "CZ" else ("ger",):
        at = padded(cp, a, 5)
        ger = getattr(library, f"hipblas{letter}{name}")
        assert ger(handle, 4, 6, alpha, cp.asarray(left), 1, cp.asarray(right), 1, at, 5) == 0
        other = right.conj() if name == "gerc" else right
        close(unpadded(at, 4), a + 2 * np.outer(left, other))


@pytest.mark.parametrize("uplo", [UPPER, LOWER])
def test_sbmv(cp: ModuleType, blas: Any, uplo: int) -> None:
    library, handle = blas
    n, k = 6, 2
    full = operand(RNG, (n, n), "f8")
    full = np.triu(np.tril(full + full.T, k), -k)
    band = np.full((k + 1, n), np.nan)
    for column in range(n):
        for row in range(max(0, column - k), min(n, column + k + 1)):
            if uplo == UPPER and row <= column:
                band[k + row - column, column] = full[row, column]
            elif uplo == LOWER and row >= column:
                band[row - column, column] = full[row, column]
    x, y = operand(RNG, (n,), "f8"), cp.empty(n)
    one, zero = np.ones(1), np.zeros(1)
    at = padded(cp, band, 4)
    assert library.hipblasDsbmv(handle, uplo, n, k, one, at, 4, cp.asarray(x), 1, zero, y, 1) == 0
    close(y.get(), full @ x)


@FAMILIES
@pytest.mark.parametrize("side", [LEFT, RIGHT])
@pytest.mark.parametrize(("uplo", "op", "diag"), [(UPPER, N, NON_UNIT), (LOWER, C, UNIT)])
def test_trsm(
    cp: ModuleType, blas: Any, letter: str, side: int, uplo: int, op: int, diag: int
) -> None:
    library, handle = blas
    m, n = 4, 3
    order = m if side == LEFT else n
    a = operand(RNG, (order, order), LETTERS[letter]) + 4 * np.eye(order, dtype=LETTERS[letter])
    b = operand(RNG, (m, n), LETTERS[letter])
    used = np.triu(a) if uplo == UPPER else np.tril(a)
    stored = used + np.where(used == 0, np.nan, 0)  # the other triangle must not matter
    if diag == UNIT:
        np.fill_diagonal(used, 1)
        np.fill_diagonal(stored, np.nan)
    left, right = padded(cp, stored.astype(a.dtype), 6), padded(cp, b, 5)
    trsm = getattr(library, f"hipblas{letter}trsm")
    arguments = (handle, side, uplo, op, diag, m, n, number(letter, 2), left, 6, right, 5)
    assert trsm(*arguments) == 0
    x = unpadded(right, m)
    close(APPLIED[op](used) @ x if side == LEFT else x @ APPLIED[op](used), 2 * b)


@FAMILIES
def test_syrk_geam_and_dgmm(cp: ModuleType, blas: Any, letter: str) -> None:
    library, handle = blas
    dtype = LETTERS[letter]
    a, c = operand(RNG, (4, 3), dtype), operand(RNG, (4, 4), dtype)
    out = padded(cp, c, 5)
    alpha, beta = number(letter, 2), number(letter, 1)
    syrk = getattr(library, f"hipblas{letter}syrk")
    assert syrk(handle, LOWER, N, 4, 3, alpha, padded(cp, a, 4), 4, beta, out, 5) == 0
    close(unpadded(out, 4), np.where(np.tril(np.ones((4, 4))), 2 * a @ a.T + c, c))
    geam = getattr(library, f"hipblas{letter}geam")
    b, out = operand(RNG, (3, 4), dtype), padded(cp, np.zeros((3, 4), dtype), 3)
    sources = padded(cp, a, 4), padded(cp, b, 6)
    assert geam(handle, C, N, 3, 4, alpha, sources[0], 4, beta, sources[1], 6, out, 3) == 0
    close(unpadded(out, 3), 2 * a.conj().T + b)
    dgmm = getattr(library, f"hipblas{letter}dgmm")
    for side, x in ((LEFT, operand(RNG, (4,), dtype)), (RIGHT, operand(RNG, (3,), dtype))):
        out = padded(cp, np.zeros((4, 3), dtype), 4)
        assert dgmm(handle, side, 4, 3, sources[0], 4, cp.asarray(x), 1, out, 4) == 0
        close(unpadded(out, 4), x[:, None] * a if side == LEFT else a * x)


@FAMILIES
@pytest.mark.parametrize("pivoted", [True, False])
def test_batched_lu(cp: ModuleType, blas: Any, letter: str, pivoted: bool) -> None:
    library, handle = blas
    dtype, n = LETTERS[letter], 4
    matrices = operand(RNG, (3, n, n), dtype) + 3 * np.eye(n, dtype=dtype)
    matrices[1, :, 2] = 0  # singular
    factors = cp.asarray(matrices.swapaxes(1, 2).copy())
    ipiv, info = cp.zeros((3, n), np.int32), cp.full(3, 9, np.int32)
    at = pointers(cp, list(factors))
    pivots = ipiv if pivoted else NULL
    assert getattr(library, f"hipblas{letter}getrfBatched")(handle, n, at, n, pivots, info, 3) == 0
    assert info.get().tolist() == [0, 3, 0]
    out = cp.full((3, n, n), np.nan, dtype)
    getri = getattr(library, f"hipblas{letter}getriBatched")
    assert getri(handle, n, at, n, pivots, pointers(cp, list(out)), n, info, 3) == 0
    assert info.get().tolist() == [0, 3, 0]
    for place in (0, 2):
        close(out.get()[place].T @ matrices[place], np.eye(n, dtype=dtype))
    if pivoted:
        b = operand(RNG, (3, n, 2), dtype)
        values, host_info = cp.asarray(b.swapaxes(1, 2).copy()), np.full(1, 9, np.int32)
        getrs = getattr(library, f"hipblas{letter}getrsBatched")
        chosen = pointers(cp, [factors[0], factors[2]]), pointers(cp, [values[0], values[2]])
        both = cp.asarray(ipiv[[0, 2]])
        arguments = (handle, T, n, 2, chosen[0], n, both, chosen[1], n, host_info, 2)
        assert getrs(*arguments) == 0
        assert host_info[0] == 0
        for place in (0, 2):
            close(matrices[place].T @ values.get()[place].T, b[place])


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ((110, N, 2, 2, 2, 2, 2, 2), 10),
        ((N, N, -1, 2, 2, 2, 2, 2), 3),
        ((N, N, 2, 2, 2, 1, 2, 2), 3),
        ((N, T, 2, 3, 2, 2, 2, 2), 3),
        ((N, N, 2, 2, 2, 2, 2, 1), 3),
        ((N, N, 0, 2, 2, 2, 2, 2), 0),
    ],
)
def test_statuses_of_a_product(
    cp: ModuleType, blas: Any, arguments: tuple[int, ...], status: int
) -> None:
    library, handle = blas
    op_a, op_b, m, n, k, lda, ldb, ldc = arguments
    a, one = cp.ones((4, 4)), np.ones(1)
    call = library.hipblasDgemm
    assert call(handle, op_a, op_b, m, n, k, one, a, lda, a, ldb, one, a, ldc) == status
    assert call(NULL, N, N, 2, 2, 2, one, a, 2, a, 2, one, a, 2) == 1, "no handle"
    assert call(handle, N, N, 2, 2, 2, one, NULL, 2, a, 2, one, a, 2) == 3, "a is null"
    assert call(handle, N, N, 2, 2, 2, NULL, a, 2, a, 2, one, a, 2) == 3, "alpha is null"
    beyond = (handle, N, N, 4, 4, 4, one, a, 4, a, 4, one, a, 5)
    assert call(*beyond) == 5, "the result leaves its array"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f2", "f4", "c8", *swept("f8", "c16")])
def test_products_of_cupy(cp: ModuleType, dtype: str) -> None:
    a, b = operand(RNG, (5, 4), dtype), operand(RNG, (4, 6), dtype)
    stack = operand(RNG, (3, 4, 4), dtype)
    left, right, many = cp.asarray(a), cp.asarray(b), cp.asarray(stack)
    eps = np.finfo(dtype).eps
    for found, expected in (
        (left @ right, a @ b),
        (right.T @ left.T, b.T @ a.T),
        (left[::2, 1:] @ right[1:], a[::2, 1:] @ b[1:]),
        (cp.matmul(many, many), stack @ stack),
        (left @ right[:, 0], a @ b[:, 0]),
        (cp.dot(left[0], right[:, 0]), a[0] @ b[:, 0]),
        (cp.tensordot(many, many[0], 1), np.tensordot(stack, stack[0], 1)),
        (cp.einsum("bij,bjk->bik", many, many), stack @ stack),
    ):
        np.testing.assert_allclose(found.get(), expected, rtol=40 * eps, atol=40 * eps)
