// <thrust/adjacent_difference.h>
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
// May work in place.
template <typename P, typename In, typename Out, typename Op = minus<>>
Out adjacent_difference(const detail::policy<P> &, In first, In last, Out result, Op op = {}) {
    if (first == last)
        return result;
    detail::value_of<In> before = *first;
    *result = before;
    for (++first, ++result; first != last; ++first, ++result) {
        detail::value_of<In> value = *first;
        *result = op(value, before);
        before = value;
    }
    return result;
}
} // namespace thrust
#pragma clang force_cuda_host_device end
