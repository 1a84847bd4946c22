// Which output tile a workgroup computes: the order that decides what the caches can reuse.
//
// Two maps are composed. The XCD remap undoes the hardware's dealing (workgroup w runs on XCD w %
// 8), so that workgroups with neighbouring indices share an XCD and its L2. The grouped order then
// walks `group_m` tiles down a column before it moves one column on: workgroups that run together
// touch a block of few rows of A and few columns of B instead of one long row. Hilbert's order
// takes its place where it is asked for: its stretches of any length are blocks, not those of some
// lengths only. What each map gives: docs/explanation/raster.rst.
#pragma once

#include "common/numeric.hpp"

namespace cupygemm {

struct TileIndex {
    u32 m, n; // in tiles
};

// Deal `count` workgroups so that each XCD holds one contiguous range of the result.
// The first count % num_xcds XCDs receive one workgroup more than the others.
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
    const u32 height = minimum(group_m, tiles_m - group * group_m); // the last group may be lower
    const u32 column = within / height;
    return {group * group_m + (within - column * height), column};
}

// Hilbert's curve on a rectangle of any extents. It begins in a corner and ends in the next one
// along the longer side. It is four such curves, of which the first and the last run across:
//
//      width  +------+------+                  4 x 6 tiles:   0  1 14 15 16 23
//             |  b > |  c > |                                 3  2 13 12 17 22
//        low  +------+------+                                 4  7  8 11 18 21
//             | a ^  | d v  |                                 5  6  9 10 19 20
//             +------+------+
//             0     near   length
//
// or b and c alone, with `low` 0, where the rectangle is long. As `near` and `low` are even, each
// step is to an adjacent tile, but for one where the longer side is odd and the shorter even. It
// takes at most 1 + log2(length) turns, of a few multiplications each. Source of the idea:
// J. Cerveny's "gilbert", which cuts a rectangle in three, or in two.
CUPYGEMM_INLINE TileIndex hilbert_order(u32 index, u32 tiles_m, u32 tiles_n) {
    bool along_n = tiles_n >= tiles_m;
    u32 length = along_n ? tiles_n : tiles_m, width = along_n ? tiles_m : tiles_n;
    u32 along = 0, across = 0; // of the curve's first tile, in the result
    u32 step = 1;              // or -1, the same along and across
    while (length > 2 && width > 1) {
        const u32 near = (length + 2) / 4 * 2;
        const u32 low = 2 * length >= 3 * width ? 0 : (width + 2) / 4 * 2;
        const u32 cut = low > 0 && length == 3 ? 3 : near; // b's length: a c of 1 leads nowhere
        const u32 b = near * low, c = b + cut * (width - low), d = b + length * (width - low);
        const bool outer = index < b || index >= d;
        if (index >= d) { // back from c's end to the row that a begins in
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
            const u32 turned = along;
            along = across;
            across = turned;
            width = length;
            length = low;
            along_n = !along_n;
        }
    }
    if (width == 1) {
        along += step * index;
    } else { // up a column of tiles, and down the other if there is one
        const bool back = index >= width;
        along += back ? step : 0;
        across += step * (back ? 2 * width - 1 - index : index);
    }
    return along_n ? TileIndex{across, along} : TileIndex{along, across};
}

} // namespace cupygemm
