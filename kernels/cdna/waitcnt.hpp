// Ordering between waves: what a barrier waits for, and what it leaves in flight.
//
// Waits on single loads are the compiler's work: it knows which register each outstanding load
// writes. Only the order between waves is ours to state. `__syncthreads()` would drain global loads
// too; the fences here name LDS alone, so that the loads of the next tile stay in flight across the
// barrier.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

// Every wave's LDS accesses before the barrier come before every wave's LDS accesses after it.
CUPYGEMM_INLINE void lds_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local"); // becomes s_waitcnt lgkmcnt(0)
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local"); // no later read moves up
}

} // namespace cupygemm
