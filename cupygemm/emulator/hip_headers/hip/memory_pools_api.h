// Declarations of HIP's pools of memory.
#pragma once

#include <device/hip.h>

#include <hip/driver_types.h>
#include <hip/virtual_memory_api.h>

extern "C" {
typedef struct ihipMemPoolHandle_t *hipMemPool_t;
typedef enum hipMemPoolAttr {
    hipMemPoolReuseFollowEventDependencies = 1,
    hipMemPoolReuseAllowOpportunistic = 2,
    hipMemPoolReuseAllowInternalDependencies = 3,
    hipMemPoolAttrReleaseThreshold = 4,
    hipMemPoolAttrReservedMemCurrent = 5,
    hipMemPoolAttrReservedMemHigh = 6,
    hipMemPoolAttrUsedMemCurrent = 7,
    hipMemPoolAttrUsedMemHigh = 8
} hipMemPoolAttr;
typedef struct hipMemPoolProps {
    hipMemAllocationType allocType;
    hipMemAllocationHandleType handleTypes;
    hipMemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned char reserved[56];
} hipMemPoolProps;
hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t *, int);
hipError_t hipDeviceGetMemPool(hipMemPool_t *, int);
hipError_t hipDeviceSetMemPool(int, hipMemPool_t);
hipError_t hipMemPoolCreate(hipMemPool_t *, const hipMemPoolProps *);
hipError_t hipMemPoolDestroy(hipMemPool_t);
hipError_t hipMemPoolTrimTo(hipMemPool_t, size_t);
hipError_t hipMemPoolSetAttribute(hipMemPool_t, hipMemPoolAttr, void *);
hipError_t hipMemPoolGetAttribute(hipMemPool_t, hipMemPoolAttr, void *);
hipError_t hipMemPoolSetAccess(hipMemPool_t, const hipMemAccessDesc *, size_t);
hipError_t hipMemPoolGetAccess(hipMemAccessFlags *, hipMemPool_t, hipMemLocation *);
hipError_t hipMallocFromPoolAsync(void **, size_t, hipMemPool_t, hipStream_t);
}

template <typename T>
hipError_t hipMallocFromPoolAsync(T **pointer, size_t size, hipMemPool_t pool, hipStream_t stream) {
    return hipMallocFromPoolAsync((void **)pointer, size, pool, stream);
}
template <typename T>
hipError_t hipMallocAsync(T **pointer, size_t size, hipMemPool_t pool, hipStream_t stream) {
    return hipMallocFromPoolAsync((void **)pointer, size, pool, stream);
}
