// The shared memory of a small product: the ring of a team, and how its threads fill it.
//
// A stage holds a slab of A and one of B in their layout in global memory: rows along k or across
// it. Rows are padded so that lanes that read together, one row each, access different banks:
// ldmatrix and loads of 16 bytes read 8 rows, and loads of fp64 read 32 bytes of 4 rows.
#pragma once

#include "common/layout.hpp"
#include "hopper/cluster.cuh"
#include "hopper/cp_async.cuh"
#include "hopper/stage_element.cuh"
#include "hopper/vector.cuh"

namespace cupygemm {

// A slab of one operand in shared memory: `indices` of m or n, and `depth` of k.
template <class Config, u32 indices, u32 depth, Major order, u32 vector> struct Slab {
    static constexpr Major major = order;
    static constexpr u32 bytes_of_element = Numeric<typename Config::Element>::bytes;
    static constexpr u32 rows = major == Major::k ? indices : depth;
    static constexpr u32 row_bytes = (major == Major::k ? depth : indices) * bytes_of_element;
    static constexpr u32 padding = bytes_of_element == 8 ? 32 : 16;
    static constexpr u32 pitch = row_bytes + padding;
    static constexpr u32 bytes = rows * pitch;
    static_assert(row_bytes % (2 * padding) == 0,
                  "rows must lie an odd number of paddings apart, so that they meet all banks");

    // The offset of an element.
    CUPYGEMM_INLINE static constexpr u32 at(u32 index, u32 k) {
        return (major == Major::k ? index : k) * pitch +
               (major == Major::k ? k : index) * bytes_of_element;
    }

    // Copy the slab from `first`, by `threads` threads; elements beyond the matrix become zeros.
    template <u32 threads> CUPYGEMM_INLINE static void
    load(SharedAddress to, u64 first, i64 row_pitch, i32 indices_left, i32 k_left, u32 thread) {
        const i32 rows_left = major == Major::k ? indices_left : k_left;
        const i32 bytes_left = (major == Major::k ? k_left : indices_left) * i32(bytes_of_element);
        constexpr u32 of_row = row_bytes / vector, count = rows * of_row;
#pragma unroll
        for (u32 i = 0; i < (count + threads - 1) / threads; ++i) {
            const u32 chunk = thread + i * threads;
            if (count % threads != 0 && chunk >= count)
                break;
            const u32 row = chunk / of_row, at = chunk % of_row * vector;
            const u64 from = first + static_cast<u64>(row * row_pitch) + at;
            if constexpr (Config::whole) {
                copy<vector>(to + row * pitch + at, from, vector);
            } else {
                const i32 left = static_cast<i32>(row) < rows_left
                                     ? minimum(bytes_left - static_cast<i32>(at), i32(vector))
                                     : 0;
                copy<vector>(to + row * pitch + at, left > 0 ? from : first,
                             left > 0 ? static_cast<u32>(left) : 0);
            }
        }
    }

private:
    template <u32 size> CUPYGEMM_INLINE static void copy(SharedAddress to, u64 from, u32 present) {
        if constexpr (size == 2) { // less than cp.async copies
            u32 value = 0;
            load_global_if<2>(&value, reinterpret_cast<const u16 *>(from), present != 0);
            store_shared_bytes(to, static_cast<u16>(value));
        } else {
            copy_async<size>(to, from, present);
        }
    }
};

template <class Config> struct SmallTile {
    static constexpr u32 warps = Config::warps_m * Config::warps_n;
    static constexpr u32 team_threads = 32 * warps;
    static constexpr u32 num_threads = team_threads * Config::num_teams;
    static constexpr u32 warp_m = Config::tile_m / Config::warps_m;
    static constexpr u32 warp_n = Config::tile_n / Config::warps_n;
    using SlabA =
        Slab<Config, Config::tile_m, Config::tile_k, Config::a_major, Config::a_vector_bytes>;
    using SlabB =
        Slab<Config, Config::tile_n, Config::tile_k, Config::b_major, Config::b_vector_bytes>;
    static constexpr u32 stage_bytes = SlabA::bytes + SlabB::bytes;
    static constexpr u32 team_bytes = Config::num_stages * stage_bytes;
    // Staged sums, 8 rows of a warp on their way to C, overwrite the stage that was read last.
    static constexpr u32 line_bytes = (warp_n + 4) * sizeof(typename Config::Accumulator);
    static_assert(warps * 8 * line_bytes <= stage_bytes, "8 rows of sums of each warp must fit");
    static_assert(warp_m % 16 == 0 && warp_n % 16 == 0, "a warp has whole blocks of 16 x 16");
};

// A barrier of the threads of a team; each team has its own.
template <class Config, u32 candidate = 0> CUPYGEMM_INLINE void team_sync(u32 team) {
    using T = SmallTile<Config>;
    if constexpr (T::warps == 1)
        __syncwarp();
    else if constexpr (candidate + 1 == Config::num_teams)
        barrier_sync<candidate, T::team_threads>();
    else if (team == candidate)
        barrier_sync<candidate, T::team_threads>();
    else
        team_sync<Config, candidate + 1>(team);
}

} // namespace cupygemm
