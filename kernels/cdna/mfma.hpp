// Matrix instructions, one function each, with their lane maps.
//
// Mma<types, shape>::multiply(a, b, acc) adds the product of one 16-byte chunk per lane of each
// operand. An instruction takes 4, 8 or 16 bytes per lane, so a chunk feeds `per_chunk`
// instructions: 4 of fp32, 2 of 16x16x16 bf16, 1 of 16x16x32 bf16. It does not matter which k a
// lane holds as long as A and B agree, and they do: both come from the same chunk. An instruction
// that the target lacks is a compile error where it is used.
//
// Lane maps (AMD's matrix instruction calculator; l = lane, g = accumulator):
//   first operand   row l % mma_m, k in chunk l / mma_m
//   second operand  column l % mma_n, k in chunk l / mma_n
//   16x16 result    row 4 (l / 16) + g, column l % 16                     4 accumulators
//   of fp64         row 4 g + l / 16, column l % 16                       4 accumulators
//   32x32 result    row 8 (g / 4) + 4 (l / 32) + g % 4, column l % 32    16 accumulators
#pragma once

#include "cdna/target.hpp"

namespace cupygemm {

using u32x2 = u32 __attribute__((ext_vector_type(2)));
using u32x4 = u32 __attribute__((ext_vector_type(4)));
using u32x8 = u32 __attribute__((ext_vector_type(8)));
using i32x2 = i32 __attribute__((ext_vector_type(2)));
using i32x8 = i32 __attribute__((ext_vector_type(8)));
using i32x4 = i32 __attribute__((ext_vector_type(4)));
using i32x16 = i32 __attribute__((ext_vector_type(16)));
using f32x4 = float __attribute__((ext_vector_type(4)));
using f32x2 = float __attribute__((ext_vector_type(2)));
using f32x16 = float __attribute__((ext_vector_type(16)));
using f64x4 = double __attribute__((ext_vector_type(4)));
using f16x4 = _Float16 __attribute__((ext_vector_type(4)));
using f16x8 = _Float16 __attribute__((ext_vector_type(8)));
using i16x4 = short __attribute__((ext_vector_type(4)));
using bf16x8 = __bf16 __attribute__((ext_vector_type(8)));

// -- Instructions ---------------------------------------------------------------------------------

template <int mma_m, int mma_n, int mma_k> struct Shape {};

CUPYGEMM_INLINE f32x4 mfma(Shape<16, 16, 16>, bf16, bf16, u32x2 a, u32x2 b, f32x4 c) {
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(i16x4, a),
                                                     __builtin_bit_cast(i16x4, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x4 mfma(Shape<16, 16, 16>, f16, f16, u32x2 a, u32x2 b, f32x4 c) {
    return __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(f16x4, a),
                                                 __builtin_bit_cast(f16x4, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x16 mfma(Shape<32, 32, 8>, bf16, bf16, u32x2 a, u32x2 b, f32x16 c) {
    return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(__builtin_bit_cast(i16x4, a),
                                                    __builtin_bit_cast(i16x4, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x16 mfma(Shape<32, 32, 8>, f16, f16, u32x2 a, u32x2 b, f32x16 c) {
    return __builtin_amdgcn_mfma_f32_32x32x8f16(__builtin_bit_cast(f16x4, a),
                                                __builtin_bit_cast(f16x4, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x4 mfma(Shape<16, 16, 4>, f32, f32, u32 a, u32 b, f32x4 c) {
    return __builtin_amdgcn_mfma_f32_16x16x4f32(__builtin_bit_cast(float, a),
                                                __builtin_bit_cast(float, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x16 mfma(Shape<32, 32, 2>, f32, f32, u32 a, u32 b, f32x16 c) {
    return __builtin_amdgcn_mfma_f32_32x32x2f32(__builtin_bit_cast(float, a),
                                                __builtin_bit_cast(float, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f64x4 mfma(Shape<16, 16, 4>, f64, f64, u32x2 a, u32x2 b, f64x4 c) {
    return __builtin_amdgcn_mfma_f64_16x16x4f64(__builtin_bit_cast(double, a),
                                                __builtin_bit_cast(double, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE i32x4 mfma(Shape<16, 16, 16>, i8, i8, u32 a, u32 b, i32x4 c) {
    return __builtin_amdgcn_mfma_i32_16x16x16i8(__builtin_bit_cast(i32, a),
                                                __builtin_bit_cast(i32, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE i32x16 mfma(Shape<32, 32, 8>, i8, i8, u32 a, u32 b, i32x16 c) {
    return __builtin_amdgcn_mfma_i32_32x32x8i8(__builtin_bit_cast(i32, a),
                                               __builtin_bit_cast(i32, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE i32x4 mfma(Shape<16, 16, 32>, i8, i8, u32x2 a, u32x2 b, i32x4 c) {
    return __builtin_amdgcn_mfma_i32_16x16x32_i8(__builtin_bit_cast(long, a),
                                                 __builtin_bit_cast(long, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE i32x16 mfma(Shape<32, 32, 16>, i8, i8, u32x2 a, u32x2 b, i32x16 c) {
    return __builtin_amdgcn_mfma_i32_32x32x16_i8(__builtin_bit_cast(long, a),
                                                 __builtin_bit_cast(long, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x4 mfma(Shape<16, 16, 8>, tf32, tf32, u32x2 a, u32x2 b, f32x4 c) {
    return __builtin_amdgcn_mfma_f32_16x16x8_xf32(__builtin_bit_cast(f32x2, a),
                                                  __builtin_bit_cast(f32x2, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x16 mfma(Shape<32, 32, 4>, tf32, tf32, u32x2 a, u32x2 b, f32x16 c) {
    return __builtin_amdgcn_mfma_f32_32x32x4_xf32(__builtin_bit_cast(f32x2, a),
                                                  __builtin_bit_cast(f32x2, b), c, 0, 0, 0);
}

// 8-bit floats: the instructions have the same names on every target, but the formats, fp8 and bf8,
// are the target's.
CUPYGEMM_INLINE f32x4 mfma(Shape<16, 16, 32>, fp8, fp8, u32x2 a, u32x2 b, f32x4 c) {
    return __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(__builtin_bit_cast(long, a),
                                                      __builtin_bit_cast(long, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x4 mfma(Shape<16, 16, 32>, fp8, bf8, u32x2 a, u32x2 b, f32x4 c) {
    return __builtin_amdgcn_mfma_f32_16x16x32_fp8_bf8(__builtin_bit_cast(long, a),
                                                      __builtin_bit_cast(long, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x4 mfma(Shape<16, 16, 32>, bf8, fp8, u32x2 a, u32x2 b, f32x4 c) {
    return __builtin_amdgcn_mfma_f32_16x16x32_bf8_fp8(__builtin_bit_cast(long, a),
                                                      __builtin_bit_cast(long, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x4 mfma(Shape<16, 16, 32>, bf8, bf8, u32x2 a, u32x2 b, f32x4 c) {
    return __builtin_amdgcn_mfma_f32_16x16x32_bf8_bf8(__builtin_bit_cast(long, a),
                                                      __builtin_bit_cast(long, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x16 mfma(Shape<32, 32, 16>, fp8, fp8, u32x2 a, u32x2 b, f32x16 c) {
    return __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(__builtin_bit_cast(long, a),
                                                      __builtin_bit_cast(long, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x16 mfma(Shape<32, 32, 16>, fp8, bf8, u32x2 a, u32x2 b, f32x16 c) {
    return __builtin_amdgcn_mfma_f32_32x32x16_fp8_bf8(__builtin_bit_cast(long, a),
                                                      __builtin_bit_cast(long, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x16 mfma(Shape<32, 32, 16>, bf8, fp8, u32x2 a, u32x2 b, f32x16 c) {
    return __builtin_amdgcn_mfma_f32_32x32x16_bf8_fp8(__builtin_bit_cast(long, a),
                                                      __builtin_bit_cast(long, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x16 mfma(Shape<32, 32, 16>, bf8, bf8, u32x2 a, u32x2 b, f32x16 c) {
    return __builtin_amdgcn_mfma_f32_32x32x16_bf8_bf8(__builtin_bit_cast(long, a),
                                                      __builtin_bit_cast(long, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x4 mfma(Shape<16, 16, 32>, bf16, bf16, u32x4 a, u32x4 b, f32x4 c) {
    return __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(bf16x8, a),
                                                   __builtin_bit_cast(bf16x8, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x4 mfma(Shape<16, 16, 32>, f16, f16, u32x4 a, u32x4 b, f32x4 c) {
    return __builtin_amdgcn_mfma_f32_16x16x32_f16(__builtin_bit_cast(f16x8, a),
                                                  __builtin_bit_cast(f16x8, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x16 mfma(Shape<32, 32, 16>, bf16, bf16, u32x4 a, u32x4 b, f32x16 c) {
    return __builtin_amdgcn_mfma_f32_32x32x16_bf16(__builtin_bit_cast(bf16x8, a),
                                                   __builtin_bit_cast(bf16x8, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE f32x16 mfma(Shape<32, 32, 16>, f16, f16, u32x4 a, u32x4 b, f32x16 c) {
    return __builtin_amdgcn_mfma_f32_32x32x16_f16(__builtin_bit_cast(f16x8, a),
                                                  __builtin_bit_cast(f16x8, b), c, 0, 0, 0);
}

// The format codes of the f8f6f4 instructions.
template <class T> struct FormatCode;
template <> struct FormatCode<e4m3fn> {
    static constexpr int value = 0;
};
template <> struct FormatCode<e5m2> {
    static constexpr int value = 1;
};
template <> struct FormatCode<e2m1x2> {
    static constexpr int value = 4;
};

// 32 bytes of k per lane, without scales, at twice the rate of 16x16x32. The formats are operands
// of the instruction: 0 is e4m3, 1 is e5m2.
template <class First, class Second>
CUPYGEMM_INLINE f32x4 mfma(Shape<16, 16, 128>, First, Second, u32x8 a, u32x8 b, f32x4 c) {
    return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(
        __builtin_bit_cast(i32x8, a), __builtin_bit_cast(i32x8, b), c, FormatCode<First>::value,
        FormatCode<Second>::value, 0, 0, 0, 0);
}

// The same instruction with a factor 2^(s - 127) for every 32 k of a row. Lane l holds s for row
// l % 16 and for the (l / 16)-th 32 k, in byte `first_byte` of `first_scale`. 4-bit floats fill
// only the first half of an operand.
template <class First, class Second, int first_byte, int second_byte>
CUPYGEMM_INLINE f32x4 mfma_scale_16x16x128(u32x8 a, u32x8 b, f32x4 c, u32 first_scale,
                                           u32 second_scale) {
    return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(
        __builtin_bit_cast(i32x8, a), __builtin_bit_cast(i32x8, b), c, FormatCode<First>::value,
        FormatCode<Second>::value, first_byte, static_cast<int>(first_scale), second_byte,
        static_cast<int>(second_scale));
}

CUPYGEMM_INLINE i32x4 mfma(Shape<16, 16, 64>, i8, i8, u32x4 a, u32x4 b, i32x4 c) {
    return __builtin_amdgcn_mfma_i32_16x16x64_i8(__builtin_bit_cast(i32x4, a),
                                                 __builtin_bit_cast(i32x4, b), c, 0, 0, 0);
}

CUPYGEMM_INLINE i32x16 mfma(Shape<32, 32, 32>, i8, i8, u32x4 a, u32x4 b, i32x16 c) {
    return __builtin_amdgcn_mfma_i32_32x32x32_i8(__builtin_bit_cast(i32x4, a),
                                                 __builtin_bit_cast(i32x4, b), c, 0, 0, 0);
}

// -- One chunk of k -------------------------------------------------------------------------------

// The type in which an instruction sums operands of type T.
template <class T> struct Sum {
    using Scalar = float;
};
template <> struct Sum<f64> {
    using Scalar = double;
};
template <> struct Sum<i8> {
    using Scalar = i32;
};

// Two chunks as one operand of an instruction.
CUPYGEMM_INLINE u32x8 joined(u32x4 first, u32x4 second) {
    return __builtin_shufflevector(first, second, 0, 1, 2, 3, 4, 5, 6, 7);
}

// Part `index` of a chunk that is split into parts of `dwords` dwords.
template <int dwords> CUPYGEMM_INLINE auto part_of(u32x4 chunk, int index) {
    if constexpr (dwords == 1)
        return chunk[index];
    else if constexpr (dwords == 2)
        return u32x2{chunk[2 * index], chunk[2 * index + 1]};
    else
        return chunk;
}

// The two types may differ only if both are 8-bit floats.
template <class First, class Second, int mma_m, int mma_n, int mma_k> struct Mma {
    using Scalar = typename Sum<First>::Scalar;
    static constexpr int num_accumulators = mma_m * mma_n / wave_size;
    using Accumulator = Scalar __attribute__((ext_vector_type(num_accumulators)));
    // Whether a lane's 4 accumulators are consecutive rows of the result.
    static constexpr bool rows_are_runs = !IsSame<First, f64>::value;
    static constexpr int part_dwords = mma_m * mma_k / wave_size * Numeric<First>::bytes / 4;
    static constexpr int num_chunks = part_dwords > 4 ? part_dwords / 4 : 1; // per instruction
    static constexpr int per_chunk = num_chunks * 4 / part_dwords; // instructions per num_chunks

    static_assert(mma_m == mma_n, "a lane must hold as much of A as of B");
    static_assert(part_dwords * per_chunk == 4 * num_chunks, "instructions must take whole chunks");

    CUPYGEMM_INLINE static void multiply(u32x4 a, u32x4 b, Accumulator &acc) {
#pragma unroll
        for (int i = 0; i < per_chunk; ++i)
            multiply_part(a, b, i, acc);
    }

    // An instruction that takes two chunks of each operand.
    CUPYGEMM_INLINE static void multiply_two(u32x4 a0, u32x4 a1, u32x4 b0, u32x4 b1,
                                             Accumulator &acc) {
        acc = mfma(Shape<mma_m, mma_n, mma_k>{}, First{}, Second{}, joined(a0, a1), joined(b0, b1),
                   acc);
    }

    // The i-th instruction of a chunk.
    CUPYGEMM_INLINE static void multiply_part(u32x4 a, u32x4 b, int i, Accumulator &acc) {
        acc = mfma(Shape<mma_m, mma_n, mma_k>{}, First{}, Second{}, part_of<part_dwords>(a, i),
                   part_of<part_dwords>(b, i), acc);
    }

    CUPYGEMM_INLINE static Scalar element(const Accumulator &acc, int index) { return acc[index]; }
};

} // namespace cupygemm
