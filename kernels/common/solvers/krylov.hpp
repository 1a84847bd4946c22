// Shared code of the kernels of GMRES: a workgroup has `threads` elements of a real vector, and
// groups of 32 threads sum or compare.
#pragma once

#include "common/solvers/scalar.hpp"
#include "config.hpp"

namespace cupygemm {

using S = Config::Scalar;
using W = Word<S>;
constexpr u32 threads = Config::threads;
[[maybe_unused]] constexpr u32 teams = threads / 32;
[[maybe_unused]] constexpr u32 most = Config::most; // vectors of a basis
// The maxima that error_parts.hpp stores for a workgroup.
[[maybe_unused]] constexpr u32 maxima = Config::maxima;

CUPYGEMM_INLINE S sum_of_32(S x) {
#pragma unroll
    for (u32 mask = 16; mask > 0; mask /= 2)
        x = plus(x, exchanged(x, mask));
    return x;
}

// The larger of two numbers that are not negative; NaN is larger than infinity.
CUPYGEMM_INLINE S larger(S x, S y) { return bits_of(x) > bits_of(y) ? x : y; }

CUPYGEMM_INLINE S largest_of_32(S x) {
#pragma unroll
    for (u32 mask = 16; mask > 0; mask /= 2)
        x = larger(x, exchanged(x, mask));
    return x;
}

// The power of two that brings a number near one; one for zero, NaN and infinity.
CUPYGEMM_INLINE S inverse_power_of_two(S x) {
    constexpr u32 fraction = sizeof(S) == 8 ? 52 : 23;
    constexpr W bias = sizeof(S) == 8 ? 1023 : 127;
    const W exponent = bits_of(x) >> fraction;
    const bool is_ordinary = bits_of(x) > 0 && exponent <= 2 * bias;
    const W inverse = exponent < 2 * bias ? 2 * bias - exponent : 1;
    return real_of_bits((is_ordinary ? inverse : bias) << fraction);
}

} // namespace cupygemm
