// Ordering between waves: what a barrier waits for, and what it leaves in flight.
//
// The compiler inserts waits for single loads, since it knows which register each outstanding load
// writes. Only the order between waves is stated here. `__syncthreads()` would also drain global
// loads; these fences name only LDS, so the loads of the next tile stay in flight across the
// barrier.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

// Every wave's LDS accesses before the barrier are complete before any wave's accesses after it.
CUPYGEMM_INLINE void lds_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local"); // becomes s_waitcnt lgkmcnt(0)
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local"); // no later read moves up
}

// Wait until all but the youngest `in_flight` of this wave's global loads have arrived.
template <int in_flight> CUPYGEMM_INLINE void wait_for_loads() {
    static_assert(in_flight >= 0 && in_flight < 64, "vmcnt has 6 bits");
    constexpr int expcnt_any = 7 << 4, lgkmcnt_any = 15 << 8;
    __builtin_amdgcn_s_waitcnt((in_flight & 15) | (in_flight & 48) << 10 | expcnt_any |
                               lgkmcnt_any);
}

// Wait until none of this wave's accesses to memory or LDS is in flight.
CUPYGEMM_INLINE void wait_for_all_accesses() {
    constexpr int vmcnt_0_lgkmcnt_0 = 0x0070;
    __builtin_amdgcn_s_waitcnt(vmcnt_0_lgkmcnt_0);
}

// Every wave's LDS accesses before the barrier, and all of its loads straight to LDS except the
// youngest `in_flight`, are complete before any wave's LDS accesses after it. The release fence of
// lds_barrier would not do, because the compiler makes it wait for every load to LDS.
template <int in_flight> CUPYGEMM_INLINE void load_and_lds_barrier() {
    constexpr int lgkmcnt_0 = 0xc07f;
    wait_for_loads<in_flight>();
    __builtin_amdgcn_s_waitcnt(lgkmcnt_0);
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local"); // no later read moves up
}

} // namespace cupygemm
