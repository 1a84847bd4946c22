// <thrust/fill.h>
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
template <typename P, typename Out, typename T>
void fill(const detail::policy<P> &, Out first, Out last, const T &value) {
    for (; first != last; ++first)
        *first = value;
}
} // namespace thrust
#pragma clang force_cuda_host_device end
