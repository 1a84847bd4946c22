// A tile below a diagonal tile that is being factored, X = C T^-T: each warp solves for its 16
// rows, without the rows of other warps.
//
// Slabs of 16 columns of T are copied to shared memory as soon as they are finished. So are the
// inverses of their two diagonal blocks, by which block columns are multiplied:
//
//   copy slab 0 | rows of blocks 0 and 1, stored | their products, for all later columns  | ...
//               | copy slab 1, if it is finished                                          |
#pragma once

#include "hopper/tile_progress.cuh"

namespace cupygemm {

constexpr u32 blocks_per_slab = slab / block;
constexpr u32 inverse_elements = block * block; // by row; element 1 marks one not to use
using BlockOfTriangle =
    TileOperand<S, tile_columns, block, false, Config::triangle_together, Config::threads>;

// A slab of T in shared memory: its blocks by row, with their inverses.
struct SlabOfTriangle {
    S block_rows[blocks_per_slab][BlockOfTriangle::elements];
    S inverse[blocks_per_slab][inverse_elements];
};

class SlabsOfTriangle {
public:
    CUPYGEMM_INLINE SlabsOfTriangle(SlabOfTriangle *slabs, const Tile &tile, u32 thread)
        : slabs_(slabs), tile_(tile), thread_(thread) {}

    // Return a slab that all threads have copied, and begin to copy the next slab if it is
    // finished.
    CUPYGEMM_INLINE const SlabOfTriangle &take(u32 s) {
        if (copied_ == s) {
            while (!is_finished(s)) {
            }
            copy();
        }
        copy_async_wait<0>();
        workgroup_barrier(); // the slab is in shared memory, and the previous one has been read
        return slabs_[s % 2];
    }
    CUPYGEMM_INLINE void copy_ahead(u32 s) {
        if (s < slabs_per_tile && copied_ == s && is_finished(s))
            copy();
    }

private:
    SlabOfTriangle *slabs_;
    const Tile &tile_;
    u32 thread_, copied_ = 0;
    u64 known_ = 0;

    CUPYGEMM_INLINE bool is_finished(u32 s) {
        const u64 needed = tile_.q * slabs_per_tile + s;
        if (known_ <= needed)
            known_ = tile_.finished(tile_.q);
        return known_ > needed;
    }
    CUPYGEMM_INLINE void copy() {
        SlabOfTriangle &to = slabs_[copied_ % 2];
        const u32 column = tile_.q * tile_columns + copied_ * slab;
#pragma unroll
        for (u32 i = 0; i < blocks_per_slab; ++i)
            BlockOfTriangle::copy(to.block_rows[i], tile_.t, tile_.q * tile_columns,
                                  column + i * block, thread_);
        const u32 at = thread_ * RowVector<S>::count; // of the inverses
        if (at < blocks_per_slab * inverse_elements)
            copy_async<16>(
                shared_address(&to.inverse[at / inverse_elements][at % inverse_elements]),
                reinterpret_cast<u64>(tile_.inverses +
                                      copied_ * blocks_per_slab * inverse_elements + at),
                16);
        copy_async_commit();
        ++copied_;
    }
};

// Solve for the next block b, which becomes x, and the left factor of products.
CUPYGEMM_INLINE void solve_block(const RowsOfTile<tile_blocks> &tile, const S *triangle,
                                 const S *inverse, u32 b, S *shown, S *solution,
                                 RowsOfBlock<S> &rows, S (&x)[4]) {
    constexpr bool shows = RowsOfBlock<S>::reads_shared;
    const bool substitutes = inverse[1] != 0;
    if (shows || substitutes) {
        tile.show(shown, tile.value[0]);
        wave_barrier();
    }
    if (substitutes) {
        const u32 at = (tile.first + tile.lane) * row_pitch;
        if (tile.lane < 16)
            substitute_row(shown + at, triangle + b * block * BlockOfTriangle::pitch,
                           BlockOfTriangle::pitch, solution + at);
        wave_barrier();
#pragma unroll
        for (u32 e = 0; e < 4; ++e)
            x[e] = solution[tile.place(e)];
    } else {
        const S none[4] = {};
        rows.set(tile.value[0], shown + tile.first * row_pitch, tile.lane);
        typename RowsOfBlock<S>::Right right;
        right.load(inverse, block, tile.lane);
        rows.template multiply<false>(x, none, right);
    }
    if (shows) {
        wave_barrier(); // the rows have been read
        tile.show(solution, x);
        wave_barrier();
    }
    rows.set(x, solution + tile.first * row_pitch, tile.lane);
}

// Solve for the tile. `stored(x, b)` stores a lane's elements of block b, and `counts(s)` announces
// that slab s of all warps is stored, if another tile waits for it.
template <class Store, class Count>
CUPYGEMM_INLINE void solve_below(SlabsOfTriangle &slabs, RowsOfTile<tile_blocks> &tile, S *shown,
                                 S *solution, bool is_awaited, const Store &stored,
                                 const Count &counts) {
#pragma unroll 1
    for (u32 s = 0; s < slabs_per_tile; ++s) {
        const SlabOfTriangle &triangle = slabs.take(s);
        const u32 b = s * blocks_per_slab;
        RowsOfBlock<S> rows, second;
        S x[4], of_second[4];
        const S *const left = triangle.block_rows[0], *const right = triangle.block_rows[1];
        constexpr u32 pitch = BlockOfTriangle::pitch;
        solve_block(tile, left, triangle.inverse[0], b, shown, solution, rows, x);
        tile.subtract_next(rows, left, pitch, b);
        solve_block(tile, right, triangle.inverse[1], b + 1, shown, solution, second, of_second);
        stored(x, b);
        stored(of_second, b + 1);
        if (is_awaited) {
            workgroup_barrier(); // the slab is stored
            counts(s);
        }
        slabs.copy_ahead(s + 1);
        tile.subtract_others(rows, left, pitch, b);
        if (s + 1 < slabs_per_tile) {
            tile.subtract_next(second, right, pitch, b + 1);
            tile.subtract_others(second, right, pitch, b + 1);
        }
    }
}

} // namespace cupygemm
