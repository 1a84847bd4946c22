// Threads, workgroups, memory scopes and roots, for kernels that are written once for all GPUs.
//
// This file and platform.hpp are the only ones that test which compiler is in use. The product
// kernels, each written for one architecture, do not need it.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

CUPYGEMM_INLINE float square_root(float x) {
#if CUPYGEMM_NVIDIA
    return __fsqrt_rn(x);
#else
    return __builtin_sqrtf(x);
#endif
}

CUPYGEMM_INLINE double square_root(double x) {
#if CUPYGEMM_NVIDIA
    return __dsqrt_rn(x);
#else
    return __builtin_sqrt(x);
#endif
}

// The inverse of the square root, rounded once or a few times.
CUPYGEMM_INLINE float inverse_square_root(float x) {
#if CUPYGEMM_NVIDIA
    return rsqrtf(x); // error 2 units in the last place, without a branch
#else
    return 1 / square_root(x);
#endif
}

CUPYGEMM_INLINE double inverse_square_root(double x) {
#if CUPYGEMM_NVIDIA
    return rsqrt(x); // half as long as a square root and a division
#else
    return 1 / square_root(x);
#endif
}

// The inverse of a number, rounded once or twice. The inverse must be a normal number.
CUPYGEMM_INLINE float inverse(float x) {
    const float y = hardware_reciprocal(x);
    return fma_of(fma_of(-x, y, 1.0f), y, y);
}

#if CUPYGEMM_NVIDIA
// The inverse of a number, accurate to 20 bits. The inverse must be a normal number.
CUPYGEMM_INLINE double approximate_inverse(double x) {
    double y;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
    return y;
}
#endif

CUPYGEMM_INLINE double inverse(double x) {
#if CUPYGEMM_NVIDIA
    double y = approximate_inverse(x); // each step doubles the correct bits, without a branch
    y = __fma_rn(__fma_rn(-x, y, 1.0), y, y);
    return __fma_rn(__fma_rn(-x, y, 1.0), y, y);
#else
    return 1 / x;
#endif
}

// Declarations of a kernel: plain, with a limit of registers per thread, and with several
// workgroups per SM, which limits registers on NVIDIA.
#if CUPYGEMM_NVIDIA
#define CUPYGEMM_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define CUPYGEMM_KERNEL_OF_REGISTERS(registers) extern "C" __global__ void __maxnreg__(registers)
#define CUPYGEMM_RESIDENT_KERNEL(threads, workgroups)                                              \
    extern "C" __global__ void __launch_bounds__(threads, workgroups)
#else
#define CUPYGEMM_KERNEL(threads)                                                                   \
    extern "C" __global__ void __attribute__((amdgpu_flat_work_group_size(threads, threads)))
#define CUPYGEMM_RESIDENT_KERNEL(threads, workgroups) CUPYGEMM_KERNEL(threads)
#endif

CUPYGEMM_INLINE u32 local_thread() {
#if CUPYGEMM_NVIDIA
    return threadIdx.x;
#else
    return __builtin_amdgcn_workitem_id_x();
#endif
}

CUPYGEMM_INLINE u32 group_index_x() {
#if CUPYGEMM_NVIDIA
    return blockIdx.x;
#else
    return __builtin_amdgcn_workgroup_id_x();
#endif
}

CUPYGEMM_INLINE u32 group_index_y() {
#if CUPYGEMM_NVIDIA
    return blockIdx.y;
#else
    return __builtin_amdgcn_workgroup_id_y();
#endif
}

// A barrier of the workgroup that orders its accesses to shared memory. After `device_fence`, it
// orders those to global memory too.
CUPYGEMM_INLINE void workgroup_barrier() {
#if CUPYGEMM_NVIDIA
    __syncthreads();
#else
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
#endif
}

// Order the accesses to shared memory of the threads of a warp or a wave.
CUPYGEMM_INLINE void wave_barrier() {
#if CUPYGEMM_NVIDIA
    __syncwarp();
#else
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
#endif
}

// The value of the thread whose index is this thread's XOR `mask`, a power of two below 32. Every
// thread of the 32 must call this.
CUPYGEMM_INLINE u32 exchanged(u32 value, u32 mask) {
#if CUPYGEMM_NVIDIA
    return __shfl_xor_sync(~0u, value, mask);
#else
    return static_cast<u32>(__builtin_amdgcn_ds_bpermute(
        static_cast<i32>((local_thread() ^ mask) << 2), static_cast<i32>(value)));
#endif
}

