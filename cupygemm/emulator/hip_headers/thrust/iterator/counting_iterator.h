// <thrust/iterator/counting_iterator.h>, and its common part with the constant iterator.
#pragma once

#include <cstddef>

#include <iterator>

#pragma clang force_cuda_host_device begin
namespace thrust {
namespace detail {
// A random-access iterator over values computed from their positions.
template <typename Self, typename T> class generated {
    std::ptrdiff_t place_;
    constexpr const Self &self() const { return static_cast<const Self &>(*this); }

public:
    typedef T value_type, reference;
    typedef const T *pointer;
    typedef std::ptrdiff_t difference_type;
    typedef std::random_access_iterator_tag iterator_category;
    explicit constexpr generated(std::ptrdiff_t place) : place_(place) {}
    constexpr T operator*() const { return self().at(place_); }
    constexpr T operator[](std::ptrdiff_t i) const { return self().at(place_ + i); }
    constexpr Self &operator++() {
        place_++;
        return static_cast<Self &>(*this);
    }
    constexpr Self &operator--() {
        place_--;
        return static_cast<Self &>(*this);
    }
    constexpr Self operator+(std::ptrdiff_t i) const { return self().moved(place_ + i); }
    constexpr Self operator-(std::ptrdiff_t i) const { return self().moved(place_ - i); }
    constexpr std::ptrdiff_t operator-(const Self &other) const { return place_ - other.place_; }
    constexpr bool operator==(const Self &other) const { return place_ == other.place_; }
    constexpr bool operator!=(const Self &other) const { return place_ != other.place_; }
    constexpr bool operator<(const Self &other) const { return place_ < other.place_; }
};
} // namespace detail

template <typename T> class counting_iterator : public detail::generated<counting_iterator<T>, T> {
    T first_;

public:
    explicit constexpr counting_iterator(T first, std::ptrdiff_t place = 0)
        : detail::generated<counting_iterator, T>(place), first_(first) {}
    constexpr T at(std::ptrdiff_t place) const { return first_ + static_cast<T>(place); }
    constexpr counting_iterator moved(std::ptrdiff_t place) const {
        return counting_iterator(first_, place);
    }
};
template <typename T> constexpr counting_iterator<T> make_counting_iterator(T first) {
    return counting_iterator<T>(first);
}
} // namespace thrust
#pragma clang force_cuda_host_device end
