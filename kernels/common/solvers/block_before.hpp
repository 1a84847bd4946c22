// Applies the previous block column to the rows of an LU block, before they are loaded.
//
// L11 and L21 of the previous block are factored, and the rows that its swaps displace are known:
//
//         | block before | this block
//         | L11          | U             rows from their places before swaps, solved with L11
//         | L21          | C             the rows below likewise, minus L21 U
//
// Every workgroup solves for all of U, which takes less time than waiting for another. 32 threads
// solve for some columns, and a lane owns a row. The first workgroup stores U at the end, after the
// others have read the previous contents of these rows.
#pragma once

#include "common/solvers/rows_product.hpp"

namespace cupygemm {

template <class S, u32 width, u32 threads> struct BlockBefore {
    static constexpr u32 groups = threads / 32, each = ceil_div(width, groups);
    using Stage = RowStage<S, width>;
    using View = BlockView<S>;
    using Product = RowsProduct<S, width>;

    alignas(16) S u[width][Product::u_pitch];
    u32 destinations[width], sources[width]; // of the displaced rows below the previous block

    // Solve for the rows of U. `moves` are as of moves.hpp. Called by every thread, and followed by
    // a barrier.
    CUPYGEMM_INLINE void solve(const View &view, const Move *moves, u32 most_pivots, u32 thread) {
        const u32 lane = thread % 32, group = thread / 32, count = view.count;
        if (thread < width) {
            const Move move = thread < count ? moves[most_pivots + thread] : Move{none, none};
            destinations[thread] = move.destination;
            sources[thread] = move.source;
        }
        const u32 top = view.first - count;
        const S *const triangle = view.a + top * view.lda - count;
        S below[width]; // the row of L11, zero from its diagonal on
#pragma unroll
        for (u32 k = 0; k < width; ++k)
            below[k] = lane < count && k < lane ? triangle[lane * view.lda + k] : S{};
        const u32 source = lane < count ? moves[lane].source : 0;
        S x[each];
#pragma unroll
        for (u32 c = 0; c < each; ++c) {
            const u32 column = group * each + c;
            x[c] = lane < count && column < view.n ? view.a[source * view.lda + column] : S{};
        }
#pragma unroll
        for (u32 j = 0; j < width; ++j)
#pragma unroll
            for (u32 c = 0; c < each; ++c)
                x[c] = minus_product(x[c], below[j], from_lane(x[c], j));
        if (lane < width)
#pragma unroll
            for (u32 c = 0; c < each; ++c)
                if (group * each + c < width)
                    u[lane][group * each + c] = x[c];
    }

    // Apply the previous block to 32 rows, from row `first` of this block on, and store them in
    // scratch memory. Called by 32 threads, and followed by a barrier of these.
    CUPYGEMM_INLINE void apply(Stage &stage, const View &view, u32 first, u32 lane,
                               const RowsInScratch<S> &to) const {
        const u32 at = view.first + first;
        u32 source = at + lane < view.end ? at + lane : none;
#pragma unroll 8
        for (u32 i = 0; i < width; ++i)
            source = destinations[i] == at + lane ? sources[i] : source;
        stage.positions[lane] = source;
        wave_barrier(); // all sources are in shared memory
        Product::subtract(stage, view, u, at, lane, to);
    }

    // Store the rows of U, after every workgroup has loaded its rows. Called by every thread.
    CUPYGEMM_INLINE void store(const View &view, u32 thread) const {
        for (u32 at = thread; at < width * width; at += threads) {
            const u32 row = at / width, column = at % width;
            if (row < view.count && column < view.n)
                view.a[(view.first - view.count + row) * view.lda + column] = u[row][column];
        }
    }
};

} // namespace cupygemm
