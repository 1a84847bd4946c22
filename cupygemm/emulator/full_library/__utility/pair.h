// Part of <utility>, whose functions are the device's, too, before they are constexpr in C++20.
#pragma once

#pragma clang force_cuda_host_device begin
#include_next <__utility/pair.h>
#pragma clang force_cuda_host_device end
