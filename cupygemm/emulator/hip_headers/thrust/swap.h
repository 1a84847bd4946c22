// <thrust/swap.h>, which CuPy's JIT kernels include: the standard header in namespace thrust.
#pragma once

#include <utility>

namespace thrust {
using std::swap;
} // namespace thrust
