// <thrust/iterator/constant_iterator.h>
#pragma once

#include <thrust/iterator/counting_iterator.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
template <typename T> class constant_iterator : public detail::generated<constant_iterator<T>, T> {
    T value_;

public:
    explicit constexpr constant_iterator(T value, std::ptrdiff_t place = 0)
        : detail::generated<constant_iterator, T>(place), value_(value) {}
    constexpr T at(std::ptrdiff_t) const { return value_; }
    constexpr constant_iterator moved(std::ptrdiff_t place) const {
        return constant_iterator(value_, place);
    }
};
template <typename T> constexpr constant_iterator<T> make_constant_iterator(T value) {
    return constant_iterator<T>(value);
}
} // namespace thrust
#pragma clang force_cuda_host_device end
