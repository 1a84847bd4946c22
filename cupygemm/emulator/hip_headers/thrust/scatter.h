// <thrust/scatter.h>
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
template <typename P, typename In, typename Map, typename Out>
void scatter(const detail::policy<P> &, In first, In last, Map place, Out result) {
    for (; first != last; ++first, ++place)
        result[*place] = *first;
}
} // namespace thrust
#pragma clang force_cuda_host_device end
