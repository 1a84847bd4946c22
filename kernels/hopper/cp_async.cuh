// cp.async: a thread copies 4, 8 or 16 bytes from global to shared memory without registers.
//
// A thread's copies form groups, which it closes and waits for in their order. What has landed is
// visible to the thread itself; a barrier makes it visible to others. Source: PTX ISA 9.0,
// "cp.async", "cp.async.commit_group", "cp.async.wait_group".
#pragma once

#include "hopper/mbarrier.cuh"

namespace cupygemm {

// Copy the first `present` of `bytes` bytes; the others become zeros. Copies of 16 bytes bypass L1.
template <u32 bytes> CUPYGEMM_INLINE void copy_async(SharedAddress to, u64 from, u32 present) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
    if constexpr (bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                     "r"(present)
                     : "memory");
    else if constexpr (bytes == 8)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from),
                     "r"(present)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                     "r"(present)
                     : "memory");
}

// Arrive at an mbarrier, as one of its expected arrivals, when all copies of this thread so far
// have landed. Source: PTX ISA 9.0, "cp.async.mbarrier.arrive".
CUPYGEMM_INLINE void copy_async_arrive(SharedAddress barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

CUPYGEMM_INLINE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait until all but the `younger` latest groups have landed.
template <u32 younger> CUPYGEMM_INLINE void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(younger) : "memory");
}

} // namespace cupygemm
