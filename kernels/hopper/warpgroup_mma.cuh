// How the consumers of a kernel with wgmma multiply and release a stage.
#pragma once

#include "hopper/tile.cuh"
#include "hopper/wgmma_instruction.cuh"

namespace cupygemm {

template <class Config> struct Accumulators {
    // (block of 64 rows, register): lane l of warp w holds rows 16 w + l / 4 (+ 8) and columns
    // 8 j + 2 (l % 4) (+ 1) of block i in value[i][4 j + 2 * (row + 8) + (column + 1)], where each
    // parenthesis of the index counts 1 if its offset is taken.
    typename Config::Accumulator value[Tile<Config>::consumer_blocks][Config::tile_n / 2];
};

template <class Config> struct WarpgroupMma {
    using T = Tile<Config>;

    // Multiply `count` blocks of the stage's A, from block `first` on, by all of B.
    template <class Value, u32 count>
    CUPYGEMM_INLINE static void multiply(SharedAddress stage, u32 first, bool accumulate,
                                         Value (&value)[count][Config::tile_n / 2]) {
        multiply(descriptor<Config::a_major>(stage + first * block_bytes),
                 descriptor<Config::b_major>(stage + T::a_bytes), accumulate, value);
    }
    template <class Value, u32 count> CUPYGEMM_INLINE static void
    multiply(u64 a, u64 b, bool accumulate, Value (&value)[count][Config::tile_n / 2]) {
        constexpr u64 a_step = descriptor_step<Config::a_major, T::mma_k>();
        constexpr u64 b_step = descriptor_step<Config::b_major, T::mma_k>();
#pragma unroll
        for (u32 slab = 0; slab < T::slabs; ++slab) {
#pragma unroll
            for (u32 step = 0; step < T::slab_k / T::mma_k; ++step) {
#pragma unroll
                for (u32 block = 0; block < count; ++block) {
                    // The first instruction of a tile overwrites, so nothing needs to be zeroed.
                    const bool add = slab != 0 || step != 0 || accumulate;
                    wgmma_mma_async(value[block],
                                    a + ((slab * T::a_slab_bytes + block * block_bytes) >> 4) +
                                        step * a_step,
                                    b + (slab * T::b_slab_bytes >> 4) + step * b_step, add);
                }
            }
        }
    }

    // To the compiler, an accumulator has its value as soon as the instruction is issued. This
    // tells it that the value arrives here; without it, a register move could precede the wait.
    template <class Value, u32 count>
    CUPYGEMM_INLINE static void settle(Value (&value)[count][Config::tile_n / 2]) {
#pragma unroll
        for (auto &block : value) {
#pragma unroll
            for (auto &element : block)
                settle_register(element);
        }
    }

    // Release a stage: in every block that wrote to it, one thread arrives on behalf of this
    // warpgroup or of its warp.
    CUPYGEMM_INLINE static void release(SharedAddress empty, u32 thread) {
        if constexpr (T::warps_release) {
            __syncwarp(); // all lanes have read the stage
            thread %= 32;
        }
        if constexpr (Multicast<Config>::num_peers == 1) {
            if (thread == 0)
                mbarrier_arrive(empty);
        } else {
            if (thread < Multicast<Config>::num_peers)
                mbarrier_arrive_cluster(empty, Multicast<Config>::peer(thread));
        }
    }
};

} // namespace cupygemm
