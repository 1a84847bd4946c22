// The tile scheduler: which tiles of C a workgroup computes, and which part of k of each.
//
//   Partition::tiles     A workgroup computes one tile over all of k.
//   Partition::split_k   A workgroup computes one of `num_parts` equal parts of k of one tile.
//   Partition::stream_k  A persistent grid of `num_parts` workgroups. As many tiles as fill the
//                        grid evenly are assigned whole, one at a time. The k steps of the
//                        remaining tiles, laid end to end, are dealt in equal ranges, which may
//                        begin and end anywhere:
//
//                          workgroup    |0      |1      |2      |3      |4      |
//                          tile         |0         |1         |2         |3     ...
//
// Sums over less than all of k go to a slot of the workspace, and `cupygemm_add_parts` adds the
// slots of a tile in the order of k. Tiles are numbered batch by batch, and within a batch in
// raster order. With split_k, all tiles of one part of k precede those of the next, so that
// workgroups that run together read the same part of A and B.
#pragma once

#include "cdna/kernel_args.hpp"
#include "common/raster.hpp"
#include "common/shares.hpp"

namespace cupygemm {

constexpr u32 batch_grid_y = 32768;

struct GridIndex {
    u32 x, y, z;
};

struct Work {
    u32 batch;
    u32 tile;       // in raster order
    u32 begin, end; // k steps
    u32 slot;       // in the workspace, unless the work covers all of k
    bool all_of_k;
};

// The numbers of tiles of C and of steps along k.
template <class Config> struct Tiling {
    u32 tiles_m, tiles_n;
    u32 tiles; // per matrix
    u32 steps;
    u32 batches;

    CUPYGEMM_INLINE explicit Tiling(const GemmArgs &args)
        : tiles_m(ceil_div<u32>(args.m, Config::tile_m)),
          tiles_n(ceil_div<u32>(args.n, Config::tile_n)), tiles(tiles_m * tiles_n),
          steps(ceil_div<u32>(args.k, Config::tile_k)),
          batches(static_cast<u32>(args.batch0) * args.batch1 * args.batch2) {}

    CUPYGEMM_INLINE TileIndex place(u32 tile) const {
        return grouped_order<Config::group_m>(tile, tiles_m, tiles_n);
    }
};

// The slots of a tile's parts in the workspace.
struct Slots {
    u32 first;  // of the first part
    u32 second; // of the second part; the others follow
    u32 count;  // of parts

