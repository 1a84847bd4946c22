"""rocSOLVER: singular values, Hermitian eigenvalues, and bidiagonal forms."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from cupygemm.emulator.host_libraries.blas_handle import (
    LOWER,
    BlasHandles,
    check_enums,
    check_ld,
    check_pointers,
    check_sizes,
    triangle,
)
from cupygemm.emulator.host_libraries.library import Call, implements

_ALL, _SINGULAR, _OVERWRITE, _NO_VECTORS = 191, 192, 193, 194  # rocblas_svect
_ORIGINAL, _TRIDIAGONAL, _NO_EIGENVECTORS = 211, 212, 213  # rocblas_evect


class Spectra(BlasHandles):
    """The iterative functions."""

    @implements("rocsolver_{s,d,c,z}gesvd")
    def _gesvd(
        self,
        call: Call,
        handle: int,
        left: int,
        right: int,
        m: int,
        n: int,
        a: int,
        lda: int,
        s: int,
        u: int,
        ldu: int,
        v: int,
        ldv: int,
        e: int,
        mode: int,
        info: int,
    ) -> None:
        where = (s, 0), (u, ldu, 0), (v, ldv, 0), (e, 0)
        self._decompose(call, handle, (left, right), (m, n), [a], lda, where, info)

    @implements("rocsolver_{s,d,c,z}gesvd_batched")
    def _gesvd_batched(
        self,
        call: Call,
        handle: int,
        left: int,
        right: int,
        m: int,
        n: int,
        a: int,
        lda: int,
        s: int,
        stride_s: int,
        u: int,
        ldu: int,
        stride_u: int,
        v: int,
        ldv: int,
        stride_v: int,
        e: int,
        stride_e: int,
        mode: int,
        info: int,
        batch_count: int,
    ) -> None:
        check_sizes(call, batch_count=batch_count)
        matrices = (
            call.pointers("a", a, batch_count) if a and m > 0 and n > 0 else [0] * batch_count
        )
        where = (s, stride_s), (u, ldu, stride_u), (v, ldv, stride_v), (e, stride_e)
        self._decompose(call, handle, (left, right), (m, n), matrices, lda, where, info)

    def _decompose(
        self,
        call: Call,
        handle: int,
        vectors: tuple[int, int],
        shape: tuple[int, int],
        matrices: list[int],
        lda: int,
        where: Any,
        info: int,
    ) -> None:
        self.handle(handle)
        left, right = vectors
        k = min(shape)
        (s, stride_s), u, v, (e, stride_e) = where
        _check_svd(call, vectors, shape, lda=lda, ldu=u[1], ldv=v[1])
        if not matrices:
            return
        check_pointers(call, info=info)
        infos = call.write("info", info, (len(matrices),), np.int32)
        infos[...] = 0
        if k == 0:
            return
        decompose = scipy.linalg.lapack.get_lapack_funcs("gesvd", dtype=call.dtype)
        real_size = call.real.itemsize
        wanted = left != _NO_VECTORS or right != _NO_VECTORS
        full = _ALL in vectors
        for place, address in enumerate(matrices):
            check_pointers(call, a=address, s=s)
            matrix = call.matrix("a", address, shape, lda, access="update")
            found_u, values, found_v, infos[place] = decompose(
                matrix, compute_uv=int(wanted), full_matrices=int(full)
            )
            matrix[...] = np.nan
            at = s + place * stride_s * real_size
            call.write("s", at, (k,), call.real)[...] = values
            if k > 1 and e:
                at = e + place * stride_e * real_size
                call.write("e", at, (k - 1,), call.real)[...] = 0
            _store_singular_vectors(call, vectors, matrix, (found_u, found_v), (u, v), place)

    @implements("rocsolver_{s,d}syev", "rocsolver_{c,z}heev")
    def _eigen(
        self,
        call: Call,
        handle: int,
        evect: int,
        uplo: int,
        n: int,
        a: int,
        lda: int,
        d: int,
        e: int,
        info: int,
    ) -> None:
        self._diagonalise(call, handle, (evect, uplo), n, [a], lda, (d, 0), (e, 0), info)

    @implements("rocsolver_{s,d}syev_batched", "rocsolver_{c,z}heev_batched")
    def _eigen_batched(
        self,
        call: Call,
        handle: int,
        evect: int,
        uplo: int,
        n: int,
        a: int,
        lda: int,
        d: int,
        stride_d: int,
        e: int,
        stride_e: int,
        info: int,
        batch_count: int,
    ) -> None:
        check_sizes(call, batch_count=batch_count)
        matrices = call.pointers("a", a, batch_count) if a and n > 0 else [0] * batch_count
        self._diagonalise(
            call, handle, (evect, uplo), n, matrices, lda, (d, stride_d), (e, stride_e), info
        )

    def _diagonalise(
        self,
        call: Call,
        handle: int,
        forms: tuple[int, int],
        n: int,
        matrices: list[int],
        lda: int,
        d: tuple[int, int],
        e: tuple[int, int],
        info: int,
    ) -> None:
        self.handle(handle)
        evect, uplo = forms
        call.check(evect in {_ORIGINAL, _NO_EIGENVECTORS}, f"rocblas_evect {evect}")
        check_enums(call, uplo=uplo)
        check_sizes(call, n=n)
        check_ld(call, lda=(lda, n))
        if not matrices:
            return
        check_pointers(call, info=info)
        infos = call.write("info", info, (len(matrices),), np.int32)
        infos[...] = 0
        if n == 0:
            return
        used = triangle(n, uplo)
        name = "heev" if call.dtype.kind == "c" else "syev"
        diagonalise = scipy.linalg.lapack.get_lapack_funcs(name, dtype=call.dtype)
        for place, address in enumerate(matrices):
            check_pointers(call, a=address, d=d[0])
            matrix = call.matrix("a", address, (n, n), lda, used=used)
            values, vectors, infos[place] = diagonalise(
                matrix, compute_v=int(evect == _ORIGINAL), lower=int(uplo == LOWER)
            )
            if evect == _ORIGINAL:
                call.matrix("a", address, (n, n), lda, access="write")[...] = vectors
            else:
                out = call.matrix("a", address, (n, n), lda, access="write", used=used)
                np.copyto(out, np.nan, where=used)
            at = d[0] + place * d[1] * call.real.itemsize
            call.write("d", at, (n,), call.real)[...] = values
            if n > 1 and e[0]:
                at = e[0] + place * e[1] * call.real.itemsize
                call.write("e", at, (n - 1,), call.real)[...] = 0

    @implements("rocsolver_{s,d,c,z}gebrd")
    def _gebrd(
        self,
        call: Call,
        handle: int,
        m: int,
        n: int,
        a: int,
        lda: int,
        d: int,
        e: int,
        tauq: int,
        taup: int,
    ) -> None:
        self.handle(handle)
        check_sizes(call, m=m, n=n)
        check_ld(call, lda=(lda, m))
        k = min(m, n)
        if k == 0:
            return
        check_pointers(call, a=a, d=d, tauq=tauq, taup=taup)
        matrix = call.matrix("a", a, (m, n), lda, access="update")
        matrix[...], diagonal, beside, factors_q, factors_p = bidiagonal(matrix)
        call.write("d", d, (k,), call.real)[...] = diagonal
        if k > 1:
            check_pointers(call, e=e)
            call.write("e", e, (k - 1,), call.real)[...] = beside
        call.write("tauq", tauq, (k,), call.dtype)[...] = factors_q
        call.write("taup", taup, (k,), call.dtype)[...] = factors_p


def bidiagonal(a: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Return the results of LAPACK's gebrd: the reflectors, d, e, tauq and taup.

    SciPy has no wrapper for it, but exports the function's address.
    """
    matrix = np.array(a, order="F")
    (m, n), k = matrix.shape, min(matrix.shape)
    real = matrix.dtype.char.lower()
    arrays = [np.zeros(k, real), np.zeros(max(k - 1, 1), real)]
    arrays += [np.zeros(k, matrix.dtype) for _ in range(2)]
    work = np.zeros(64 * (m + n), matrix.dtype)
    letter = {"f": "s", "d": "d", "F": "c", "D": "z"}[matrix.dtype.char]
    capsule = scipy.linalg.cython_lapack.__pyx_capi__[f"{letter}gebrd"]
    api = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", api)
    )
    address = pointer_of(capsule, name_of(capsule))
    integers = [ctypes.c_int(value) for value in (m, n, max(1, m), work.size, 0)]
    rows, columns, ld, length, info = map(ctypes.byref, integers)
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (matrix, *arrays, work)]
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 11)(address)
    function(rows, columns, pointers[0], ld, *pointers[1:], length, info)
    return matrix, arrays[0], arrays[1][: k - 1], arrays[2], arrays[3]


