// What host functions beside kernels name of HIP's runtime. Only kernels are compiled here: host
// functions are parsed, and these are declared for them.
#pragma once

#include <device/hip.h>

typedef enum hipError_t {
    hipSuccess = 0,
    hipErrorInvalidValue = 1,
    hipErrorOutOfMemory = 2,
    hipErrorNotReady = 600,
    hipErrorLaunchFailure = 719,
    hipErrorUnknown = 999
} hipError_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef enum hipMemcpyKind {
    hipMemcpyHostToHost = 0,
    hipMemcpyHostToDevice = 1,
    hipMemcpyDeviceToHost = 2,
    hipMemcpyDeviceToDevice = 3,
    hipMemcpyDefault = 4
} hipMemcpyKind;
typedef enum hipFuncAttribute {
    hipFuncAttributeMaxDynamicSharedMemorySize = 8,
    hipFuncAttributePreferredSharedMemoryCarveout = 9
} hipFuncAttribute;

const char *hipGetErrorString(hipError_t);
const char *hipGetErrorName(hipError_t);
hipError_t hipGetLastError();
hipError_t hipPeekAtLastError();
hipError_t hipDeviceSynchronize();
hipError_t hipSetDevice(int);
hipError_t hipGetDevice(int *);
hipError_t hipGetDeviceCount(int *);
hipError_t hipMalloc(void **, size_t);
template <typename T> hipError_t hipMalloc(T **pointer, size_t size) {
    return hipMalloc((void **)pointer, size);
}
hipError_t hipHostMalloc(void **, size_t, unsigned int = 0);
hipError_t hipFree(void *);
hipError_t hipHostFree(void *);
hipError_t hipMemcpy(void *, const void *, size_t, hipMemcpyKind);
hipError_t hipMemcpyAsync(void *, const void *, size_t, hipMemcpyKind, hipStream_t = nullptr);
hipError_t hipMemset(void *, int, size_t);
hipError_t hipMemsetAsync(void *, int, size_t, hipStream_t = nullptr);
hipError_t hipStreamCreate(hipStream_t *);
hipError_t hipStreamDestroy(hipStream_t);
hipError_t hipStreamSynchronize(hipStream_t);
hipError_t hipEventCreate(hipEvent_t *);
hipError_t hipEventDestroy(hipEvent_t);
hipError_t hipEventRecord(hipEvent_t, hipStream_t = nullptr);
hipError_t hipEventSynchronize(hipEvent_t);
hipError_t hipEventElapsedTime(float *, hipEvent_t, hipEvent_t);
hipError_t hipFuncSetAttribute(const void *, hipFuncAttribute, int);
extern "C" hipError_t hipLaunchKernel(const void *, dim3, dim3, void **, size_t, hipStream_t);
extern "C" hipError_t __hipPushCallConfiguration(dim3, dim3, size_t = 0, hipStream_t = nullptr);
#define hipLaunchKernelGGL(kernel, grid, block, lds, stream, ...)                                  \
    (kernel)<<<(grid), (block), (lds), (stream)>>>(__VA_ARGS__)
