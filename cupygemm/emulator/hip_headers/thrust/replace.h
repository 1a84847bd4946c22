// <thrust/replace.h>
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
template <typename P, typename In, typename Out, typename T>
Out replace_copy(const detail::policy<P> &, In first, In last, Out result, const T &old,
                 const T &value) {
    for (; first != last; ++first, ++result)
        *result = *first == old ? value : *first;
    return result;
}
template <typename P, typename In, typename T>
void replace(const detail::policy<P> &policy, In first, In last, const T &old, const T &value) {
    thrust::replace_copy(policy, first, last, first, old, value);
}
} // namespace thrust
#pragma clang force_cuda_host_device end
