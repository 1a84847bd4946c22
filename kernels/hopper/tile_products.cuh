// The shared memory of the kernel for tiles, and products with the tiles to the left.
#pragma once

#include "hopper/thread_sums.cuh"
#include "hopper/tile_below.cuh"
#include "hopper/tile_sums.cuh"

namespace cupygemm {

constexpr u32 threads = 256;
constexpr u32 stages = 4, num_blocks = tile_rows / block;
template <class Real, bool of_factors> struct SumsOf {
    using Type = TileSums<Real>;
};
template <> struct SumsOf<float, true> {
    using Type = ThreadSums;
};
template <u32 depth> using OfTriangle =
    TileOperand<S, tile_rows, depth, Config::triangle_rows_adjacent, Config::triangle_together,
                threads>;
using Left = TileOperand<S, tile_rows, slab, Config::rows_adjacent, Config::together, threads>;
using Right = OfTriangle<slab>;
using Triangle = OfTriangle<tile_rows>;
using Narrow = TileOperand<S, tile_rows, block, false, 1, threads>;
using Sums = SumsOf<S, factors>::Type;
static_assert(Narrow::pitch == block_pitch, "fragments are read from blocks of columns, too");
constexpr u32 stage_elements = Left::elements + Right::elements;
static_assert(Triangle::elements <= stages * stage_elements, "the triangle must fit in the ring");

struct Shared {
    union {
        S stages[stages][stage_elements]; // X(p, k) and T(q, k), a slab of 16 k each
        S triangle[Triangle::elements];   // T(q, q), when the products are done
        SlabOfTriangle slabs[2];          // of T(q, q), which is being factored
    };
    union {
        alignas(16) S block[tile_rows * block_pitch];    // a block of columns, by row
        alignas(16) S inverses[tile_rows * block_pitch]; // of the 8 x 8 blocks on T's diagonal
    };
    alignas(16) S solution[tile_rows * block_pitch];
    S inverse[tile_rows], scale[tile_rows]; // of T's diagonal
    S sizes[tile_rows];                     // of T's rows in their 8 x 8 blocks
    u32 substitutes;                        // whether an inverse is too inexact
    u64 claimed;
};
static_assert(sizeof(Shared) == Config::shared_bytes, "the launcher must know the shared memory");

// Subtract the products with all tiles to the left. Slabs of finished tiles are copied ahead; a
// thread waits only for the slabs that it needs next: two at a time, but one at a time for the tile
// on the diagonal and the one below, which wait for the tiles to their left, slab by slab.
CUPYGEMM_INLINE void products(Shared &shared, const Tile &tile, u32 thread, Sums &sums) {
    const u32 slabs = tile.q * slabs_per_tile;
    const bool follows = factors && tile.p - tile.q < 2 && slabs > 0;
    const u32 in_pairs = follows ? slabs - slabs_per_tile : slabs;
    Progress progress;
    u32 issued = 0;
    const Left::Slabs of_left(tile.x, tile.p * tile_rows, thread);
    const Right::Slabs of_right(tile.t, tile.q * tile_rows, thread);
    const auto issue = [&] {
        S *const stage = shared.stages[issued % stages];
        of_left.copy(stage, issued * slab);
        of_right.copy(stage + Left::elements, issued * slab);
        copy_async_commit();
        ++issued;
    };
#pragma unroll 1
    for (u32 s = 0; s < in_pairs; s += 2) { // a barrier for each two
        if (issued == s) {
            progress.wait(tile, s + 1);
            issue();
            issue();
        }
        if (issued == s + 2)
            copy_async_wait<0>();
        else
            copy_async_wait<2>();
        workgroup_barrier(); // slabs s and s + 1 are there, and the two before have been read
        const S *const stage = shared.stages[s % stages], *const second = stage + stage_elements;
        const auto copy_ahead = [&] {
            if (issued < in_pairs && issued == s + 2 && progress.has(tile, issued + 1)) {
                issue();
                issue();
            }
        };
        sums.template subtract_all<slab, Left, Right>(stage, stage + Left::elements, copy_ahead);
        sums.template subtract_all<slab, Left, Right>(second, second + Left::elements, [] {});
    }
#pragma unroll 1
    for (u32 s = in_pairs; s < slabs; ++s) {
        if (issued == s) {
            progress.wait(tile, s);
            issue();
        }
        copy_async_wait<0>();
        workgroup_barrier(); // slab s is there, and the one before has been read
        const S *const stage = shared.stages[s % stages];
        sums.template subtract_all<slab, Left, Right>(stage, stage + Left::elements, [&] {
            if (issued < slabs && issued == s + 1 && progress.has(tile, issued))
                issue();
        });
    }
    workgroup_barrier(); // the ring has been read
}

} // namespace cupygemm
