// Slots of the workspace: partial sums of a tile, stored in register order.
//
// A slot is (wave, fragment m, quad, lane, 4 sums). A lane writes and reads a quad of accumulators,
// 16 bytes at a time, and 64 lanes access whole lines; the order of rows and columns does not
// matter. Quads outside the matrix are neither written nor read.
//
// With Config::atomic_parts a tile has one slot, initially zero, to which the parts are added in
// order of completion. It is (wave, fragment m, quad, sum, lane), so that 64 lanes add to adjacent
// addresses. Where C has the type of the sums and no epilogue follows, there is no workspace: C
// itself is the slot (Config::adds_to_result), and cupygemm_add_parts, which has no parts to add,
// zeroes it beforehand.
#pragma once

#include "cdna/atomic.hpp"
#include "cdna/store.hpp"

namespace cupygemm {

template <class Config> struct PartSlot {
    using Acc = Accumulators<Config>;
    using Scalar = typename Acc::Scalar;
    static constexpr u32 slot_bytes = Config::tile_m * Config::tile_n * sizeof(Scalar);
    static constexpr u32 quad_bytes = 4 * sizeof(Scalar);
    static constexpr u32 words = quad_bytes / 16;
    static constexpr u32 lane_bytes = Config::atomic_parts ? sizeof(Scalar) : quad_bytes;
    static constexpr u32 sum_stride = wave_size * sizeof(Scalar); // with atomic_parts

    using Quad = Scalar[4];

    const u64 base;        // of the wave's part of the slot
    const u32 lane_offset; // bytes

    CUPYGEMM_INLINE PartSlot(u64 workspace, u32 slot, u32 wave, u32 lane)
        : base(workspace + static_cast<u64>(slot) * slot_bytes + wave * wave_bytes),
          lane_offset(lane * lane_bytes) {}

    static constexpr u32 wave_bytes = Acc::fragments_m * Acc::num_quads * wave_size * quad_bytes;

    CUPYGEMM_INLINE static constexpr u32 quad_offset(u32 fm, u32 quad) {
        return (fm * Acc::num_quads + quad) * wave_size * quad_bytes;
    }

    CUPYGEMM_INLINE void store_all(const Acc &acc, const TilePlace<Config> &place) const {
#pragma unroll
        for (int fm = 0; fm < Acc::fragments_m; ++fm)
#pragma unroll
            for (int quad = 0; quad < Acc::num_quads; ++quad) {
                Quad sums;
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    sums[e] = acc.element(fm, quad, e);
                store(sums, fm, quad, place.inside(fm, quad));
            }
    }

    CUPYGEMM_INLINE void store(const Quad &sums, u32 fm, u32 quad, bool inside) const {
        if constexpr (Config::atomic_parts) {
            const u64 first = base + lane_offset + quad_offset(fm, quad);
            if (inside) {
#pragma unroll
                for (u32 e = 0; e < 4; ++e)
                    global_atomic_add(first + e * sum_stride, sums[e]);
            }
        } else {
            u32x4 data[words];
            __builtin_memcpy(data, sums, quad_bytes);
            const u32 offset = (inside ? lane_offset : out_of_range) + quad_offset(fm, quad);
#pragma unroll
            for (u32 i = 0; i < words; ++i)
                buffer_store_b128(data[i], memory(), offset + 16 * i);
        }
    }

    // Load a quad; sums are zero where `inside` is false.
    CUPYGEMM_INLINE void load(Quad &sums, u32 fm, u32 quad, bool inside) const {
        const u32 offset = (inside ? lane_offset : out_of_range) + quad_offset(fm, quad);
        if constexpr (Config::atomic_parts) {
#pragma unroll
            for (u32 e = 0; e < 4; ++e)
                sums[e] = load_sum(offset + e * sum_stride);
        } else {
            u32x4 data[words];
#pragma unroll
            for (u32 i = 0; i < words; ++i)
                data[i] = buffer_load_b128(memory(), offset + 16 * i);
            __builtin_memcpy(sums, data, quad_bytes);
        }
    }

private:
    CUPYGEMM_INLINE Resource memory() const { return make_resource(base, wave_bytes); }

    CUPYGEMM_INLINE Scalar load_sum(u32 offset) const {
        if constexpr (sizeof(Scalar) == 8)
            return __builtin_bit_cast(Scalar, buffer_load_b64(memory(), offset));
        else
            return __builtin_bit_cast(Scalar, buffer_load_b32(memory(), offset));
    }
};

// Add the workgroup's sums to the elements that C has.
template <class Config> CUPYGEMM_INLINE void add_to_result(const GemmArgs &args,
                                                           const TilePlace<Config> &place,
                                                           const Accumulators<Config> &acc) {
    using Acc = Accumulators<Config>;
    using Scalar = typename Acc::Scalar;
    static_assert(sizeof(typename Numeric<typename Config::ElementC>::Bits) == sizeof(Scalar),
                  "C must have the type of the sums");
    const Position &at = place.at;
#pragma unroll
    for (int fm = 0; fm < Acc::fragments_m; ++fm) {
        const u64 row = at.c + ((at.row + place.row(fm)) * args.ldc + at.column) * sizeof(Scalar);
#pragma unroll
        for (int quad = 0; quad < Acc::num_quads; ++quad)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const u32 column = place.column(quad, e);
                if (place.left(fm, column) > 0)
                    global_atomic_add(row + column * sizeof(Scalar), acc.element(fm, quad, e));
            }
    }
}

} // namespace cupygemm
