// The persistent tile scheduler: which tiles a cluster computes, and in which order.
//
// The grid fills the GPU once. A unit of work is one tile of C for each block of the cluster, over
// one part of k. Units are numbered batch by batch, within a batch split by split, and within a
// split in raster order; cluster i takes units i, i + clusters, ... The units in flight are
// therefore neighbours, which share rows of A and columns of B in L2. The parts of a split take the
// steps of k alternately, so that parts in flight read adjacent memory. The producer and the
// consumers walk the same sequence independently.
#pragma once

#include "common/raster.hpp"
#include "hopper/arguments.cuh"
#include "hopper/cluster.cuh"
#include "hopper/tile.cuh"

namespace cupygemm {

struct Work {
    u32 row, column; // of the block's tile, in elements
    u32 batch;
    u32 split;
    u32 begin, end; // steps of the unit
    u32 row_end;    // only for a group of rows: where its rows end
    // Only for a piece of a tile that stream-K splits:
    u32 rank;             // of the block in its cluster
    u32 first_group = 0;  // position of its first step in k, in groups of steps
    bool is_left = false; // whether its sums are left for another cluster
    u32 others = 0;       // number of previous clusters whose sums it adds
};

// The arguments of the product to which a unit belongs, and of the cluster's first product, for
// launches of a single product.
struct OfOneProduct {
    template <class Args> CUPYGEMM_INLINE static const Args &product(const Args &args) {
        return args;
    }
    template <class Args> CUPYGEMM_INLINE static const Args &first_product(const Args &args) {
        return args;
    }
};

template <class Config> struct Scheduler : OfOneProduct {
    u32 tiles_m, tiles_n; // of clusters
    u32 kept_step_groups;
    u32 units;
    u32 unit, stride;

    CUPYGEMM_INLINE explicit Scheduler(const HopperArgs &args)
        : Scheduler(args, cluster_index(), cluster_count()) {}

    // Start from unit `first`.
    CUPYGEMM_INLINE Scheduler(const HopperArgs &args, u32 first, u32 stride)
        : tiles_m(ceil_div<u32>(args.m, Config::tile_m * Config::cluster_m)),
          tiles_n(ceil_div<u32>(args.n, Config::tile_n * Config::cluster_n)),
          kept_step_groups(all_step_groups(args)),
          units(tiles_m * tiles_n * args.num_splits * args.batch0 * args.batch1 * args.batch2),
          unit(first), stride(stride) {}

    // With scales, registers are too few to keep them.
    CUPYGEMM_INLINE u32 step_groups(const HopperArgs &args) const {
        return Config::block_scaled ? all_step_groups(args) : kept_step_groups;
    }
    CUPYGEMM_INLINE static u32 all_step_groups(const HopperArgs &args) {
        return ceil_div<u32>(args.k, Config::tile_k * Tile<Config>::step_group);
    }

    CUPYGEMM_INLINE bool more() const { return unit < units; }
    template <class Args> CUPYGEMM_INLINE void advance(const Args &) { unit += stride; }

    CUPYGEMM_INLINE Work work(const HopperArgs &args, u32 rank) const {
        const u32 tiles = tiles_m * tiles_n;
        const u32 part = unit / tiles;
        const TileIndex tile = place(unit - part * tiles);
        Work work;
        work.row = (tile.m * Config::cluster_m + rank % Config::cluster_m) * Config::tile_m;
        work.column =
            (tile.n * Config::cluster_n + Multicast<Config>::column(rank)) * Config::tile_n;
        work.batch = part;
        work.split = 0;
        work.begin = 0;
        work.end = step_groups(args);
        if constexpr (Config::split_k) {
            work.batch = part / args.num_splits;
            work.split = part - work.batch * args.num_splits;
            work.end = ceil_div<u32>(step_groups(args) - work.split, args.num_splits);
        }
        if constexpr (Config::cluster_k > 1) {
            work.split = Multicast<Config>::part(rank);
            work.end = ceil_div<u32>(step_groups(args) - work.split, Config::cluster_k);
        }
        work.begin *= Tile<Config>::step_group;
        work.end *= Tile<Config>::step_group;
        return work;
    }

private:
    CUPYGEMM_INLINE TileIndex place(u32 index) const {
        if constexpr (Config::hilbert_order)
            return hilbert_order(index, tiles_m, tiles_n);
        else
            return grouped_order<Config::group_m>(index, tiles_m, tiles_n);
    }
};

// The step of k that corresponds to a step of a unit of work.
template <class Config>
CUPYGEMM_INLINE u32 step_of_k(const HopperArgs &args, const Work &work, u32 step) {
    constexpr u32 group = Tile<Config>::step_group;
    if constexpr (Config::split_k)
        return (step / group * args.num_splits + work.split) * group + step % group;
    if constexpr (Config::cluster_k > 1)
        return (step / group * Config::cluster_k + work.split) * group + step % group;
    return step + work.first_group * group;
}

// The batch coordinates of a box. An axis along which the operand is broadcast stays at 0.
template <int rank> CUPYGEMM_INLINE BoxIndex batch_box(const HopperArgs &args, u32 batch) {
    if constexpr (rank == 3)
        return {0, 0, static_cast<i32>(batch), 0, 0};
    const u32 outer = batch / args.batch2;
    return {0, 0, static_cast<i32>(batch % args.batch2), static_cast<i32>(outer % args.batch1),
            static_cast<i32>(outer / args.batch1)};
}

CUPYGEMM_INLINE BoxIndex moved(BoxIndex box, const i32 (&moves)[3]) {
    return {0, 0, box.batch2 * moves[2], box.batch1 * moves[1], box.batch0 * moves[0]};
}

} // namespace cupygemm
