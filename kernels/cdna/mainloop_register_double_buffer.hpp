// Mainloop that multiplies the tile in LDS while the next tile is in registers.
//
// The loads of a tile are issued when the previous tile has left the registers, and are waited for
// one whole tile of matrix instructions later. Within a tile, the fragments of a k step are read
// from LDS while the previous step is multiplied. The last step, S-1, hides the exchange of tiles:
//
//                       |<---------------------- tile t ----------------------->|
//   MFMA, by step       | 0    | 1    | .. | S-2  | S-1, 1st half | S-1, 2nd half |
//   LDS -> fragments    | 1    | 2    | .. | S-1  |               | 0 of t+1      |
//   registers -> LDS                              | tile t+1      |
//   global -> registers . . . . tile t+1 in flight . . . . .      | tile t+2  . . . . .
//   barriers                                      R               F
//
//   R  Every wave has read all of tile t, so LDS may be overwritten. Two stages do not need it:
//      tile t+1 goes to the other stage, whose last readers finished before the previous F.
//   F  Every wave has written its share of tile t+1, so it may be read.
//
// The last tile of the workgroup's part of k, which may be ragged, is multiplied first: its masks
// cost nothing in the prologue, and the loop runs over whole tiles without masks. The order of
// summation over k is always the same.
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
    using StagerA = Stager<A>;
    using StagerB = Stager<B>;

    static constexpr u32 num_steps = ReaderA::Map::num_steps;
    static constexpr u32 a_bytes = OperandTile<A>::bytes;
    static constexpr u32 stage_bytes = a_bytes + OperandTile<B>::bytes;
    static constexpr u32 lds_bytes = Config::num_stages * stage_bytes; // (stage, A then B)

    // Instruction counts per wave, for the scheduler hints.
    static constexpr int half_m = Acc::fragments_m / 2;
    static constexpr int reads_per_step =
        ReaderA::Map::num_fragments * ReaderA::reads_per_fragment +
        ReaderB::Map::num_fragments * ReaderB::reads_per_fragment;
    static constexpr int mfma_per_step =
        Acc::fragments_m * Acc::fragments_n * Acc::Instruction::per_chunk;
    static constexpr int num_loads = StagerA::num_loads + StagerB::num_loads;
    static constexpr int num_writes = StagerA::num_writes + StagerB::num_writes;

    static_assert(ReaderB::Map::num_steps == num_steps,
                  "A and B must be split into the same k steps");
    static_assert(num_steps % 2 == 0, "two fragment buffers alternate, so the number of k steps "
                                      "must be even for step 0 to use the first");
    static_assert(Config::num_stages == 1 || Config::num_stages == 2,
                  "LDS must hold one tile or two");

    const GemmArgs &args;
    const Position &at;
    const LdsBase lds;
    const ReaderA reader_a;
    const ReaderB reader_b;
    StagerA stager_a;
    StagerB stager_b;
    typename StagerA::Vectors next_a; // the next tile
    typename StagerB::Vectors next_b;
    Fragments<Config> fragments[2];
    u32 stage = 0; // byte offset of the stage being read

    CUPYGEMM_INLINE RegisterDoubleBuffer(const GemmArgs &arguments, const Position &position,
                                         LdsBase shared)
        : args(arguments), at(position), lds(shared), reader_a(at.wave_m, at.lane),
          reader_b(at.wave_n, at.lane),
          stager_a(at.a, args.lda, args.m, args.k, at.row, at.k.begin, at.thread),
          stager_b(at.b, args.ldb, args.n, args.k, at.column, at.k.begin, at.thread) {}

    // acc = A B over the workgroup's part of k
    CUPYGEMM_INLINE void run(Acc &acc) {
        const i32 whole_tiles = (depth() - 1) / Config::tile_k;
        prologue(whole_tiles);
        acc.clear();
        for (i32 tile = 0; tile < whole_tiles; ++tile) {
            multiply_all_but_last_step(acc);
            exchange(acc, tile + 1 < whole_tiles);
        }
        drain(acc);
    }

    // Put the ragged tile, 1 to tile_k deep, into LDS. The loads of the first whole tile are issued
    // before it is stored, so that a workgroup waits for memory only once before it multiplies.
    CUPYGEMM_INLINE void prologue(i32 whole_tiles) {
        const i32 m_left = args.m - static_cast<i32>(at.row);
        const i32 n_left = args.n - static_cast<i32>(at.column);
        const i32 k_left = depth() - whole_tiles * Config::tile_k;
        typename StagerA::RaggedVectors ragged_a;
        typename StagerB::RaggedVectors ragged_b;
        stager_a.load_ragged(ragged_a, whole_tiles, m_left, k_left);
        stager_b.load_ragged(ragged_b, whole_tiles, n_left, k_left);
        load(whole_tiles > 0);
        end_phase();
        stager_a.store_ragged(lds, ragged_a, m_left, k_left);
        stager_b.store_ragged(lds + a_bytes, ragged_b, n_left, k_left);
        lds_barrier(); // F
        read(0);
    }

    CUPYGEMM_INLINE i32 depth() const { return at.k.end - at.k.begin; }

    CUPYGEMM_INLINE void multiply_all_but_last_step(Acc &acc) {
#pragma unroll
        for (u32 step = 0; step + 1 < num_steps; ++step) {
            read(step + 1);
            acc.multiply(fragments[step % 2], 0, Acc::fragments_m);
            // Interleave reads twice as densely as an even spread, so that the last read returns
            // before the step ends.
            interleave_with_mfma<kind::lds_read, reads_per_step,
                                 ceil_div(mfma_per_step, 2 * reads_per_step)>();
            end_phase();
        }
    }

    // Replace the tile in LDS by the one in registers, during the last step of the multiplication.
    CUPYGEMM_INLINE void exchange(Acc &acc, bool another) {
        const Fragments<Config> &last = fragments[(num_steps - 1) % 2];
        if constexpr (Config::num_stages == 1) {
            lds_barrier(); // R
            end_phase();
        } else {
            stage = stage_bytes - stage;
        }
        stager_a.store(lds + stage, next_a);
        stager_b.store(lds + stage + a_bytes, next_b);
        acc.multiply(last, 0, half_m);
        interleave_with_mfma<kind::lds_write, num_writes, 1>();
        end_phase();
        lds_barrier(); // F
        end_phase();
        read(0);
        load(another);
        acc.multiply(last, half_m, Acc::fragments_m);
        interleave_with_mfma<kind::lds_read, reads_per_step, 1>();
        interleave_with_mfma<kind::global_read, num_loads, 1>();
        end_phase();
    }

    // The last tile: nothing is left to load.
    CUPYGEMM_INLINE void drain(Acc &acc) {
        multiply_all_but_last_step(acc);
        acc.multiply(fragments[(num_steps - 1) % 2], 0, Acc::fragments_m);
    }

    CUPYGEMM_INLINE void load(bool exists) {
        stager_a.load(next_a, exists);
        stager_b.load(next_b, exists);
    }

    CUPYGEMM_INLINE void read(u32 step) {
        fragments[step % 2].read(reader_a, reader_b, lds + stage, lds + stage + a_bytes, step);
    }
};

} // namespace cupygemm
