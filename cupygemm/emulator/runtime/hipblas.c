// libhipblas.so.3 of the emulated device: a BLAS without products.
//
// CuPy imports its BLAS module for more than products: asfortranarray of a float matrix is a geam.
// Handles, streams and geam are here, on device memory, which is host memory. Every other function
// names itself on stderr and answers that it is not supported, for CuPy's exception has room for a
// status alone. Prototypes follow AMD's hipBLAS reference (ROCm 7.0).

#include <stdio.h>
#include <stdlib.h>

enum {
    success = 0,
    allocation_failed = 2,
    invalid_value = 3,
    not_supported = 7,
    operation_none = 111,
};

struct handle {
    void *stream;
    int pointer_mode;
};

int hipblasCreate(struct handle **handle) {
    *handle = calloc(1, sizeof **handle);
    return *handle ? success : allocation_failed;
}

int hipblasDestroy(struct handle *handle) {
    free(handle);
    return success;
}

int hipblasSetStream(struct handle *handle, void *stream) {
    handle->stream = stream;
    return success;
}

int hipblasGetStream(struct handle *handle, void **stream) {
    *stream = handle->stream;
    return success;
}

int hipblasSetPointerMode(struct handle *handle, int mode) {
    handle->pointer_mode = mode;
    return success;
}

int hipblasGetPointerMode(struct handle *handle, int *mode) {
    *mode = handle->pointer_mode;
    return success;
}

// C = alpha op(A) + beta op(B), column-major, C of m x n; an operand whose factor is 0 is not read.
#define GEAM(name, real)                                                                           \
    int name(struct handle *handle, int operation_a, int operation_b, int m, int n,                \
             const real *alpha, const real *a, int lda, const real *beta, const real *b, int ldb,  \
             real *c, int ldc) {                                                                   \
        (void)handle;                                                                              \
        if (m < 0 || n < 0 || ldc < m) {                                                           \
            return invalid_value;                                                                  \
        }                                                                                          \
        size_t a_row = operation_a == operation_none ? 1 : (size_t)lda;                            \
        size_t a_column = operation_a == operation_none ? (size_t)lda : 1;                         \
        size_t b_row = operation_b == operation_none ? 1 : (size_t)ldb;                            \
        size_t b_column = operation_b == operation_none ? (size_t)ldb : 1;                         \
        for (int j = 0; j < n; j++) {                                                              \
            for (int i = 0; i < m; i++) {                                                          \
                real sum = *alpha != 0 ? *alpha * a[i * a_row + j * a_column] : 0;                 \
                if (*beta != 0) {                                                                  \
                    sum += *beta * b[i * b_row + j * b_column];                                    \
                }                                                                                  \
                c[i + (size_t)j * ldc] = sum;                                                      \
            }                                                                                      \
        }                                                                                          \
        return success;                                                                            \
    }
GEAM(hipblasSgeam, float)
GEAM(hipblasDgeam, double)

static int refuse(const char *name) {
    fprintf(stderr, "cupygemm: the emulated device does not support %s\n", name);
    return not_supported;
}

