// Declarations of the less common functions of HIP's runtime: processes, asynchronous copies,
// captures.
#pragma once

#include <device/hip.h>

#include <hip/driver_types.h>

extern "C" {
typedef struct hipIpcMemHandle_st {
    char reserved[64];
} hipIpcMemHandle_t;
typedef struct hipIpcEventHandle_st {
    char reserved[64];
} hipIpcEventHandle_t;
#define hipIpcMemLazyEnablePeerAccess 1
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *, void *);
hipError_t hipIpcOpenMemHandle(void **, hipIpcMemHandle_t, unsigned int);
hipError_t hipIpcCloseMemHandle(void *);
hipError_t hipIpcGetEventHandle(hipIpcEventHandle_t *, hipEvent_t);
hipError_t hipIpcOpenEventHandle(hipEvent_t *, hipIpcEventHandle_t);

// Memory
hipError_t hipHostAlloc(void **, size_t, unsigned int);
hipError_t hipMallocHost(void **, size_t);
hipError_t hipFreeHost(void *);
hipError_t hipHostGetFlags(unsigned int *, void *);
hipError_t hipExtMallocWithFlags(void **, size_t, unsigned int);
hipError_t hipMemAllocHost(void **, size_t);
hipError_t hipMemGetAddressRange(hipDeviceptr_t *, size_t *, hipDeviceptr_t);
hipError_t hipMemPtrGetInfo(void *, size_t *);
hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t, hipDeviceptr_t, size_t, hipStream_t);
hipError_t hipMemcpyDtoHAsync(void *, hipDeviceptr_t, size_t, hipStream_t);
hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t, void *, size_t, hipStream_t);
hipError_t hipMemcpyToSymbolAsync(const void *, const void *, size_t, size_t, hipMemcpyKind,
                                  hipStream_t = nullptr);
hipError_t hipMemcpyFromSymbolAsync(void *, const void *, size_t, size_t, hipMemcpyKind,
                                    hipStream_t = nullptr);
hipError_t hipMemsetD8Async(hipDeviceptr_t, unsigned char, size_t, hipStream_t = nullptr);
hipError_t hipMemsetD16(hipDeviceptr_t, unsigned short, size_t);
hipError_t hipMemsetD16Async(hipDeviceptr_t, unsigned short, size_t, hipStream_t = nullptr);
hipError_t hipMemsetD32Async(hipDeviceptr_t, int, size_t, hipStream_t = nullptr);
hipError_t hipStreamWriteValue32(hipStream_t, void *, uint32_t, unsigned int);
hipError_t hipStreamWriteValue64(hipStream_t, void *, uint64_t, unsigned int);
hipError_t hipStreamWaitValue64(hipStream_t, void *, uint64_t, unsigned int, uint64_t = ~0ull);
hipError_t hipStreamWaitValue32(hipStream_t, void *, uint32_t, unsigned int, uint32_t = ~0u);

// Devices and profilers
hipError_t hipSetDeviceFlags(unsigned int);
hipError_t hipGetDeviceFlags(unsigned int *);
hipError_t hipDeviceGetCacheConfig(hipFuncCache_t *);
hipError_t hipDeviceGetSharedMemConfig(hipSharedMemConfig *);
hipError_t hipExtGetLastError();
hipError_t hipDrvGetErrorName(hipError_t, const char **);
hipError_t hipDrvGetErrorString(hipError_t, const char **);
hipError_t hipDeviceTotalMem(size_t *, hipDevice_t);
hipError_t hipDeviceComputeCapability(int *, int *, hipDevice_t);
hipError_t hipStreamGetDevice(hipStream_t, hipDevice_t *);
hipError_t hipProfilerStart();
hipError_t hipProfilerStop();

// Captures
hipError_t hipStreamGetCaptureInfo(hipStream_t, hipStreamCaptureStatus *, unsigned long long *);
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *);

// Launches
hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t, unsigned int, unsigned int, unsigned int,
                                            unsigned int, unsigned int, unsigned int, unsigned int,
                                            hipStream_t, void **);
hipError_t hipExtLaunchKernel(const void *, dim3, dim3, void **, size_t, hipStream_t, hipEvent_t,
                              hipEvent_t, int);
hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int *, hipFunction_t, int, size_t);
hipError_t hipModuleOccupancyMaxPotentialBlockSize(int *, int *, hipFunction_t, size_t, int);
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *, const void *, int, size_t,
                                                                 unsigned int = 0);
}

template <typename T> hipError_t hipHostAlloc(T **pointer, size_t size, unsigned int flags = 0) {
    return hipHostAlloc((void **)pointer, size, flags);
}
template <typename T> hipError_t hipMallocHost(T **pointer, size_t size) {
    return hipMallocHost((void **)pointer, size);
}
