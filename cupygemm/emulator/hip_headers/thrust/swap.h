// Thrust's <thrust/swap.h>, which CuPy's JIT kernels include: the standard one under its name.
#pragma once

#include <utility>

namespace thrust {
using std::swap;
} // namespace thrust
