// Conversions between float and the 8-bit floats, on targets that have them.
#include "prelude.hpp"

KERNEL void to_fp8(const float *x, u32 *fp8, u32 *bf8) {
    const float *v = x + global_x() * 4;
    int low = __builtin_amdgcn_cvt_pk_fp8_f32(v[0], v[1], 0, false);
    fp8[global_x()] = static_cast<u32>(__builtin_amdgcn_cvt_pk_fp8_f32(v[2], v[3], low, true));
    low = __builtin_amdgcn_cvt_pk_bf8_f32(v[0], v[1], 0, false);
    bf8[global_x()] = static_cast<u32>(__builtin_amdgcn_cvt_pk_bf8_f32(v[2], v[3], low, true));
}

KERNEL void from_fp8(const u32 *codes, float *fp8, float *bf8) {
    const int word = static_cast<int>(codes[global_x()]);
    const vec<float, 2> low = __builtin_amdgcn_cvt_pk_f32_fp8(word, false);
    const vec<float, 2> high = __builtin_amdgcn_cvt_pk_f32_fp8(word, true);
    float *o = fp8 + global_x() * 4;
    o[0] = low.x, o[1] = low.y, o[2] = high.x, o[3] = high.y;
    float *p = bf8 + global_x() * 4;
    p[0] = __builtin_amdgcn_cvt_f32_bf8(word, 0);
    p[1] = __builtin_amdgcn_cvt_f32_bf8(word, 1);
    p[2] = __builtin_amdgcn_cvt_f32_bf8(word, 2);
    p[3] = __builtin_amdgcn_cvt_f32_bf8(word, 3);
}

// Stochastic rounding: the result is one of the two neighbours, chosen by the random bits.
KERNEL void stochastic(const float *x, const u32 *random, u32 *out) {
    const u32 i = global_x();
    int word = __builtin_amdgcn_cvt_sr_fp8_f32(x[i], static_cast<int>(random[i]), 0, 0);
    word = __builtin_amdgcn_cvt_sr_fp8_f32(x[i], 0, word, 1);
    out[i] = static_cast<u32>(__builtin_amdgcn_cvt_sr_bf8_f32(x[i], -1, word, 2));
}
