// Scalar arithmetic that takes many instructions: division, 64-bit integers, conversions, bits.
#include "prelude.hpp"

template <typename T> INLINE void divide(const T *a, const T *b, T *quotient, T *remainder) {
    const u32 i = global_x();
    quotient[i] = a[i] / b[i];
    remainder[i] = a[i] % b[i];
}
KERNEL void divide_i32(const i32 *a, const i32 *b, i32 *q, i32 *r) { divide(a, b, q, r); }
KERNEL void divide_u32(const u32 *a, const u32 *b, u32 *q, u32 *r) { divide(a, b, q, r); }
KERNEL void divide_i64(const i64 *a, const i64 *b, i64 *q, i64 *r) { divide(a, b, q, r); }
KERNEL void divide_u64(const u64 *a, const u64 *b, u64 *q, u64 *r) { divide(a, b, q, r); }
KERNEL void divide_i16(const i16 *a, const i16 *b, i16 *q, i16 *r) { divide(a, b, q, r); }
KERNEL void divide_u8(const u8 *a, const u8 *b, u8 *q, u8 *r) { divide(a, b, q, r); }

// Uniform operands: the scalar unit's adds with carry, multiplies and shifts.
KERNEL void scalar_i64(const i64 *in, i64 *out) {
    const i64 a = in[0], b = in[1];
    out[0] = a + b;
    out[1] = a - b;
    out[2] = a * b;
    out[3] = a << (b & 63);
    out[4] = a >> (b & 63);
    out[5] = static_cast<i64>(static_cast<u64>(a) >> (b & 63));
    out[6] = a < b ? a : b;
    out[7] = __builtin_popcountll(a) * 100 + __builtin_clzll(a | 1);
    out[8] = a / 10 + b % 1000003;
    out[9] = static_cast<i64>(static_cast<u64>(a) % 97u);
    out[10] = __builtin_ctzll(b | 256);
    out[11] = (a ^ b) & ~(a | 15);
}

KERNEL void bits_u32(const u32 *x, u32 *out) {
    const u32 i = global_x(), v = x[i], w = x[i ^ 1];
    u32 *o = out + i * 12;
    o[0] = __builtin_popcount(v);
    o[1] = v ? __builtin_clz(v) : 32;
    o[2] = v ? __builtin_ctz(v) : 32;
    o[3] = __builtin_bitreverse32(v);
    o[4] = __builtin_bswap32(v);
    o[5] = v >> (w & 31);
    o[6] = v << (w & 31);
    o[7] = static_cast<u32>(static_cast<i32>(v) >> (w & 31));
    o[8] = static_cast<u32>(static_cast<u64>(v) * w >> 32);
    o[9] = static_cast<u32>(static_cast<i64>(static_cast<i32>(v)) * static_cast<i32>(w) >> 32);
    o[10] = __builtin_amdgcn_alignbit(v, w, 8);
    o[11] = __builtin_amdgcn_ubfe(v, w & 15, 9) + __builtin_amdgcn_perm(v, w, 0x07010600);
}

KERNEL void wide_u64(const u64 *x, u64 *out) {
    const u32 i = global_x();
    const u64 v = x[i], w = x[i ^ 1];
    u64 *o = out + i * 8;
    o[0] = v * w;
    o[1] = v << (w & 63);
    o[2] = v >> (w & 63);
    o[3] = static_cast<u64>(static_cast<i64>(v) >> (w & 63));
    o[4] = static_cast<u64>(static_cast<unsigned __int128>(v) * w >> 64);
    o[5] = __builtin_popcountll(v) + 64 * __builtin_clzll(v | 1) + 4096 * __builtin_ctzll(w | 1);
    o[6] = v > w ? v - w : w - v;
    o[7] = static_cast<i64>(v) < static_cast<i64>(w) ? v + w : v ^ w;
}

KERNEL void float_f32(const float *x, const float *y, float *out) {
    const u32 i = global_x();
    const float a = x[i], b = y[i];
    float *o = out + i * 10;
    o[0] = a / b;
    o[1] = __builtin_sqrtf(__builtin_fabsf(a));
    o[2] = __builtin_fmaf(a, b, 1.5f);
    o[3] = __builtin_fminf(a, b);
    o[4] = __builtin_fmaxf(a, b);
    o[5] = __builtin_rintf(a);
    o[6] = __builtin_floorf(a) + __builtin_ceilf(b);
    o[7] = __builtin_truncf(a);
    o[8] = __builtin_copysignf(a, b);
    o[9] = __builtin_ldexpf(a, 3);
}

KERNEL void float_f64(const double *x, const double *y, double *out) {
    const u32 i = global_x();
    const double a = x[i], b = y[i];
    double *o = out + i * 8;
    o[0] = a / b;
    o[1] = __builtin_sqrt(__builtin_fabs(a));
    o[2] = __builtin_fma(a, b, -0.75);
    o[3] = __builtin_fmin(a, b);
    o[4] = __builtin_rint(a);
    o[5] = __builtin_floor(b);
    o[6] = a * b - a;
    o[7] = __builtin_ldexp(b, -5);
}

// Approximations of the hardware, to a few units in the last place.
KERNEL void transcendental(const float *x, float *out) {
    const u32 i = global_x();
    const float a = x[i];
    float *o = out + i * 6;
    o[0] = __builtin_amdgcn_rcpf(a);
    o[1] = __builtin_amdgcn_rsqf(a);
    o[2] = __builtin_amdgcn_exp2f(a);
    o[3] = __builtin_amdgcn_logf(a);
    o[4] = __builtin_amdgcn_sinf(a);
    o[5] = __builtin_amdgcn_cosf(a);
}

KERNEL void conversions(const float *x, double *d, f16 *h, bf16 *b, i32 *i, u32 *u, i64 *l) {
    const u32 at = global_x();
    const float v = x[at];
    d[at] = static_cast<double>(v) * 3.0;
    h[at] = static_cast<f16>(v);
    b[at] = static_cast<bf16>(v);
    i[at] = static_cast<i32>(v);
    u[at] = static_cast<u32>(__builtin_fabsf(v));
    l[at] = static_cast<i64>(static_cast<double>(v) * 65536.0);
}

KERNEL void back_conversions(const i64 *l, const u32 *u, const f16 *h, double *d, float *f,
                             float *g) {
    const u32 at = global_x();
    d[at] = static_cast<double>(l[at]);
    f[at] = static_cast<float>(l[at]) + static_cast<float>(u[at]);
    g[at] = static_cast<float>(h[at]) + static_cast<float>(static_cast<u8>(u[at] >> 16));
}

KERNEL void half_f16(const f16 *x, const f16 *y, f16 *out) {
    const u32 i = global_x();
    const f16 a = x[i], b = y[i];
    f16 *o = out + i * 5;
    o[0] = a + b;
    o[1] = a * b;
    o[2] = a / b;
    o[3] = static_cast<f16>(__builtin_fmaf16(a, b, a));
    o[4] = a < b ? a : b;
}

KERNEL void saturating(const i32 *a, const i32 *b, i32 *out) {
    const u32 i = global_x();
    out[3 * i] = __builtin_elementwise_add_sat(a[i], b[i]);
    out[3 * i + 1] = __builtin_elementwise_sub_sat(a[i], b[i]);
    out[3 * i + 2] = __builtin_elementwise_max(__builtin_elementwise_min(a[i], b[i]), -1000);
}
