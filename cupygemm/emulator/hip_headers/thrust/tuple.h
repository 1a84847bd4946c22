// <thrust/tuple.h>, which CuPy's JIT kernels include: the standard header in namespace thrust.
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
