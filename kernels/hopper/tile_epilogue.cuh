// The epilogue of a tile for one lane of a consumer, with the sources that the lane has fetched.
//
// A lane holds pairs of columns in two rows of each staged block (store.cuh), in groups of eight
// columns. It fetches the sources of the first block while the tile's last wgmma run. It fetches
// those of the next block once the current block is staged, while the warpgroup synchronises and
// the block's store begins. If registers do not suffice, it fetches less at a time, and only when
// needed. Matrix sources are prefetched to L2 when the tile begins, so that these waits are short.
#pragma once

#include "hopper/scheduler.cuh"
#include "hopper/sources.cuh"

namespace cupygemm {

// Rounding needs no sources.
template <class Config, u32 block_groups, bool fused = Config::has_epilogue> struct TileEpilogue {
    static constexpr bool is_ahead = false;
    CUPYGEMM_INLINE static void prefetch(const HopperArgs &, const Work &, u32, u32) {}
    CUPYGEMM_INLINE TileEpilogue(const HopperArgs &, const Work &, u32, u32) {}
};

template <class Config, u32 block_groups> struct TileEpilogue<Config, block_groups, true> {
    using T = Tile<Config>;
    using Parts = typename Config::Parts;
    using Memories = SourceMemories<Parts>;
    using Epilogue =
        FusedEpilogue<Parts, typename Config::ElementC, typename Config::Accumulator, Memories>;

    // Words that a source takes per lane: for a pair, for a group, and for the lane's two rows.
    // Elements that are loaded one by one take a word each until they are combined.
    template <class S> static constexpr u32 element_words =
        WordRun<typename Numeric<typename S::Element>::Bits, 1>::words;
    template <class S> static constexpr u32 pair_words =
        S::vectors ? WordRun<typename Numeric<typename S::Element>::Bits, 2>::words
                   : 2 * element_words<S>;
    template <class S> static constexpr u32 words = S::along == Along::column   ? pair_words<S>
                                                    : S::along == Along::matrix ? 2 * pair_words<S>
                                                                                : 0;
    template <class S> static constexpr u32 row_words =
        S::along == Along::row ? 2 * element_words<S> : 0;
    static constexpr u32 group_words = words<typename Parts::ScaleA> +
                                       words<typename Parts::ScaleB> + words<typename Parts::C> +
                                       words<typename Parts::Bias>;
    static constexpr u32 all_row_words =
        row_words<typename Parts::ScaleA> + row_words<typename Parts::ScaleB> +
        row_words<typename Parts::C> + row_words<typename Parts::Bias>;

    // The registers not used by accumulators hold `room` words. If a block needs more, it is
    // fetched in halves, or two groups at a time, when it is staged.
    static constexpr u32 room = Config::num_consumers == 3 ? 16 : 32;
    static constexpr bool is_ahead = block_groups * group_words + all_row_words <= room;
    static constexpr u32 groups = is_ahead                                 ? block_groups
                                  : block_groups / 2 * group_words <= room ? block_groups / 2
                                                                           : 2;

    Epilogue epilogue; // its corner is the lane's first element
    i32 rows_left, columns_left;
    typename Epilogue::Row rows[2];
    typename Epilogue::template Columns<2> columns[groups];
    typename Epilogue::template Elements<2> elements[groups][2];

    // Fetch the sources of the first staged block.
    template <class Args>
    CUPYGEMM_INLINE TileEpilogue(const Args &args, const Work &work, u32 consumer, u32 thread)
        : TileEpilogue(args, corner(args, work, consumer * T::consumer_rows + row_of_lane(thread),
                                    thread % 4 * 2)) {
        if (is_ahead)
            fetch(0, 0);
    }

    // One warpgroup. Prefetch the consumer's rows of matrix sources to L2.
    template <class Args> CUPYGEMM_INLINE static void prefetch(const Args &args, const Work &work,
                                                               u32 consumer, u32 thread) {
        const TileCorner at = corner(args, work, consumer * T::consumer_rows, 0);
        prefetch_rows<typename Parts::C>(args, args.epilogue.c, at, thread);
        prefetch_rows<typename Parts::Bias>(args, args.epilogue.bias, at, thread);
    }

    // Fetch the sources of the lane's pairs in `groups` groups, in a block of 64 rows from a column
    // on.
    CUPYGEMM_INLINE void fetch(u32 block, u32 column) {
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            const u32 row = block * block_rows + 8 * half;
            const bool inside = static_cast<i32>(row) < rows_left;
            if (column == 0)
                epilogue.load(rows[half], row, 0, inside ? 1 : 0);
#pragma unroll
            for (u32 group = 0; group < groups; ++group) {
                const u32 at = column + group * 8;
                const i32 left = columns_left - static_cast<i32>(at);
                if (half == 0)
                    epilogue.load(columns[group], 0, at, left);
                epilogue.load(elements[group][half], row, at, inside ? left : 0);
            }
        }
    }

