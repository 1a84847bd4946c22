// Function and variable attributes of HIP, and the fixed-width integers that hiprtc predefines.
#pragma once

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __managed__ __attribute__((managed))
// __launch_bounds__(threads of a block[, waves on each SIMD])
#define HIP_LAUNCH_BOUNDS_1(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define HIP_LAUNCH_BOUNDS_2(threads, waves)                                                        \
    HIP_LAUNCH_BOUNDS_1(threads) __attribute__((amdgpu_waves_per_eu(waves)))
#define HIP_LAUNCH_BOUNDS(first, second, chosen, ...) chosen
#define __launch_bounds__(...)                                                                     \
    HIP_LAUNCH_BOUNDS(__VA_ARGS__, HIP_LAUNCH_BOUNDS_2, HIP_LAUNCH_BOUNDS_1)(__VA_ARGS__)
#define __grid_constant__

#define __forceinline__ inline __attribute__((always_inline))

#define __align__(bytes) __attribute__((aligned(bytes)))

#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];
#define HIP_KERNEL_NAME(...) __VA_ARGS__
#define HIP_SYMBOL(name) name

// All device functions of these headers are inline, so that a kernel contains only what it uses.
#define HIP_DEVICE static inline __device__
#define HIP_BOTH static inline __host__ __device__

#include <stddef.h>
#include <stdint.h>

// The C library's short names, from <sys/types.h>.
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

#ifdef __HIP_DEVICE_COMPILE__ // as HIP defines it for these targets
#define __HIP_ARCH_HAS_GLOBAL_INT32_ATOMICS__ 1
#define __HIP_ARCH_HAS_GLOBAL_FLOAT_ATOMIC_EXCH__ 1
#define __HIP_ARCH_HAS_SHARED_INT32_ATOMICS__ 1
#define __HIP_ARCH_HAS_SHARED_FLOAT_ATOMIC_EXCH__ 1
#define __HIP_ARCH_HAS_FLOAT_ATOMIC_ADD__ 1
#define __HIP_ARCH_HAS_GLOBAL_INT64_ATOMICS__ 1
#define __HIP_ARCH_HAS_SHARED_INT64_ATOMICS__ 1
#define __HIP_ARCH_HAS_DOUBLES__ 1
#define __HIP_ARCH_HAS_WARP_VOTE__ 1
#define __HIP_ARCH_HAS_WARP_BALLOT__ 1
#define __HIP_ARCH_HAS_WARP_SHUFFLE__ 1
#define __HIP_ARCH_HAS_WARP_FUNNEL_SHIFT__ 0
#define __HIP_ARCH_HAS_THREAD_FENCE_SYSTEM__ 1
#define __HIP_ARCH_HAS_SYNC_THREAD_EXT__ 0
#define __HIP_ARCH_HAS_SURFACE_FUNCS__ 0
#define __HIP_ARCH_HAS_3DGRID__ 1
#define __HIP_ARCH_HAS_DYNAMIC_PARALLEL__ 0
#endif
