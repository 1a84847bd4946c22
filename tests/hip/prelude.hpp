// The few names of HIP that these kernels use, for a compiler without ROCm's headers.
//
// Indices are clang's builtins; a block's size is read from the implicit arguments, as HIP does.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __launch_bounds__(n) __attribute__((amdgpu_flat_work_group_size(1, n)))
#define KERNEL extern "C" __global__ __launch_bounds__(1024)
#define INLINE static inline __device__ __attribute__((always_inline))
#define NOINLINE static __device__ __attribute__((noinline))

using u8 = unsigned char;
using i8 = signed char;
using u16 = unsigned short;
using i16 = short;
using u32 = unsigned int;
using i32 = int;
using u64 = unsigned long long;
using i64 = long long;
using f16 = _Float16;
using bf16 = __bf16;

template <typename T, int n> using vec = T __attribute__((ext_vector_type(n)));

constexpr int warp_size = 64;

INLINE u32 thread_x() { return __builtin_amdgcn_workitem_id_x(); }
INLINE u32 thread_y() { return __builtin_amdgcn_workitem_id_y(); }
INLINE u32 thread_z() { return __builtin_amdgcn_workitem_id_z(); }
INLINE u32 block_x() { return __builtin_amdgcn_workgroup_id_x(); }
INLINE u32 block_y() { return __builtin_amdgcn_workgroup_id_y(); }
INLINE u32 block_z() { return __builtin_amdgcn_workgroup_id_z(); }
INLINE u32 block_dim_x() { return __builtin_amdgcn_workgroup_size_x(); }
INLINE u32 block_dim_y() { return __builtin_amdgcn_workgroup_size_y(); }
INLINE u32 block_dim_z() { return __builtin_amdgcn_workgroup_size_z(); }
INLINE u32 grid_size_x() { return __builtin_amdgcn_grid_size_x(); }
INLINE u32 global_x() { return block_x() * block_dim_x() + thread_x(); }
INLINE u32 lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }

// All of the block's LDS accesses before it happen before all of those after it.
INLINE void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// The value of another lane of the wave; every lane must be active.
INLINE u32 shuffle(u32 value, u32 source) {
    return __builtin_amdgcn_ds_bpermute(static_cast<int>(source * 4), static_cast<int>(value));
}
INLINE float shuffle(float value, u32 source) {
    return __builtin_bit_cast(float, shuffle(__builtin_bit_cast(u32, value), source));
}
INLINE double shuffle(double value, u32 source) {
    const auto halves = __builtin_bit_cast(vec<u32, 2>, value);
    const vec<u32, 2> moved = {shuffle(halves.x, source), shuffle(halves.y, source)};
    return __builtin_bit_cast(double, moved);
}
