// <thrust/sequence.h>
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
template <typename P, typename Out, typename T = detail::value_of<Out>>
void sequence(const detail::policy<P> &, Out first, Out last, T init = T(0), T step = T(1)) {
    for (T i = T(0); first != last; ++first, ++i)
        *first = init + step * i;
}
} // namespace thrust
#pragma clang force_cuda_host_device end
