// The scheduler of groups of rows, whose numbers of rows are in global memory.
//
// Group g multiplies its rows of A by matrix g of the stack B. Its units of work are the tiles that
// contain its rows, and the units of all groups form one sequence. A cluster takes units i, i +
// clusters, ... of this sequence. The host does not know the number of units. Each thread walks the
// groups in order until its units are exhausted.
//
//   rows         70        0     130            (tiles of 128 rows, 2 columns of tiles)
//   first row     0       70      70       200
//   unit         | 0   1 |     | 2   3   4   5 |
//
// Numbers of rows are limited to the rows of the operand, so that no contents of that memory lead
// to accesses outside it.
#pragma once

#include "hopper/scheduler.cuh"
#include "hopper/stage_element.cuh"

namespace cupygemm {

template <class Config> struct RowGroupScheduler : OfOneProduct {
    static_assert(!Config::split_k && !Config::stream_k && !Config::ping_pong &&
                      !Config::transposed_c,
                  "groups of rows are computed by whole tiles, each by all consumers");

    // Values derived from these are recomputed, since registers are few.
    u32 unit;
    u32 group, rows, start; // of the unit: its group, the group's rows, and its first row
    u32 end;                // units up to the end of the group

    // Global memory must be readable (wait_for_work_before).
    template <class Args> CUPYGEMM_INLINE explicit RowGroupScheduler(const Args &args)
        : unit(cluster_index()), group(~0u), rows(0), start(0), end(0) {
        find(args);
    }

    CUPYGEMM_INLINE bool more() const { return unit < end; }

    template <class Args> CUPYGEMM_INLINE void advance(const Args &args) {
        unit += cluster_count();
        find(args);
    }

    CUPYGEMM_INLINE Work work(const HopperArgs &args, u32 rank) const {
        const u32 tiles_m = clusters_of(rows), tiles_n = tiles_along_n(args);
        const u32 of_group = unit + tiles_m * tiles_n - end;
        const TileIndex tile = place(of_group, tiles_m, tiles_n);
        Work work;
        work.row = start + (tile.m * Config::cluster_m + rank % Config::cluster_m) * Config::tile_m;
        work.column = (tile.n * Config::cluster_n + rank / Config::cluster_m) * Config::tile_n;
        work.batch = group;
        work.split = 0;
        work.begin = 0;
        work.end = ceil_div<u32>(args.k, Config::tile_k * Tile<Config>::step_group) *
                   Tile<Config>::step_group;
        work.row_end = start + rows;
        return work;
    }

private:
    // grouped_order (raster.hpp), with a constant divisor in all raster groups but the last: all
    // warps wait for the place of the next tile, and a division takes about 200 cycles.
    CUPYGEMM_INLINE static TileIndex place(u32 index, u32 tiles_m, u32 tiles_n) {
        constexpr u32 group_m = Config::group_m;
        const u32 first = index / (group_m * tiles_n) * group_m;
        const u32 within = index - first * tiles_n, height = tiles_m - first;
        if (height >= group_m)
            return {first + within % group_m, within / group_m};
        const u32 column = within / height;
        return {first + within - column * height, column};
    }

    CUPYGEMM_INLINE static u32 clusters_of(u32 rows) {
        return ceil_div<u32>(rows, Config::tile_m * Config::cluster_m);
    }

    template <class Args> CUPYGEMM_INLINE static u32 tiles_along_n(const Args &args) {
        return ceil_div<u32>(args.n, Config::tile_n * Config::cluster_n);
    }

    // Find the group of the unit; none if the unit is past the end of the last group.
    template <class Args> CUPYGEMM_INLINE void find(const Args &args) {
        while (unit >= end && group + 1 != args.groups.count) {
            ++group;
            if constexpr (Config::groups_share_rows)
                start += rows;
            const u32 size = size_of(args.groups);
            rows = minimum(size, static_cast<u32>(args.m) - start);
            end += clusters_of(rows) * tiles_along_n(args);
        }
    }

    CUPYGEMM_INLINE u32 size_of(const RowGroupArgs &groups) const {
        const u64 at = groups.sizes + static_cast<u64>(group) * sizeof(i32);
        u32 size, previous = 0;
        load_global_if<4>(&size, reinterpret_cast<const u32 *>(at), true);
        if (groups.are_ends) // where the next group begins
            load_global_if<4>(&previous, reinterpret_cast<const u32 *>(at - sizeof(i32)),
                              group > 0);
        const i32 difference = static_cast<i32>(size - previous);
        return difference > 0 ? static_cast<u32>(difference) : 0;
    }
};

} // namespace cupygemm
