// Mainloop with two groups of waves that alternate: one multiplies while the other moves memory.
//
// Each SIMD runs two waves, one of each group. A wave takes four phases for a tile: read B and the
// upper half of A (R0), multiply them (C0), read the lower half of A (R1), multiply it by the same
// B (C1). Every phase ends with a barrier of the whole workgroup. The second group starts one
// barrier late, so that in each slot between two barriers one group is in R and the other in C, and
// the matrix unit always has a wave to serve:
//
//   slot           |  4t     |  4t+1   |  4t+2   |  4t+3   |  4t+4   |
//   first group    |  R0(t)  |  C0(t)  |  R1(t)  |  C1(t)  |  R0(t+1)|
//   second group   |  C1(t-1)|  R0(t)  |  C0(t)  |  R1(t)  |  C1(t)  |
//
//   LDS -> registers   R0  B(t), upper A(t)             R1  lower A(t)
//   registers -> LDS   R0  lower A(t)                   R1  B(t+1), upper A(t+1)
//   global -> registers R0 lower A(t+1)                 R1  B(t+2), upper A(t+2)
//   block scales        R0 lower A(t)                   R1  B(t+1), upper A(t+1)
//
// LDS holds one tile. Both groups have read a half of it before either group overwrites that half:
// B and the upper half of A are read in slots 4t and 4t+1 and replaced in 4t+2 and 4t+3; the lower
// half is read in 4t+2 and 4t+3, replaced in 4t+4 and 4t+5, and read again from 4t+6 on. The tile
// after that is in flight to the registers that were just stored: a load has 3 to 4 slots, at least
// 1500 cycles, to arrive. Block scales, if present (block_scales.hpp), go straight to registers and
// have 2 slots.
//
// As in the other mainloops, the ragged tile at the end of k comes first, in the prologue.
// Registers are the limit: of 256, 128 are accumulators, 64 hold fragments and 32 hold the staged
// tile, which leaves 32 for addresses.
#pragma once

#include "cdna/block_scales.hpp"
#include "cdna/schedule.hpp"
#include "cdna/stage.hpp"
#include "cdna/waitcnt.hpp"
#include "common/arguments.hpp"

