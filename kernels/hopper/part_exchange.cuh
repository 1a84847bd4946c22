// The exchange of sums where the blocks of a cluster have different parts of k (`cluster_k`).
//
// Each block has summed its part of k for the whole tile. It writes the sums to its ring, which no
// thread reads any more, and keeps a share of the tile's columns: it adds the sums of all parts for
// these columns, in the order of the parts, and stores them.
//
//   block of part 0  multiply | leave all columns | barrier | add the left half of both  | store
//   block of part 1  multiply | leave all columns | barrier | add the right half of both | store
//
// No workspace and no second kernel are needed. A cluster has one unit of work, since a producer
// that ran ahead to another one would fill the ring.
//
//   shared memory: (consumer, block of 64 rows, vector of 4 sums, thread)
#pragma once

#include "hopper/cluster.cuh"
#include "hopper/tile.cuh"
#include "hopper/warpgroup_mma.cuh"

namespace cupygemm {

// Otherwise a block stores its sums as they are.
template <class Config, bool has_parts = (Config::cluster_k > 1)> struct PartExchange {
    using Kept = Config;
    CUPYGEMM_INLINE static const Work &kept(const Work &work) { return work; }
    CUPYGEMM_INLINE static Accumulators<Config> &sums(u32, u32, u32, SharedAddress,
                                                      Accumulators<Config> &acc) {
        return acc;
    }
    CUPYGEMM_INLINE static void pass() {}
};

// The part of its tile that a block stores; it loads nothing.
template <class Config> struct KeptColumns : Config {
    static constexpr u32 tile_n = Config::tile_n / Config::cluster_k;
    static constexpr Major b_major = Major::k;
};

template <class Config> struct PartExchange<Config, true> {
    using Kept = KeptColumns<Config>;
    using T = Tile<Config>;
    static constexpr u32 barrier = 6; // after those of the staging buffers and of turns
    static constexpr u32 vectors = Config::tile_n / 8; // per thread, for a block of 64 rows
    static constexpr u32 kept_vectors = vectors / Config::cluster_k;
    static constexpr u32 vector_bytes = warpgroup_size * 16; // of a warpgroup
    static_assert(vectors % Config::cluster_k == 0, "parts must keep equally many columns");
    static_assert(T::consumer_blocks * vectors * vector_bytes * Config::num_consumers <=
                      T::staging_at,
                  "the ring must hold the sums of a tile");
    static_assert(!(Config::split_k || Config::stream_k || Config::ping_pong || Config::promote ||
                    Config::mma_sync || T::a_in_registers),
                  "parts are exchanged only where all consumers sum one tile by wgmma");

    // The columns that the block stores.
    CUPYGEMM_INLINE static Work kept(Work work) {
        work.column += work.split * Kept::tile_n;
        return work;
    }

    // One warpgroup. Exchange sums, and return the sums of the columns that the block keeps.
    CUPYGEMM_INLINE static Accumulators<Kept> sums(u32 rank, u32 consumer, u32 thread,
                                                   SharedAddress shared,
                                                   const Accumulators<Config> &acc) {
        const SharedAddress own =
            shared + consumer * T::consumer_blocks * vectors * vector_bytes + thread * 16;
        barrier_sync<barrier, Config::num_consumers * warpgroup_size>(); // no wgmma reads the ring
#pragma unroll
        for (u32 block = 0; block < T::consumer_blocks; ++block) {
#pragma unroll
            for (u32 i = 0; i < vectors; ++i) {
                const auto *sum = &acc.value[block][4 * i];
                store_shared_four(own + (block * vectors + i) * vector_bytes,
                                  {sum[0], sum[1], sum[2], sum[3]});
            }
        }
        cluster_exchange(); // all parts have written their sums
        using M = Multicast<Config>;
        Accumulators<Kept> result;
#pragma unroll
        for (u32 part = 0; part < Config::cluster_k; ++part) {
            const u32 peer = rank - M::first(rank) + part * M::of_part;
            const u32 from =
                address_in_cluster(own + M::part(rank) * kept_vectors * vector_bytes, peer);
#pragma unroll
            for (u32 block = 0; block < T::consumer_blocks; ++block) {
#pragma unroll
                for (u32 i = 0; i < kept_vectors; ++i) {
                    float four[4];
                    load_cluster_four(from + (block * vectors + i) * vector_bytes, four);
#pragma unroll
                    for (u32 j = 0; j < 4; ++j) {
                        auto &sum = result.value[block][4 * i + j];
                        sum = part == 0 ? four[j] : sum + four[j];
                    }
                }
            }
        }
        return result;
    }

    // The producer's warps take part in the barrier of the cluster.
    CUPYGEMM_INLINE static void pass() {
        __syncwarp(); // the thread that worked alone rejoins its warp
        cluster_exchange();
    }
};

} // namespace cupygemm
