// <thrust/count.h>
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
template <typename P, typename In, typename Test>
std::ptrdiff_t count_if(const detail::policy<P> &, In first, In last, Test wanted) {
    std::ptrdiff_t found = 0;
    for (; first != last; ++first)
        found += wanted(*first) ? 1 : 0;
    return found;
}
template <typename P, typename In, typename T>
std::ptrdiff_t count(const detail::policy<P> &policy, In first, In last, const T &value) {
    return thrust::count_if(policy, first, last, [&](const auto &x) { return x == value; });
}
} // namespace thrust
#pragma clang force_cuda_host_device end
