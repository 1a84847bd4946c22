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

// All but the youngest `in_flight` of this wave's global loads have arrived.
template <int in_flight> CUPYGEMM_INLINE void wait_for_loads() {
    static_assert(in_flight >= 0 && in_flight < 64, "vmcnt has 6 bits");
    constexpr int expcnt_any = 7 << 4, lgkmcnt_any = 15 << 8;
    __builtin_amdgcn_s_waitcnt((in_flight & 15) | (in_flight & 48) << 10 | expcnt_any |
                               lgkmcnt_any);
}

// None of this wave's accesses is in flight, of memory or of LDS.
CUPYGEMM_INLINE void wait_for_all_accesses() {
    constexpr int vmcnt_0_lgkmcnt_0 = 0x0070;
    __builtin_amdgcn_s_waitcnt(vmcnt_0_lgkmcnt_0);
}

// Every wave's LDS accesses before the barrier, and those of its loads straight to LDS that are not
// among the youngest `in_flight`, come before every wave's LDS accesses after it. The release fence
// of lds_barrier would not do: the compiler makes it wait for every load to LDS.
template <int in_flight> CUPYGEMM_INLINE void load_and_lds_barrier() {
    constexpr int lgkmcnt_0 = 0xc07f;
    wait_for_loads<in_flight>();
    __builtin_amdgcn_s_waitcnt(lgkmcnt_0);
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local"); // no later read moves up
}

} // namespace cupygemm
