// The operands of an epilogue, read from global memory.
//
// A lane of wgmma holds pairs of neighbouring columns; a pair is one load where the source's rows
// begin at multiples of it, and the pair that straddles column n, like sources that lie otherwise,
// is read element by element. Nothing outside the matrix is read.
#pragma once

#include "common/epilogue.hpp"

namespace cupygemm {

// Where a tile stands in the result.
struct TileCorner {
    u32 batch0, batch1, batch2;
    u32 row, column;
};

template <class S> struct SourceMemory {
    using Element = typename S::Element;
    using Bits = typename Numeric<Element>::Bits;
    static constexpr bool by_row = S::along == Along::row || S::along == Along::matrix;
    static constexpr bool by_column = S::along == Along::column || S::along == Along::matrix;

    const Bits *first; // of the tile
    i64 pitch;         // elements

    CUPYGEMM_INLINE SourceMemory(const SourceArgs &args, const TileCorner &at)
        : first(reinterpret_cast<const Bits *>(args.address) + at.batch0 * args.stride[0] +
                at.batch1 * args.stride[1] + at.batch2 * args.stride[2] +
                (by_row ? at.row * args.pitch : 0) + (by_column ? at.column : 0)),
          pitch(args.pitch) {}

    template <int count>
    CUPYGEMM_INLINE void load(Bits (&bits)[count], u32 row, u32 column, i32 left) const {
        const Bits *from = first + (by_row ? row * pitch : 0) + (by_column ? column : 0);
        if constexpr (count > 1 && S::vectors) {
            struct alignas(count * sizeof(Bits)) Run {
                Bits bits[count];
            };
            if (left >= count) {
                const Run run = *reinterpret_cast<const Run *>(from);
#pragma unroll
                for (int e = 0; e < count; ++e)
                    bits[e] = run.bits[e];
                return;
            }
        }
#pragma unroll
        for (int e = 0; e < count; ++e)
            bits[e] = e < left ? from[e] : Bits(0);
    }
};

// What the Config says is done to the sums: they are rounded, or go through its parts first.
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
