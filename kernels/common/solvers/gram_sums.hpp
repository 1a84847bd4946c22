// Sums of x_i x_j over rows, for all pairs of columns: the contribution of 32 threads to A^T A.
//
// The elements above the diagonal are kept in two rectangles, without the quarter that lies below:
//
//         | first half | second half
//         | kept       | kept
//         | -          | kept
#pragma once

#include "common/solvers/scalar.hpp"

namespace cupygemm {

template <u32 width> struct GramPlaces {
    static constexpr u32 half = width / 2, count = half * width + half * half;
    CUPYGEMM_INLINE static bool kept(u32 i, u32 j) { return i < half || j >= half; }
    CUPYGEMM_INLINE static u32 place(u32 i, u32 j) {
        return i < half ? i * width + j : half * width + (i - half) * half + j - half;
    }
    CUPYGEMM_INLINE static u32 row(u32 place) {
        return place < half * width ? place / width : half + (place - half * width) / half;
    }
    CUPYGEMM_INLINE static u32 column(u32 place) {
        return place < half * width ? place % width : half + (place - half * width) % half;
    }
};

// Lane l has the sums of column l % width. hopper/gram_sums.cuh computes them by mma.sync.
template <class S, u32 width> struct GramSums {
    using Places = GramPlaces<width>;
    static constexpr u32 lines = 8, pitch = width + 4; // of the rows in shared memory
    S sums[width] = {};

    CUPYGEMM_INLINE void add(const S (&rows)[lines][pitch], u32 lane) {
#pragma unroll
        for (u32 line = 0; line < lines; line += 32 / width) {
            const S *const row = rows[line + lane / width];
            const S own = row[lane % width];
#pragma unroll
            for (u32 i = 0; i < width; ++i)
                sums[i] = plus_product(sums[i], row[i], own);
        }
    }

    // Store the sums, or add them to the stored ones.
    template <bool adds> CUPYGEMM_INLINE void store(S *to, u32 lane) {
        const u32 column = lane % width;
#pragma unroll
        for (u32 i = 0; i < width; ++i) {
#pragma unroll
            for (u32 mask = width; mask < 32; mask *= 2)
                sums[i] = plus(sums[i], exchanged(sums[i], mask));
            if (lane < width && Places::kept(i, column)) {
                S &place = to[Places::place(i, column)];
                place = adds ? plus(place, sums[i]) : sums[i];
            }
        }
    }
};

} // namespace cupygemm
