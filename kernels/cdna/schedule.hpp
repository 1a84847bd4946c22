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
constexpr int mfma = 0x008;
constexpr int global_read = 0x020;
constexpr int lds_read = 0x100;
constexpr int lds_write = 0x200;
} // namespace kind

// No instruction is moved across: the end of a phase.
CUPYGEMM_INLINE void end_phase() { __builtin_amdgcn_sched_barrier(0); }

// In the phase that this is written in: one instruction of `other`, then `ratio` of MFMA, `count`
// times.
template <int other, int count, int ratio> CUPYGEMM_INLINE void interleave_with_mfma() {
#pragma unroll
    for (int i = 0; i < count; ++i) {
        __builtin_amdgcn_sched_group_barrier(other, 1, 0);
        __builtin_amdgcn_sched_group_barrier(kind::mfma, ratio, 0);
    }
}

} // namespace cupygemm
