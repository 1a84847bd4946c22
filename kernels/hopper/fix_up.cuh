// Fix-up of tiles that stream-K splits: clusters leave partial sums in a workspace, and the cluster
// with the tile's last part adds them.
//
// Each consumer warpgroup works independently. It stores its accumulators in register order, with
// the 16-byte vectors of its threads adjacent, and then writes a mark. The warpgroup that adds them
// waits for the mark and clears it. Marks need no initialisation: memory could only be mistaken for
// a mark if it happened to hold its 64 random bits. Sums are always added in the same order, from
// the previous cluster backwards.
//
//   workspace: marks (cluster, block, consumer) | sums (cluster, block, consumer, vector, thread)
#pragma once

#include "hopper/cluster.cuh"
#include "hopper/mainloop_warp_specialized.cuh"
#include "hopper/ordered_words.cuh"

namespace cupygemm {

// Four sums of a thread. Only asm of this form lets ptxas use the accumulators in place; if the
// compiler stores them, it serialises the wgmma.
template <class Sum> struct alignas(16) FourSums {
    Sum value[4];
};

CUPYGEMM_INLINE void store_four(FourSums<float> *to, const float (&x)[4]) {
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]), "f"(x[1]),
                 "f"(x[2]), "f"(x[3])
                 : "memory");
}
CUPYGEMM_INLINE void store_four(FourSums<i32> *to, const i32 (&x)[4]) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x[0]), "r"(x[1]),
                 "r"(x[2]), "r"(x[3])
                 : "memory");
}
CUPYGEMM_INLINE FourSums<float> load_four(const FourSums<float> *from) {
    FourSums<float> x;
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.value[0]), "=f"(x.value[1]), "=f"(x.value[2]), "=f"(x.value[3])
                 : "l"(from)
                 : "memory");
    return x;
}
CUPYGEMM_INLINE FourSums<i32> load_four(const FourSums<i32> *from) {
    FourSums<i32> x;
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.value[0]), "=r"(x.value[1]), "=r"(x.value[2]), "=r"(x.value[3])
                 : "l"(from)
                 : "memory");
    return x;
}

// Without split tiles, no sums are left or collected.
template <class Config, bool cuts_tiles = Config::stream_k> struct FixUp {
    template <class... Args> CUPYGEMM_INLINE static void leave_first(const Args &...) {}
    template <class... Args> CUPYGEMM_INLINE static void collect(const Args &...) {}
};

template <class Config> struct FixUp<Config, true> {
    using T = Tile<Config>;
    using Four = FourSums<typename Config::Accumulator>;
    static_assert(sizeof(Four) == 16, "a thread must store 16 bytes at once");
    static constexpr u32 vectors = Config::tile_n / 8; // per thread, for a block of 64 rows
    static constexpr u32 block_vectors = vectors * warpgroup_size;

    // One warpgroup. Sum and leave the cluster's first piece, if another cluster stores that tile.
    // The piece has a mainloop of its own, because ptxas serialises the wgmma of a mainloop whose
    // sums have two destinations.
    template <class Args, class Scheduler, class Ring>
    CUPYGEMM_INLINE static void leave_first(const Args &args, Scheduler &scheduler, u32 rank,
                                            u32 consumer, u32 thread, SharedAddress shared,
                                            Ring &ring) {
        const Work work = scheduler.work(args, rank);
        if (!work.is_left)
            return;
        Accumulators<Config> acc;
        WarpSpecializedMainloop<Config>::consume(args, work, consumer, thread, shared, ring, acc,
                                                 [] { return 0; });
        leave(args, work, consumer, thread, acc);
        scheduler.advance(args);
    }

    // One warpgroup. Add the sums that the `work.others` previous clusters have left.
    CUPYGEMM_INLINE static void collect(const HopperArgs &args, const Work &work, u32 consumer,
                                        u32 thread, Accumulators<Config> &acc) {
        for (u32 other = 1; other <= work.others; ++other) {
            const u32 place = place_of(cluster_index() - other, work.rank, consumer);
            if (thread == 0) {
                const u64 mark = args.workspace + place * sizeof(u64);
                while (load_acquire(mark) != args.mark) {
                }
                store_release(mark, 0);
            }
            warpgroup_sync(1 + consumer); // thread 0 has seen the mark: the sums are in memory
            const Four *const from = sums(args, place, thread);
#pragma unroll
            for (u32 block = 0; block < T::consumer_blocks; ++block) {
#pragma unroll
                for (u32 i = 0; i < vectors; ++i) {
                    const Four four = load_four(from + block * block_vectors + i * warpgroup_size);
#pragma unroll
                    for (u32 j = 0; j < 4; ++j)
                        acc.value[block][4 * i + j] += four.value[j];
                }
            }
        }
    }

private:
    CUPYGEMM_INLINE static void leave(const HopperArgs &args, const Work &work, u32 consumer,
                                      u32 thread, const Accumulators<Config> &acc) {
        const u32 place = place_of(cluster_index(), work.rank, consumer);
        Four *const to = sums(args, place, thread);
#pragma unroll
        for (u32 block = 0; block < T::consumer_blocks; ++block) {
#pragma unroll
            for (u32 i = 0; i < vectors; ++i) {
                const auto *sum = &acc.value[block][4 * i];
                store_four(to + block * block_vectors + i * warpgroup_size,
                           {sum[0], sum[1], sum[2], sum[3]});
            }
        }
        warpgroup_sync(1 + consumer); // all threads have written their sums
        if (thread == 0)
            store_release(args.workspace + place * sizeof(u64), args.mark);
    }

    CUPYGEMM_INLINE static u32 place_of(u32 cluster, u32 rank, u32 consumer) {
        return (cluster * T::cluster_size + rank) * Config::num_consumers + consumer;
    }

    // The address of the thread's first vector of the sums that a warpgroup leaves.
    CUPYGEMM_INLINE static Four *sums(const HopperArgs &args, u32 place, u32 thread) {
        const u32 places = cluster_count() * T::cluster_size * Config::num_consumers;
        const u64 first = args.workspace + ceil_div<u32>(places * sizeof(u64), 128) * 128;
        return reinterpret_cast<Four *>(first) +
               static_cast<u64>(place) * T::consumer_blocks * block_vectors + thread;
    }
};

} // namespace cupygemm
