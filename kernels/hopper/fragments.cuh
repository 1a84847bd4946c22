// A of 32-bit elements in registers, for a tile whose rows are k: wgmma transposes 16-bit ones
// only.
//
// A slab holds blocks of 32 indices by 32 k: a row of 128 bytes for each k, swizzled. A lane has
// four elements of an instruction's 64 x 8: rows g and g + 8 of its warp's 16, at k = j and j + 4,
// for lane 4 g + j. Which index is which row is free, as long as the epilogue knows (row_of):
// a warp takes chunks w and w + 4 of four indices each from both of two blocks, so the 32 lanes of
// a load read 8 different chunks, at four k, from different banks.
// Source: PTX ISA 9.0, "Register Fragments for wgmma.mma_async.m64nNk8".
#pragma once

#include "hopper/stage_element.cuh"
#include "hopper/tile.cuh"

namespace cupygemm {

// The index, of a block of 64, that is row `row` of the 16 of a warp.
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

    u32 value[T::consumer_blocks][Config::tile_k / T::mma_k][4];

    CUPYGEMM_INLINE void load(SharedAddress stage, u32 consumer, u32 thread) {
        const u32 warp = thread / 32, row = thread % 32 / 4, k = thread % 4;
        const u32 chunk = warp + (row & 4);
        const u32 at = k * slab_bytes + ((chunk ^ k) << 4) + (row & 3) * 4;
        const SharedAddress low = stage + consumer * T::consumer_blocks * block_bytes + at;
        const SharedAddress high = low ^ 4 << 4; // k + 4: its row follows below
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
