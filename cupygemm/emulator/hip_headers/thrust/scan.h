// <thrust/scan.h>: inclusive and exclusive prefix sums. All may work in place.
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
template <typename P, typename In, typename Out, typename Op = plus<>>
Out inclusive_scan(const detail::policy<P> &, In first, In last, Out result, Op op = {}) {
    if (first == last)
        return result;
    detail::value_of<In> sum = *first;
    for (*result = sum, ++first, ++result; first != last; ++first, ++result)
        *result = sum = op(sum, *first);
    return result;
}
template <typename P, typename In, typename Out, typename T, typename Op = plus<>>
Out exclusive_scan(const detail::policy<P> &, In first, In last, Out result, T init, Op op = {}) {
    for (; first != last; ++first, ++result) {
        T next = op(init, *first);
        *result = init;
        init = next;
    }
    return result;
}
template <typename P, typename In, typename Out>
Out exclusive_scan(const detail::policy<P> &policy, In first, In last, Out result) {
    return thrust::exclusive_scan(policy, first, last, result, detail::value_of<In>(0));
}

// The sums restart with each run of equal keys.
template <typename P, typename Keys, typename In, typename Out, typename Equal = equal_to<>,
          typename Op = plus<>>
Out inclusive_scan_by_key(const detail::policy<P> &, Keys key, Keys last, In value, Out result,
                          Equal equal = {}, Op op = {}) {
    while (key != last) {
        detail::value_of<Keys> current = *key;
        detail::value_of<In> sum = *value;
        for (*result = sum, ++key, ++value, ++result; key != last && equal(current, *key);
             ++key, ++value, ++result)
            *result = sum = op(sum, *value);
    }
    return result;
}
template <typename P, typename Keys, typename In, typename Out, typename T,
          typename Equal = equal_to<>, typename Op = plus<>>
Out exclusive_scan_by_key(const detail::policy<P> &, Keys key, Keys last, In value, Out result,
                          T init, Equal equal = {}, Op op = {}) {
    while (key != last) {
        detail::value_of<Keys> current = *key;
        T sum = init;
        for (; key != last && equal(current, *key); ++key, ++value, ++result) {
            T next = op(sum, *value);
            *result = sum;
            sum = next;
        }
    }
    return result;
}
template <typename P, typename Keys, typename In, typename Out> Out
exclusive_scan_by_key(const detail::policy<P> &policy, Keys key, Keys last, In value, Out result) {
    return thrust::exclusive_scan_by_key(policy, key, last, value, result, detail::value_of<In>(0));
}
} // namespace thrust
#pragma clang force_cuda_host_device end
