// <thrust/find.h>
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
template <typename P, typename In, typename Test>
In find_if(const detail::policy<P> &, In first, In last, Test wanted) {
    while (first != last && !wanted(*first))
        ++first;
    return first;
}
template <typename P, typename In, typename T>
In find(const detail::policy<P> &policy, In first, In last, const T &value) {
    return thrust::find_if(policy, first, last, [&](const auto &x) { return x == value; });
}
} // namespace thrust
#pragma clang force_cuda_host_device end
