// Microscaling (OCP MX): one factor for every 32 consecutive k of each row of A and column of B.
//
// A factor is a power of two, stored as a byte of exponent. The scaled MFMA applies the factors at
// no cost. Lane l supplies the factor of row l % 16 of a fragment for the (l / 16)-th group of 32 k
// of the instruction, in one byte of a register. The factors are packed in that order beforehand
// (cupygemm._backends.cdna.microscaling): each lane has one dword for 64 rows and the 128 k of an
// instruction, one byte for each of four fragments.
//
//   packed   (64 rows, instruction along k, lane)    padded along k to whole tiles
//
// A wave of the ping_pong mainloop multiplies 64 rows of each half of A by 64 columns, and needs
// three dwords for each instruction along k. They are loaded straight to registers. The registers
// for a half of A are free once that half has been multiplied, so the factors of the next tile
// replace them. The factors of B are needed until the end of the tile, so those of the next tile
// have registers of their own. The specialization requires a target with block-scaled MFMA.
#pragma once

#include "cdna/buffer.hpp"
#include "cdna/kernel_args.hpp"
#include "cdna/tile.hpp"

namespace cupygemm {

template <class Config, bool present = Config::block_scaled> struct BlockScales {
    CUPYGEMM_INLINE BlockScales(const KernelArgs<Config> &, const Position &) {}
    CUPYGEMM_INLINE void load_all(i32) {}
    CUPYGEMM_INLINE void load_a(i32, int) {}
    CUPYGEMM_INLINE void load_next_b(i32) {}
    CUPYGEMM_INLINE void take_next_b() {}
};

template <class Config> struct BlockScales<Config, true> {
    using Acc = Accumulators<Config>;
    using Instruction = typename Acc::Instruction;
    static constexpr u32 group_rows = 64;
    static constexpr u32 group_bytes = wave_size * 4; // for one instruction along k
    static constexpr int halves = Config::row_parts;
    static constexpr u32 steps = Config::tile_k / Config::mma_k; // instructions along k per tile

    static_assert(Config::mma_m == 16 && Config::mma_n == 16,
                  "a dword holds the factors of four fragments of 16 rows");
    static_assert(Config::tile_m / Config::waves_m / halves == group_rows &&
                      Config::tile_n / Config::waves_n == group_rows,
                  "a wave must have 64 rows of each part of A and 64 columns");

    u32 a[halves][steps], b[steps], next_b[steps]; // (half of A, step), (step), (step)
    u64 base_a, base_b;                            // at the first step of the workgroup's part of k
    const u32 half_step; // bytes from a wave's rows of one half of A to its rows of the next
    const u32 lane_offset;

    CUPYGEMM_INLINE BlockScales(const KernelArgs<Config> &args, const Position &at)
        : half_step(Config::tile_m / halves / group_rows * row_bytes(args)),
          lane_offset(at.lane * 4) {
        const u64 first = at.k.begin / Config::tile_k * (steps * group_bytes);
        const u64 pitch = row_bytes(args);
        base_a = args.scales.a + (at.row / group_rows + at.wave_m) * pitch + first;
        base_b = args.scales.b + (at.column / group_rows + at.wave_n) * pitch + first;
    }

    // Bytes of the packed factors of 64 rows.
    CUPYGEMM_INLINE static u32 row_bytes(const GemmArgs &args) {
        return ceil_div<u32>(args.k, Config::tile_k) * (steps * group_bytes);
    }

    // `tile` is the tile's index in the workgroup's part of k.
    CUPYGEMM_INLINE void load_a(i32 tile, int half) {
        load(a[half], base_a + half * half_step, tile);
    }
    CUPYGEMM_INLINE void load_next_b(i32 tile) { load(next_b, base_b, tile); }
    CUPYGEMM_INLINE void take_next_b() {
#pragma unroll
        for (u32 step = 0; step < steps; ++step)
            b[step] = next_b[step];
    }
    CUPYGEMM_INLINE void load_all(i32 tile) {
#pragma unroll
        for (int half = 0; half < halves; ++half)
            load_a(tile, half);
        load(b, base_b, tile);
    }

    CUPYGEMM_INLINE void load(u32 (&to)[steps], u64 base, i32 tile) const {
        constexpr u32 tile_bytes = steps * group_bytes;
        const Resource memory =
            make_resource(base + static_cast<u64>(tile) * tile_bytes, tile_bytes);
#pragma unroll
        for (u32 step = 0; step < steps; ++step)
            to[step] = buffer_load_b32(memory, lane_offset + step * group_bytes);
    }

    // acc += fragment fm (of a half of A) times fragment fn. Their factors are bytes fm and fn of
    // the dwords.
    CUPYGEMM_INLINE void multiply(u32x8 fragment_b, u32x8 fragment_a, int half, u32 step, int fm,
                                  int fn, typename Acc::Registers &acc) const {
        multiply_bytes<0>(fragment_b, fragment_a, a[half][step], b[step], fm * 4 + fn, acc);
    }

private:
    // The selected bytes are encoded in the instruction, so there are 16 variants of it. `which` is
    // a constant once the loops are unrolled.
    template <int index> CUPYGEMM_INLINE static void multiply_bytes(u32x8 fragment_b,
                                                                    u32x8 fragment_a, u32 scale_a,
                                                                    u32 scale_b, int which,
                                                                    typename Acc::Registers &acc) {
        if (which == index)
            acc = mfma_scale_16x16x128<typename Config::ElementB, typename Config::ElementA,
                                       index % 4, index / 4>(fragment_b, fragment_a, acc, scale_b,
                                                             scale_a);
        else if constexpr (index < 15)
            multiply_bytes<index + 1>(fragment_b, fragment_a, scale_a, scale_b, which, acc);
    }
};

} // namespace cupygemm
