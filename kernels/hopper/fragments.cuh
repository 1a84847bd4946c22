// Register fragments of a 32-bit A whose tile has rows along k: wgmma transposes only 16-bit
// operands.
//
// A slab holds blocks of 32 indices by 32 k: for each k a row of 128 bytes, swizzled. Lane 4 g + j
// holds four elements of the 64 x 8 of an instruction: rows g and g + 8 of its warp's 16 rows, at
// k = j and k = j + 4. Any assignment of indices to rows will do, as long as the epilogue uses the
// same one (row_of). Warp w takes chunks w and w + 4, of four indices each, from both of two
// blocks. The 32 lanes of a load then read 8 different chunks at four k, from different banks.
// Source: PTX ISA 9.0, "Register Fragments for wgmma.mma_async.m64nNk8".
#pragma once

#include "hopper/stage_element.cuh"
#include "hopper/tile.cuh"

namespace cupygemm {

// The index, within a block of 64, of row `row` of a warp's 16 rows.
template <class Config> CUPYGEMM_INLINE constexpr u32 row_of(u32 warp, u32 row) {
    if constexpr (Tile<Config>::a_in_registers)
        return 32 * (row >> 3) + 16 * (row >> 2 & 1) + 4 * warp + (row & 3);
    else
        return 16 * warp + row;
}

template <class Config> struct Fragments {
    using T = Tile<Config>;
    static constexpr u32 block_k = T::slab_k;
    static constexpr u32 block_bytes_32 = block_k * slab_bytes; // of 32 indices

    u32 value[T::consumer_blocks][Config::tile_k / T::mma_k][4]; // (block, k step, element)

    CUPYGEMM_INLINE void load(SharedAddress stage, u32 consumer, u32 thread) {
        const u32 warp = thread / 32, row = thread % 32 / 4, k = thread % 4;
        const u32 chunk = warp + (row & 4);
        const u32 at = k * slab_bytes + ((chunk ^ k) << 4) + (row & 3) * 4;
        const SharedAddress low = stage + consumer * T::consumer_blocks * block_bytes + at;
        const SharedAddress high = low ^ 4 << 4; // k + 4: the offsets below add the row
#pragma unroll
        for (u32 block = 0; block < T::consumer_blocks; ++block) {
#pragma unroll
            for (u32 step = 0; step < Config::tile_k / T::mma_k; ++step) {
                const u32 slab = step * T::mma_k / block_k;
                const u32 offset = slab * T::a_slab_bytes + block * block_bytes +
                                   (step * T::mma_k % block_k) * slab_bytes;
                u32(&four)[4] = value[block][step];
                four[0] = load_shared<u32>(low + offset);
                four[1] = load_shared<u32>(low + offset + block_bytes_32);
                four[2] = load_shared<u32>(high + offset + 4 * slab_bytes);
                four[3] = load_shared<u32>(high + offset + 4 * slab_bytes + block_bytes_32);
            }
        }
    }
};

} // namespace cupygemm
