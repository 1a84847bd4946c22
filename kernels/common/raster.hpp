// The raster: the order of output tiles, which decides what the caches can reuse.
//
// Two maps are composed. The XCD remap undoes the hardware's round-robin dispatch, which runs
// workgroup w on XCD w % 8, so that workgroups with neighbouring indices share an XCD and its L2.
// The grouped order then walks `group_m` tiles down a column before it moves one column on:
// workgroups that run together touch a block of few rows of A and few columns of B instead of one
// long row. Hilbert order is an alternative to the grouped order: its stretches of every length
// form compact blocks, while those of the grouped order do so only for some lengths.
// docs/explanation/raster.rst gives the effect of each map.
#pragma once

#include "common/numeric.hpp"

namespace cupygemm {

struct TileIndex {
    u32 m, n; // counted in tiles
};

// Renumber `count` workgroups so that each XCD computes one contiguous range of the tiles. The
// first count % num_xcds XCDs receive one workgroup more than the others.
template <u32 num_xcds> CUPYGEMM_INLINE u32 xcd_contiguous(u32 workgroup, u32 count) {
    if constexpr (num_xcds == 1)
        return workgroup;
    const u32 xcd = workgroup % num_xcds;
    const u32 share = count / num_xcds;
    const u32 longer = count % num_xcds;
    return xcd * share + minimum(xcd, longer) + workgroup / num_xcds;
}

//      group_m = 2, 4 x 3 tiles:    0 2 4
//                                   1 3 5
//                                   6 8 10
//                                   7 9 11
template <u32 group_m>
CUPYGEMM_INLINE TileIndex grouped_order(u32 index, u32 tiles_m, u32 tiles_n) {
    const u32 group_tiles = group_m * tiles_n;
    const u32 group = index / group_tiles;
    const u32 within = index - group * group_tiles;
    const u32 height = minimum(group_m, tiles_m - group * group_m); // the last group may be shorter
    const u32 column = within / height;
    return {group * group_m + (within - column * height), column};
}

// Hilbert's curve on a rectangle of any extents. The curve begins in one corner and ends in the
// next corner along the longer side. It consists of four such curves, a to d, of which the first
// and the last run across:
//
//      width  +------+------+                  4 x 6 tiles:   0  1 14 15 16 23
//             |  b > |  c > |                                 3  2 13 12 17 22
//        low  +------+------+                                 4  7  8 11 18 21
//             | a ^  | d v  |                                 5  6  9 10 19 20
//             +------+------+
//             0     near   length
//
// or, on a long rectangle, of b and c alone, with `low` 0. `near` and `low` are even, so each step
// leads to an adjacent tile, except for one step where the longer side is odd and the shorter even.
// The loop takes at most 1 + log2(length) iterations of a few multiplications each.
// Source of the idea: J. Cerveny's "gilbert", which splits a rectangle into three parts or two.
CUPYGEMM_INLINE TileIndex hilbert_order(u32 index, u32 tiles_m, u32 tiles_n) {
    bool along_n = tiles_n >= tiles_m;
    u32 length = along_n ? tiles_n : tiles_m, width = along_n ? tiles_m : tiles_n;
    u32 along = 0, across = 0; // position of the curve's first tile in the result
    u32 step = 1;              // or -1, for both directions
    while (length > 2 && width > 1) {
        const u32 near = (length + 2) / 4 * 2;
        const u32 low = 2 * length >= 3 * width ? 0 : (width + 2) / 4 * 2;
        const u32 cut = low > 0 && length == 3 ? 3 : near; // b's length: c of 1 is a dead end
        const u32 b = near * low, c = b + cut * (width - low), d = b + length * (width - low);
        const bool outer = index < b || index >= d;
        if (index >= d) { // back from the end of c to the row in which a begins
            index -= d;
            along += step * (length - 1);
            across += step * (low - 1);
            step = 0 - step;
            length -= near;
        } else if (index >= c) {
            index -= c;
            along += step * cut;
            across += step * low;
            length -= cut;
        } else {
            across += index >= b ? step * low : 0;
            index -= index >= b ? b : 0;
            length = outer ? near : cut;
        }
        width -= low;
        if (outer) {
            const u32 before = along;
            along = across;
            across = before;
            width = length;
            length = low;
            along_n = !along_n;
        }
    }
    if (width == 1) {
        along += step * index;
    } else { // up one column of tiles, and down the other if there are two
        const bool back = index >= width;
        along += back ? step : 0;
        across += step * (back ? 2 * width - 1 - index : index);
    }
    return along_n ? TileIndex{across, along} : TileIndex{along, across};
}

} // namespace cupygemm