// The largest and the smallest of 32 values. Every thread of the 32 must call these.
CUPYGEMM_INLINE u32 maximum_of_32(u32 value) {
#if CUPYGEMM_NVIDIA
    return __reduce_max_sync(~0u, value);
#else
#pragma unroll
    for (u32 mask = 16; mask > 0; mask /= 2) {
        const u32 other = exchanged(value, mask);
        value = other > value ? other : value;
    }
    return value;
#endif
}
CUPYGEMM_INLINE u64 maximum_of_32(u64 value) {
    const u32 high = static_cast<u32>(value >> 32), highest = maximum_of_32(high);
    const u32 low = maximum_of_32(high == highest ? static_cast<u32>(value) : 0);
    return static_cast<u64>(highest) << 32 | low;
}
CUPYGEMM_INLINE u32 minimum_of_32(u32 value) { return ~maximum_of_32(~value); }

// Force a number to be computed before the waits that follow: compilers move arithmetic past them.
CUPYGEMM_INLINE void compute_now([[maybe_unused]] float &x) {
#if CUPYGEMM_NVIDIA
    asm volatile("" : "+f"(x));
#endif
}
CUPYGEMM_INLINE void compute_now([[maybe_unused]] double &x) {
#if CUPYGEMM_NVIDIA
    asm volatile("" : "+d"(x));
#endif
}

// Force a number to be computed here. clang moves arithmetic past branches and stores to where its
// result is used, keeps the operands until then, and runs out of registers.
template <class R> CUPYGEMM_INLINE void keep_here([[maybe_unused]] R &x) {
#if !CUPYGEMM_NVIDIA
    asm volatile("" : "+v"(x));
#endif
}

// A bit for each of 32 threads for which a condition holds. Every thread of the 32 must call this.
CUPYGEMM_INLINE u32 ballot_of_32(bool condition) {
#if CUPYGEMM_NVIDIA
    return __ballot_sync(~0u, condition);
#else
    return static_cast<u32>(__builtin_amdgcn_ballot_w64(condition) >> (local_thread() & 32));
#endif
}

CUPYGEMM_INLINE u32 ones_in(u32 bits) {
#if CUPYGEMM_NVIDIA
    return __popc(bits);
#else
    return __builtin_popcount(bits);
#endif
}

// The index of the lowest set bit of a nonzero number.
CUPYGEMM_INLINE u32 first_bit(u32 bits) {
#if CUPYGEMM_NVIDIA
    return __ffs(static_cast<int>(bits)) - 1;
#else
    return __builtin_ctz(bits);
#endif
}

// The index, below 32, of the first of 32 threads for which a condition is true; it must be true
// for one.
CUPYGEMM_INLINE u32 first_of_32(bool condition) { return first_bit(ballot_of_32(condition)); }

// The same among `lanes` consecutive threads, 32 or 16.
template <u32 lanes> CUPYGEMM_INLINE u32 first_of(bool condition) {
    return first_bit(ballot_of_32(condition) >> (local_thread() % 32 & ~(lanes - 1)));
}

// The index of the thread with the largest of 32 values; among equal values, the thread with the
// lowest position.
template <class Word> CUPYGEMM_INLINE u32 largest_of_32(Word value, u32 position) {
#if CUPYGEMM_NVIDIA
    const u32 high = static_cast<u32>(value >> (8 * (sizeof(Word) - 4)));
    const u32 tied = __ballot_sync(~0u, high == maximum_of_32(high));
    if (__builtin_expect((tied & (tied - 1)) == 0, 1)) // one thread has the largest high word
        return first_bit(tied);
#endif
    const bool largest = value == maximum_of_32(value);
    const u32 first = minimum_of_32(largest ? position : ~0u);
    return first_of_32(largest && position == first);
}

// The largest of the 16 values of each half of 32 threads. Every thread of the 32 must call this.
template <class Word> CUPYGEMM_INLINE Word maximum_of_16(Word value) {
    const bool is_upper = (local_thread() & 16) != 0;
    const Word lower = maximum_of_32(is_upper ? Word{} : value);
    const Word upper = maximum_of_32(is_upper ? value : Word{});
    return is_upper ? upper : lower;
}

