// The host's interface to HIP's runtime, as far as programs with kernels use it. Names, values and
// layouts follow AMD's HIP API reference (ROCm 7.0).
#pragma once

#include <device/hip.h>

#include <hip/context_api.h>
#include <hip/driver_types.h>
#include <hip/graph_nodes_api.h>
#include <hip/hip_device_properties.h>
#include <hip/less_common_api.h>
#include <hip/memory_pools_api.h>
#include <hip/pitched_memory_api.h>
#include <hip/virtual_memory_api.h>

extern "C" {
// Devices
hipError_t hipInit(unsigned int);
hipError_t hipDriverGetVersion(int *);
hipError_t hipRuntimeGetVersion(int *);
hipError_t hipSetDevice(int);
hipError_t hipGetDevice(int *);
hipError_t hipGetDeviceCount(int *);
hipError_t hipDeviceSynchronize();
hipError_t hipDeviceReset();
hipError_t hipDeviceGet(hipDevice_t *, int);
hipError_t hipDeviceGetName(char *, int, hipDevice_t);
hipError_t hipDeviceGetUuid(hipUUID *, hipDevice_t);
hipError_t hipDeviceGetPCIBusId(char *, int, int);
hipError_t hipDeviceGetAttribute(int *, hipDeviceAttribute_t, int);
hipError_t hipDeviceGetLimit(size_t *, hipLimit_t);
hipError_t hipDeviceSetLimit(hipLimit_t, size_t);
hipError_t hipDeviceSetCacheConfig(hipFuncCache_t);
hipError_t hipDeviceSetSharedMemConfig(hipSharedMemConfig);
hipError_t hipDeviceCanAccessPeer(int *, int, int);
hipError_t hipDeviceEnablePeerAccess(int, unsigned int);
hipError_t hipDeviceDisablePeerAccess(int);
hipError_t hipDeviceGetStreamPriorityRange(int *, int *);
hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_t *, int);
#define hipGetDeviceProperties hipGetDevicePropertiesR0600

// Errors
const char *hipGetErrorString(hipError_t);
const char *hipGetErrorName(hipError_t);
hipError_t hipGetLastError();
hipError_t hipPeekAtLastError();

