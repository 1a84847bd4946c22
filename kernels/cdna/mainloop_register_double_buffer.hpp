// Mainloop with the tile being multiplied in LDS and the next one in registers.
//
// The loads of a tile are issued when its predecessor has left the registers, and waited for one
// whole tile of matrix instructions later. Within a tile, the fragments of a k step are read from
// LDS while the step before is multiplied; the last step, S-1, covers the exchange of tiles:
//
//                       |<---------------------- tile t ----------------------->|
//   MFMA, by step       | 0    | 1    | .. | S-2  | S-1, 1st half | S-1, 2nd half |
//   LDS -> fragments    | 1    | 2    | .. | S-1  |               | 0 of t+1      |
//   registers -> LDS                              | tile t+1      |
//   global -> registers . . . . tile t+1 in flight . . . . .      | tile t+2  . . . . .
//   barriers                                      R               F
//
//   R  every wave has read all of tile t: LDS may be overwritten. Not needed with two stages, where
//      t+1 goes to the other stage, whose last readers were before the previous F.
//   F  every wave has written its share of tile t+1: it may be read.
//
// The ragged tile at the end of k is multiplied first, in the prologue, where its masks cost
// nothing; the loop then runs over whole tiles without any. The order of k does not change from run
// to run.
#pragma once

#include "cdna/schedule.hpp"
#include "cdna/stage.hpp"
#include "cdna/waitcnt.hpp"
#include "common/arguments.hpp"

namespace cupygemm {

template <class Config> struct RegisterDoubleBuffer {
    using A = OperandA<Config>;
    using B = OperandB<Config>;
    using Acc = Accumulators<Config>;
    using ReaderA = FragmentReader<A>;
    using ReaderB = FragmentReader<B>;

    static constexpr u32 num_steps = ReaderA::Map::num_steps;
    static constexpr u32 a_bytes = OperandTile<A>::bytes;
    static constexpr u32 stage_bytes = a_bytes + OperandTile<B>::bytes;
    static constexpr u32 lds_bytes = Config::num_stages * stage_bytes; // (stage, A then B)
    static constexpr int half_m = Acc::fragments_m / 2;
    static constexpr int reads_per_step = ReaderA::Map::num_fragments + ReaderB::Map::num_fragments;
    static constexpr int mfma_per_step =
        Acc::fragments_m * Acc::fragments_n * Acc::Instruction::per_chunk;

    static_assert(ReaderB::Map::num_steps == num_steps, "A and B are cut into the same k steps");
    static_assert(num_steps % 2 == 0,
                  "two sets of fragments alternate, and step 0 always meets the first");
    static_assert(Config::num_stages == 1 || Config::num_stages == 2, "LDS holds one tile or two");

    // One problem of the batch, as this wave sees it.
    struct Position {
        u64 a, b;           // addresses of element (0, 0)
        u32 row_a, row_b;   // first rows of the tile
        u32 wave_m, wave_n; // of the wave in its workgroup
        u32 lane, thread;
    };

    const ReaderA reader_a;
    const ReaderB reader_b;
    const LdsBase lds;
    Stager<A> stager_a;
    Stager<B> stager_b;
    u32 stage = 0; // byte offset of the stage that is being read
    Fragments<Config> fragments[2];

    CUPYGEMM_INLINE RegisterDoubleBuffer(const GemmArgs &args, const Position &at, LdsBase shared)
        : reader_a(at.wave_m, at.lane), reader_b(at.wave_n, at.lane), lds(shared),
          stager_a(at.a, args.lda, args.m, args.k, at.row_a, at.thread),
          stager_b(at.b, args.ldb, args.n, args.k, at.row_b, at.thread) {}

    // acc = A B over all of k
    CUPYGEMM_INLINE void run(const GemmArgs &args, const Position &at, Acc &acc) {
        const i32 whole_tiles = (args.k - 1) / Config::tile_k;
        acc.clear();
        prologue(args, at, whole_tiles);
        for (i32 tile = 0; tile < whole_tiles; ++tile) {
            multiply_all_but_last_step(acc);
            exchange(acc, tile + 1 < whole_tiles);
        }
        drain(acc);
    }

    // Put the ragged tile into LDS, 1 to tile_k deep, and start on the first whole one.
    CUPYGEMM_INLINE void prologue(const GemmArgs &args, const Position &at, i32 whole_tiles) {
        const i32 k_left = args.k - whole_tiles * Config::tile_k;
        stager_a.stage_ragged(lds, whole_tiles, args.m - static_cast<i32>(at.row_a), k_left);
        stager_b.stage_ragged(lds + a_bytes, whole_tiles, args.n - static_cast<i32>(at.row_b),
                              k_left);
        load(whole_tiles > 0);
        lds_barrier(); // F
        read(0);
    }

    CUPYGEMM_INLINE void multiply_all_but_last_step(Acc &acc) {
#pragma unroll
        for (u32 step = 0; step + 1 < num_steps; ++step) {
            read(step + 1);
            acc.multiply(fragments[step % 2], 0, Acc::fragments_m);
            interleave_with_mfma<kind::lds_read, reads_per_step,
                                 ceil_div(mfma_per_step, 2 * reads_per_step)>();
            end_phase();
        }
    }

    // Replace the tile in LDS by the one in registers, under the last step of the multiplication.
    CUPYGEMM_INLINE void exchange(Acc &acc, bool another) {
        const Fragments<Config> &last = fragments[(num_steps - 1) % 2];
        if constexpr (Config::num_stages == 1) {
            lds_barrier(); // R
            end_phase();
        } else {
            stage = stage_bytes - stage;
        }
        stager_a.store(lds + stage);
        stager_b.store(lds + stage + a_bytes);
        acc.multiply(last, 0, half_m);
        interleave_with_mfma<kind::lds_write, Stager<A>::num_writes + Stager<B>::num_writes, 1>();
        end_phase();
        lds_barrier(); // F
        end_phase();
        read(0);
        load(another);
        acc.multiply(last, half_m, Acc::fragments_m);
        interleave_with_mfma<kind::lds_read, reads_per_step, 1>();
        interleave_with_mfma<kind::global_read, Stager<A>::num_loads + Stager<B>::num_loads, 1>();
        end_phase();
    }

    CUPYGEMM_INLINE void drain(Acc &acc) {
        multiply_all_but_last_step(acc);
        acc.multiply(fragments[(num_steps - 1) % 2], 0, Acc::fragments_m);
    }

    CUPYGEMM_INLINE void load(bool exists) {
        stager_a.load(exists);
        stager_b.load(exists);
    }

    CUPYGEMM_INLINE void read(u32 step) {
        fragments[step % 2].read(reader_a, reader_b, lds + stage, lds + stage + a_bytes, step);
    }
};

} // namespace cupygemm
