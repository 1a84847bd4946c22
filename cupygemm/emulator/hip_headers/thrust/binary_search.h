// <thrust/binary_search.h>: for one value, or for each of several.
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
namespace detail {
// Returns the first place for which `goes_on` is false.
template <typename In, typename Test> In partition_place(In first, In last, Test goes_on) {
    for (auto count = last - first; count > 0;) {
        auto half = count / 2;
        In middle = first + half;
        if (goes_on(*middle)) {
            first = middle + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return first;
}
} // namespace detail

template <typename P, typename In, typename T, typename Less = less<>>
In lower_bound(const detail::policy<P> &, In first, In last, const T &value, Less before = {}) {
    return detail::partition_place(first, last, [&](const auto &x) { return before(x, value); });
}
template <typename P, typename In, typename T, typename Less = less<>>
In upper_bound(const detail::policy<P> &, In first, In last, const T &value, Less before = {}) {
    return detail::partition_place(first, last, [&](const auto &x) { return !before(value, x); });
}
template <typename P, typename In, typename T, typename Less = less<>> pair<In, In>
equal_range(const detail::policy<P> &policy, In first, In last, const T &value, Less before = {}) {
    return {lower_bound(policy, first, last, value, before),
            upper_bound(policy, first, last, value, before)};
}
template <typename P, typename In, typename T, typename Less = less<>>
bool binary_search(const detail::policy<P> &policy, In first, In last, const T &value,
                   Less before = {}) {
    In place = lower_bound(policy, first, last, value, before);
    return place != last && !before(value, *place);
}

// For a range of values; the positions are counted from the first.
template <typename P, typename In, typename Values, typename Out, typename Less = less<>>
Out lower_bound(const detail::policy<P> &policy, In first, In last, Values value, Values end,
                Out result, Less before = {}) {
    for (; value != end; ++value, ++result)
        *result = lower_bound(policy, first, last, *value, before) - first;
    return result;
}
template <typename P, typename In, typename Values, typename Out, typename Less = less<>>
Out upper_bound(const detail::policy<P> &policy, In first, In last, Values value, Values end,
                Out result, Less before = {}) {
    for (; value != end; ++value, ++result)
        *result = upper_bound(policy, first, last, *value, before) - first;
    return result;
}
template <typename P, typename In, typename Values, typename Out, typename Less = less<>>
Out binary_search(const detail::policy<P> &policy, In first, In last, Values value, Values end,
                  Out result, Less before = {}) {
    for (; value != end; ++value, ++result)
        *result = binary_search(policy, first, last, *value, before);
    return result;
}
} // namespace thrust
#pragma clang force_cuda_host_device end
