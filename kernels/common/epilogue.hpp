// From accumulators to output elements.
//
// An epilogue is an object with `operator()(accumulator, row, column)`, which returns the bits of
// one output element; the kernel calls it for each element that a lane stores, with the element's
// indices in its matrix. What it needs besides the accumulator (scales, a bias, C) it holds.
// Rounding happens here, once, and nowhere else.
#pragma once

#include "common/numeric.hpp"

namespace cupygemm {

// out = round(acc)
template <class Out> struct CastEpilogue {
    using Element = Out;
    using Bits = typename Numeric<Out>::Bits;

    template <class Accumulator>
    CUPYGEMM_INLINE Bits operator()(Accumulator accumulator, i32 /*row*/, i32 /*column*/) const {
        return Numeric<Out>::round(accumulator);
    }
};

} // namespace cupygemm
