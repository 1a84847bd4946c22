// Quotients with one divisor, by its inverse. A divisor whose inverse may overflow or underflow is
// scaled by a power of two, and so are the numbers that it divides. A quotient then overflows or
// underflows only if the exact one does. Quotients of finite numbers and an infinity are zeros.
#pragma once

#include "common/solvers/scalar.hpp"
#include "config.hpp"

namespace cupygemm {

struct Divisor {
    using S = Config::Scalar;
    using R = Real<S>;
    R scale;
    S over;

    CUPYGEMM_INLINE explicit Divisor(S x) {
        // The larger part of a complex number may be half of its magnitude.
        constexpr u32 exponents = sizeof(R) == 4 ? 1 << 8 : 1 << 11;
        const R size = magnitude(x);
        const u32 exponent = high_word(bits_of(size)) / ((1u << 31) / exponents);
        scale = exponent < 2                ? 1 / static_cast<R>(Config::tolerance)
                : exponent >= exponents - 5 ? static_cast<R>(Config::tolerance)
                                            : 1;
        over = inverse(times(x, scale));
        compute_now(over); // and not in a branch
        over = size == infinity(R{}) ? S{} : over;
    }
    CUPYGEMM_INLINE S under(S x) const { return times(times(x, scale), over); }
};

} // namespace cupygemm