    CUPYGEMM_INLINE u32 operator()(u32 part) const { return part == 0 ? first : second + part - 1; }
};

template <class Config, Partition = Config::partition> struct Scheduler;

// The batch is y + batch_grid_y z of the grid; the last plane may be partly empty.
CUPYGEMM_INLINE u32 batch_of(GridIndex workgroup) {
    return workgroup.y + batch_grid_y * workgroup.z;
}

template <class Config> struct Scheduler<Config, Partition::tiles> {
    const GridIndex workgroup;
    bool left;

    CUPYGEMM_INLINE Scheduler(const KernelArgs<Config> &args, GridIndex index)
        : workgroup(index), left(batch_of(index) < Tiling<Config>(args).batches) {}

    CUPYGEMM_INLINE bool more() const { return left; }
    CUPYGEMM_INLINE void advance(const KernelArgs<Config> & /*args*/) { left = false; }
    CUPYGEMM_INLINE Work work(const KernelArgs<Config> &args) const {
        const Tiling<Config> tiling(args);
        const u32 tile = xcd_contiguous<Config::num_xcds>(workgroup.x, tiling.tiles);
        return {batch_of(workgroup), tile, 0, tiling.steps, 0, true};
    }
};

template <class Config> struct Scheduler<Config, Partition::split_k> {
    const GridIndex workgroup;
    bool left;

    CUPYGEMM_INLINE Scheduler(const KernelArgs<Config> &args, GridIndex index)
        : workgroup(index), left(batch_of(index) < Tiling<Config>(args).batches) {}

    CUPYGEMM_INLINE bool more() const { return left; }
    CUPYGEMM_INLINE void advance(const KernelArgs<Config> & /*args*/) { left = false; }
    CUPYGEMM_INLINE Work work(const KernelArgs<Config> &args) const {
        const Tiling<Config> tiling(args);
        const u32 unit =
            xcd_contiguous<Config::num_xcds>(workgroup.x, tiling.tiles * args.num_parts);
        const u32 part = unit / tiling.tiles;
        const u32 tile = unit - part * tiling.tiles;
        const Share k = share_of(tiling.steps, args.num_parts, part);
        const Slots all = slots(args, tiling, batch_of(workgroup), tile);
        return {
            batch_of(workgroup), tile, k.begin, k.end, all(Config::atomic_parts ? 0 : part), false};
    }

    CUPYGEMM_INLINE static Slots slots(const KernelArgs<Config> &args, const Tiling<Config> &tiling,
                                       u32 batch, u32 tile) {
        const u32 count = Config::adds_to_result ? 0 : Config::atomic_parts ? 1 : args.num_parts;
        const u32 first = (batch * tiling.tiles + tile) * count;
        return {first, first + 1, count};
    }
};

// It keeps little state, since it occupies scalar registers throughout the mainloop.
template <class Config> struct Scheduler<Config, Partition::stream_k> {
    const u32 workgroup;
    u32 rounds;   // remaining rounds, each of one whole tile per workgroup
    Share stream; // what remains of the workgroup's range of the shared tiles' k steps

    CUPYGEMM_INLINE Scheduler(const KernelArgs<Config> &args, GridIndex index)
        : workgroup(xcd_contiguous<Config::num_xcds>(index.x, args.num_parts)),
          rounds(whole_tiles(args) / args.num_parts),
          stream(share_of(args.stream_tiles * Tiling<Config>(args).steps, args.num_parts,
                          workgroup)) {}

    CUPYGEMM_INLINE bool more() const { return rounds > 0 || stream.begin < stream.end; }

    CUPYGEMM_INLINE void advance(const KernelArgs<Config> &args) {
        if (rounds > 0)
            --rounds;
        else
            stream.begin += length(Tiling<Config>(args));
    }

    CUPYGEMM_INLINE Work work(const KernelArgs<Config> &args) const {
        const Tiling<Config> tiling(args);
        const u32 whole = whole_tiles(args);
        if (rounds > 0)
            return piece(args, tiling, whole - rounds * args.num_parts + workgroup, 0,
                         tiling.steps);
        const u32 index = stream.begin / tiling.steps;
        const u32 begin = stream.begin - index * tiling.steps;
        return piece(args, tiling, whole + index, begin, begin + length(tiling));
    }

    // A workgroup has at most two parts of tiles: the end of one and the beginning of another. The
    // first slots hold the beginnings, the others the ends, both in the order of workgroups.
    CUPYGEMM_INLINE static Slots slots(const KernelArgs<Config> &args, const Tiling<Config> &tiling,
                                       u32 index) {
        const u32 units = args.stream_tiles * tiling.steps;
        const u32 first = taker_of(units, args.num_parts, index * tiling.steps);
        const u32 last = taker_of(units, args.num_parts, (index + 1) * tiling.steps - 1);
        return {first, args.num_parts + first + 1, last - first + 1};
    }

    // The number of tiles that are assigned whole; they precede the shared ones.
    CUPYGEMM_INLINE static u32 whole_tiles(const KernelArgs<Config> &args) {
        const Tiling<Config> tiling(args);
        return tiling.tiles * tiling.batches - args.stream_tiles;
    }

private:
    // The number of k steps of the next shared tile that belong to this workgroup.
    CUPYGEMM_INLINE u32 length(const Tiling<Config> &tiling) const {
        const u32 to_tile_end = tiling.steps - stream.begin % tiling.steps;
        return minimum(to_tile_end, stream.end - stream.begin);
    }

    // `index` counts the tiles of all batches.
    CUPYGEMM_INLINE Work piece(const KernelArgs<Config> &args, const Tiling<Config> &tiling,
                               u32 index, u32 begin, u32 end) const {
        const u32 batch = index / tiling.tiles;
        const u32 slot = begin == 0 ? workgroup : args.num_parts + workgroup;
        return {batch, index - batch * tiling.tiles, begin, end, slot, end - begin == tiling.steps};
    }
};

} // namespace cupygemm
