// Integer elements: int8 operands, whose products wgmma sums in int32 as exactly as int32 holds.
#pragma once

#include "common/numeric.hpp"

namespace cupygemm {

struct i8 {};

template <> struct Numeric<i8> {
    static constexpr int bytes = 1;
};

template <> struct Numeric<i32> {
    using Bits = u32;
    static constexpr int bytes = 4;
};

} // namespace cupygemm
