// Declarations of HIP's functions on rows with a pitch: planes and volumes of linear memory.
#pragma once

#include <device/hip.h>

#include <hip/driver_types.h>

extern "C" {
typedef struct hipPitchedPtr {
    void *ptr;
    size_t pitch, xsize, ysize;
} hipPitchedPtr;
typedef struct hipExtent {
    size_t width, height, depth;
} hipExtent;
typedef struct hipPos {
    size_t x, y, z;
} hipPos;
typedef struct hipMemcpy3DParms {
    hipArray_t srcArray;
    hipPos srcPos;
    hipPitchedPtr srcPtr;
    hipArray_t dstArray;
    hipPos dstPos;
    hipPitchedPtr dstPtr;
    hipExtent extent;
    hipMemcpyKind kind;
} hipMemcpy3DParms;
typedef struct hip_Memcpy2D {
    size_t srcXInBytes, srcY;
    hipMemoryType srcMemoryType;
    const void *srcHost;
    hipDeviceptr_t srcDevice;
    hipArray_t srcArray;
    size_t srcPitch, dstXInBytes, dstY;
    hipMemoryType dstMemoryType;
    void *dstHost;
    hipDeviceptr_t dstDevice;
    hipArray_t dstArray;
    size_t dstPitch, WidthInBytes, Height;
} hip_Memcpy2D;
hipError_t hipMallocPitch(void **, size_t *, size_t, size_t);
hipError_t hipMemAllocPitch(hipDeviceptr_t *, size_t *, size_t, size_t, unsigned int);
hipError_t hipMalloc3D(hipPitchedPtr *, hipExtent);
hipError_t hipMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, hipMemcpyKind);
hipError_t hipMemcpy2DAsync(void *, size_t, const void *, size_t, size_t, size_t, hipMemcpyKind,
                            hipStream_t = nullptr);
hipError_t hipMemcpyParam2D(const hip_Memcpy2D *);
hipError_t hipMemcpyParam2DAsync(const hip_Memcpy2D *, hipStream_t = nullptr);
hipError_t hipMemcpy3D(const hipMemcpy3DParms *);
hipError_t hipMemcpy3DAsync(const hipMemcpy3DParms *, hipStream_t = nullptr);
hipError_t hipMemset2D(void *, size_t, int, size_t, size_t);
hipError_t hipMemset2DAsync(void *, size_t, int, size_t, size_t, hipStream_t = nullptr);
hipError_t hipMemset3D(hipPitchedPtr, int, hipExtent);
hipError_t hipMemset3DAsync(hipPitchedPtr, int, hipExtent, hipStream_t = nullptr);
}

static inline hipPitchedPtr make_hipPitchedPtr(void *ptr, size_t pitch, size_t xsize,
                                               size_t ysize) {
    return {ptr, pitch, xsize, ysize};
}
static inline hipExtent make_hipExtent(size_t width, size_t height, size_t depth) {
    return {width, height, depth};
}
static inline hipPos make_hipPos(size_t x, size_t y, size_t z) { return {x, y, z}; }
