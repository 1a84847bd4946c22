// <thrust/reverse.h>
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
template <typename P, typename In> void reverse(const detail::policy<P> &, In first, In last) {
    while (first < last && first < --last) {
        detail::value_of<In> value = *first;
        *first = *last;
        *last = value;
        ++first;
    }
}
template <typename P, typename In, typename Out>
Out reverse_copy(const detail::policy<P> &, In first, In last, Out result) {
    for (; first != last; ++result)
        *result = *--last;
    return result;
}
} // namespace thrust
#pragma clang force_cuda_host_device end