#define UNSUPPORTED(name)                                                                          \
    int name(void) { return refuse(#name); }
UNSUPPORTED(hipblasCaxpy)
UNSUPPORTED(hipblasCdgmm)
UNSUPPORTED(hipblasCdotc)
UNSUPPORTED(hipblasCdotu)
UNSUPPORTED(hipblasCgeam)
UNSUPPORTED(hipblasCgemm)
UNSUPPORTED(hipblasCgemmBatched)
UNSUPPORTED(hipblasCgemmStridedBatched)
UNSUPPORTED(hipblasCgemv)
UNSUPPORTED(hipblasCgerc)
UNSUPPORTED(hipblasCgeru)
UNSUPPORTED(hipblasCgetrfBatched)
UNSUPPORTED(hipblasCgetriBatched)
UNSUPPORTED(hipblasCgetrsBatched)
UNSUPPORTED(hipblasCscal)
UNSUPPORTED(hipblasCsscal)
UNSUPPORTED(hipblasCsyrk)
UNSUPPORTED(hipblasCtrsm)
UNSUPPORTED(hipblasCtrsmBatched)
UNSUPPORTED(hipblasDasum)
UNSUPPORTED(hipblasDaxpy)
UNSUPPORTED(hipblasDdgmm)
UNSUPPORTED(hipblasDdot)
UNSUPPORTED(hipblasDgemm)
UNSUPPORTED(hipblasDgemmBatched)
UNSUPPORTED(hipblasDgemmStridedBatched)
UNSUPPORTED(hipblasDgemv)
UNSUPPORTED(hipblasDger)
UNSUPPORTED(hipblasDgetrfBatched)
UNSUPPORTED(hipblasDgetriBatched)
UNSUPPORTED(hipblasDgetrsBatched)
UNSUPPORTED(hipblasDnrm2)
UNSUPPORTED(hipblasDsbmv)
UNSUPPORTED(hipblasDscal)
UNSUPPORTED(hipblasDsyrk)
UNSUPPORTED(hipblasDtrsm)
UNSUPPORTED(hipblasDtrsmBatched)
UNSUPPORTED(hipblasDzasum)
UNSUPPORTED(hipblasDznrm2)
UNSUPPORTED(hipblasGemmEx)
UNSUPPORTED(hipblasGemmStridedBatchedEx)
UNSUPPORTED(hipblasIcamax)
UNSUPPORTED(hipblasIcamin)
UNSUPPORTED(hipblasIdamax)
UNSUPPORTED(hipblasIdamin)
UNSUPPORTED(hipblasIsamax)
UNSUPPORTED(hipblasIsamin)
UNSUPPORTED(hipblasIzamax)
UNSUPPORTED(hipblasIzamin)
UNSUPPORTED(hipblasSasum)
UNSUPPORTED(hipblasSaxpy)
UNSUPPORTED(hipblasScasum)
UNSUPPORTED(hipblasScnrm2)
UNSUPPORTED(hipblasSdgmm)
UNSUPPORTED(hipblasSdot)
UNSUPPORTED(hipblasSgemm)
UNSUPPORTED(hipblasSgemmBatched)
UNSUPPORTED(hipblasSgemmStridedBatched)
UNSUPPORTED(hipblasSgemv)
UNSUPPORTED(hipblasSger)
UNSUPPORTED(hipblasSgetrfBatched)
UNSUPPORTED(hipblasSgetriBatched)
UNSUPPORTED(hipblasSgetrsBatched)
UNSUPPORTED(hipblasSnrm2)
UNSUPPORTED(hipblasSsbmv)
UNSUPPORTED(hipblasSscal)
UNSUPPORTED(hipblasSsyrk)
UNSUPPORTED(hipblasStrsm)
UNSUPPORTED(hipblasStrsmBatched)
UNSUPPORTED(hipblasZaxpy)
UNSUPPORTED(hipblasZdgmm)
UNSUPPORTED(hipblasZdotc)
UNSUPPORTED(hipblasZdotu)
UNSUPPORTED(hipblasZdscal)
UNSUPPORTED(hipblasZgeam)
UNSUPPORTED(hipblasZgemm)
UNSUPPORTED(hipblasZgemmBatched)
UNSUPPORTED(hipblasZgemmStridedBatched)
UNSUPPORTED(hipblasZgemv)
UNSUPPORTED(hipblasZgerc)
UNSUPPORTED(hipblasZgeru)
UNSUPPORTED(hipblasZgetrfBatched)
UNSUPPORTED(hipblasZgetriBatched)
UNSUPPORTED(hipblasZgetrsBatched)
UNSUPPORTED(hipblasZscal)
UNSUPPORTED(hipblasZsyrk)
UNSUPPORTED(hipblasZtrsm)
UNSUPPORTED(hipblasZtrsmBatched)
