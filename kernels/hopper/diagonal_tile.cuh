// The factorisation of a tile on the diagonal, block by block of 8 columns.
//
// Each warp has 16 rows. The first warp factors the 8 x 8 block on the diagonal and
// inverts the factor, while the others subtract the products with the previous block:
//
//   warp 0  | factor block b            | rows of b | products with b in b + 1 | factor block b + 1
//   others  | products with block b - 1 | rows of b | products with b in b + 1 | products with b
//           |    in b + 1, b + 2, ...   |           |                          |   in b + 2, ...
//
// So the chain from one diagonal block to the next has only two products of 8 k. The first warp has
// the first rows, and hardly any products to subtract.
#pragma once

#include "hopper/rows_of_tile.cuh"

namespace cupygemm {

// The shared memory of the warps.
struct DiagonalShared {
    S *shown;    // the block that is factored next, by row
    S *solution; // a block of the factor, by row
    S *inverse;  // of its 8 x 8 block on the diagonal, by row, of 8 elements
    u32 *substitutes;
};

// Factor the 8 x 8 block b on the diagonal, and invert the factor: the first lanes have the rows of
// the block, and the next ones those of the identity. Returns 1 + the first column whose pivot is
// not positive, or 0.
CUPYGEMM_INLINE u32 factor_diagonal(const DiagonalShared &shared, u32 lane, u32 b, u32 columns,
                                    S (&x)[block]) {
    const u32 first = b * block, own = lane % block;
    const bool inverts = lane >= block, is_identity = inverts || first + own >= columns;
    const auto load = [&] {
        load_vectors(shared.shown + (first + own) * row_pitch, x);
#pragma unroll
        for (u32 j = 0; j < block; ++j)
            x[j] = is_identity ? (j == own ? 1 : 0) : x[j];
    };
    load();
    u32 failed = factor_block<false>(x, inverts ? ~0u : own);
    if (failed == ~0u) {
        load();
        failed = factor_block<true>(x, inverts ? ~0u : own);
    }
    S *const to = inverts ? shared.inverse + own : shared.solution + (first + own) * row_pitch;
    const u32 step = inverts ? block : 1;
#pragma unroll
    for (u32 j = 0; j < block; ++j) {
        x[j] = !inverts && j > own ? 0 : x[j];
        if (lane < 2 * block)
            to[j * step] = x[j];
    }
    return failed;
}

// Return whether products with the inverse are about as accurate as substitution, that is, |L^-1|
// |L| is not large. The first lanes have the rows of the factor and the columns of its inverse.
CUPYGEMM_INLINE bool is_exact(const S (&x)[block], u32 lane) {
    S size[block];
#pragma unroll
    for (u32 j = 0; j < block; ++j)
        size[j] = absolute(x[j]);
#pragma unroll
    for (u32 step = 1; step < block; step *= 2)
#pragma unroll
        for (u32 j = 0; j < block; j += 2 * step)
            size[j] += size[j + step];
    const S of_row = from_lane(size[0], lane % block);
    const bool fits = lane / block != 1 || size[0] * of_row <= most_growth;
    return __ballot_sync(~0u, !fits) == 0;
}

// Factor the tile, whose first `columns` columns are inside the matrix, by all warps. The first
// warp has two places for blocks. `stored(x, b)` stores a lane's elements of block b of the factor,
// `inverted(b)` the inverse on its diagonal, `counts(b)` announces that all warps have done so for
// the blocks before b, and `fails(column)` that a pivot is not positive.
template <u32 places, class Store, class Invert, class Count, class Fail>
CUPYGEMM_INLINE void factor_diagonal_tile(const DiagonalShared &shared, RowsOfTile<places> &tile,
                                          u32 columns, const Store &stored, const Invert &inverted,
                                          const Count &counts, const Fail &fails) {
    constexpr bool leads = places == 2;
    const u32 lane = tile.lane, last = tile.last;
    const u32 end = columns < tile_blocks * block ? ceil_div(columns, block) : tile_blocks;
    RowsOfBlock<S> rows;
    S x[4] = {};
    tile.show(shared.shown, tile.value[0]);
    workgroup_barrier(); // the first block is in shared memory
#pragma unroll 1
    for (u32 b = 0; b < end; ++b) {
        S of_diagonal[block];
        if (b % 2 == 1)
            counts(b - 1);
        if (leads) {
            const u32 failed = factor_diagonal(shared, lane, b, columns, of_diagonal);
            if (lane == 0 && failed != 0)
                fails(b * block + failed);
        }
        if (b > 0 && last >= b - 1) {
            stored(x, b - 1);
            tile.subtract_others(rows, shared.solution, row_pitch, b - 1);
        }
        if (last >= b)
            rows.set(tile.value[0], shared.shown + tile.first * row_pitch, lane);
        workgroup_barrier(); // block b on the diagonal is in shared memory, and its inverse
        if (last >= b) {
            const S none[4] = {};
            typename RowsOfBlock<S>::Right inverse;
            inverse.load(shared.inverse, block, lane);
            rows.template multiply<false>(x, none, inverse);
            const bool upper = b % 2 == 0, on_diagonal = last - b < 2;
#pragma unroll
            for (u32 e = 0; e < 4; ++e) {
                if (on_diagonal && (e < 2) == upper)
                    x[e] = shared.solution[tile.place(e)];
                else if (on_diagonal && e < 2)
                    x[e] = 0;
            }
            tile.show(shared.solution, x);
        }
        if (leads) { // meanwhile
            const bool exact = is_exact(of_diagonal, lane);
            if (lane == 0)
                *shared.substitutes = !exact;
        }
        workgroup_barrier(); // block b is in shared memory
        inverted(b);
        if (*shared.substitutes != 0) {
            const u32 at = (tile.first + lane) * row_pitch;
            if (lane < 16 && tile.first + lane >= (b + 1) * block)
                substitute_row(shared.shown + at, shared.solution + b * block * row_pitch,
                               row_pitch, shared.solution + at);
            workgroup_barrier(); // now block b is in shared memory
#pragma unroll
            for (u32 e = 0; e < 4; ++e)
                if (last >= b)
                    x[e] = shared.solution[tile.place(e)];
        }
        if (last >= b)
            rows.set(x, shared.solution + tile.first * row_pitch, lane);
        if (last > b) {
            tile.subtract_next(rows, shared.solution, row_pitch, b);
            tile.show(shared.shown, tile.value[0]);
        }
        workgroup_barrier(); // the next block is in shared memory
    }
    if (last >= end - 1)
        stored(x, end - 1);
}

} // namespace cupygemm
