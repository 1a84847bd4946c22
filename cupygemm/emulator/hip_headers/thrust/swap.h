// <thrust/swap.h>
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
using std::swap;
template <typename P, typename In, typename Other>
Other swap_ranges(const detail::policy<P> &, In first, In last, Other other) {
    for (; first != last; ++first, ++other) {
        detail::value_of<In> value = *first;
        *first = *other;
        *other = value;
    }
    return other;
}
} // namespace thrust
#pragma clang force_cuda_host_device end
