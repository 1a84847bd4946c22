// Fragments of fp64 operands, read from their shared tiles without bank conflicts.
//
// A slab holds 16 k in groups of 16 indices of m or n, 2 KiB each. A k-major group has 16 rows of
// 16 k; a row-major group has one row of 16 indices for each k. Chunks of 16 bytes, two k or two
// indices, are swizzled by their row modulo 8. Lane 4 g + t reads index g or g + 8. Of k it reads
// one pair for the slab's first instruction and one for its second: 0, 2, 5, 7 and 1, 3, 4, 6 for
// t = 0 .. 3, with the odd k of a pair first where t is odd. The 16 lanes that are served together
// then find their 8 bytes in different banks:
//   k-major    In four rows, whose swizzles differ in bits 0 and 1, the lanes of even t read one
//              chunk below 4 and one from 4 on; the lanes of odd t read the other half of both.
//   row-major  Two adjacent chunks in each of four rows, whose swizzles differ in bits 1 and 2.
#pragma once

#include "hopper/mma_sync.cuh"
#include "hopper/stage_element.cuh"
#include "hopper/wgmma.cuh"

namespace cupygemm {

// The offset within a group at which a lane begins to read.
template <Major major> CUPYGEMM_INLINE u32 fragment_offset(u32 lane) {
    const u32 g = lane / 4, t = lane % 4;
    const u32 k = 4 * t + (t & 2) + (t & 1);
    if constexpr (major == Major::k)
        return g * slab_bytes + ((k / 2 ^ g) << 4) + k % 2 * 8;
    else
        return k * slab_bytes + ((g / 2 ^ (k & 7)) << 4) + g % 2 * 8;
}

// Load the lane's elements for instruction `step` of the slab, from the first eight indices of a
// group (`half` 0) or from the last eight (`half` 1). `at` is the group's address plus
// fragment_offset.
template <Major major>
CUPYGEMM_INLINE Fragment load_fragment(SharedAddress at, u32 half, u32 step) {
    constexpr bool along = major == Major::k;
    // Distances to the other k of a pair, and from one pair to the other: bits 0 and 1 of k.
    constexpr u32 other_k = along ? 8 : slab_bytes | 1 << 4;
    constexpr u32 other_pair = along ? 1 << 4 : 2 * slab_bytes | 2 << 4;
    at ^= step * other_pair;
    at = along ? at + half * 8 * slab_bytes : at ^ half * 4 << 4;
    return {load_shared_f64(at), load_shared_f64(at ^ other_k)};
}

} // namespace cupygemm
