// Tiles, and the counters that tell thread blocks which parts of them are finished.
//
// Each row of tiles has a counter of its finished slabs of 16 columns; slabs are finished in order.
#pragma once

#include "config.hpp"
#include "hopper/ordered_words.cuh"
#include "hopper/rows_of_tile.cuh"

namespace cupygemm {

constexpr bool factors = Config::factors;
// A tile's columns, as many as T(q, q) has rows. Where there are few tiles, these have fewer rows.
constexpr u32 tile_columns = 128;
constexpr u32 slab = 16, slabs_per_tile = tile_columns / slab;
static_assert(tile_rows == tile_columns || (!factors && tile_rows < tile_columns),
              "a tile on the diagonal of a factorisation is square");
constexpr u32 last_thread = Config::threads - 1;

// A tile, and the matrices that it belongs to.
struct Tile {
    u32 p, q;
    TileSource<Config::Scalar> x, t;
    const Config::Scalar *source; // its first element, and its destination
    Config::Scalar *c;
    u64 done;                 // the counters of the matrix's rows of tiles
    Config::Scalar *inverses; // of the blocks on the diagonal of the column of tiles

    CUPYGEMM_INLINE u64 finished(u32 row) const { return load_acquire(done + 8 * row); }
};

// A warp keeps the last count that it has read.
struct Progress {
    u64 known = 0;

    CUPYGEMM_INLINE bool has(const Tile &tile, u32 k) {
        if (known <= k) {
            known = tile.finished(tile.p);
            if (factors && tile.p != tile.q) {
                const u64 other = tile.finished(tile.q);
                known = other < known ? other : known;
            }
        }
        return known > k;
    }
    CUPYGEMM_INLINE void wait(const Tile &tile, u32 k) {
        while (!has(tile, k)) {
        }
    }
};

// Count the stored slabs of the tile. Its threads have passed a barrier since the stores. The last
// thread counts, since it has the least other work.
CUPYGEMM_INLINE void publish(const Tile &tile, u32 thread, u32 slabs) {
    if (thread == last_thread)
        store_release(tile.done + 8 * tile.p, tile.q * slabs_per_tile + slabs);
}

} // namespace cupygemm
