// The stream-K schedule: where tiles do not fill the clusters evenly, some are cut along k.
//
// Of T tiles and C clusters, as many as give each cluster the same number, at least one, are left
// for the end, to be computed whole; the steps of the others, fewer than 2 C tiles, are dealt in
// one row, so that shares differ by a step. A cluster walks its share from the end backwards:
//
//   steps     |    tile 0     |    tile 1     |    tile 2     |
//   clusters  |     0     |     1     |     2     |     3     |
//   cluster 1             | 2nd| 1st  |        it leaves tile 1's first steps for others to add,
//                                              then sums tile 0's last, adds cluster 0's and stores
//
// So what a cluster adds was left by those before it, with what they began with: blocks start in
// the order of their numbers, and nobody waits for one that may not have started.
// Source of the idea: Osama et al., "Stream-K" (PPoPP 2023).
#pragma once

#include "common/shares.hpp"
#include "hopper/scheduler.cuh"

namespace cupygemm {

template <class Config> struct StreamScheduler : OfOneProduct {
    static_assert(!Config::split_k, "tiles are cut one way");

    Scheduler<Config> whole; // the tiles that are computed whole
    u32 first_whole, groups; // tiles before those; groups of steps of a tile
    u32 begin, end;          // of the cluster's share of groups: what is left of it

    CUPYGEMM_INLINE explicit StreamScheduler(const HopperArgs &args)
        : whole(args), groups(whole.step_groups) {
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
