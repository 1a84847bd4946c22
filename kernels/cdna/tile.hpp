// What a workgroup and a wave hold of the problem: operand tiles in LDS, fragments and accumulators in
// registers.
//
// A and B are treated alike: an Operand is a matrix of rows (m or n) by k. The instruction computes
// C^T = B^T A^T: B is its first operand and A its second, so that a lane's accumulator registers run along n,
// which is contiguous in C.
#pragma once

#include "cdna/lds.hpp"
#include "cdna/mfma.hpp"
#include "common/layout.hpp"

namespace cupygemm {

template <class Config> struct OperandA {
    using Element = typename Config::ElementA;
    static constexpr Major major = Config::a_major;
    static constexpr bool dword_aligned = Config::a_dword_aligned;
    static constexpr int tile_rows = Config::tile_m;
    static constexpr int wave_rows = Config::tile_m / Config::waves_m;
    static constexpr int mma_rows = Config::mma_m;
    static constexpr int tile_k = Config::tile_k;
    static constexpr int num_threads = Config::num_threads;
};

template <class Config> struct OperandB {
    using Element = typename Config::ElementB;
    static constexpr Major major = Config::b_major;
    static constexpr bool dword_aligned = Config::b_dword_aligned;
    static constexpr int tile_rows = Config::tile_n;
    static constexpr int wave_rows = Config::tile_n / Config::waves_n;
    static constexpr int mma_rows = Config::mma_n;
    static constexpr int tile_k = Config::tile_k;
    static constexpr int num_threads = Config::num_threads;
};

// One operand's tile in LDS: (slab, row, 128 bytes of k).
template <class Operand> struct OperandTile {
    using Layout = LdsLayout<Operand::tile_rows, lds_banks>;
    static constexpr int element_bytes = Numeric<typename Operand::Element>::bytes;
    static constexpr int slab_k = Layout::row_bytes / element_bytes; // 64 for 16-bit types
    static constexpr int num_slabs = Operand::tile_k / slab_k;
    static constexpr u32 bytes = num_slabs * Layout::slab_bytes;

    static_assert(Operand::tile_k % slab_k == 0, "tile_k is a multiple of 128 bytes of k");
    static_assert(is_power_of_two(Operand::tile_rows), "a tile's rows are a power of two");
    static_assert(is_power_of_two(Operand::wave_rows), "a wave's rows are a power of two");
    static_assert(Operand::wave_rows % Operand::mma_rows == 0, "a wave's rows hold whole fragments");
};

// A wave's view of an operand tile: each read fills one fragment register of one k step.
template <class Operand> struct FragmentReader {
    using Tile = OperandTile<Operand>;
    using Layout = typename Tile::Layout;
    static constexpr u32 num_fragments = Operand::wave_rows / Operand::mma_rows;
    static constexpr u32 chunks_per_step = wave_size / Operand::mma_rows;
    static constexpr u32 steps_per_slab = Layout::chunks_per_row / chunks_per_step;
    static constexpr u32 num_steps = Tile::num_slabs * steps_per_slab;

    u32 lane_offset; // of fragment 0, step 0

    CUPYGEMM_INLINE FragmentReader(u32 wave, u32 lane)
        : lane_offset(Layout::offset(
              wave * Operand::wave_rows + lane % Operand::mma_rows, lane / Operand::mma_rows))
    {
    }

    // 16 bytes of k for row lane % mma_rows of the fragment: two or one instructions' worth
    CUPYGEMM_INLINE u32x4 read(LdsBase tile, u32 fragment, u32 step) const
    {
        const u32 slab = step / steps_per_slab;
        const u32 chunk = step % steps_per_slab * chunks_per_step;
        const u32 offset = Layout::offset(fragment * Operand::mma_rows, chunk);
        return ds_read_b128(tile, Layout::combine(lane_offset, offset + slab * Layout::slab_bytes));
    }
};

// One k step of a wave's operands in registers.
template <class Config> struct Fragments {
    using ReaderA = FragmentReader<OperandA<Config>>;
    using ReaderB = FragmentReader<OperandB<Config>>;

    u32x4 a[ReaderA::num_fragments]; // (fragment, 16 bytes of k)
    u32x4 b[ReaderB::num_fragments];

    CUPYGEMM_INLINE void read(
        const ReaderA &reader_a, const ReaderB &reader_b, LdsBase tile_a, LdsBase tile_b, u32 step)
    {
#pragma unroll
        for (u32 fn = 0; fn < ReaderB::num_fragments; ++fn)
            b[fn] = reader_b.read(tile_b, fn, step);
#pragma unroll
        for (u32 fm = 0; fm < ReaderA::num_fragments; ++fm)
            a[fm] = reader_a.read(tile_a, fm, step);
    }
};

// A wave's part of C in registers.
template <class Config> struct Accumulators {
    using Instruction = Mma<Config::mma_m, Config::mma_n, Config::mma_k>;
    using Registers = typename Instruction::Accumulator;
    static constexpr int fragments_m = Config::tile_m / Config::waves_m / Config::mma_m;
    static constexpr int fragments_n = Config::tile_n / Config::waves_n / Config::mma_n;
    static constexpr int quads_per_fragment = sizeof(Registers) / sizeof(f32x4);
    static constexpr int num_quads = fragments_n * quads_per_fragment;

    Registers registers[fragments_m][fragments_n];

    CUPYGEMM_INLINE void clear()
    {
#pragma unroll
        for (int fm = 0; fm < fragments_m; ++fm)
#pragma unroll
            for (int fn = 0; fn < fragments_n; ++fn)
                registers[fm][fn] = Registers(0.0f);
    }

    // Fragments [first, last) of m += one k step of A times one of B.
    CUPYGEMM_INLINE void multiply(const Fragments<Config> &step, int first, int last)
    {
#pragma unroll
        for (int fm = first; fm < last; ++fm)
#pragma unroll
            for (int fn = 0; fn < fragments_n; ++fn)
                Instruction::template multiply<typename Config::ElementA>(
                    step.b[fn], step.a[fm], registers[fm][fn]);
    }

    // Element `e` of quad `quad`: the C column whose LDS row is quad_row(lane, quad) + e.
    CUPYGEMM_INLINE float element(int fm, int quad, int e) const
    {
        return registers[fm][quad / quads_per_fragment][quad % quads_per_fragment * 4 + e];
    }

    // LDS row of a lane's quad, counted from the wave's first row of B: 16 (32x32: 8) rows apart.
    static constexpr u32 quad_stride = wave_size / Config::mma_n * 4;
    CUPYGEMM_INLINE static constexpr u32 quad_row(u32 lane, u32 quad)
    {
        return quad * quad_stride + lane / Config::mma_n * 4;
    }
};

} // namespace cupygemm
