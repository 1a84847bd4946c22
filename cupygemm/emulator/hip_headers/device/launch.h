// threadIdx, blockIdx, blockDim, gridDim and warpSize, and synchronisation of a block.
//
// The size of the grid in blocks comes from the implicit kernel arguments, whose first three dwords
// are the block counts (LLVM's AMDGPU guide, "Code Object V5 Metadata").
#pragma once

#include <device/keywords.h>
#include <device/vector_types.h>

struct hip_thread_index {
    __declspec(property(get = get_x)) unsigned int x;
    __declspec(property(get = get_y)) unsigned int y;
    __declspec(property(get = get_z)) unsigned int z;
    __device__ unsigned int get_x() const { return __builtin_amdgcn_workitem_id_x(); }
    __device__ unsigned int get_y() const { return __builtin_amdgcn_workitem_id_y(); }
    __device__ unsigned int get_z() const { return __builtin_amdgcn_workitem_id_z(); }
    __device__ operator dim3() const { return dim3(x, y, z); }
    __device__ operator uint3() const { return {x, y, z}; }
};

struct hip_block_index {
    __declspec(property(get = get_x)) unsigned int x;
    __declspec(property(get = get_y)) unsigned int y;
    __declspec(property(get = get_z)) unsigned int z;
    __device__ unsigned int get_x() const { return __builtin_amdgcn_workgroup_id_x(); }
    __device__ unsigned int get_y() const { return __builtin_amdgcn_workgroup_id_y(); }
    __device__ unsigned int get_z() const { return __builtin_amdgcn_workgroup_id_z(); }
    __device__ operator dim3() const { return dim3(x, y, z); }
    __device__ operator uint3() const { return {x, y, z}; }
};

struct hip_block_dimension {
    __declspec(property(get = get_x)) unsigned int x;
    __declspec(property(get = get_y)) unsigned int y;
    __declspec(property(get = get_z)) unsigned int z;
    __device__ unsigned int get_x() const { return __builtin_amdgcn_workgroup_size_x(); }
    __device__ unsigned int get_y() const { return __builtin_amdgcn_workgroup_size_y(); }
    __device__ unsigned int get_z() const { return __builtin_amdgcn_workgroup_size_z(); }
    __device__ operator dim3() const { return dim3(x, y, z); }
    __device__ operator uint3() const { return {x, y, z}; }
};

struct hip_grid_dimension {
    __declspec(property(get = get_x)) unsigned int x;
    __declspec(property(get = get_y)) unsigned int y;
    __declspec(property(get = get_z)) unsigned int z;
    __device__ unsigned int get_x() const { return blocks(0); }
    __device__ unsigned int get_y() const { return blocks(1); }
    __device__ unsigned int get_z() const { return blocks(2); }
    __device__ operator dim3() const { return dim3(x, y, z); }
    __device__ operator uint3() const { return {x, y, z}; }

private:
    __device__ static unsigned int blocks(int axis) {
        typedef const unsigned int __attribute__((address_space(4))) * implicit_arguments;
        return ((implicit_arguments)__builtin_amdgcn_implicitarg_ptr())[axis];
    }
};

static constexpr __device__ hip_thread_index threadIdx{};
static constexpr __device__ hip_block_index blockIdx{};
static constexpr __device__ hip_block_dimension blockDim{};
static constexpr __device__ hip_grid_dimension gridDim{};

static constexpr int warpSize = 64;

// HIP's older names.
#define hipThreadIdx_x threadIdx.x
#define hipThreadIdx_y threadIdx.y
#define hipThreadIdx_z threadIdx.z
#define hipBlockIdx_x blockIdx.x
#define hipBlockIdx_y blockIdx.y
#define hipBlockIdx_z blockIdx.z
#define hipBlockDim_x blockDim.x
#define hipBlockDim_y blockDim.y
#define hipBlockDim_z blockDim.z
#define hipGridDim_x gridDim.x
#define hipGridDim_y gridDim.y
#define hipGridDim_z gridDim.z

HIP_DEVICE void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
HIP_DEVICE void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
HIP_DEVICE void __threadfence_system() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }

// After the barrier, all stores that any wave of the block made before it are visible.
HIP_DEVICE __attribute__((convergent)) void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// Returns the number of work-items of the block whose predicate is nonzero.
HIP_DEVICE __attribute__((convergent)) int __syncthreads_count(int predicate) {
    static __shared__ int count;
    bool first = threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0;
    if (first) {
        count = 0;
    }
    __syncthreads();
    if (predicate != 0) {
        __hip_atomic_fetch_add(&count, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    }
    __syncthreads();
    int result = count;
    __syncthreads(); // all waves must have read the count before the next call clears it
    return result;
}
HIP_DEVICE __attribute__((convergent)) int __syncthreads_or(int predicate) {
    return __syncthreads_count(predicate) != 0;
}
HIP_DEVICE __attribute__((convergent)) int __syncthreads_and(int predicate) {
    return __syncthreads_count(predicate == 0) == 0;
}

HIP_DEVICE long long clock64() { return (long long)__builtin_readcyclecounter(); }
HIP_DEVICE long long clock() { return clock64(); }
HIP_DEVICE long long __clock64() { return clock64(); }
HIP_DEVICE long long __clock() { return clock64(); }
HIP_DEVICE long long wall_clock64() { return (long long)__builtin_readsteadycounter(); }
// The place of the wave, by the registers XCC_ID and HW_ID: XCD, shader engine and compute unit.
HIP_DEVICE unsigned int __smid() {
    unsigned int unit = __builtin_amdgcn_s_getreg(3 << 11 | 8 << 6 | 4);
#ifdef __gfx90a__
    return __builtin_amdgcn_s_getreg(2 << 11 | 13 << 6 | 4) << 4 | unit;
#else
    unsigned int engine = __builtin_amdgcn_s_getreg(1 << 11 | 13 << 6 | 4);
    return __builtin_amdgcn_s_getreg(3 << 11 | 20) << 6 | engine << 4 | unit;
#endif
}
HIP_DEVICE void __nanosleep(unsigned int) { __builtin_amdgcn_s_sleep(1); }
HIP_DEVICE __attribute__((noreturn)) void abort() {
    __builtin_trap();
    __builtin_unreachable();
}
HIP_DEVICE void __trap() { __builtin_trap(); }

// The tables of virtual functions name these in place of pure and deleted ones.
extern "C" {
inline __attribute__((noreturn)) __device__ void __cxa_pure_virtual() { abort(); }
inline __attribute__((noreturn)) __device__ void __cxa_deleted_virtual() { abort(); }
}
