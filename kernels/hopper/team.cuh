// A team of workgroups that is a thread-block cluster: records go from shared memory to shared
// memory, and a barrier of the cluster orders them. See common/solvers/team.hpp, whose interface
// this is; it needs no workspace. Source: PTX ISA 9.0, "mapa", "st.shared::cluster".
#pragma once

#include "common/solvers/scalar.hpp"

namespace cupygemm {

template <u32 size> CUPYGEMM_INLINE u32 *team_flags(u64, u32) { return nullptr; }

CUPYGEMM_INLINE u32 address_at_rank(const void *shared, u32 rank) {
    u32 address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(address)
        : "r"(static_cast<u32>(__cvta_generic_to_shared(shared))), "r"(rank));
    return address;
}

CUPYGEMM_INLINE void store_at(u32 address, u32 word) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}
CUPYGEMM_INLINE void store_at(u32 address, u64 word) {
    asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(address), "l"(word) : "memory");
}

// A barrier of all threads of the cluster, after which their stores are visible to each other.
CUPYGEMM_INLINE void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

template <class Word, u32 size, u32 record_words> struct Team {
    alignas(16) Word slots[2][size][record_words]; // by the parity of the step

    CUPYGEMM_INLINE const Word *record(u32 step, u32 rank) const { return slots[step % 2][rank]; }

    CUPYGEMM_INLINE void publish(u64, u32 rank, u32 step, u32 lane, const Word *record) {
        for (u32 i = lane; i < size * record_words; i += 32) {
            const u32 word = i % record_words;
            store_at(address_at_rank(&slots[step % 2][rank][word], i / record_words), record[word]);
        }
    }

    template <u32 threads> CUPYGEMM_INLINE void exchange(u32 *, u64, u32, u32 step, u32) {
        cluster_barrier(); // every record of this step is in this workgroup's shared memory
    }

    // The shared memory of every workgroup of the team exists.
    CUPYGEMM_INLINE void begin() { cluster_barrier(); }
};

} // namespace cupygemm
