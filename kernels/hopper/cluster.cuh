// Thread-block clusters, named barriers, and the transfer of registers between warpgroups.
// Source: PTX ISA 9.0.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

CUPYGEMM_INLINE u32 cluster_rank() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

CUPYGEMM_INLINE u32 cluster_index() {
    u32 index;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
    return index;
}

CUPYGEMM_INLINE u32 cluster_count() {
    u32 count;
    asm("mov.u32 %0, %%nclusterid.x;" : "=r"(count));
    return count;
}

// A barrier of every thread of every block of the cluster. It orders no memory accesses: data that
// other blocks must see needs a fence of its own.
CUPYGEMM_INLINE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n"
                 "barrier.cluster.wait.aligned;" ::
                     : "memory");
}

// The same barrier, which also orders accesses to shared memory of the cluster's blocks: writes
// before the barrier are visible after it.
CUPYGEMM_INLINE void cluster_exchange() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

// The address of a place in shared memory in block `rank` of the cluster.
CUPYGEMM_INLINE u32 address_in_cluster(u32 address, u32 rank) {
    u32 remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    return remote;
}

CUPYGEMM_INLINE void store_shared_four(u32 to, const float (&x)[4]) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(x[0]), "f"(x[1]),
                 "f"(x[2]), "f"(x[3])
                 : "memory");
}

CUPYGEMM_INLINE void load_cluster_four(u32 from, float (&x)[4]) {
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                 : "r"(from)
                 : "memory");
}

// True in one lane of a warp. The compiler knows that only one lane is elected, and emits
// copy-engine instructions with uniform registers. After a comparison of `threadIdx`, each of them
// would be a loop over lanes, which takes as long as the multiplication of a small tile's step.
CUPYGEMM_INLINE bool elect_one() {
    u32 elected;
    asm volatile("{\n"
                 ".reg .pred is_elected;\n"
                 "elect.sync _|is_elected, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, is_elected;\n"
                 "}"
                 : "=r"(elected)::"memory");
    return elected != 0;
}

// A barrier among the 128 threads of one warpgroup. Id 0 is the barrier of the whole block.
CUPYGEMM_INLINE void warpgroup_sync(u32 id) {
    asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}

// A barrier among some threads of the block. Its id is a constant: otherwise the compiler reserves
// all 16 barriers for each block, and an SM, which has 64, holds at most four blocks.
template <u32 id, u32 threads> CUPYGEMM_INLINE void barrier_sync() {
    asm volatile("bar.sync %0, %1;" ::"n"(id), "n"(threads) : "memory");
}

// A barrier in which every thread of the block takes part: threads that arrive do not wait, and
// threads that sync wait for all.
CUPYGEMM_INLINE void block_arrive(u32 threads) {
    asm volatile("bar.arrive 0, %0;" ::"r"(threads) : "memory");
}
CUPYGEMM_INLINE void block_sync(u32 threads) {
    asm volatile("bar.sync 0, %0;" ::"r"(threads) : "memory");
}

// A barrier between two warpgroups: the one that syncs waits until the other has arrived.
CUPYGEMM_INLINE void pair_arrive(u32 id) {
    asm volatile("bar.arrive %0, 256;" ::"r"(id) : "memory");
}
CUPYGEMM_INLINE void pair_sync(u32 id) { asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory"); }

// Give up registers, or wait until the warpgroup receives more.
template <int count> CUPYGEMM_INLINE void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count> CUPYGEMM_INLINE void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

} // namespace cupygemm