def _check_svd(
    call: Call, vectors: tuple[int, int], shape: tuple[int, int], *, lda: int, ldu: int, ldv: int
) -> None:
    """Check the arguments of a singular value decomposition."""
    left, right = vectors
    (m, n), k = shape, min(shape)
    kinds = {_ALL, _SINGULAR, _OVERWRITE, _NO_VECTORS}
    call.check(left in kinds and right in kinds, f"rocblas_svect {left}, {right}")
    call.check(left != _OVERWRITE or right != _OVERWRITE, "both overwrite a")
    check_sizes(call, m=m, n=n)
    check_ld(call, lda=(lda, m))
    check_ld(call, ldu=(ldu, m if left in {_ALL, _SINGULAR} else 1))
    check_ld(call, ldv=(ldv, {_ALL: n, _SINGULAR: k}.get(right, 1)))


def _store_singular_vectors(
    call: Call,
    vectors: tuple[int, int],
    matrix: Any,
    found: tuple[Any, Any],
    where: Any,
    place: int,
) -> None:
    """Store the singular vectors of one matrix: in `u` and `v`, or over the matrix."""
    left, right = vectors
    (m, n), k = matrix.shape, min(matrix.shape)
    found_u, found_v = found
    (u, ldu, stride_u), (v, ldv, stride_v) = where
    size = call.dtype.itemsize
    if left in {_ALL, _SINGULAR}:
        columns = m if left == _ALL else k
        at = u + place * stride_u * size
        call.matrix("u", at, (m, columns), ldu, access="write")[...] = found_u[:, :columns]
    elif left == _OVERWRITE:
        matrix[:, :k] = found_u[:, :k]
    if right in {_ALL, _SINGULAR}:
        rows = n if right == _ALL else k
        at = v + place * stride_v * size
        call.matrix("v", at, (rows, n), ldv, access="write")[...] = found_v[:rows]
    elif right == _OVERWRITE:
        matrix[:k] = found_v[:k]
