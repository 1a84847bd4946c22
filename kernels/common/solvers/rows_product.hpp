// Swapped rows of a block minus a product: C - L21 U (block_before.hpp).
//
// This version serves all types; hopper/rows_product.cuh computes fp64 and fp32 on tensor cores.
#pragma once

#include "common/solvers/moves.hpp"
#include "common/solvers/rows.hpp"

namespace cupygemm {

// A block column and the previous one in a matrix; row indices are those of the whole matrix.
template <class S> struct BlockView {
    S *a; // row 0 of the block's first column
    i64 lda;
    u32 first, count; // the block's first row, and the columns of the previous block
    u32 end, n;       // one past the last row, and the columns of the block
};

// A tile of 32 rows of a block: element (row, column) is at column * pitch + row.
template <class S> struct RowsInScratch {
    S *start;
    u32 pitch;
};

template <class S, u32 width> struct RowsProduct {
    using Stage = RowStage<S, width>;
    static constexpr u32 u_pitch = width + 4; // hopper/rows_product.cuh reads without conflicts

    // Compute 32 rows, from row `at` on. The positions of the stage are their sources; `none` gives
    // zeros. Called by 32 threads.
    CUPYGEMM_INLINE static void subtract(Stage &stage, const BlockView<S> &view,
                                         const S (&u)[width][u_pitch], u32 at, u32 lane,
                                         const RowsInScratch<S> &to) {
        S row[width];
        load_lines(stage, lane, row, [&](u32 line, u32 column) {
            const u32 from = stage.positions[line];
            return from != none && column < view.n ? view.a[from * view.lda + column] : S{};
        });
        const S *const left = view.a + at * view.lda - view.count;
#pragma unroll 1
        for (u32 k0 = 0; k0 < view.count; k0 += Stage::columns) {
            stage_lines(stage, lane, [&](u32 line, u32 k) {
                const bool inside = at + line < view.end && k0 + k < view.count;
                return inside ? left[line * view.lda + k0 + k] : S{};
            });
            wave_barrier(); // the chunk is in shared memory
#pragma unroll 4
            for (u32 k = 0; k < Stage::columns; ++k) {
                const S factor = stage.elements[lane][k];
#pragma unroll
                for (u32 c = 0; c < width; ++c)
                    row[c] = minus_product(row[c], factor, u[k0 + k][c]);
            }
            wave_barrier(); // the chunk has been read
        }
#pragma unroll
        for (u32 c = 0; c < width; ++c)
            to.start[c * to.pitch + lane] = row[c];
    }
};

} // namespace cupygemm
