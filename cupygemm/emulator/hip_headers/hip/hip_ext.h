// Launches that record events: ROCm's extension of HIP's runtime.
#pragma once

#include <hip/hip_runtime.h>

extern "C" hipError_t hipExtModuleLaunchKernel(hipFunction_t, uint32_t, uint32_t, uint32_t,
                                               uint32_t, uint32_t, uint32_t, size_t, hipStream_t,
                                               void **, void **, hipEvent_t = nullptr,
                                               hipEvent_t = nullptr, uint32_t = 0);

// The arguments are converted to the kernel's parameters by the launch.
template <typename... Parameters, typename... Arguments>
void hipExtLaunchKernelGGL(void (*kernel)(Parameters...), dim3 grid, dim3 block, uint32_t lds,
                           hipStream_t stream, hipEvent_t start, hipEvent_t stop, uint32_t,
                           Arguments... arguments) {
    if (start)
        (void)hipEventRecord(start, stream);
    kernel<<<grid, block, lds, stream>>>(arguments...);
    if (stop)
        (void)hipEventRecord(stop, stream);
}
