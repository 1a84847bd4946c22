// <thrust/execution_policy.h>: inside a kernel, each thread runs an algorithm by itself, in order.
#pragma once

namespace thrust {
namespace detail {
template <typename Derived> struct policy {};
struct sequential : policy<sequential> {};
} // namespace detail
static constexpr detail::sequential seq, device, host;
} // namespace thrust
