// <thrust/functional.h>: function objects for algorithms.
#pragma once

#pragma clang force_cuda_host_device begin
namespace thrust {
#define THRUST_OPERATION(name, expression)                                                         \
    template <typename T = void> struct name {                                                     \
        constexpr auto operator()(const T &a, const T &b) const { return expression; }             \
    };                                                                                             \
    template <> struct name<void> {                                                                \
        template <typename A, typename B>                                                          \
        constexpr auto operator()(const A &a, const B &b) const {                                  \
            return expression;                                                                     \
        }                                                                                          \
    };
THRUST_OPERATION(plus, a + b)
THRUST_OPERATION(minus, a - b)
THRUST_OPERATION(multiplies, a *b)
THRUST_OPERATION(divides, a / b)
THRUST_OPERATION(equal_to, a == b)
THRUST_OPERATION(not_equal_to, a != b)
THRUST_OPERATION(less, a < b)
THRUST_OPERATION(greater, b < a)
THRUST_OPERATION(maximum, a < b ? b : a)
THRUST_OPERATION(minimum, b < a ? b : a)
#undef THRUST_OPERATION
} // namespace thrust
#pragma clang force_cuda_host_device end
