// <thrust/copy.h>
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
template <typename P, typename In, typename Out>
Out copy(const detail::policy<P> &, In first, In last, Out result) {
    for (; first != last; ++first, ++result)
        *result = *first;
    return result;
}
template <typename P, typename In, typename Size, typename Out>
Out copy_n(const detail::policy<P> &policy, In first, Size count, Out result) {
    return thrust::copy(policy, first, first + count, result);
}
template <typename P, typename In, typename Out, typename Test>
Out copy_if(const detail::policy<P> &, In first, In last, Out result, Test wanted) {
    for (; first != last; ++first)
        if (wanted(*first)) {
            *result = *first;
            ++result;
        }
    return result;
}
} // namespace thrust
#pragma clang force_cuda_host_device end
