// The stream-K scheduler: splits some tiles along k where tiles do not fill the clusters evenly.
//
// With T tiles and C clusters, each cluster computes the same number of whole tiles, and does so
// last. The other tiles, all T of them or C to 2 C - 1, are split: their k steps form one sequence,
// which is dealt in equal shares that differ by at most one group of steps. A cluster walks its
// share from the end backwards:
//
//   steps     |    tile 0     |    tile 1     |    tile 2     |
//   clusters  |     0     |     1     |     2     |     3     |
//   cluster 1             | 2nd| 1st  |        it leaves the sum of tile 1's first steps for
//                                              another cluster, then sums tile 0's last steps,
//                                              adds what cluster 0 left, and stores the tile
//
// A cluster therefore adds only what previous clusters left, from their first pieces. Blocks start
// in the order of their numbers, so no cluster waits for one that may not have started.
// Source of the idea: Osama et al., "Stream-K" (PPoPP 2023).
#pragma once

#include "common/shares.hpp"
#include "hopper/scheduler.cuh"

namespace cupygemm {

template <class Config> struct StreamScheduler : OfOneProduct {
    static_assert(!Config::split_k, "stream-K and split-K are mutually exclusive");

    Scheduler<Config> whole; // the tiles that are computed whole
    u32 first_whole, groups; // number of split tiles; groups of steps per tile
    u32 begin, end;          // the rest of the cluster's share, in groups

    CUPYGEMM_INLINE explicit StreamScheduler(const HopperArgs &args)
        : whole(args), groups(whole.step_groups(args)) {
        const u32 rounds = whole.units / whole.stride;
        first_whole = whole.units - (rounds > 1 ? rounds - 1 : 0) * whole.stride;
        const Share share = share_of(first_whole * groups, whole.stride, cluster_index());
        begin = share.begin;
        end = share.end;
        whole.unit += first_whole;
    }

    CUPYGEMM_INLINE bool more() const { return end > begin || whole.more(); }

    template <class Args> CUPYGEMM_INLINE void advance(const Args &) {
        if (end > begin)
            end = begin_of_piece();
        else
            whole.unit += whole.stride;
    }

    CUPYGEMM_INLINE Work work(const HopperArgs &args, u32 rank) const {
        if (end <= begin)
            return whole.work(args, rank);
        Scheduler<Config> tile = whole;
        tile.unit = (end - 1) / groups;
        const u32 first = tile.unit * groups, from = begin_of_piece();
        Work work = tile.work(args, rank);
        work.rank = rank;
        work.first_group = from - first;
        work.end = (end - from) * Tile<Config>::step_group;
        work.is_left = end - first < groups;
        if (from > first)
            work.others = cluster_index() - taker_of(first_whole * groups, whole.stride, first);
        return work;
    }

private:
    CUPYGEMM_INLINE u32 begin_of_piece() const {
        const u32 of_tile = (end - 1) / groups * groups;
        return begin > of_tile ? begin : of_tile;
    }
};

} // namespace cupygemm
