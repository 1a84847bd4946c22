// Pairs of adjacent elements of a row of C, as in the sums of mma.sync.
//
// Where rows begin at multiples of a pair, one instruction loads or stores it. A warp's pairs are
// in eight rows, so a load takes eight cycles in the caches, as for single elements.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

template <class S> struct alignas(2 * sizeof(S)) ElementPair {
    S first, second;
};

// Load a pair. Elements from column `end` on, counted from the pair's first element, are zero.
template <bool aligned, class S>
CUPYGEMM_INLINE void load_pair(const S *from, i32 end, S &first, S &second) {
    ElementPair<S> pair{0, 0};
    if (aligned && end > 1) {
        pair = *reinterpret_cast<const ElementPair<S> *>(from);
    } else {
        if (end > 0)
            pair.first = from[0];
        if (end > 1)
            pair.second = from[1];
    }
    first = pair.first;
    second = pair.second;
}

template <bool aligned, class S>
CUPYGEMM_INLINE void store_pair(S *to, i32 end, S first, S second) {
    if (aligned && end > 1) {
        *reinterpret_cast<ElementPair<S> *>(to) = {first, second};
    } else {
        if (end > 0)
            to[0] = first;
        if (end > 1)
            to[1] = second;
    }
}

// A thread's sums of the 32 x 32 elements of C of a warp: (16 rows, 8 columns, element).
template <class S> using WarpSums = S[2][4][4];

// The position of these elements, in pairs.
template <class S, bool aligned> struct WarpPairs {
    S *first;        // the thread's first element
    i64 pitch;       // elements between rows
    u32 row, column; // of the first element
    u32 m, n;        // extents of C

    CUPYGEMM_INLINE S *place(u32 i, u32 j, u32 half) const {
        return first + (16 * i + 8 * half) * pitch + 8 * j;
    }

    // The columns from a pair on.
    CUPYGEMM_INLINE i32 end(u32 i, u32 j, u32 half) const {
        return row + 16 * i + 8 * half < m ? static_cast<i32>(n - column) - 8 * static_cast<i32>(j)
                                           : 0;
    }

    CUPYGEMM_INLINE void load(WarpSums<S> &sums) const {
#pragma unroll
        for (u32 i = 0; i < 2; ++i)
#pragma unroll
            for (u32 j = 0; j < 4; ++j)
#pragma unroll
                for (u32 half = 0; half < 2; ++half) {
                    S *const two = &sums[i][j][2 * half];
                    load_pair<aligned>(place(i, j, half), end(i, j, half), two[0], two[1]);
                }
    }

    CUPYGEMM_INLINE void store(const WarpSums<S> &sums) const {
#pragma unroll
        for (u32 i = 0; i < 2; ++i)
#pragma unroll
            for (u32 j = 0; j < 4; ++j)
#pragma unroll
                for (u32 half = 0; half < 2; ++half) {
                    const S *const two = &sums[i][j][2 * half];
                    store_pair<aligned>(place(i, j, half), end(i, j, half), two[0], two[1]);
                }
    }
};

} // namespace cupygemm