// Memory
hipError_t hipMalloc(void **, size_t);
hipError_t hipFree(void *);
hipError_t hipHostMalloc(void **, size_t, unsigned int);
hipError_t hipHostFree(void *);
hipError_t hipHostGetDevicePointer(void **, void *, unsigned int);
hipError_t hipHostRegister(void *, size_t, unsigned int);
hipError_t hipHostUnregister(void *);
hipError_t hipMallocManaged(void **, size_t, unsigned int);
hipError_t hipMallocAsync(void **, size_t, hipStream_t);
hipError_t hipFreeAsync(void *, hipStream_t);
hipError_t hipMemGetInfo(size_t *, size_t *);
hipError_t hipPointerGetAttributes(hipPointerAttribute_t *, const void *);
hipError_t hipMemcpy(void *, const void *, size_t, hipMemcpyKind);
hipError_t hipMemcpyAsync(void *, const void *, size_t, hipMemcpyKind, hipStream_t = nullptr);
hipError_t hipMemcpyWithStream(void *, const void *, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemcpyHtoD(hipDeviceptr_t, void *, size_t);
hipError_t hipMemcpyDtoH(void *, hipDeviceptr_t, size_t);
hipError_t hipMemcpyDtoD(hipDeviceptr_t, hipDeviceptr_t, size_t);
hipError_t hipMemcpyPeer(void *, int, const void *, int, size_t);
hipError_t hipMemcpyPeerAsync(void *, int, const void *, int, size_t, hipStream_t = nullptr);
hipError_t hipMemset(void *, int, size_t);
hipError_t hipMemsetAsync(void *, int, size_t, hipStream_t = nullptr);
hipError_t hipMemsetD8(hipDeviceptr_t, unsigned char, size_t);
hipError_t hipMemsetD32(hipDeviceptr_t, int, size_t);
hipError_t hipMemAdvise(const void *, size_t, hipMemoryAdvise, int);
hipError_t hipMemPrefetchAsync(const void *, size_t, int, hipStream_t = nullptr);
hipError_t hipGetSymbolAddress(void **, const void *);
hipError_t hipGetSymbolSize(size_t *, const void *);
hipError_t hipMemcpyToSymbol(const void *, const void *, size_t, size_t = 0,
                             hipMemcpyKind = hipMemcpyHostToDevice);
hipError_t hipMemcpyFromSymbol(void *, const void *, size_t, size_t = 0,
                               hipMemcpyKind = hipMemcpyDeviceToHost);

// Textures: CDNA has no texture hardware, and the emulated device refuses these.
hipError_t hipCreateTextureObject(hipTextureObject_t *, const hipResourceDesc *,
                                  const hipTextureDesc *, const void *);
hipError_t hipDestroyTextureObject(hipTextureObject_t);
hipError_t hipMallocArray(hipArray_t *, const hipChannelFormatDesc *, size_t, size_t = 0,
                          unsigned int = 0);
hipError_t hipFreeArray(hipArray_t);
hipError_t hipMemcpy2DToArray(hipArray_t, size_t, size_t, const void *, size_t, size_t, size_t,
                              hipMemcpyKind);
static constexpr hipChannelFormatDesc hipCreateChannelDesc(int x, int y, int z, int w,
                                                           hipChannelFormatKind kind) {
    return {x, y, z, w, kind};
}

// Streams and events
hipError_t hipStreamCreate(hipStream_t *);
hipError_t hipStreamCreateWithFlags(hipStream_t *, unsigned int);
hipError_t hipStreamCreateWithPriority(hipStream_t *, unsigned int, int);
hipError_t hipStreamDestroy(hipStream_t);
hipError_t hipStreamSynchronize(hipStream_t);
hipError_t hipStreamQuery(hipStream_t);
hipError_t hipStreamWaitEvent(hipStream_t, hipEvent_t, unsigned int = 0);
hipError_t hipStreamGetFlags(hipStream_t, unsigned int *);
hipError_t hipStreamGetPriority(hipStream_t, int *);
hipError_t hipStreamAddCallback(hipStream_t, hipStreamCallback_t, void *, unsigned int);
hipError_t hipLaunchHostFunc(hipStream_t, hipHostFn_t, void *);
int hipGetStreamDeviceId(hipStream_t);
hipError_t hipExtStreamGetCUMask(hipStream_t, unsigned int, unsigned int *);
hipError_t hipEventCreate(hipEvent_t *);
hipError_t hipEventCreateWithFlags(hipEvent_t *, unsigned int);
hipError_t hipEventDestroy(hipEvent_t);
hipError_t hipEventRecord(hipEvent_t, hipStream_t = nullptr);
hipError_t hipEventQuery(hipEvent_t);
hipError_t hipEventSynchronize(hipEvent_t);
hipError_t hipEventElapsedTime(float *, hipEvent_t, hipEvent_t);

// Graphs
hipError_t hipStreamBeginCapture(hipStream_t, hipStreamCaptureMode);
hipError_t hipStreamEndCapture(hipStream_t, hipGraph_t *);
hipError_t hipStreamIsCapturing(hipStream_t, hipStreamCaptureStatus *);
hipError_t hipGraphInstantiate(hipGraphExec_t *, hipGraph_t, hipGraphNode_t *, char *, size_t);
hipError_t hipGraphLaunch(hipGraphExec_t, hipStream_t);
hipError_t hipGraphDestroy(hipGraph_t);
hipError_t hipGraphExecDestroy(hipGraphExec_t);

// Modules and launches
hipError_t hipModuleLoad(hipModule_t *, const char *);
hipError_t hipModuleLoadData(hipModule_t *, const void *);
hipError_t hipModuleUnload(hipModule_t);
hipError_t hipModuleGetFunction(hipFunction_t *, hipModule_t, const char *);
hipError_t hipModuleGetGlobal(hipDeviceptr_t *, size_t *, hipModule_t, const char *);
hipError_t hipModuleLaunchKernel(hipFunction_t, unsigned int, unsigned int, unsigned int,
                                 unsigned int, unsigned int, unsigned int, unsigned int,
                                 hipStream_t, void **, void **);
hipError_t hipFuncGetAttribute(int *, hipFunction_attribute, hipFunction_t);
hipError_t hipFuncGetAttributes(hipFuncAttributes *, const void *);
hipError_t hipFuncSetAttribute(const void *, hipFuncAttribute, int);
hipError_t hipFuncSetCacheConfig(const void *, hipFuncCache_t);
hipError_t hipFuncSetSharedMemConfig(const void *, hipSharedMemConfig);
hipError_t hipLaunchKernel(const void *, dim3, dim3, void **, size_t = 0, hipStream_t = nullptr);
hipError_t hipLaunchCooperativeKernel(const void *, dim3, dim3, void **, unsigned int, hipStream_t);
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int *, const void *, int, size_t);
hipError_t hipOccupancyMaxPotentialBlockSize(int *, int *, const void *, size_t, int);
hipError_t __hipPushCallConfiguration(dim3, dim3, size_t = 0, hipStream_t = nullptr);
hipError_t __hipPopCallConfiguration(dim3 *, dim3 *, size_t *, hipStream_t *);
}

