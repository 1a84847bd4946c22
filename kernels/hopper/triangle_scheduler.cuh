// The scheduler of a symmetric product: it visits only the tiles of the lower triangle.
//
// C is square, and a tile is computed if it holds an element on or below the diagonal. The tiles
// are visited in bands of `group_m` tile rows. Within a band the order is the grouped one: down a
// column of tiles, then on to the next column. The first columns of a band are whole; each later
// one begins further down:
//
//   group_m = 3        0  3
//                      1  4  6
//                      2  5  7  8
#pragma once

#include "hopper/scheduler.cuh"

namespace cupygemm {

template <class Config> struct TriangleScheduler : OfOneProduct {
    static constexpr u32 rows = Config::tile_m * Config::cluster_m;
    static constexpr u32 columns = Config::tile_n * Config::cluster_n;
    static_assert(
        !Config::split_k && !Config::transposed_c && Config::operand_rank == 3,
        "a triangle must be a single matrix, summed over all of k, and stored untransposed");
    static_assert(!Config::hilbert_order,
                  "a triangle is visited in bands of group_m rows, not in Hilbert order");

    u32 tiles_m, tiles_n; // of clusters
    u32 step_groups;
    u32 unit, stride; // the unit is counted within the band
    // The band: its first tile row, its number of tile rows, of whole columns, and of tiles.
    u32 row, height, whole, tiles;

    CUPYGEMM_INLINE explicit TriangleScheduler(const HopperArgs &args)
        : tiles_m(ceil_div<u32>(args.m, rows)), tiles_n(ceil_div<u32>(args.n, columns)),
          step_groups(ceil_div<u32>(args.k, Config::tile_k * Tile<Config>::step_group)),
          unit(cluster_index()), stride(cluster_count()) {
        enter(0);
        leave_bands();
    }

    CUPYGEMM_INLINE bool more() const { return row < tiles_m; }
    template <class Args> CUPYGEMM_INLINE void advance(const Args &) {
        unit += stride;
        leave_bands();
    }

    CUPYGEMM_INLINE Work work(const HopperArgs &, u32 rank) const {
        TileIndex tile;
        if (unit < height * whole) {
            tile.n = unit / height;
            tile.m = row + unit - tile.n * height;
        } else {
            u32 left = unit - height * whole;
            tile.n = whole;
            for (; left >= height_of(tile.n); ++tile.n)
                left -= height_of(tile.n);
            tile.m = first_row(tile.n) + left;
        }
        Work work;
        work.row = (tile.m * Config::cluster_m + rank % Config::cluster_m) * Config::tile_m;
        work.column = (tile.n * Config::cluster_n + rank / Config::cluster_m) * Config::tile_n;
        work.batch = work.split = work.begin = 0;
        work.end = step_groups * Tile<Config>::step_group;
        return work;
    }

private:
    // The first tile row that reaches the diagonal in a column of tiles.
    CUPYGEMM_INLINE static u32 first_row(u32 column) { return column * columns / rows; }

    // The number of tiles in a column that is not whole; zero from some column on.
    CUPYGEMM_INLINE u32 height_of(u32 column) const {
        const u32 above = first_row(column) - row;
        return above < height ? height - above : 0;
    }

    CUPYGEMM_INLINE void leave_bands() {
        while (more() && unit >= tiles) {
            unit -= tiles;
            enter(row + Config::group_m);
        }
    }

    CUPYGEMM_INLINE void enter(u32 first) {
        row = first;
        if (!more())
            return;
        height = minimum<u32>(Config::group_m, tiles_m - row);
        whole = minimum(tiles_n, ceil_div((row + 1) * rows, columns));
        tiles = height * whole;
        for (u32 column = whole; column < tiles_n && height_of(column) > 0; ++column)
            tiles += height_of(column);
    }
};

} // namespace cupygemm
