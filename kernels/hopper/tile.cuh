// The shapes of a kernel: what follows from its Config, and the layout of its shared memory.
//
// A step of the mainloop takes tile_k of k, one stage of the ring. A stage holds slabs of 128 bytes
// of k, first A's, then B's; a slab holds blocks of 64 rows, see wgmma.cuh. Behind the ring lie the
// staging buffers of the epilogue, one block each, and the barriers.
#pragma once

#include "common/layout.hpp"
#include "hopper/multicast.cuh"
#include "hopper/wgmma.cuh"

namespace cupygemm {

constexpr u32 warpgroup_size = 128;

template <class Config> struct Tile {
    using Element = typename Config::ElementA;
    static constexpr u32 element_bytes = Numeric<Element>::bytes;
    static constexpr u32 slab_k = slab_bytes / element_bytes;
    static constexpr u32 mma_k = Config::mma_sync ? 8 : 32 / element_bytes;
    static constexpr u32 slabs = Config::tile_k / slab_k;
    static constexpr u32 cluster_size = Config::cluster_m * Config::cluster_n;
    // Arrivals that end the use of a stage: of warpgroups, of which wgmma waits for all, or of
    // warps.
    static constexpr u32 num_releases =
        Config::num_consumers * (Config::mma_sync ? 4 : 1) * Multicast<Config>::num_peers;
    static constexpr u32 num_threads = (Config::num_consumers + 1) * warpgroup_size;

    static constexpr u32 consumer_rows = Config::tile_m / Config::num_consumers;
    static constexpr u32 consumer_blocks = consumer_rows / block_rows;

    static constexpr u32 a_slab_bytes = Config::tile_m * slab_bytes; // (tile_m, slab_k)
    // Where B's rows are k, the last block of its columns may be narrower than its place.
    static constexpr u32 b_rest = Config::b_major == Major::k ? 0 : Config::tile_n % slab_k;
    static constexpr u32 b_rows = Config::tile_n + (b_rest ? slab_k - b_rest : 0);
    static constexpr u32 b_slab_bytes = b_rows * slab_bytes; // (b_rows, slab_k)
    static constexpr u32 a_bytes = slabs * a_slab_bytes;
    static constexpr u32 stage_bytes = a_bytes + slabs * b_slab_bytes;
    static constexpr u32 staging_bytes =
        Config::num_consumers * Config::epilogue_buffers * block_bytes;
    static constexpr u32 staging_at = Config::num_stages * stage_bytes;
    static constexpr u32 barriers_at = staging_at + staging_bytes;
    static constexpr u32 shared_bytes = barriers_at + 2 * Config::num_stages * sizeof(u64);

    static_assert(Config::tile_m % (Config::num_consumers * block_rows) == 0,
                  "each consumer multiplies whole blocks of 64 rows");
    static constexpr u32 unit_n = Config::c_turned ? 8 : Config::mma_sync ? block_rows : 16;
    static_assert(Config::tile_n % unit_n == 0 && Config::tile_n <= 256,
                  "wgmma is 8 to 256 columns wide, of which 16 are staged at once, as they lie");
    static_assert(b_rest == 0 || Config::has_narrow_boxes,
                  "narrower boxes of B have a map of their own");
    // wgmma reads 32-bit operands in shared memory along k only, but A from registers, too.
    static constexpr bool a_in_registers = element_bytes == 4 && Config::a_major == Major::row;
    // Steps of a unit of work come in groups: for the two sets of such registers, or as many as are
    // summed between promotions. Were the second of a pair left out on some path, the compiler
    // would serialise the wgmma of all. What lies beyond k is zeros.
    static constexpr bool sums_pairs = Config::promote && slabs == 1 && !Config::block_scaled;
    static constexpr u32 step_group = a_in_registers || sums_pairs ? 2 : 1;
    static_assert(!Config::block_scaled || (Config::promote && slabs == 1),
                  "the sums of a step of 128 bytes are scaled before they are added");
    static_assert(Config::mma_sync == IsSame<Element, f64>::value,
                  "mma.sync multiplies fp64, and wgmma everything else");
    static_assert(element_bytes == 2 || Config::mma_sync ||
                      ((Config::a_major == Major::k || a_in_registers) &&
                       Config::b_major == Major::k),
                  "wgmma reads operands that are not of 16 bits along k only");
    static_assert(stage_bytes % swizzle_bytes == 0 && a_slab_bytes % swizzle_bytes == 0,
                  "tiles begin where the swizzle's period does");
    static_assert(Config::tile_k % slab_k == 0, "a stage holds whole slabs of 128 bytes of k");
    static_assert(cluster_size <= 8, "a cluster has at most 8 blocks on every GPU");
    static_assert(shared_bytes <= 227 * 1024, "a block has 227 KiB of shared memory");

    // Rows of a TMA store of a tile that is turned: as many as divide it, at most those of a block.
    CUPYGEMM_INLINE static constexpr u32 turned_box_rows() {
        u32 rows = block_rows;
        while (Config::tile_n % rows)
            rows -= 8;
        return rows;
    }

    // A stage is full when its bytes have landed, and empty when every consumer of all to whom this
    // block multicasts is done with it.
    CUPYGEMM_INLINE static SharedAddress full(SharedAddress shared, u32 stage) {
        return shared + barriers_at + stage * sizeof(u64);
    }
    CUPYGEMM_INLINE static SharedAddress empty(SharedAddress shared, u32 stage) {
        return full(shared, stage) + Config::num_stages * sizeof(u64);
    }
};

// A place in the ring. The parity flips each time round; a fresh barrier counts as if its phase of
// parity 1 had just ended, so the first wait for an empty stage, of parity 1, passes.
template <int num_stages> struct RingPosition {
    u32 stage = 0;
    u32 parity = 0;

    CUPYGEMM_INLINE void advance() {
        if (++stage == num_stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

} // namespace cupygemm
