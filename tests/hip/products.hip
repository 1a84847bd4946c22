// Matrix-vector products and dot products in every input type, without MFMA.
#include "prelude.hpp"

// One wave a row: lanes stride over the columns, then add up by shuffles.
template <typename T, typename Sum>
INLINE void matvec_of(const T *a, const T *x, Sum *y, int cols) {
    const T *row = a + static_cast<u64>(block_x()) * cols;
    Sum sum = 0;
    for (int c = static_cast<int>(thread_x()); c < cols; c += warp_size)
        sum += static_cast<Sum>(row[c]) * static_cast<Sum>(x[c]);
    for (int distance = 32; distance; distance /= 2)
        sum += shuffle(sum, lane() ^ distance);
    if (thread_x() == 0)
        y[block_x()] = sum;
}

KERNEL void matvec_f32(const float *a, const float *x, float *y, int n) { matvec_of(a, x, y, n); }
KERNEL void matvec_f64(const double *a, const double *x, double *y, int n) {
    matvec_of(a, x, y, n);
}
KERNEL void matvec_f16(const f16 *a, const f16 *x, float *y, int n) { matvec_of(a, x, y, n); }
KERNEL void matvec_bf16(const bf16 *a, const bf16 *x, float *y, int n) { matvec_of(a, x, y, n); }

KERNEL void dot_i8(const u32 *a, const u32 *b, i32 *out, int words) {
    i32 sum = 0;
    for (int i = 0; i < words; ++i) {
        const u32 at = global_x() * words + i;
        sum = __builtin_amdgcn_sdot4(static_cast<int>(a[at]), static_cast<int>(b[at]), sum, false);
    }
    out[global_x()] = sum;
}

KERNEL void dot_u8(const u32 *a, const u32 *b, u32 *out, int words) {
    u32 sum = 0;
    for (int i = 0; i < words; ++i) {
        const u32 at = global_x() * words + i;
        sum = __builtin_amdgcn_udot4(a[at], b[at], sum, false);
    }
    out[global_x()] = sum;
}

KERNEL void dot_f16(const vec<f16, 2> *a, const vec<f16, 2> *b, float *out, int pairs) {
    float sum = 0;
    for (int i = 0; i < pairs; ++i) {
        const u32 at = global_x() * pairs + i;
        sum = __builtin_amdgcn_fdot2(a[at], b[at], sum, false);
    }
    out[global_x()] = sum;
}

// y = a x + y on packed pairs: v_pk_fma_f32 and v_pk_fma_f16.
KERNEL void axpy_pk_f32(const vec<float, 2> *x, vec<float, 2> *y, float a) {
    y[global_x()] = __builtin_elementwise_fma(vec<float, 2>(a), x[global_x()], y[global_x()]);
}
KERNEL void axpy_pk_f16(const vec<f16, 2> *x, vec<f16, 2> *y, float a) {
    const vec<f16, 2> factor = static_cast<f16>(a);
    y[global_x()] = __builtin_elementwise_fma(factor, x[global_x()], y[global_x()]);
}

// A product of tiles in LDS by the vector ALU, 16x16 threads.
KERNEL void matmul_f32(const float *a, const float *b, float *c, int n) {
    __shared__ float ta[16][16], tb[16][17];
    const u32 x = thread_x(), y = thread_y();
    const u32 row = block_y() * 16 + y, col = block_x() * 16 + x;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        ta[y][x] = a[row * n + k + x];
        tb[y][x] = b[(k + y) * n + col];
        barrier();
        for (int i = 0; i < 16; ++i)
            sum += ta[y][i] * tb[i][x];
        barrier();
    }
    c[row * n + col] = sum;
}
