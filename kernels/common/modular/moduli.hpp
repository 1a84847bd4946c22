// Products by residues: the moduli, and residues of integers.
//
// A product of integer matrices is computed modulo several pairwise coprime integers of at most 8
// bits, each exactly in int8 with int32 sums. The Chinese remainder theorem reconstructs it. (K.
// Ozaki, Y. Uchino and T. Imamura, "Ozaki Scheme II: A GEMM-oriented emulation of floating-point
// matrix multiplication using an integer modular technique", 2025.)
#pragma once

#include "common/threads.hpp"

namespace cupygemm {

constexpr u32 most_moduli = 16;
// The exponent of a vector with a NaN or an infinity.
constexpr i32 not_finite = -0x7fffffff - 1;

// The moduli, the largest first. cupygemm._numerics.residues has the same list.
CUPYGEMM_INLINE constexpr i32 modulus(u32 index) {
    constexpr i32 all[most_moduli] = {256, 255, 253, 251, 247, 241, 239, 233,
                                      229, 227, 223, 217, 211, 199, 197, 193};
    return all[index];
}

// The residue of 2^power in [-128, 128].
CUPYGEMM_INLINE constexpr i32 power_residue(i32 power, i32 modulus) {
    i32 residue = 1;
    for (i32 i = 0; i < power; ++i)
        residue = 2 * residue % modulus;
    return 2 * residue > modulus ? residue - modulus : residue;
}

// One of the moduli as a constant, so that a remainder is computed by two products.
template <u32 position> struct Modulus {
    static constexpr u32 index = position;
    static constexpr i32 value = modulus(position);

    // The residue of an integer x in [-128, 127].
    CUPYGEMM_INLINE static i32 residue(i32 x) {
        const i32 rest = x % value; // of x's sign
        return rest > 127 ? rest - value : rest < -128 ? rest + value : rest;
    }
};

// Call a function object with each of the first `count` moduli. (NVRTC 13.0 treats a generic lambda
// as a host function.)
template <u32 count, class Function> CUPYGEMM_INLINE void for_moduli(const Function &function) {
    if constexpr (count > 0) {
        for_moduli<count - 1>(function);
        function(Modulus<count - 1>{});
    }
}

// 2^e, which must be a normal number.
CUPYGEMM_INLINE double power_of_two(i32 e) {
    return double_of_bits(static_cast<u64>(e + 1023) << 52);
}

// x 2^e, rounded once. |x| is zero or between 2^-1074 and 2^126.
CUPYGEMM_INLINE double times_power_of_two(double x, i32 e) {
    e = e < -1300 ? -1300 : e > 1300 ? 1300 : e; // beyond, the result is zero or infinite
    const i32 half = e / 2;
    return x * power_of_two(half) * power_of_two(e - half);
}

} // namespace cupygemm