namespace cupygemm {

template <class Config> struct PingPong {
    using A = OperandA<Config>;
    using B = OperandB<Config>;
    static constexpr int halves = Config::row_parts; // of A: a wave has as many rows of each
    using Acc = Accumulators<Config>;
    using Instruction = typename Acc::Instruction;
    using ReaderA = FragmentReader<A, halves>;
    using ReaderB = FragmentReader<B>;
    using StagerA = Stager<A>;
    using StagerB = Stager<B>;

    static constexpr u32 num_groups = 2;
    static constexpr u32 num_steps = ReaderA::Map::num_steps;
    static constexpr int half_m = ReaderA::Map::part_fragments;
    static constexpr int fragments_n = Acc::fragments_n;
    static constexpr u32 a_bytes = OperandTile<A>::bytes;
    static constexpr u32 lds_bytes = a_bytes + OperandTile<B>::bytes; // A, then B
    // A wave that stores whole vectors stages equally many of each half of A. A wave that
    // transposes blocks of row-major A stages one of the halves.
    static constexpr bool stages_both_halves = StagerA::stores_vectors;
    static constexpr int half_vectors = StagerA::num_vectors / halves;

    static_assert(halves == 2,
                  "the tile's rows must be split in two halves, each multiplied in its own phase");
    static_assert(Config::num_stages == 1, "LDS holds one tile, whose halves are replaced in turn");
    static_assert(Config::waves_m == num_groups && Config::waves_m * Config::waves_n == 8,
                  "waves w and w + 4 share a SIMD and must belong to different groups");
    static_assert(OperandTile<A>::num_slabs == 1, "a tile must be 128 bytes deep");
    static_assert(ReaderB::Map::num_steps == num_steps,
                  "A and B must be split into the same k steps");
    static_assert(StagerA::num_vectors % halves == 0, "both halves of A must be whole vectors");
    static_assert(StagerA::Map::row_of(stages_both_halves
                                           ? half_vectors * Config::num_threads
                                           : Config::num_threads / 2) == Config::tile_m / 2,
                  "the vectors of a thread, or the groups' blocks of row-major A, must coincide "
                  "with the halves");

    const KernelArgs<Config> &args;
    const Position &at;
    const LdsBase lds;
    const u32 group; // 0 or 1, uniform
    const ReaderA reader_a;
    const ReaderB reader_b;
    StagerA stager_a;
    StagerB stager_b;
    typename StagerA::Vectors next_a; // (half, vector)
    typename StagerB::Vectors next_b; // (vector)
    u32x4 a[num_steps][half_m];       // (k step, fragment m) of one half of A: 16 bytes of k each
    u32x4 b[num_steps][fragments_n];  // (k step, fragment n)
    BlockScales<Config> scales;       // of the fragments, if there are any

    CUPYGEMM_INLINE PingPong(const KernelArgs<Config> &arguments, const Position &position,
                             LdsBase shared)
        : args(arguments), at(position), lds(shared), group(at.wave_m),
          reader_a(at.wave_m, at.lane), reader_b(at.wave_n, at.lane),
          stager_a(at.a, args.lda, args.m, args.k, at.row, at.k.begin, at.thread),
          stager_b(at.b, args.ldb, args.n, args.k, at.column, at.k.begin, at.thread),
          scales(args, at) {}

    // acc = A B over the workgroup's part of k
    CUPYGEMM_INLINE void run(Acc &acc) {
        const i32 whole_tiles = (depth() - 1) / Config::tile_k;
        prologue(whole_tiles);
        acc.clear();
        if (group == 1)
            lds_barrier(); // the second group falls one slot behind
        read_b();
        read_a(0);
        end_memory_phase();
        multiply(acc, 0);
        for (i32 tile = 0; tile < whole_tiles; ++tile) {
            const bool another = tile + 2 <= whole_tiles; // whether there is a tile t+2 to load
            read_a(1);
            // Before the tiles' loads, so that waiting for the scales leaves the tiles in flight.
            scales.load_a(tile, 0);
            scales.load_next_b(tile);
            stager_b.store(lds + a_bytes, next_b);
            stager_b.load(next_b, another);
            stage_a<0>(another);
            end_memory_phase();
            multiply(acc, 1);

            read_b();
            read_a(0);
            scales.load_a(tile, 1);
            scales.take_next_b();
            stage_a<1>(another);
            stager_a.advance();
            end_memory_phase();
            multiply(acc, 0);
        }
        drain(acc);
    }

    // Put the ragged tile, 1 to tile_k deep, into LDS, and start loading the first whole tile.
    CUPYGEMM_INLINE void prologue(i32 whole_tiles) {
        const i32 m_left = args.m - static_cast<i32>(at.row);
        const i32 n_left = args.n - static_cast<i32>(at.column);
        const i32 k_left = depth() - whole_tiles * Config::tile_k;
        // Treat one operand after the other: together, their masks need more scalar registers than
        // exist.
        load_and_store_ragged(stager_b, lds + a_bytes, whole_tiles, n_left, k_left);
        load_and_store_ragged(stager_a, lds, whole_tiles, m_left, k_left);
        // Not earlier, since registers are scarce here too; R1 is two slots away. The loads are in
        // the order of the loop, so that its waits for B and for the upper half of A leave the
        // lower half in flight.
        stager_b.load(next_b, whole_tiles > 0);
        stager_a.load(next_a, whole_tiles > 0);
        scales.load_all(whole_tiles);
        end_phase();
        lds_barrier(); // the ragged tile is in LDS
        end_phase();
    }

    template <class Stager>
    CUPYGEMM_INLINE static void load_and_store_ragged(const Stager &stager, LdsBase tile,
                                                      i32 whole_tiles, i32 rows_left, i32 k_left) {
        typename Stager::RaggedVectors ragged;
        stager.load_ragged(ragged, whole_tiles, rows_left, k_left);
        end_phase();
        stager.store_ragged(tile, ragged, rows_left, k_left);
        end_phase();
    }

    // Multiply the lower half of the last tile. The first group has passed one barrier fewer, and
    // makes up for it here.
    CUPYGEMM_INLINE void drain(Acc &acc) {
        read_a(1);
        end_memory_phase();
        multiply(acc, 1);
        if constexpr (Config::block_scaled)
            acc.settle();
        if (group == 0)
            lds_barrier();
    }

    CUPYGEMM_INLINE i32 depth() const { return at.k.end - at.k.begin; }

    // -- Memory phases ----------------------------------------------------------------------------

    CUPYGEMM_INLINE void read_a(int half) {
        const ReaderA reader = reader_a.settled();
#pragma unroll
        for (u32 step = 0; step < num_steps; ++step)
#pragma unroll
            for (int fm = 0; fm < half_m; ++fm)
                a[step][fm] = reader.read(lds, half * half_m + fm, step);
    }

    CUPYGEMM_INLINE void read_b() {
        const ReaderB reader = reader_b.settled();
#pragma unroll
        for (u32 step = 0; step < num_steps; ++step)
#pragma unroll
            for (int fn = 0; fn < fragments_n; ++fn)
                b[step][fn] = reader.read(lds + a_bytes, fn, step);
    }

    // Move this thread's part of a half of A from registers to LDS, and load the same part of the
    // next tile.
    template <int half> CUPYGEMM_INLINE void stage_a(bool another) {
        if constexpr (stages_both_halves) {
            stager_a.store_part(lds, next_a, half * half_vectors, (half + 1) * half_vectors);
            stager_a.load_part(next_a, another, half * half_vectors, (half + 1) * half_vectors);
        } else if (group == half) {
            stager_a.store(lds, next_a);
            stager_a.load_part(next_a, another, 0, StagerA::num_vectors);
        }
    }

    // After the barrier, this group's fragments are in registers and its writes are in LDS, and the
    // other group has finished its multiplication.
    CUPYGEMM_INLINE void end_memory_phase() {
        end_phase();
        lds_barrier();
        end_phase();
    }

    // -- Compute phases ---------------------------------------------------------------------------

    // acc of one half of the wave's rows += that half of A times B, then a barrier: the other
    // group's operands are in registers. The raised priority lets MFMA issue first where both waves
    // of a SIMD could issue.
    CUPYGEMM_INLINE void multiply(Acc &acc, int half) {
        __builtin_amdgcn_s_setprio(1);
        end_phase();
        // Consecutive instructions use different accumulators: each is reused only after all
        // others.
#pragma unroll
        for (u32 step = 0; step < num_steps; step += Instruction::num_chunks)
#pragma unroll
            for (int part = 0; part < Instruction::per_chunk; ++part)
#pragma unroll
                for (int fm = 0; fm < half_m; ++fm)
#pragma unroll
                    for (int fn = 0; fn < fragments_n; ++fn)
                        multiply_part(acc.registers[half * half_m + fm][fn], half, step, part, fm,
                                      fn);
        end_phase();
        __builtin_amdgcn_s_setprio(0);
        lds_barrier();
        end_phase();
    }

    CUPYGEMM_INLINE void multiply_part(typename Acc::Registers &acc, int half, u32 step, int part,
                                       int fm, int fn) const {
        constexpr u32 chunks = Instruction::num_chunks;
        // 4-bit formats fill one chunk: the second half of the joined operand is unused.
        if constexpr (Config::block_scaled)
            scales.multiply(joined(b[step][fn], b[step + chunks - 1][fn]),
                            joined(a[step][fm], a[step + chunks - 1][fm]), half, step / chunks, fm,
                            fn, acc);
        else if constexpr (chunks == 2)
            Instruction::multiply_two(b[step][fn], b[step + 1][fn], a[step][fm], a[step + 1][fm],
                                      acc);
        else
            Instruction::multiply_part(b[step][fn], a[step][fm], part, acc);
    }
};

} // namespace cupygemm
