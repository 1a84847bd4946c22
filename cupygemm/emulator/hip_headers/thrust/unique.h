// <thrust/unique.h>: the first of each run of equal elements.
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
template <typename P, typename Keys, typename Values, typename Equal = equal_to<>>
pair<Keys, Values> unique_by_key(const detail::policy<P> &, Keys first, Keys last, Values value,
                                 Equal equal = {}) {
    Keys keys = first;
    Values values = value;
    while (first != last) {
        detail::value_of<Keys> key = *first;
        *keys = key;
        *values = *value;
        ++keys;
        ++values;
        for (++first, ++value; first != last && equal(key, *first); ++first)
            ++value;
    }
    return {keys, values};
}
template <typename P, typename In, typename Equal = equal_to<>>
In unique(const detail::policy<P> &policy, In first, In last, Equal equal = {}) {
    return thrust::unique_by_key(policy, first, last, first, equal).first;
}
} // namespace thrust
#pragma clang force_cuda_host_device end