// C++ programs pass pointers to objects of any type, and to kernels.
template <typename T> hipError_t hipMalloc(T **pointer, size_t size) {
    return hipMalloc((void **)pointer, size);
}
template <typename T> hipError_t hipMallocAsync(T **pointer, size_t size, hipStream_t stream) {
    return hipMallocAsync((void **)pointer, size, stream);
}
template <typename T>
hipError_t hipMallocManaged(T **pointer, size_t size, unsigned int flags = hipMemAttachGlobal) {
    return hipMallocManaged((void **)pointer, size, flags);
}
template <typename T>
hipError_t hipHostMalloc(T **pointer, size_t size, unsigned int flags = hipHostMallocDefault) {
    return hipHostMalloc((void **)pointer, size, flags);
}
template <typename T> hipError_t hipGetSymbolAddress(void **pointer, const T &symbol) {
    return hipGetSymbolAddress(pointer, (const void *)&symbol);
}
template <typename T> hipError_t hipGetSymbolSize(size_t *size, const T &symbol) {
    return hipGetSymbolSize(size, (const void *)&symbol);
}
template <typename T> hipError_t hipMemcpyToSymbol(const T &symbol, const void *from, size_t size,
                                                   size_t offset = 0,
                                                   hipMemcpyKind kind = hipMemcpyHostToDevice) {
    return hipMemcpyToSymbol((const void *)&symbol, from, size, offset, kind);
}
template <typename T> hipError_t hipMemcpyFromSymbol(void *to, const T &symbol, size_t size,
                                                     size_t offset = 0,
                                                     hipMemcpyKind kind = hipMemcpyDeviceToHost) {
    return hipMemcpyFromSymbol(to, (const void *)&symbol, size, offset, kind);
}
template <typename F>
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, F kernel, int block_size,
                                                        size_t dynamic_lds = 0) {
    return hipOccupancyMaxActiveBlocksPerMultiprocessor(blocks, (const void *)kernel, block_size,
                                                        dynamic_lds);
}
template <typename F> hipError_t hipOccupancyMaxPotentialBlockSize(int *grid_size, int *block_size,
                                                                   F kernel, size_t dynamic_lds = 0,
                                                                   int limit = 0) {
    return hipOccupancyMaxPotentialBlockSize(grid_size, block_size, (const void *)kernel,
                                             dynamic_lds, limit);
}
template <typename F> hipError_t hipLaunchCooperativeKernel(F kernel, dim3 grid, dim3 block,
                                                            void **arguments, unsigned int lds,
                                                            hipStream_t stream) {
    return hipLaunchCooperativeKernel((const void *)kernel, grid, block, arguments, lds, stream);
}
template <typename F> hipError_t hipFuncGetAttributes(hipFuncAttributes *attributes, F *kernel) {
    return hipFuncGetAttributes(attributes, (const void *)kernel);
}
template <typename F> hipError_t hipFuncSetAttribute(F *kernel, hipFuncAttribute which, int value) {
    return hipFuncSetAttribute((const void *)kernel, which, value);
}
template <typename T> constexpr hipChannelFormatDesc hipCreateChannelDesc();

#ifdef HIP_TEMPLATE_KERNEL_LAUNCH // a function, so that kernels may have commas in their names
template <typename... Arguments, typename Kernel = void (*)(Arguments...)>
void hipLaunchKernelGGL(Kernel kernel, const dim3 &grid, const dim3 &block, unsigned int lds,
                        hipStream_t stream, Arguments... arguments) {
    kernel<<<grid, block, lds, stream>>>(arguments...);
}
#else
#define hipLaunchKernelGGL(kernel, grid, block, lds, stream, ...)                                  \
    (kernel)<<<(grid), (block), (lds), (stream)>>>(__VA_ARGS__)
#define hipLaunchKernelGGLInternal hipLaunchKernelGGL
#endif
