// The shared memory of the kernel for tiles, and products with the tiles to the left.
#pragma once

#include "hopper/thread_sums.cuh"
#include "hopper/tile_below.cuh"
#include "hopper/tile_sums.cuh"

namespace cupygemm {

constexpr u32 threads = Config::threads;
constexpr u32 stages = 4, num_blocks = tile_columns / block;
template <class Real, bool of_factors> struct SumsOf {
    using Type = TileSums<Real>;
};
template <> struct SumsOf<float, true> {
    using Type = ThreadSums;
};
template <u32 depth> using OfTriangle =
    TileOperand<S, tile_columns, depth, Config::triangle_rows_adjacent, Config::triangle_together,
                threads>;
using Left = TileOperand<S, tile_rows, slab, Config::rows_adjacent, Config::together, threads>;
using Right = OfTriangle<slab>;
using Triangle = OfTriangle<tile_columns>;
using Narrow = TileOperand<S, tile_rows, block, false, 1, threads>;
using Sums = SumsOf<S, factors>::Type;
static_assert(Narrow::pitch == block_pitch, "fragments are read from blocks of columns, too");
constexpr u32 stage_elements = Left::elements + Right::elements;

struct Shared {
    union {
        S stages[stages][stage_elements]; // X(p, k) and T(q, k), a slab of 16 k each
        S triangle[Triangle::elements];   // T(q, q), after the products
        SlabOfTriangle slabs[2];          // of T(q, q), which is being factored
    };
    union {
        alignas(16) S block[tile_rows * block_pitch];       // a block of columns, by row
        alignas(16) S inverses[tile_columns * block_pitch]; // of the 8 x 8 blocks on T's diagonal
    };
    alignas(16) S solution[tile_rows * block_pitch];
    S inverse[tile_columns], scale[tile_columns]; // of T's diagonal
    S sizes[tile_columns];                        // of T's rows in their 8 x 8 blocks
    u32 substitutes;                              // whether an inverse is too inexact
    u64 claimed;
    u64 copied[2], released[2]; // mbarriers, of pairs of slabs
};
static_assert(sizeof(Shared) == Config::shared_bytes, "the launcher must know the shared memory");

// The ring of slabs, filled two at a time. The thread block synchronises before each pair.
struct RingOfBlock {
    static constexpr bool by_warps = false;
    Shared &shared;

    CUPYGEMM_INLINE RingOfBlock(Shared &shared, u32) : shared(shared) {}

    // Copy slab `next` of a tile and the slab after it, to the stages that are passed to `copy`.
    template <class Copy> CUPYGEMM_INLINE void issue(u32 next, const Copy &copy) {
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
            copy(shared.stages[(next + i) % stages]);
            copy_async_commit();
        }
    }
    // Wait for slab s and, if it was issued, the slab after it, and return the stage of s. The
    // previous two slabs have been read.
    CUPYGEMM_INLINE const S *take(u32 s, u32 issued) {
        if (issued == s + 2)
            copy_async_wait<0>();
        else
            copy_async_wait<2>();
        workgroup_barrier();
        return shared.stages[s % stages];
    }
    CUPYGEMM_INLINE void release(u32) {}
};

// The same with mbarriers: a warp waits for the copies of all threads before it reads, and for the
// warps that read slabs before it overwrites them. So warps need not keep step: while one waits,
// another multiplies.
struct RingOfWarps {
    static constexpr bool by_warps = true;
    Shared &shared;
    u32 issued = 0, read = 0; // pairs of slabs, in all tiles of the thread block

    // Call this before the barrier of the block after which threads use the ring.
    CUPYGEMM_INLINE RingOfWarps(Shared &shared, u32 thread) : shared(shared) {
        if (thread == 0)
            for (u32 i = 0; i < 2; ++i) {
                mbarrier_init(shared_address(&shared.copied[i]), threads);
                mbarrier_init(shared_address(&shared.released[i]), threads / 32);
            }
        fence_mbarrier_init();
    }

