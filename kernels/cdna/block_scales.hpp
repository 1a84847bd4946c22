// Factors of 32 consecutive k of a row of A or of a column of B: microscaling (OCP MX), on gfx950.
//
// A factor is a power of two, a byte of exponent. The scaled MFMA multiplies by them at no cost; it
// wants those of one fragment in a byte of a register, lane l's of row l % 16 and of the l / 16-th
// 32 k of the instruction. They come packed in that order (cupygemm._scales): a dword for each
// lane, of 64 rows, of the 128 k of an instruction, a byte for each of the four fragments.
//
//   packed   (64 rows, instruction along k, lane)    steps is a multiple of those of a tile
//
// A wave of ping_pong has 64 rows of each half of A and 64 columns: three dwords for an instruction
// along k. They are loaded straight to registers. Those of A are free as soon as the half has been
// multiplied, so that those of the next tile go there; those of B are needed until then.
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

#if defined(__gfx950__)
template <class Config> struct BlockScales<Config, true> {
    using Acc = Accumulators<Config>;
    using Instruction = typename Acc::Instruction;
    static constexpr u32 group_rows = 64;
    static constexpr u32 group_bytes = wave_size * 4; // of one instruction along k
    static constexpr int halves = Config::row_parts;
    static constexpr u32 steps = Config::tile_k / Config::mma_k; // instructions along k of a tile

    static_assert(Config::mma_m == 16 && Config::mma_n == 16, "a dword is of four fragments of 16");
    static_assert(Config::tile_m / Config::waves_m / halves == group_rows &&
                      Config::tile_n / Config::waves_n == group_rows,
                  "a wave has 64 rows of each part of A and 64 columns");

    u32 a[halves][steps], b[steps], next_b[steps];
    u64 base_a, base_b;  // of the first step of the workgroup's part of k
    const u32 half_step; // bytes from a wave's rows of one half of A to those of the next
    const u32 lane_offset;

    CUPYGEMM_INLINE BlockScales(const KernelArgs<Config> &args, const Position &at)
        : half_step(Config::tile_m / halves / group_rows * row_bytes(args)),
          lane_offset(at.lane * 4) {
        const u64 first = at.k.begin / Config::tile_k * (steps * group_bytes);
        const u64 pitch = row_bytes(args);
        base_a = args.scales.a + (at.row / group_rows + at.wave_m) * pitch + first;
        base_b = args.scales.b + (at.column / group_rows + at.wave_n) * pitch + first;
    }

    // Bytes of 64 rows.
    CUPYGEMM_INLINE static u32 row_bytes(const GemmArgs &args) {
        return ceil_div<u32>(args.k, Config::tile_k) * (steps * group_bytes);
    }

    // Of a tile, by its index in the workgroup's part of k.
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

    // acc += of fragments fm (of a half) and fn, which are bytes fm and fn of the dwords.
    CUPYGEMM_INLINE void multiply(u32x8 fragment_b, u32x8 fragment_a, int half, u32 step, int fm,
                                  int fn, typename Acc::Registers &acc) const {
        multiply_bytes<0>(fragment_b, fragment_a, a[half][step], b[step], fm * 4 + fn, acc);
    }

private:
    // The instruction names the bytes, so it is one of 16; `which` is known once loops are
    // unrolled.
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
#endif

} // namespace cupygemm
