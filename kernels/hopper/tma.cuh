// TMA: the copy engine moves boxes of tensors between global and shared memory.
//
// A tensor map, made by the host (cupygemm._backends.hopper.cuda.tensormap), holds the address,
// extents, pitches, box and swizzle. One thread names the map and the coordinates of a box,
// innermost first. Elements outside the tensor are loaded as zeros and dropped by stores, so tiles
// need no predicates. The rows of a box narrower than the swizzle have the same spacing in shared
// memory as those of a full box (observed on an H200). Boxes may begin at any row, because the
// swizzle depends only on the address. Source: PTX ISA 9.0, "cp.async.bulk.tensor".
#pragma once

#include "hopper/mbarrier.cuh"

namespace cupygemm {

struct alignas(64) TensorMap {
    u64 opaque[16];
};

// The coordinates of a box: along the contiguous axis, across it, and along three batch axes.
struct BoxIndex {
    i32 inner, outer;
    i32 batch2, batch1, batch0;
};

CUPYGEMM_INLINE void tma_prefetch_map(const TensorMap &map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Load a box. `barrier` counts the bytes that land. With `multicast`, they land and are counted at
// the same address in every block of the cluster whose bit is set in `blocks`.
template <int rank, bool multicast>
CUPYGEMM_INLINE void tma_load(SharedAddress destination, const TensorMap &map, BoxIndex box,
                              SharedAddress barrier, u16 blocks) {
    static_assert(rank == 3 || rank == 5, "tensor maps must have one batch axis or three");
    if constexpr (rank == 3 && !multicast) {
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::"
                     "bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(destination),
                     "l"(&map), "r"(barrier), "r"(box.inner), "r"(box.outer), "r"(box.batch2)
                     : "memory");
    } else if constexpr (rank == 3) {
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::"
            "bytes.multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(destination),
            "l"(&map), "r"(barrier), "r"(box.inner), "r"(box.outer), "r"(box.batch2), "h"(blocks)
            : "memory");
    } else if constexpr (!multicast) {
        asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::"
                     "bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(destination),
                     "l"(&map), "r"(barrier), "r"(box.inner), "r"(box.outer), "r"(box.batch2),
                     "r"(box.batch1), "r"(box.batch0)
                     : "memory");
    } else {
        asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::"
                     "bytes.multicast::cluster [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(
                         destination),
                     "l"(&map), "r"(barrier), "r"(box.inner), "r"(box.outer), "r"(box.batch2),
                     "r"(box.batch1), "r"(box.batch0), "h"(blocks)
                     : "memory");
    }
}

// Copy adjacent bytes without a map. Both addresses and `bytes` are multiples of 16. `barrier`
// counts the bytes that land. Source: PTX ISA 9.0, "cp.async.bulk".
CUPYGEMM_INLINE void tma_load_bytes(SharedAddress destination, u64 from, u32 bytes,
                                    SharedAddress barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(destination),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

template <int rank>
CUPYGEMM_INLINE void tma_store(const TensorMap &map, BoxIndex box, SharedAddress source) {
    static_assert(rank == 3 || rank == 5, "tensor maps must have one batch axis or three");
    if constexpr (rank == 3) {
        asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
                     "[%0, {%2, %3, %4}], [%1];" ::"l"(&map),
                     "r"(source), "r"(box.inner), "r"(box.outer), "r"(box.batch2)
                     : "memory");
    } else {
        asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group "
                     "[%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
                     "r"(source), "r"(box.inner), "r"(box.outer), "r"(box.batch2), "r"(box.batch1),
                     "r"(box.batch0)
                     : "memory");
    }
}

// Close the group of stores that this thread has issued.
CUPYGEMM_INLINE void tma_store_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Wait until at most `younger` store groups of this thread still read shared memory.
template <int younger> CUPYGEMM_INLINE void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(younger) : "memory");
}

// Make this thread's ordinary stores to shared memory visible to the copy engine.
CUPYGEMM_INLINE void fence_async_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

} // namespace cupygemm
