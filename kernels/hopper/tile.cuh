// The shapes that follow from a kernel's Config, and the layout of its shared memory.
//
// A step of the mainloop takes tile_k of k: one stage of the ring. A stage holds slabs of 128 bytes
// of k, first A's and then B's, and a slab holds blocks of 64 rows (wgmma.cuh). The ring is
// followed by the staging buffers of the epilogue, one block each, and by the barriers.
#pragma once

#include "common/layout.hpp"
#include "hopper/multicast.cuh"
#include "hopper/wgmma.cuh"

namespace cupygemm {

constexpr u32 warpgroup_size = 128;
constexpr u32 mark_words = 8; // of bits, one for each SM; see sm_scheduler.cuh

template <class Config> struct Tile {
    using Element = typename Config::ElementA;
    static constexpr u32 element_bytes = Numeric<Element>::bytes;
    static constexpr u32 slab_k = slab_bytes / element_bytes;
    static constexpr u32 mma_k = Config::mma_sync ? 8 : 32 / element_bytes;
    static constexpr u32 slabs = Config::tile_k / slab_k;
    static constexpr u32 cluster_size = Multicast<Config>::of_part * Config::cluster_k;
    // The arrivals that empty a stage: one per warpgroup with wgmma, whose wait covers the
    // warpgroup, or one per warp where warps read the stage themselves until then.
    static constexpr bool warps_release =
        Config::mma_sync || (Config::block_scaled && Config::scale_per_column);
    static constexpr u32 num_releases = (Config::ping_pong ? 1 : Config::num_consumers) *
                                        (warps_release ? 4 : 1) * Multicast<Config>::num_peers;
    static constexpr u32 num_threads = (Config::num_consumers + 1) * warpgroup_size;

    // In turns (`ping_pong`), each consumer computes whole tiles; otherwise, its rows of each tile.
    static constexpr u32 consumer_rows =
        Config::tile_m / (Config::ping_pong ? 1 : Config::num_consumers);
    static constexpr u32 consumer_blocks = consumer_rows / block_rows;

    static constexpr u32 a_slab_bytes = Config::tile_m * slab_bytes; // (tile_m, slab_k)
    // If B's rows are k, the last block of its columns may be narrower than its space.
    static constexpr u32 b_rest = Config::b_major == Major::k ? 0 : Config::tile_n % slab_k;
    static constexpr u32 b_rows = Config::tile_n + (b_rest ? slab_k - b_rest : 0);
    static constexpr u32 b_slab_bytes = b_rows * slab_bytes; // (b_rows, slab_k)
    static constexpr u32 a_bytes = slabs * a_slab_bytes;
    static constexpr u32 stage_bytes = a_bytes + slabs * b_slab_bytes;
    static constexpr u32 staging_bytes =
        Config::num_consumers * Config::epilogue_buffers * block_bytes;
    static constexpr u32 staging_at = Config::num_stages * stage_bytes;
    static constexpr u32 barriers_at = staging_at + staging_bytes;
    // With scales, a barrier where every wait for parity 1 passes, and 8 unused bytes.
    static constexpr u32 passed_at = barriers_at + 2 * Config::num_stages * sizeof(u64);
    // The scales of a stage: of the tile's rows, and then of its columns.
    static constexpr u32 scales_at = passed_at + (Config::block_scaled ? 2 * sizeof(u64) : 0);
    static constexpr u32 scale_bytes =
        Config::block_scaled ? (Config::tile_m + Config::tile_n) * sizeof(float) : 0;
    static constexpr u32 marks_at = scales_at + Config::num_stages * scale_bytes;
    static constexpr u32 mark_bytes =
        Config::by_sm ? sizeof(u64) + (mark_words + 1) * sizeof(u32) : 0;
    static constexpr u32 shared_bytes = marks_at + mark_bytes;
    // The arrivals that fill a stage: one of the thread that loads the operands, and one for each
    // lane of the two warps that copy scales.
    static constexpr u32 num_fillers = 1 + (Config::block_scaled ? 64 : 0);

    static_assert(consumer_rows % block_rows == 0 && consumer_rows > 0,
                  "each consumer must multiply whole blocks of 64 rows");
    static_assert(!Config::ping_pong || Config::num_consumers == 2,
                  "two consumers take turns: while one multiplies, the other stores its tile");
    static_assert(!Config::ping_pong || !(Config::promote || Config::mma_sync || Config::stream_k ||
                                          Config::lower_triangle),
                  "consumers take turns only at plain wgmma and whole tiles");
    static constexpr bool in_eights =
        Config::transposed_c || (element_bytes == 2 && Config::b_major == Major::k &&
                                 Numeric<typename Config::ElementC>::bytes > 1);
    static constexpr u32 unit_n = in_eights ? 8 : Config::mma_sync ? block_rows : 16;
    static_assert(Config::tile_n % unit_n == 0 && Config::tile_n <= 256,
                  "tile_n must be a multiple of the columns staged at once, and at most 256, the "
                  "widest wgmma");
    static_assert(b_rest == 0 || Config::has_narrow_boxes,
                  "narrower boxes of B need a map of their own");
    // wgmma reads 32-bit operands in shared memory only along k, but can take A from registers.
    static constexpr bool a_in_registers = element_bytes == 4 && Config::a_major == Major::row;
    // The steps of a unit of work come in groups of two where fragments of A have two sets of
    // registers, or where two steps are summed between promotions. If some path left out the second
    // step of a pair, the compiler would serialise all wgmma; steps beyond k therefore multiply
    // zeros.
    static constexpr bool sums_pairs = Config::promote && slabs == 1 && !Config::block_scaled;
    // Two steps have separate sums if registers suffice.
    static constexpr bool sums_alternate = Config::block_scaled && consumer_blocks == 1 &&
                                           Config::tile_n <= 128 && Config::num_consumers < 3 &&
                                           !(Config::scale_per_column && Config::num_consumers > 1);
    static constexpr u32 long_run = 4;
    static constexpr u32 step_group = a_in_registers || sums_pairs || sums_alternate ? 2 : 1;
    static_assert(!Config::block_scaled || (Config::promote && slabs == 1),
                  "block-scaled sums are scaled and promoted after every step of 128 bytes");
    static_assert(Config::mma_sync == IsSame<Element, f64>::value,
                  "mma.sync must multiply fp64, and wgmma everything else");
    static_assert(element_bytes == 2 || Config::mma_sync ||
                      ((Config::a_major == Major::k || a_in_registers) &&
                       Config::b_major == Major::k),
                  "wgmma reads operands of other than 16 bits only along k");
    static_assert(stage_bytes % swizzle_bytes == 0 && a_slab_bytes % swizzle_bytes == 0,
                  "tiles must begin where the swizzle's period does");
    static_assert(Config::tile_k % slab_k == 0, "a stage must hold whole slabs of 128 bytes of k");
    static_assert(cluster_size <= 8, "a cluster may have at most 8 blocks on every GPU");
    static_assert(shared_bytes <= 227 * 1024, "a block may use at most 227 KiB of shared memory");

    // Rows of a TMA store of a transposed tile: the largest multiple of 8 that divides tile_n and
    // fits in a block.
    CUPYGEMM_INLINE static constexpr u32 transposed_box_rows() {
        u32 rows = block_rows;
        while (Config::tile_n % rows)
            rows -= 8;
        return rows;
    }

    // A stage is full when its bytes have landed. It is empty when every consumer of every block to
    // which this block multicasts has released it.
    CUPYGEMM_INLINE static SharedAddress full(SharedAddress shared, u32 stage) {
        return shared + barriers_at + stage * sizeof(u64);
    }
    CUPYGEMM_INLINE static SharedAddress passed(SharedAddress shared) { return shared + passed_at; }
    CUPYGEMM_INLINE static SharedAddress scales(SharedAddress shared, u32 stage) {
        return shared + scales_at + stage * scale_bytes;
    }
    CUPYGEMM_INLINE static SharedAddress empty(SharedAddress shared, u32 stage) {
        return full(shared, stage) + Config::num_stages * sizeof(u64);
    }
};

// A position in the ring. The parity flips on each round. A fresh barrier behaves as if its phase
// of parity 1 had just ended, so the first wait for an empty stage, for parity 1, passes.
template <int num_stages> struct RingPosition {
    u32 stage = 0;
    u32 parity = 0;

    CUPYGEMM_INLINE void advance() {
        if (++stage == num_stages) {
            stage = 0;
            parity ^= 1;
        }
    }

    // Advance by `steps`, which another consumer multiplies.
    CUPYGEMM_INLINE void skip(u32 steps) {
        const u32 position = stage + steps, rounds = position / num_stages;
        stage = position - rounds * num_stages;
        parity ^= rounds & 1;
    }
};

} // namespace cupygemm
