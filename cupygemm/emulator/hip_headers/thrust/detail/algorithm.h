// The common part of the headers of algorithms.
#pragma once

#include <iterator>
#include <utility>

#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/pair.h>

namespace thrust {
namespace detail {
template <typename Iterator> using value_of =
    std::remove_cv_t<std::remove_reference_t<decltype(*std::declval<Iterator>())>>;
} // namespace detail
} // namespace thrust
