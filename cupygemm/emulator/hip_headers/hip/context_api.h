// Declarations of HIP's contexts, of links between devices and of attributes of pointers.
#pragma once

#include <device/hip.h>

#include <hip/driver_types.h>

extern "C" {
typedef struct ihipCtx_t *hipCtx_t;
hipError_t hipCtxCreate(hipCtx_t *, unsigned int, hipDevice_t);
hipError_t hipCtxDestroy(hipCtx_t);
hipError_t hipCtxPushCurrent(hipCtx_t);
hipError_t hipCtxPopCurrent(hipCtx_t *);
hipError_t hipCtxSetCurrent(hipCtx_t);
hipError_t hipCtxGetCurrent(hipCtx_t *);
hipError_t hipCtxGetDevice(hipDevice_t *);
hipError_t hipCtxGetFlags(unsigned int *);
hipError_t hipCtxSynchronize();
hipError_t hipCtxEnablePeerAccess(hipCtx_t, unsigned int);
hipError_t hipCtxDisablePeerAccess(hipCtx_t);
hipError_t hipDevicePrimaryCtxRetain(hipCtx_t *, hipDevice_t);
hipError_t hipDevicePrimaryCtxRelease(hipDevice_t);
hipError_t hipDevicePrimaryCtxGetState(hipDevice_t, unsigned int *, int *);
hipError_t hipDevicePrimaryCtxSetFlags(hipDevice_t, unsigned int);

typedef enum hipDeviceP2PAttr {
    hipDevP2PAttrPerformanceRank = 0,
    hipDevP2PAttrAccessSupported = 1,
    hipDevP2PAttrNativeAtomicSupported = 2,
    hipDevP2PAttrHipArrayAccessSupported = 3
} hipDeviceP2PAttr;
hipError_t hipDeviceGetP2PAttribute(int *, hipDeviceP2PAttr, int, int);
hipError_t hipExtGetLinkTypeAndHopCount(int, int, uint32_t *, uint32_t *);

typedef enum hipPointer_attribute {
    HIP_POINTER_ATTRIBUTE_CONTEXT = 1,
    HIP_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    HIP_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
    HIP_POINTER_ATTRIBUTE_HOST_POINTER = 4,
    HIP_POINTER_ATTRIBUTE_BUFFER_ID = 7,
    HIP_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    HIP_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
    HIP_POINTER_ATTRIBUTE_MAPPED = 13
} hipPointer_attribute;
hipError_t hipPointerGetAttribute(void *, hipPointer_attribute, hipDeviceptr_t);

typedef enum hipJitOption {
    hipJitOptionMaxRegisters = 0,
    hipJitOptionThreadsPerBlock = 1,
    hipJitOptionWallTime = 2,
    hipJitOptionInfoLogBuffer = 3,
    hipJitOptionInfoLogBufferSizeBytes = 4,
    hipJitOptionErrorLogBuffer = 5,
    hipJitOptionErrorLogBufferSizeBytes = 6,
    hipJitOptionOptimizationLevel = 7,
    hipJitOptionTargetFromContext = 8,
    hipJitOptionTarget = 9,
    hipJitOptionFallbackStrategy = 10,
    hipJitOptionGenerateDebugInfo = 11,
    hipJitOptionLogVerbose = 12
} hipJitOption;
hipError_t hipModuleLoadDataEx(hipModule_t *, const void *, unsigned int, hipJitOption *, void **);
hipError_t hipModuleOccupancyMaxPotentialBlockSizeWithFlags(int *, int *, hipFunction_t, size_t,
                                                            int, unsigned int);
hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *, hipFunction_t, int,
                                                                       size_t, unsigned int);
}
