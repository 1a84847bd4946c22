// <thrust/pair.h>, which CuPy's JIT kernels include: the standard header in namespace thrust.
#pragma once

#include <iterator>
#include <utility>

namespace thrust {
using std::get;
using std::make_pair;
using std::pair;
} // namespace thrust
