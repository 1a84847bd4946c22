// Rows of a matrix between global memory and registers, one row per thread.
//
// Neighbouring threads access neighbouring elements of a row, and the rows pass through shared
// memory in chunks of columns. If each thread loaded its own row, an instruction would touch one
// cache line per thread.
#pragma once

#include "common/solvers/scalar.hpp"

namespace cupygemm {

// The shared memory of 32 threads. A chunk of 8 numbers of 8 bytes is 64 bytes of each row.
template <class S, u32 width, u32 chunk_bytes = 64> struct RowStage {
    static constexpr u32 most = chunk_bytes / sizeof(S);
    static constexpr u32 columns = minimum(width, most);
    S elements[32][columns + 1];
    u32 positions[32];
};

// Store a chunk of 32 lines to shared memory; element(line, column) returns an element of a line.
// Called by 32 threads, and followed by a barrier.
template <class S, u32 width, u32 bytes, class Element> CUPYGEMM_INLINE void
stage_lines(RowStage<S, width, bytes> &stage, u32 lane, const Element &element) {
    constexpr u32 columns = RowStage<S, width, bytes>::columns;
#pragma unroll
    for (u32 i = 0; i < columns; ++i) {
        const u32 at = i * 32 + lane, line = at / columns, column = at % columns;
        stage.elements[line][column] = element(line, column);
    }
}

// Load 32 lines, each lane its own line to `row`. Called by 32 threads.
template <class S, u32 width, u32 bytes, class Element> CUPYGEMM_INLINE void
load_lines(RowStage<S, width, bytes> &stage, u32 lane, S (&row)[width], const Element &element) {
    constexpr u32 columns = RowStage<S, width, bytes>::columns;
#pragma unroll
    for (u32 chunk = 0; chunk < width; chunk += columns) {
        stage_lines(stage, lane,
                    [&](u32 line, u32 column) { return element(line, chunk + column); });
        wave_barrier(); // the chunk is in shared memory
#pragma unroll
        for (u32 k = 0; k < columns; ++k)
            row[chunk + k] = stage.elements[lane][k];
        wave_barrier(); // the chunk has been read
    }
}

// Load rows `first` to first + 31 of an (m, n) matrix, each lane its own row to `row`, padded with
// zeros. Called by 32 threads.
template <class S, u32 width, u32 bytes>
CUPYGEMM_INLINE void load_rows(RowStage<S, width, bytes> &stage, const S *a, i64 lda, u32 m, u32 n,
                               u32 first, u32 lane, S (&row)[width]) {
    load_lines(stage, lane, row, [&](u32 line, u32 column) {
        S element{};
        if (first + line < m && column < n)
            element = a[(first + line) * lda + column];
        return element;
    });
}

// Call store(position of a row, column, element) for the rows of 32 threads, whose first register
// holds column `rotation`.
template <class S, u32 width, u32 bytes, class Store>
CUPYGEMM_INLINE void store_rows(RowStage<S, width, bytes> &stage, const S (&row)[width],
                                u32 position, u32 rotation, u32 lane, const Store &store) {
    constexpr u32 columns = RowStage<S, width, bytes>::columns;
    stage.positions[lane] = position;
#pragma unroll
    for (u32 chunk = 0; chunk < width; chunk += columns) {
#pragma unroll
        for (u32 k = 0; k < columns; ++k)
            stage.elements[lane][k] = row[chunk + k];
        wave_barrier(); // the chunk is in shared memory
#pragma unroll
        for (u32 i = 0; i < columns; ++i) {
            const u32 at = i * 32 + lane, line = at / columns, k = at % columns;
            store(stage.positions[line], (chunk + k + rotation) % width, stage.elements[line][k]);
        }
        wave_barrier(); // the chunk has been read
    }
}

} // namespace cupygemm
