// Loads and stores with cache hints, copies and fills, assertions.
#pragma once

#include <device/keywords.h>

template <typename T> HIP_DEVICE T __ldg(const T *address) { return *address; }
template <typename T> HIP_DEVICE T __ldcg(const T *address) { return *address; }
template <typename T> HIP_DEVICE T __ldca(const T *address) { return *address; }
// The builtins take numbers and vectors; classes, such as __half, are loaded as they are.
template <typename T> HIP_DEVICE T __ldcs(const T *address) {
    if constexpr (__is_class(T))
        return *address;
    else
        return __builtin_nontemporal_load(address);
}
template <typename T> HIP_DEVICE void __stcg(T *address, T value) { *address = value; }
template <typename T> HIP_DEVICE void __stcs(T *address, T value) {
    if constexpr (__is_class(T))
        *address = value;
    else
        __builtin_nontemporal_store(value, address);
}

// The compiler expands these calls, into loops if the size is not constant.
extern "C" {
__forceinline__ __device__ void *memcpy(void *to, const void *from, size_t size) {
    return __builtin_memcpy(to, from, size);
}
__forceinline__ __device__ void *memmove(void *to, const void *from, size_t size) {
    return __builtin_memmove(to, from, size);
}
__forceinline__ __device__ void *memset(void *to, int value, size_t size) {
    return __builtin_memset(to, value, size);
}

__attribute__((weak, noinline, noreturn)) __device__ void
__assert_fail(const char *, const char *, unsigned int, const char *) {
    asm volatile("s_trap 33"); // reported as a failed assert
    __builtin_unreachable();
}
}
