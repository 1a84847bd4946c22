// Thrust's <thrust/tuple.h>, which CuPy's JIT kernels include: the standard one under its name.
#pragma once

#include <tuple>

namespace thrust {
using std::get;
using std::make_tuple;
using std::tie;
using std::tuple;
using std::tuple_element;
using std::tuple_size;
} // namespace thrust