// The same for 16 or 32 threads.
template <u32 lanes, class Word> CUPYGEMM_INLINE Word maximum_of(Word value) {
    static_assert(lanes == 16 || lanes == 32, "half of the 32 threads, or all");
    if constexpr (lanes == 32)
        return maximum_of_32(value);
    else
        return maximum_of_16(value);
}

CUPYGEMM_INLINE bool has_one_bit_at_most(u32 bits) { return (bits & (bits - 1)) == 0; }

// The same among `lanes` consecutive threads, 32 or 16: the index counts within these.
template <u32 lanes, class Word> CUPYGEMM_INLINE u32 largest_of(Word value, u32 position) {
    static_assert(lanes == 16 || lanes == 32, "half of the 32 threads, or all");
    if constexpr (lanes == 32) {
        return largest_of_32(value, position);
    } else {
        const u32 high = static_cast<u32>(value >> (8 * (sizeof(Word) - 4)));
        const u32 tied = ballot_of_32(high == maximum_of_16(high)), shift = local_thread() & 16;
        const bool decided = has_one_bit_at_most(tied & 0xffff) && has_one_bit_at_most(tied >> 16);
        if (__builtin_expect(decided, 1)) // one thread of each half has the largest high word
            return first_bit(tied >> shift);
        const bool largest = value == maximum_of_16(value);
        const u32 last = maximum_of_16(largest ? ~position : 0);
        return first_bit(ballot_of_32(largest && ~position == last) >> shift);
    }
}

// Whether this is that thread, without computing its index.
template <class Word> CUPYGEMM_INLINE bool has_largest_of_32(Word value, u32 position) {
#if CUPYGEMM_NVIDIA
    const u32 high = static_cast<u32>(value >> (8 * (sizeof(Word) - 4)));
    const bool highest = high == maximum_of_32(high);
    const u32 tied = __ballot_sync(~0u, highest);
    if (__builtin_expect((tied & (tied - 1)) == 0, 1))
        return highest;
#endif
    const bool largest = value == maximum_of_32(value);
    const u32 first = minimum_of_32(largest ? position : ~0u);
    return largest && position == first;
}

// The value of one of the 32 threads.
CUPYGEMM_INLINE u32 from_lane(u32 value, u32 lane) {
#if CUPYGEMM_NVIDIA
    return __shfl_sync(~0u, value, static_cast<int>(lane));
#else
    return static_cast<u32>(__builtin_amdgcn_ds_bpermute(
        static_cast<i32>(((local_thread() & ~31u) | lane) << 2), static_cast<i32>(value)));
#endif
}

// The value of one of `lanes` consecutive threads, a power of two up to 32.
template <u32 lanes> CUPYGEMM_INLINE u32 word_from_lane_of(u32 value, u32 lane) {
#if CUPYGEMM_NVIDIA
    return __shfl_sync(~0u, value, static_cast<int>(lane), lanes);
#else
    return from_lane(value, (local_thread() & 31u & ~(lanes - 1)) | lane);
#endif
}

#if CUPYGEMM_NVIDIA
// Store to global memory by one instruction, which the compiler does not split.
CUPYGEMM_INLINE void store_16_bytes(void *to, const u32 (&words)[4]) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
}
CUPYGEMM_INLINE void store_16_bytes(void *to, const u64 (&words)[2]) {
    asm volatile("st.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(words[0]), "l"(words[1])
                 : "memory");
}
#endif

// Store a word to shared memory. NVIDIA's compiler merges stores to adjacent addresses. It then
// moves numbers between registers at every step of a loop to make the operands of a merged store
// adjacent.
template <class Word> CUPYGEMM_INLINE void store_alone(Word *place, Word word) {
#if CUPYGEMM_NVIDIA
    *const_cast<volatile Word *>(place) = word;
#else
    *place = word;
#endif
}

// Loads, stores and fences at device scope: workgroups see each other's data.
template <class Word> CUPYGEMM_INLINE Word device_load(const Word *place) {
#if CUPYGEMM_NVIDIA
    return *const_cast<const volatile Word *>(place);
#else
    return __hip_atomic_load(place, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#endif
}

template <class Word> CUPYGEMM_INLINE void device_store(Word *place, Word value) {
#if CUPYGEMM_NVIDIA
    *const_cast<volatile Word *>(place) = value;
#else
    __hip_atomic_store(place, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#endif
}

CUPYGEMM_INLINE void device_fence() {
#if CUPYGEMM_NVIDIA
    __threadfence();
#else
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
#endif
}

} // namespace cupygemm
