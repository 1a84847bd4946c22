// A wave's registers: fragments of the operands, and accumulators.
//
// The instruction computes C^T = B^T A^T: B is its first operand and A its second, so that a lane's
// accumulators run along n, which is contiguous in C.
#pragma once

#include "cdna/complex_mma.hpp"
#include "cdna/lds.hpp"
#include "cdna/mfma.hpp"
#include "cdna/operand.hpp"
#include "cdna/registers.hpp"
#include "cdna/transposed_operand.hpp"

namespace cupygemm {

// The part of k that a workgroup sums, at least 1 deep. It begins at a tile boundary, and ends at
// one or at the end of k. Workgroups that share a tile of C have one part each.
struct KRange {
    i32 begin, end;
};

// The position of a wave in the problem: its matrices, its workgroup's tile, and its own indices.
struct Position {
    u64 a, b, c;        // addresses of element (0, 0) of this batch entry
    u32 row, column;    // first row and column of the tile in C
    KRange k;           // what the mainloop sums
    u32 wave_m, wave_n; // within the workgroup
    u32 lane, thread;
};

// A wave's view of an operand tile in LDS.
template <class Operand, int parts = 1, bool transposed = transposed_by_reads<Operand>()>
struct FragmentReader {
    using Map = FragmentMap<Operand, parts>;
    static constexpr int reads_per_fragment = 1;

    const u32 lane_offset;

    CUPYGEMM_INLINE FragmentReader(u32 wave, u32 lane)
        : lane_offset(Map::lds_of_lane(wave, lane)) {}

    CUPYGEMM_INLINE const FragmentReader &settled() const { return *this; }

    CUPYGEMM_INLINE u32x4 read(LdsBase tile, u32 fragment, u32 step) const {
        return ds_read_b128(tile,
                            Map::Layout::combine(lane_offset, Map::lds_of_step(fragment, step)));
    }
};

template <class Operand, int parts> struct FragmentReader<Operand, parts, true> {
    using Map = TransposedReadMap<Operand, parts>;
    static constexpr int reads_per_fragment = 2;

    const u32 lane_offset;

    CUPYGEMM_INLINE FragmentReader(u32 wave, u32 lane)
        : lane_offset(Map::lds_of_lane(wave, lane)) {}
    CUPYGEMM_INLINE explicit FragmentReader(u32 offset) : lane_offset(offset) {}

    // The same reader with an opaque offset: addresses are computed from here on, rather than kept
    // in four registers.
    CUPYGEMM_INLINE FragmentReader settled() const {
        return FragmentReader(settled_here(lane_offset));
    }

    CUPYGEMM_INLINE u32x4 read(LdsBase tile, u32 fragment, u32 step) const {
        u32x2 half[2];
#pragma unroll
        for (u32 i = 0; i < 2; ++i)
            half[i] = read_half(
                tile, Map::Layout::combine(lane_offset, Map::lds_of_step(fragment, step, i)));
        return u32x4{half[0].x, half[0].y, half[1].x, half[1].y};
    }

    CUPYGEMM_INLINE static u32x2 read_half(LdsBase tile, u32 offset) {
        if constexpr (Map::Layout::element_bytes == 1)
            return ds_read_b64_tr_b8(tile, offset);
        else
            return ds_read_b64_tr_b16(tile, offset);
    }
};

// The fragments of one k step of a wave, as the readers fetch them.
template <class Config, class ReaderA = FragmentReader<OperandA<Config>>,
          class ReaderB = FragmentReader<OperandB<Config>>>
struct Fragments {
    u32x4 a[ReaderA::Map::num_fragments]; // (fragment, 16 bytes of k)
    u32x4 b[ReaderB::Map::num_fragments]; // (fragment, 16 bytes of k)

    CUPYGEMM_INLINE void read(const ReaderA &reader_a, const ReaderB &reader_b, LdsBase tile_a,
                              LdsBase tile_b, u32 step) {
        read_b(reader_b, tile_b, step);
        read_a(reader_a, tile_a, step, 0, ReaderA::Map::num_fragments);
    }