    // A result type of at least 32 bits.
    using Word = decltype(typename Numeric<typename Config::ElementC>::Bits() + 0u);

    CUPYGEMM_INLINE Word finish(typename Config::Accumulator sum, u32 group, u32 half,
                                u32 e) const {
        const int index = static_cast<int>(e);
        if constexpr (IsSame<typename Config::ElementC, i32>::value) // one instruction
            return static_cast<Word>(nearest_i32(
                epilogue.computed(sum, index, rows[half], columns[group], elements[group][half])));
        else
            return epilogue.finish(sum, index, rows[half], columns[group], elements[group][half]);
    }

    // Finish the lane's two 1-byte elements in a row of a group, which one instruction rounds.
    CUPYGEMM_INLINE u16 finish_bytes(typename Config::Accumulator low,
                                     typename Config::Accumulator high, u32 group, u32 half) const {
        return pack_bytes<typename Config::ElementC>(
            epilogue.computed(low, 0, rows[half], columns[group], elements[group][half]),
            epilogue.computed(high, 1, rows[half], columns[group], elements[group][half]));
    }

private:
    template <class Args> CUPYGEMM_INLINE TileEpilogue(const Args &args, const TileCorner &at)
        : epilogue(args.epilogue, Memories(args.epilogue, at)),
          rows_left(args.m - static_cast<i32>(at.row)),
          columns_left(args.n - static_cast<i32>(at.column)) {}

    CUPYGEMM_INLINE static u32 row_of_lane(u32 thread) {
        return thread / 32 * 16 + thread % 32 / 4;
    }

    CUPYGEMM_INLINE static TileCorner corner(const HopperArgs &args, const Work &work, u32 row,
                                             u32 column) {
        const BoxIndex batch = batch_box<5>(args, work.batch);
        return {static_cast<u32>(batch.batch0), static_cast<u32>(batch.batch1),
                static_cast<u32>(batch.batch2), work.row + row, work.column + column};
    }

    template <class S> CUPYGEMM_INLINE static void prefetch_rows(const HopperArgs &args,
                                                                 const SourceArgs &source,
                                                                 const TileCorner &at, u32 thread) {
        if constexpr (S::along == Along::matrix) {
            using Bits = typename SourceMemory<S>::Bits;
            constexpr u32 run = slab_bytes / sizeof(Bits); // a line of L2
            constexpr u32 of_row = ceil_div(Config::tile_n, run);
            constexpr u32 runs = T::consumer_rows * of_row;
            const SourceMemory<S> memory(source, at);
            for (u32 i = thread; i < runs; i += warpgroup_size) {
                const u32 row = i / of_row, column = i % of_row * run;
                if (at.row + row < static_cast<u32>(args.m) &&
                    at.column + column < static_cast<u32>(args.n))
                    prefetch_to_l2(memory.first + row * memory.pitch + column);
            }
        }
    }
};

} // namespace cupygemm
