// Matrix instructions, one function each, and the lane maps that go with them.
//
// Mma<Config's shape>::multiply(a, b, acc) adds the product of one 16-byte chunk per lane of each
// operand: 8 values of k where the instruction takes 4 (two instructions) or 8 (one). Which k a
// lane holds does not matter as long as A and B agree, and they do: both come from the same chunk.
//
// Lane maps (AMD's matrix instruction calculator; l = lane, g = accumulator register):
//   first operand   row l % mma_m, k in chunk l / mma_m
//   second operand  column l % mma_n, k in chunk l / mma_n
//   16x16 result    row 4 (l / 16) + g, column l % 16                     4 registers
//   32x32 result    row 8 (g / 4) + 4 (l / 32) + g % 4, column l % 32    16 registers
#pragma once

#include "cdna/target.hpp"
#include "common/numeric.hpp"

namespace cupygemm {

using u32x2 = u32 __attribute__((ext_vector_type(2)));
using u32x4 = u32 __attribute__((ext_vector_type(4)));
using f32x4 = float __attribute__((ext_vector_type(4)));
using f32x16 = float __attribute__((ext_vector_type(16)));
using f16x4 = _Float16 __attribute__((ext_vector_type(4)));
using f16x8 = _Float16 __attribute__((ext_vector_type(8)));
using i16x4 = short __attribute__((ext_vector_type(4)));
using bf16x8 = __bf16 __attribute__((ext_vector_type(8)));

// -- Instructions ---------------------------------------------------------------------------------

CUPYGEMM_INLINE f32x4 mfma_16x16x16(bf16, u32x2 a, u32x2 b, f32x4 c) {
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(i16x4, a),
                                                     __builtin_bit_cast(i16x4, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x4 mfma_16x16x16(f16, u32x2 a, u32x2 b, f32x4 c) {
    return __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(f16x4, a),
                                                 __builtin_bit_cast(f16x4, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x16 mfma_32x32x8(bf16, u32x2 a, u32x2 b, f32x16 c) {
    return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(__builtin_bit_cast(i16x4, a),
                                                    __builtin_bit_cast(i16x4, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x16 mfma_32x32x8(f16, u32x2 a, u32x2 b, f32x16 c) {
    return __builtin_amdgcn_mfma_f32_32x32x8f16(__builtin_bit_cast(f16x4, a),
                                                __builtin_bit_cast(f16x4, b), c, 0, 0, 0);
}

#if defined(__gfx950__)
CUPYGEMM_INLINE f32x4 mfma_16x16x32(bf16, u32x4 a, u32x4 b, f32x4 c) {
    return __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(bf16x8, a),
                                                   __builtin_bit_cast(bf16x8, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x4 mfma_16x16x32(f16, u32x4 a, u32x4 b, f32x4 c) {
    return __builtin_amdgcn_mfma_f32_16x16x32_f16(__builtin_bit_cast(f16x8, a),
                                                  __builtin_bit_cast(f16x8, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x16 mfma_32x32x16(bf16, u32x4 a, u32x4 b, f32x16 c) {
    return __builtin_amdgcn_mfma_f32_32x32x16_bf16(__builtin_bit_cast(bf16x8, a),
                                                   __builtin_bit_cast(bf16x8, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x16 mfma_32x32x16(f16, u32x4 a, u32x4 b, f32x16 c) {
    return __builtin_amdgcn_mfma_f32_32x32x16_f16(__builtin_bit_cast(f16x8, a),
                                                  __builtin_bit_cast(f16x8, b), c, 0, 0, 0);
}
#endif

// -- One chunk of k by shape ----------------------------------------------------------------------

template <int mma_m, int mma_n, int mma_k> struct Mma;

template <> struct Mma<16, 16, 16> {
    using Accumulator = f32x4;
    static constexpr int per_chunk = 2; // instructions

    template <class T> CUPYGEMM_INLINE static void multiply(u32x4 a, u32x4 b, Accumulator &acc) {
        acc = mfma_16x16x16(T{}, a.xy, b.xy, acc);
        acc = mfma_16x16x16(T{}, a.zw, b.zw, acc);
    }
};

template <> struct Mma<32, 32, 8> {
    using Accumulator = f32x16;
    static constexpr int per_chunk = 2; // instructions

    template <class T> CUPYGEMM_INLINE static void multiply(u32x4 a, u32x4 b, Accumulator &acc) {
        acc = mfma_32x32x8(T{}, a.xy, b.xy, acc);
        acc = mfma_32x32x8(T{}, a.zw, b.zw, acc);
    }
};

#if defined(__gfx950__)
template <> struct Mma<16, 16, 32> {
    using Accumulator = f32x4;
    static constexpr int per_chunk = 1; // instructions

    template <class T> CUPYGEMM_INLINE static void multiply(u32x4 a, u32x4 b, Accumulator &acc) {
        acc = mfma_16x16x32(T{}, a, b, acc);
    }
};

template <> struct Mma<32, 32, 16> {
    using Accumulator = f32x16;
    static constexpr int per_chunk = 1; // instructions

    template <class T> CUPYGEMM_INLINE static void multiply(u32x4 a, u32x4 b, Accumulator &acc) {
        acc = mfma_32x32x16(T{}, a, b, acc);
    }
};
#endif

} // namespace cupygemm
