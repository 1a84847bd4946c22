// <thrust/mismatch.h>
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
template <typename P, typename In, typename Other, typename Equal = equal_to<>> pair<In, Other>
mismatch(const detail::policy<P> &, In first, In last, Other other, Equal equal = {}) {
    while (first != last && equal(*first, *other)) {
        ++first;
        ++other;
    }
    return {first, other};
}
} // namespace thrust
#pragma clang force_cuda_host_device end
