// Part of <utility>, with device functions even before C++20 makes them constexpr.
#pragma once

#pragma clang force_cuda_host_device begin
#include_next <__utility/swap.h>
#pragma clang force_cuda_host_device end
