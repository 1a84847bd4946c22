// <thrust/gather.h>
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
template <typename P, typename Map, typename In, typename Out>
Out gather(const detail::policy<P> &, Map place, Map last, In from, Out result) {
    for (; place != last; ++place, ++result)
        *result = from[*place];
    return result;
}
} // namespace thrust
#pragma clang force_cuda_host_device end
