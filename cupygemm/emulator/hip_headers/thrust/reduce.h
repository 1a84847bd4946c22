// <thrust/reduce.h>
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
template <typename P, typename In, typename T, typename Op = plus<>>
T reduce(const detail::policy<P> &, In first, In last, T init, Op op = {}) {
    for (; first != last; ++first)
        init = op(init, *first);
    return init;
}
template <typename P, typename In>
detail::value_of<In> reduce(const detail::policy<P> &policy, In first, In last) {
    return thrust::reduce(policy, first, last, detail::value_of<In>(0));
}

// One sum for each run of equal keys.
template <typename P, typename Keys, typename In, typename KeysOut, typename Out,
          typename Equal = equal_to<>, typename Op = plus<>>
pair<KeysOut, Out> reduce_by_key(const detail::policy<P> &, Keys key, Keys last, In value,
                                 KeysOut keys, Out sums, Equal equal = {}, Op op = {}) {
    while (key != last) {
        detail::value_of<Keys> current = *key;
        detail::value_of<In> sum = *value;
        for (++key, ++value; key != last && equal(current, *key); ++key, ++value)
            sum = op(sum, *value);
        *keys = current;
        *sums = sum;
        ++keys;
        ++sums;
    }
    return {keys, sums};
}
} // namespace thrust
#pragma clang force_cuda_host_device end
