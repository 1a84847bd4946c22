// The operands of an epilogue, read from global memory.
//
// A lane of wgmma holds pairs of adjacent columns. A pair is one load where every row begins at a
// multiple of the pair's size and n is even, so that no pair straddles column n; other sources are
// read element by element. Nothing outside the matrix is read. Loads are predicated instead of
// branched around, and their results are not converted until they are used, so any number can be in
// flight.
#pragma once

#include "common/epilogue.hpp"
#include "hopper/stage_element.cuh"

namespace cupygemm {

// The position in C of row 0 and column 0 of the loads: the first element of a tile, or of a lane.
struct TileCorner {
    u32 batch0, batch1, batch2;
    u32 row, column;
};

// A run of elements in words, as loads return them. An element of 8 bytes takes two words.
template <class Bits, int count> struct WordRun {
    static constexpr int bytes = sizeof(Bits);
    static constexpr int words = ceil_div(count * bytes, 4);

    u32 word[words];

    CUPYGEMM_INLINE Bits operator[](int e) const {
        if constexpr (bytes == 8)
            return static_cast<u64>(word[2 * e + 1]) << 32 | word[2 * e];
        else
            return static_cast<Bits>(word[e * bytes / 4] >> e * bytes % 4 * 8);
    }
};

template <class S> struct SourceMemory {
    using Element = typename S::Element;
    using Bits = typename Numeric<Element>::Bits;
    template <int count> using Run = WordRun<Bits, count>;
    static constexpr bool by_row = S::along == Along::row || S::along == Along::matrix;
    static constexpr bool by_column = S::along == Along::column || S::along == Along::matrix;
    const Bits *first; // element at the corner
    i64 pitch;         // elements

    CUPYGEMM_INLINE SourceMemory(const SourceArgs &args, const TileCorner &at)
        : first(reinterpret_cast<const Bits *>(args.address) + at.batch0 * args.stride[0] +
                at.batch1 * args.stride[1] + at.batch2 * args.stride[2] +
                (by_row ? at.row * args.pitch : 0) + (by_column ? at.column : 0)),
          pitch(args.pitch) {}

    template <int count>
    CUPYGEMM_INLINE void load(Run<count> &run, u32 row, u32 column, i32 left) const {
        const Bits *from = first + (by_row ? row * pitch : 0) + (by_column ? column : 0);
        constexpr int bytes = sizeof(Bits);
        if constexpr (count == 1 || S::vectors) {
            load_global_if<count * bytes>(run.word, from, left >= count);
        } else if constexpr (bytes == 8) {
#pragma unroll
            for (int e = 0; e < count; ++e)
                load_global_if<bytes>(&run.word[2 * e], from + e, e < left);
        } else {
            u32 element[count];
#pragma unroll
            for (int e = 0; e < count; ++e)
                load_global_if<bytes>(&element[e], from + e, e < left);
#pragma unroll
            for (int e = 0; e < count; ++e) {
                u32 &word = run.word[e * bytes / 4];
                word = e * bytes % 4 ? word | element[e] << e * bytes % 4 * 8 : element[e];
            }
        }
    }
};

// The epilogue that the Config selects: rounding alone, or the fused formula.
template <class Config, bool fused = Config::has_epilogue> struct MakeEpilogue {
    using Type = CastEpilogue<typename Config::ElementC>;

    template <class Args> CUPYGEMM_INLINE static Type make(const Args &, const TileCorner &) {
        return {};
    }
};

template <class Config> struct MakeEpilogue<Config, true> {
    using Memories = SourceMemories<typename Config::Parts>;
    using Type = FusedEpilogue<typename Config::Parts, typename Config::ElementC,
                               typename Config::Accumulator, Memories>;

    template <class Args> CUPYGEMM_INLINE static Type make(const Args &args, const TileCorner &at) {
        return Type(args.epilogue, Memories(args.epilogue, at));
    }
};

} // namespace cupygemm
