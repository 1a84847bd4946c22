// One product by each kind of MFMA: a wave multiplies an MxK by a KxN matrix, blocks aside.
//
// Lanes hold A[i][k] and B[k][j] with i and j = lane % M and k = per * (lane / M) + e, and of D the
// rows that CDNA3's ISA guide (section 7.1) gives: for 32x32, row = 8 (g/4) + 4 (lane/32) + g%4;
// for 16x16, row = 4 (lane/16) + g.
#include "prelude.hpp"

template <int m, int per, typename Element, typename Input>
INLINE Input fragment(const Element *source, int stride_i, int stride_k) {
    Input packed;
    const int i = static_cast<int>(lane()) % m, k = per * (static_cast<int>(lane()) / m);
    Element elements[per];
    for (int e = 0; e < per; ++e)
        elements[e] = source[i * stride_i + (k + e) * stride_k];
    static_assert(sizeof(elements) == sizeof(packed), "a lane's elements fill its registers");
    __builtin_memcpy(&packed, elements, sizeof(packed));
    return packed;
}

template <int m, typename Sum, int registers> INLINE void store(vec<Sum, registers> d, Sum *out) {
    const int l = static_cast<int>(lane());
    for (int g = 0; g < registers; ++g) {
        const int row = m == 32 ? 8 * (g / 4) + 4 * (l / 32) + g % 4 : 4 * (l / 16) + g;
        out[row * m + l % m] = d[g];
    }
}

#define PRODUCT(name, m, k, element, input, sum, builtin)                                          \
    KERNEL void name(const element *a, const element *b, sum *c) {                                 \
        constexpr int per = m * k / 64, registers = m * m / 64;                                    \
        const auto fa = fragment<m, per, element, input>(a, k, 1);                                 \
        const auto fb = fragment<m, per, element, input>(b, 1, m);                                 \
        vec<sum, registers> zero = 0;                                                              \
        store<m, sum, registers>(__builtin_amdgcn_##builtin(fa, fb, zero, 0, 0, 0), c);            \
    }

using short4 = vec<short, 4>;
using short2 = vec<short, 2>;
using half4 = vec<f16, 4>;
using half8 = vec<f16, 8>;
using bhalf8 = vec<bf16, 8>;
using int4 = vec<int, 4>;
using float2 = vec<float, 2>;

PRODUCT(f16_32x32x8, 32, 8, f16, half4, float, mfma_f32_32x32x8f16)
PRODUCT(f16_16x16x16, 16, 16, f16, half4, float, mfma_f32_16x16x16f16)
PRODUCT(bf16_32x32x8, 32, 8, u16, short4, float, mfma_f32_32x32x8bf16_1k)
PRODUCT(bf16_16x16x16, 16, 16, u16, short4, float, mfma_f32_16x16x16bf16_1k)
PRODUCT(f32_32x32x2, 32, 2, float, float, float, mfma_f32_32x32x2f32)
PRODUCT(f32_16x16x4, 16, 4, float, float, float, mfma_f32_16x16x4f32)
#if defined(__gfx90a__)
PRODUCT(bf16_32x32x4, 32, 4, u16, short2, float, mfma_f32_32x32x4bf16)
PRODUCT(i8_32x32x8, 32, 8, i8, int, int, mfma_i32_32x32x8i8)
PRODUCT(i8_16x16x16, 16, 16, i8, int, int, mfma_i32_16x16x16i8)
#else
PRODUCT(i8_32x32x16, 32, 16, i8, i64, int, mfma_i32_32x32x16_i8)
PRODUCT(i8_16x16x32, 16, 32, i8, i64, int, mfma_i32_16x16x32_i8)
PRODUCT(fp8_32x32x16, 32, 16, u8, i64, float, mfma_f32_32x32x16_fp8_fp8)
PRODUCT(bf8_16x16x32, 16, 32, u8, i64, float, mfma_f32_16x16x32_bf8_bf8)
#endif
#if defined(__gfx942__)
PRODUCT(xf32_32x32x4, 32, 4, float, float2, float, mfma_f32_32x32x4_xf32)
#endif
#if defined(__gfx950__)
PRODUCT(f16_16x16x32, 16, 32, f16, half8, float, mfma_f32_16x16x32_f16)
PRODUCT(bf16_32x32x16, 32, 16, bf16, bhalf8, float, mfma_f32_32x32x16_bf16)
PRODUCT(i8_16x16x64, 16, 64, i8, int4, int, mfma_i32_16x16x64_i8)
#endif

// f64 16x16x4: row = 4 (g/2) + lane/16 in registers, so g counts doubles here.
KERNEL void f64_16x16x4(const double *a, const double *b, double *c) {
    const int l = static_cast<int>(lane()), i = l % 16, k = l / 16;
    const vec<double, 4> zero = 0;
    const auto d = __builtin_amdgcn_mfma_f64_16x16x4f64(a[i * 4 + k], b[k * 16 + i], zero, 0, 0, 0);
    for (int g = 0; g < 4; ++g)
        c[(4 * g + k) * 16 + i] = d[g];
}
