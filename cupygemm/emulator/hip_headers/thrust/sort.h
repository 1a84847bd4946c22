// <thrust/sort.h>: insertion in each thread, which is stable. Made for the short runs of a thread.
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
template <typename P, typename In, typename Less = less<>>
In is_sorted_until(const detail::policy<P> &, In first, In last, Less before = {}) {
    if (first == last)
        return last;
    for (In next = first + 1; next != last; ++first, ++next)
        if (before(*next, *first))
            return next;
    return last;
}
template <typename P, typename In, typename Less = less<>>
bool is_sorted(const detail::policy<P> &policy, In first, In last, Less before = {}) {
    return thrust::is_sorted_until(policy, first, last, before) == last;
}

namespace detail {
// Sorts keys, and calls `move(to, from)`, `take(place)` and `put(place)` for their values.
template <typename Keys, typename Less, typename Take, typename Move, typename Put>
void insertion_sort(Keys keys, std::ptrdiff_t count, Less before, Take take, Move move, Put put) {
    for (std::ptrdiff_t i = 1; i < count; i++) {
        value_of<Keys> key = keys[i];
        std::ptrdiff_t place = i;
        take(i);
        for (; place > 0 && before(key, keys[place - 1]); place--) {
            keys[place] = keys[place - 1];
            move(place, place - 1);
        }
        keys[place] = key;
        put(place);
    }
}
} // namespace detail

template <typename P, typename Keys, typename Less = less<>>
void stable_sort(const detail::policy<P> &, Keys first, Keys last, Less before = {}) {
    auto nothing = [](auto...) {};
    detail::insertion_sort(first, last - first, before, nothing, nothing, nothing);
}
template <typename P, typename Keys, typename Values, typename Less = less<>>
void stable_sort_by_key(const detail::policy<P> &, Keys first, Keys last, Values values,
                        Less before = {}) {
    detail::value_of<Values> taken = *values;
    detail::insertion_sort(
        first, last - first, before, [&](std::ptrdiff_t place) { taken = values[place]; },
        [&](std::ptrdiff_t to, std::ptrdiff_t from) { values[to] = values[from]; },
        [&](std::ptrdiff_t place) { values[place] = taken; });
}
template <typename P, typename Keys, typename Less = less<>>
void sort(const detail::policy<P> &policy, Keys first, Keys last, Less before = {}) {
    thrust::stable_sort(policy, first, last, before);
}
template <typename P, typename Keys, typename Values, typename Less = less<>>
void sort_by_key(const detail::policy<P> &policy, Keys first, Keys last, Values values,
                 Less before = {}) {
    thrust::stable_sort_by_key(policy, first, last, values, before);
}
} // namespace thrust
#pragma clang force_cuda_host_device end
