// <thrust/equal.h>
#pragma once

#include <thrust/mismatch.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
template <typename P, typename In, typename Other, typename Equal = equal_to<>>
bool equal(const detail::policy<P> &policy, In first, In last, Other other, Equal same = {}) {
    return thrust::mismatch(policy, first, last, other, same).first == last;
}
} // namespace thrust
#pragma clang force_cuda_host_device end
