// <thrust/inner_product.h>
#pragma once

#include <thrust/detail/algorithm.h>

#pragma clang force_cuda_host_device begin
namespace thrust {
template <typename P, typename In, typename Other, typename T, typename Add = plus<>,
          typename Multiply = multiplies<>>
T inner_product(const detail::policy<P> &, In first, In last, Other other, T init, Add add = {},
                Multiply multiply = {}) {
    for (; first != last; ++first, ++other)
        init = add(init, multiply(*first, *other));
    return init;
}
} // namespace thrust
#pragma clang force_cuda_host_device end
