// What NVRTC provides to a kernel, on the host: attributes, indices, intrinsics, and asm as calls.
//
// This file precedes the text of a kernel, in which build.py changes three things. An asm statement
// becomes a call of `execute` with its text and operands, which the machine parses and interprets.
// Dynamic shared memory becomes a pointer to the memory of the running block. A cast to a pointer
// becomes `aligned`. Threads are coroutines of one host thread, and blocks run one after the other,
// so a static array can be a block's shared memory. Only the blocks of a cluster run together, and
// their kernels have no such arrays.
#pragma once

#include "interface.hpp"

#pragma clang optimize off // to compile quickly: a kernel's arithmetic takes little of the time
#define always_inline      // for the same reason

#define __CUDACC_RTC__ 1
#define __device__
#define __global__
#define __grid_constant__
#define __shared__ static
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)

namespace hopper_model {

template <class T> Operand operand(const char *constraint, const T &value) {
    return {const_cast<void *>(static_cast<const void *>(&value)), sizeof(T), constraint};
}

template <class... Operands> void execute(Site &site, const Operands &...operands) {
    const Operand list[] = {operands..., Operand{}};
    hopper_execute(&site, list, sizeof...(operands));
}

// A cast of a pointer or of an address to a pointer.
template <class T, class Address> T *aligned(Address address) {
    auto *pointer = reinterpret_cast<T *>(address);
    if (reinterpret_cast<unsigned long long>(pointer) % alignof(T))
        hopper_misaligned(pointer, alignof(T));
    return pointer;
}

// The only parameter of a kernel, passed by value.
template <class Arguments> void call(void (*kernel)(Arguments), const void *arguments) {
    kernel(*static_cast<const Arguments *>(arguments));
}
template <class Arguments> constexpr unsigned parameter_bytes(void (*)(Arguments)) {
    return sizeof(Arguments);
}

} // namespace hopper_model

#define threadIdx (hopper_model::hopper_place->thread)
#define blockIdx (hopper_model::hopper_place->block)
#define gridDim (hopper_model::hopper_place->grid)

inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
inline float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline double __fma_rn(double x, double y, double z) { return __builtin_fma(x, y, z); }
inline float rintf(float x) { return __builtin_rintf(x); }
inline double rint(double x) { return __builtin_rint(x); }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i)
        result |= static_cast<unsigned>(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return result;
}
inline unsigned __cvta_generic_to_shared(const void *pointer) {
    return hopper_model::hopper_shared_address(pointer);
}
inline double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline double rsqrt(double x) { return 1 / __builtin_sqrt(x); }
inline float rsqrtf(float x) { return 1 / __builtin_sqrtf(x); }
inline void __syncthreads() { hopper_model::hopper_syncthreads(); }
inline void __syncwarp() { hopper_model::hopper_syncwarp(); }
inline unsigned __shfl_sync(unsigned, unsigned value, int lane, int width = 32) {
    const unsigned inside = static_cast<unsigned>(width) - 1, own = threadIdx.x % 32;
    return hopper_model::hopper_shuffle(value,
                                        (own & ~inside) | (static_cast<unsigned>(lane) & inside));
}
inline unsigned __ballot_sync(unsigned, int condition) {
    return hopper_model::hopper_ballot(condition != 0);
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
    unsigned most = 0;
    for (int lane = 0; lane < 32; ++lane) {
        const unsigned other = __shfl_sync(mask, value, lane);
        most = other > most ? other : most;
    }
    return most;
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }

// The kernels that the machine runs do not use these.
unsigned __shfl_xor_sync(unsigned, unsigned, int);
