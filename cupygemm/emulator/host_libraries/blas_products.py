"""hipBLAS, level 3: all forms of GEMM, by this package's kernels if they support the type."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupygemm.emulator.host_libraries.blas_handle import (
    NONE,
    HipBlasHandles,
    check_enums,
    check_ld,
    check_pointers,
    check_sizes,
)
from cupygemm.emulator.host_libraries.library import Call, LibraryError, implements
from cupygemm.emulator.host_libraries.products import DATA_TYPES, Stack, product

# hipblasComputeType_t: the type of the sums and of alpha and beta.
_COMPUTE = {0: "f2", 1: "f2", 7: "f8", 8: "f8", 9: "i4", 10: "i4"} | dict.fromkeys(
    range(2, 7), "f4"
)


class Products(HipBlasHandles):
    """All forms of GEMM."""

    def _gemm(
        self,
        call: Call,
        handle: int,
        alpha: int,
        beta: int,
        a: Stack,
        b: Stack,
        c: Stack,
        compute: np.dtype[Any] | None = None,
    ) -> None:
        """Check the arguments that all forms of a product share, and compute it."""
        known = self.handle(handle)
        check_enums(call, op_a=a.operation, op_b=b.operation)
        sizes = {"batch_count": c.shape[0], "m": c.shape[1], "n": c.shape[2]}
        inner = a.shape[2] if a.operation == NONE else a.shape[1]
        check_sizes(call, **sizes, k=inner)
        check_ld(call, lda=(a.ld, a.shape[1]), ldb=(b.ld, b.shape[1]), ldc=(c.ld, c.shape[1]))
        if 0 in c.shape:
            return
        compute = compute or call.dtype
        factor = self.scalar(call, known, "alpha", alpha, compute)
        keep = self.scalar(call, known, "beta", beta, compute)
        if factor != 0 and inner != 0:
            check_pointers(call, a=a.address, b=b.address)
        check_pointers(call, c=c.address)
        product(call, factor.item(), a, b, keep.item(), c, compute)

    @implements("hipblas{S,D,C,Z}gemm")
    def _plain(
        self,
        call: Call,
        handle: int,
        op_a: int,
        op_b: int,
        m: int,
        n: int,
        k: int,
        alpha: int,
        a: int,
        lda: int,
        b: int,
        ldb: int,
        beta: int,
        c: int,
        ldc: int,
    ) -> None:
        left, right = _operands(call, op_a, op_b, (1, m, n, k), (a, lda, 0), (b, ldb, 0))
        out = Stack("c", c, (1, m, n), ldc, 0, call.dtype)
        self._gemm(call, handle, alpha, beta, left, right, out)

    @implements("hipblas{S,D,C,Z}gemmStridedBatched")
    def _strided(
        self,
        call: Call,
        handle: int,
        op_a: int,
        op_b: int,
        m: int,
        n: int,
        k: int,
        alpha: int,
        a: int,
        lda: int,
        stride_a: int,
        b: int,
        ldb: int,
        stride_b: int,
        beta: int,
        c: int,
        ldc: int,
        stride_c: int,
        batch_count: int,
    ) -> None:
        sizes = (batch_count, m, n, k)
        left, right = _operands(call, op_a, op_b, sizes, (a, lda, stride_a), (b, ldb, stride_b))
        out = Stack("c", c, (batch_count, m, n), ldc, stride_c, call.dtype)
        self._gemm(call, handle, alpha, beta, left, right, out)

    @implements("hipblas{S,D,C,Z}gemmBatched")
    def _batched(
        self,
        call: Call,
        handle: int,
        op_a: int,
        op_b: int,
        m: int,
        n: int,
        k: int,
        alpha: int,
        a: int,
        lda: int,
        b: int,
        ldb: int,
        beta: int,
        c: int,
        ldc: int,
        batch_count: int,
    ) -> None:
        self.handle(handle)
        check_sizes(call, batch_count=batch_count)
        if batch_count == 0:
            return
        check_pointers(call, a=a, b=b, c=c)
        lists = [call.pointers(name, at, batch_count) for name, at in zip("abc", (a, b, c))]  # noqa: B905
        for at_a, at_b, at_c in zip(*lists, strict=True):
            left, right = _operands(call, op_a, op_b, (1, m, n, k), (at_a, lda, 0), (at_b, ldb, 0))
            out = Stack("c", at_c, (1, m, n), ldc, 0, call.dtype)
            self._gemm(call, handle, alpha, beta, left, right, out)

    @implements("hipblasGemmEx")
    def _typed(
        self,
        call: Call,
        handle: int,
        op_a: int,
        op_b: int,
        m: int,
        n: int,
        k: int,
        alpha: int,
        a: int,
        type_a: int,
        lda: int,
        b: int,
        type_b: int,
        ldb: int,
        beta: int,
        c: int,
        type_c: int,
        ldc: int,
        compute_type: int,
        algorithm: int,
    ) -> None:
        self._typed_strided(
            call,
            handle,
            op_a,
            op_b,
            m,
            n,
            k,
            alpha,
            a,
            type_a,
            lda,
            0,
            b,
            type_b,
            ldb,
            0,
            beta,
            c,
            type_c,
            ldc,
            0,
            1,
            compute_type,
            algorithm,
        )

    @implements("hipblasGemmStridedBatchedEx")
    def _typed_strided(
        self,
        call: Call,
        handle: int,
        op_a: int,
        op_b: int,
        m: int,
        n: int,
        k: int,
        alpha: int,
        a: int,
        type_a: int,
        lda: int,
        stride_a: int,
        b: int,
        type_b: int,
        ldb: int,
        stride_b: int,
        beta: int,
        c: int,
        type_c: int,
        ldc: int,
        stride_c: int,
        batch_count: int,
        compute_type: int,
        algorithm: int,
    ) -> None:
        types = [_data_type(each) for each in (type_a, type_b, type_c)]
        if compute_type not in _COMPUTE:
            raise LibraryError("invalid_enum", f"{compute_type} is not a hipblasComputeType_t")
        compute = np.dtype(_COMPUTE[compute_type])
        if types[2].kind == "c":
            compute = np.result_type(compute, np.complex64)
        sizes = (batch_count, m, n, k)
        left, right = _operands(
            call, op_a, op_b, sizes, (a, lda, stride_a), (b, ldb, stride_b), types[0], types[1]
        )
        out = Stack("c", c, (batch_count, m, n), ldc, stride_c, types[2])
        self._gemm(call, handle, alpha, beta, left, right, out, compute)


def _operands(
    call: Call,
    op_a: int,
    op_b: int,
    sizes: tuple[int, int, int, int],
    a: tuple[int, int, int],
    b: tuple[int, int, int],
    type_a: np.dtype[Any] | None = None,
    type_b: np.dtype[Any] | None = None,
) -> tuple[Stack, Stack]:
    """Return the factors of a product; `a` and `b` are address, leading dimension and stride."""
    batch, m, n, k = sizes
    shape_a = (batch, m, k) if op_a == NONE else (batch, k, m)
    shape_b = (batch, k, n) if op_b == NONE else (batch, n, k)
    return (
        Stack("a", a[0], shape_a, a[1], a[2], type_a or call.dtype, op_a),
        Stack("b", b[0], shape_b, b[1], b[2], type_b or call.dtype, op_b),
    )


def _data_type(value: int) -> np.dtype[Any]:
    if value not in DATA_TYPES:
        message = f"hipDataType {value}: the emulated device has no products of it"
        raise LibraryError("not_supported", message)
    return DATA_TYPES[value]
