// Hints to the compiler's scheduler: the order of instructions within a phase.
//
// A wave issues in order, and a matrix instruction occupies its SIMD for 16 cycles or more. Memory
// instructions between matrix instructions are therefore free, while memory instructions in front
// of them delay them. Left alone, the compiler clusters memory instructions. These functions only
// constrain the order; apart from compute_now they emit nothing.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

// Kinds of instructions, with the masks of __builtin_amdgcn_sched_group_barrier.
namespace kind {
enum : int {
    arithmetic = 0x006, // scalar and vector
    mfma = 0x008,
    global_read = 0x020,
    lds_read = 0x100,
    lds_write = 0x200
};
} // namespace kind

// The end of a phase: the compiler moves no instruction across it.
CUPYGEMM_INLINE void end_phase() { __builtin_amdgcn_sched_barrier(0); }

// Compute the value, which must be uniform, here rather than at its first use.
CUPYGEMM_INLINE void compute_now(u32 &value) {
    value = __builtin_amdgcn_readfirstlane(value); // some values are computed in the vector unit
    asm volatile("" : "+s"(value));
}

CUPYGEMM_INLINE void compute_now(u64 &value) {
    u32 low = static_cast<u32>(value), high = static_cast<u32>(value >> 32);
    compute_now(low);
    compute_now(high);
    value = static_cast<u64>(high) << 32 | low;
}

// Within the current phase, repeat `count` times: `batch` instructions of kind `other`, then
// `ratio` MFMA.
template <int other, int count, int ratio, int batch = 1>
CUPYGEMM_INLINE void interleave_with_mfma() {
#pragma unroll
    for (int i = 0; i < count; ++i) {
        __builtin_amdgcn_sched_group_barrier(other, batch, 0);
        __builtin_amdgcn_sched_group_barrier(kind::mfma, ratio, 0);
    }
}

// At the start of such a phase: issue MFMA immediately, and arithmetic while it runs.
template <int count> CUPYGEMM_INLINE void begin_with_mfma() {
    __builtin_amdgcn_sched_group_barrier(kind::mfma, 1, 0);
    interleave_with_mfma<kind::arithmetic, count - 1, 1, 3>();
}

} // namespace cupygemm
