// The order of instructions within a phase, told to the compiler's scheduler.
//
// A wave issues in order, and a matrix instruction occupies its SIMD for 16 cycles or more: memory
// instructions placed between matrix instructions cost nothing, those in front of them delay them.
// The compiler would rather cluster memory instructions. These functions only order; they emit
// nothing.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

// Kinds of instructions, as __builtin_amdgcn_sched_group_barrier numbers them.
namespace kind {
enum : int {
    arithmetic = 0x006, // scalar and vector
    mfma = 0x008,
    global_read = 0x020,
    lds_read = 0x100,
    lds_write = 0x200
};
} // namespace kind

// No instruction is moved across: the end of a phase.
CUPYGEMM_INLINE void end_phase() { __builtin_amdgcn_sched_barrier(0); }

// The value, the same in all lanes, has been computed by here, rather than when it is used.
CUPYGEMM_INLINE void compute_now(u32 &value) {
    value = __builtin_amdgcn_readfirstlane(value); // some are computed in the vector unit
    asm volatile("" : "+s"(value));
}

CUPYGEMM_INLINE void compute_now(u64 &value) {
    u32 low = static_cast<u32>(value), high = static_cast<u32>(value >> 32);
    compute_now(low);
    compute_now(high);
    value = static_cast<u64>(high) << 32 | low;
}

// In the phase that this is written in: `batch` instructions of `other`, then `ratio` of MFMA,
// `count` times.
template <int other, int count, int ratio, int batch = 1>
CUPYGEMM_INLINE void interleave_with_mfma() {
#pragma unroll
    for (int i = 0; i < count; ++i) {
        __builtin_amdgcn_sched_group_barrier(other, batch, 0);
        __builtin_amdgcn_sched_group_barrier(kind::mfma, ratio, 0);
    }
}

// At the start of such a phase: MFMA at once, and arithmetic in its shadow.
template <int count> CUPYGEMM_INLINE void begin_with_mfma() {
    __builtin_amdgcn_sched_group_barrier(kind::mfma, 1, 0);
    interleave_with_mfma<kind::arithmetic, count - 1, 1, 3>();
}

} // namespace cupygemm
