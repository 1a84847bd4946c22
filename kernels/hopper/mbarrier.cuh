// mbarrier: a counter in shared memory on which threads and the copy engine arrive.
//
// A phase ends when all expected arrivals have happened and all announced bytes have landed. The
// barrier then expects the same number of arrivals again. A waiter names the parity of the phase
// for whose end it waits.
// Source: PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: mbarrier".
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

using SharedAddress = u32; // an address in PTX's .shared state space

CUPYGEMM_INLINE SharedAddress shared_address(const void *pointer) {
    return static_cast<SharedAddress>(__cvta_generic_to_shared(pointer));
}

CUPYGEMM_INLINE void mbarrier_init(SharedAddress barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

// Initialise a barrier where every wait for parity 1 passes: it expects the most arrivals that a
// phase can have, and none arrives.
CUPYGEMM_INLINE void mbarrier_init_passed(SharedAddress barrier) {
    mbarrier_init(barrier, (1 << 20) - 1);
}

// Make initialised barriers visible to the cluster's other blocks and to the copy engine.
CUPYGEMM_INLINE void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrive once, and announce bytes that the copy engine must write before the phase can end.
CUPYGEMM_INLINE void mbarrier_arrive_expect_tx(SharedAddress barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

// Arrive at the barrier at the same address in block `rank` of the cluster. Only the reads of wgmma
// must be ordered before the arrival, and a wait for wgmma already orders them. With
// `.release.cluster` the compiler adds a fence of all memory, which cost a quarter of the speed
// (H200, 2026-11-21).
CUPYGEMM_INLINE void mbarrier_arrive_cluster(SharedAddress barrier, u32 rank) {
    asm volatile("{\n"
                 ".reg .b32 remote;\n"
                 "mapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
                 "}" ::"r"(barrier),
                 "r"(rank)
                 : "memory");
}

CUPYGEMM_INLINE void mbarrier_arrive(SharedAddress barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrive several times.
CUPYGEMM_INLINE void mbarrier_arrive_for(SharedAddress barrier, u32 arrivals) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

// Wait until the phase of this parity has ended. The hardware suspends the thread for a while
// before it answers, so this is no busy loop.
CUPYGEMM_INLINE void mbarrier_wait(SharedAddress barrier, u32 parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "wait:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra.uni complete;\n"
                 "bra.uni wait;\n"
                 "complete:\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

} // namespace cupygemm