    template <class Copy> CUPYGEMM_INLINE void issue(u32, const Copy &copy) {
        const u32 place = issued % 2, round = issued / 2;
        if (round > 0) // the warps have read the pair before the last one
            mbarrier_wait(shared_address(&shared.released[place]), (round - 1) % 2);
        copy(shared.stages[2 * place]);
        copy(shared.stages[2 * place + 1]);
        copy_async_arrive(shared_address(&shared.copied[place]));
        ++issued;
    }
    CUPYGEMM_INLINE const S *take(u32, u32) {
        mbarrier_wait(shared_address(&shared.copied[read % 2]), read / 2 % 2);
        return shared.stages[read % 2 * 2];
    }
    CUPYGEMM_INLINE void release(u32 thread) {
        wave_barrier(); // the warp has read it
        if (thread % 32 == 0)
            mbarrier_arrive(shared_address(&shared.released[read % 2]));
        ++read;
    }
};

// mma.sync keeps its units busy between two barriers of the block; FFMA does not (measured,
// docs/explanation/factorisations_tried.rst).
template <class Sums> struct RingFor {
    using Type = RingOfBlock;
};
template <> struct RingFor<ThreadSums> {
    using Type = RingOfWarps;
};
using Ring = RingFor<Sums>::Type;

// Subtract the products with all tiles to the left. Slabs of finished tiles are copied ahead; a
// thread waits only for the slabs that it needs next: two at a time, but one at a time for the
// diagonal tile and the tile below it, which wait slab by slab for the tiles to their left.
CUPYGEMM_INLINE void products(Shared &shared, Ring &ring, const Tile &tile, u32 thread,
                              Sums &sums) {
    const u32 slabs = tile.q * slabs_per_tile;
    const bool follows = factors && tile.p - tile.q < 2 && slabs > 0;
    const u32 in_pairs = follows ? slabs - slabs_per_tile : slabs;
    Progress progress;
    u32 issued = 0;
    const Left::Slabs of_left(tile.x, tile.p * tile_rows, thread);
    const Right::Slabs of_right(tile.t, tile.q * tile_columns, thread);
    const auto copy = [&](S *stage) {
        of_left.copy(stage, issued * slab);
        of_right.copy(stage + Left::elements, issued * slab);
        ++issued;
    };
#pragma unroll 1
    for (u32 s = 0; s < in_pairs; s += 2) {
        if (issued == s) {
            progress.wait(tile, s + 1);
            ring.issue(issued, copy);
        }
        const auto copy_ahead = [&] {
            if (issued < in_pairs && issued == s + 2 && progress.has(tile, issued + 1))
                ring.issue(issued, copy);
        };
        const S *const stage = ring.take(s, issued), *const second = stage + stage_elements;
        sums.template subtract_all<slab, Left, Right>(stage, stage + Left::elements, [&] {
            if constexpr (!Ring::by_warps)
                copy_ahead();
        });
        sums.template subtract_all<slab, Left, Right>(second, second + Left::elements, [&] {
            if constexpr (Ring::by_warps) // later, since other warps may still read these stages
                copy_ahead();
        });
        ring.release(thread);
    }
    if constexpr (Ring::by_warps) {
        workgroup_barrier(); // the pairs have been read
        if (!follows)
            return;
    }
    const auto issue = [&] {
        copy(shared.stages[issued % stages]);
        copy_async_commit();
    };
#pragma unroll 1
    for (u32 s = in_pairs; s < slabs; ++s) {
        if (issued == s) {
            progress.wait(tile, s);
            issue();
        }
        copy_async_wait<0>();
        workgroup_barrier(); // slab s has landed, and the previous one has been read
        const S *const stage = shared.stages[s % stages];
        sums.template subtract_all<slab, Left, Right>(stage, stage + Left::elements, [&] {
            if (issued < slabs && issued == s + 1 && progress.has(tile, issued))
                issue();
        });
    }
    workgroup_barrier(); // the ring has been read
}

} // namespace cupygemm
