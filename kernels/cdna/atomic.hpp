// Atomic additions to global memory, one instruction each. They return nothing.
//
// The additions are relaxed: the end of the kernel orders them before later reads of the sums.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

template <class T> using GlobalPointer = __attribute__((address_space(1))) T *;

// global_atomic_add_f32. This builtin lets the compiler assume that the memory belongs to the
// device; without that assumption it emits a compare-and-swap loop.
CUPYGEMM_INLINE void global_atomic_add(u64 address, float value) {
    __builtin_amdgcn_global_atomic_fadd_f32(reinterpret_cast<GlobalPointer<float>>(address), value);
}

CUPYGEMM_INLINE void global_atomic_add(u64 address, double value) {
    __builtin_amdgcn_global_atomic_fadd_f64(reinterpret_cast<GlobalPointer<double>>(address),
                                            value);
}

CUPYGEMM_INLINE void global_atomic_add(u64 address, i32 value) {
    __hip_atomic_fetch_add(reinterpret_cast<GlobalPointer<i32>>(address), value, __ATOMIC_RELAXED,
                           __HIP_MEMORY_SCOPE_AGENT);
}

} // namespace cupygemm
