// <thrust/remove.h>
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
template <typename P, typename In, typename Out, typename T>
Out remove_copy(const detail::policy<P> &, In first, In last, Out result, const T &value) {
    for (; first != last; ++first)
        if (!(*first == value)) {
            *result = *first;
            ++result;
        }
    return result;
}
template <typename P, typename In, typename T>
In remove(const detail::policy<P> &policy, In first, In last, const T &value) {
    return thrust::remove_copy(policy, first, last, first, value);
}
} // namespace thrust
#pragma clang force_cuda_host_device end
