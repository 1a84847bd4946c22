// Addition of accumulators. Integer sums wrap around, as NumPy's do.
#pragma once

#include "common/numeric.hpp"

namespace cupygemm {

CUPYGEMM_INLINE float added(float x, float y) { return x + y; }
CUPYGEMM_INLINE double added(double x, double y) { return x + y; }
CUPYGEMM_INLINE i32 added(i32 x, i32 y) {
    return static_cast<i32>(static_cast<u32>(x) + static_cast<u32>(y));
}
template <class Real> CUPYGEMM_INLINE Complex<Real> added(Complex<Real> x, Complex<Real> y) {
    return {x.re + y.re, x.im + y.im};
}

} // namespace cupygemm