    CUPYGEMM_INLINE void read_b(const ReaderB &reader, LdsBase tile, u32 step) {
#pragma unroll
        for (u32 fn = 0; fn < ReaderB::Map::num_fragments; ++fn)
            b[fn] = reader.read(tile, fn, step);
    }

    // Read fragments [first, last).
    CUPYGEMM_INLINE void read_a(const ReaderA &reader, LdsBase tile, u32 step, u32 first,
                                u32 last) {
#pragma unroll
        for (u32 fm = first; fm < last; ++fm)
            a[fm] = reader.read(tile, fm, step);
    }
};

// A wave's part of C in registers. Its rows are the rows of A that it reads (FragmentMap).
template <class Config> struct Accumulators {
    using RowMap = FragmentMap<OperandA<Config>, Config::row_parts>;
    using Instruction = Mma<typename Config::ElementB, typename Config::ElementA, Config::mma_m,
                            Config::mma_n, Config::mma_k>;
    using Scalar = typename Instruction::Scalar;
    using Registers = typename Instruction::Accumulator;
    static constexpr int fragments_m = Config::tile_m / Config::waves_m / Config::mma_m;
    static constexpr int fragments_n = Config::tile_n / Config::waves_n / Config::mma_n;
    static constexpr int quads_per_fragment = sizeof(Registers) / sizeof(Scalar) / 4;
    static constexpr int num_quads = fragments_n * quads_per_fragment;

    Registers registers[fragments_m][fragments_n]; // (fragment m, fragment n)

    CUPYGEMM_INLINE void clear() {
#pragma unroll
        for (int fm = 0; fm < fragments_m; ++fm)
#pragma unroll
            for (int fn = 0; fn < fragments_n; ++fn)
                registers[fm][fn] = Registers{};
    }

    // Complete all multiplications here. Otherwise the compiler may move the last instructions to
    // where their sums are used, and keep the operands' registers until there.
    CUPYGEMM_INLINE void settle() {
#pragma unroll
        for (int fm = 0; fm < fragments_m; ++fm)
#pragma unroll
            for (int fn = 0; fn < fragments_n; ++fn)
                asm volatile("" : "+v"(registers[fm][fn]));
    }

    // Rows of fragments [first, last) += one k step of A times one of B.
    template <class Step> CUPYGEMM_INLINE void multiply(const Step &step, int first, int last) {
#pragma unroll
        for (int fm = first; fm < last; ++fm)
#pragma unroll
            for (int fn = 0; fn < fragments_n; ++fn)
                Instruction::multiply(step.b[fn], step.a[fm], registers[fm][fn]);
    }

    // The LDS row of A that holds a row of a fragment.
    CUPYGEMM_INLINE static constexpr u32 lds_row_of_a(u32 wave_m, u32 fragment, u32 row) {
        return RowMap::row_of_wave(wave_m) + RowMap::row_of_fragment(fragment) + row;
    }

    // Element `e` of quad `quad`. It belongs to the C column whose LDS row is lds_row(lane,
    // quad, e).
    CUPYGEMM_INLINE Scalar element(int fm, int quad, int e) const {
        return Instruction::element(registers[fm][quad / quads_per_fragment],
                                    quad % quads_per_fragment * 4 + e);
    }

    // The LDS row of an element, relative to the wave's first row of B. Quads are 16 rows apart (8
    // for 32x32). The elements of a quad are adjacent; in fp64 they are as far apart as a row has
    // lanes.
    static constexpr bool quads_are_runs = Instruction::rows_are_runs;
    static constexpr u32 lanes_per_row = wave_size / Config::mma_n;
    static constexpr u32 quad_stride = lanes_per_row * 4;
    CUPYGEMM_INLINE static constexpr u32 lds_row(u32 lane, u32 quad, u32 e) {
        const u32 part = lane / Config::mma_n;
        return quad * quad_stride + (quads_are_runs ? part * 4 + e : e * lanes_per_row + part);
    }
};

} // namespace cupygemm
