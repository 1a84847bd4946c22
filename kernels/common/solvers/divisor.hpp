// Quotients with one divisor, by its inverse. A divisor whose inverse may overflow or vanish is
// scaled by a power of two, as are the numbers that it divides; only quotients that overflow or
// vanish do so then, too.
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
        constexpr R least = Config::smallest_invertible;
        const R size = magnitude(x);
        scale = size < least             ? 1 / static_cast<R>(Config::tolerance)
                : size > 1 / (4 * least) ? static_cast<R>(Config::tolerance)
                                         : 1;
        over = inverse(times(x, scale));
    }
    CUPYGEMM_INLINE S under(S x) const { return times(times(x, scale), over); }
};

} // namespace cupygemm
