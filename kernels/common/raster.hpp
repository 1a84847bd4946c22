// Which output tile a workgroup computes: the order that decides what the caches can reuse.
//
// Two maps are composed. The XCD remap undoes the hardware's dealing (workgroup w runs on XCD w %
// 8), so that workgroups with neighbouring indices share an XCD and its L2. The grouped order then
// walks `group_m` tiles down a column before it moves one column on: workgroups that run together
// touch a block of few rows of A and few columns of B instead of one long row. What each map gives:
// docs/explanation/raster.rst.
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

} // namespace cupygemm
