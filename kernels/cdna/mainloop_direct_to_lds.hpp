// Mainloop that loads from global memory straight to LDS, without staging registers.
//
// LDS is a ring of num_stages tiles: one is being read while the others are in flight. The
// fragments of a k step are read from LDS while the previous step is multiplied. Once the fragments
// of the last step, S-1, have been read, the stage of tile t is free, and the load of tile
// t+num_stages goes there:
//
//                       |<------------------ tile t ------------------->|
//   MFMA, by step       | 0    | 1    | .. | S-2  | S-1                 |
//   LDS -> fragments    | 1    | 2    | .. | S-1  | 0 of t+1            |
//   global -> LDS   . . . . tiles t+1 .. t+num_stages-1 in flight . . . | t+num_stages joins
//   barrier                                       X
//
//   X  Every wave has read all of tile t, so its stage may be overwritten. Every wave's share of
//      tile t+1 has arrived, while those of younger tiles may stay in flight.
//
// The last tile of the workgroup's part of k is multiplied first. If it is ragged, it is staged in
// registers in the prologue, where masks cost nothing; the loop then runs over whole tiles without
// masks. Loads of tiles beyond the last are issued all the same and fill a stage with zeros, so the
// final tiles need no separate loop; the fragments read after the last tile are unused. The order
// of summation over k is always the same.
#pragma once

#include "cdna/direct_load.hpp"
#include "cdna/schedule.hpp"
#include "cdna/vector_end.hpp"
#include "cdna/waitcnt.hpp"
#include "common/arguments.hpp"

namespace cupygemm {

template <class Config> struct DirectToLds {
    using A = OperandA<Config>;
    using B = OperandB<Config>;
    using Acc = Accumulators<Config>;
    using ReaderA = DirectReader<A>;
    using ReaderB = DirectReader<B>;
    using LoaderA = DirectLoader<A>;
    using LoaderB = DirectLoader<B>;

    static constexpr u32 num_steps = ReaderA::Map::num_steps;
    static constexpr u32 a_bytes = OperandTile<A>::bytes;
    static constexpr u32 stage_bytes = a_bytes + OperandTile<B>::bytes;
    static constexpr u32 lds_bytes = Config::num_stages * stage_bytes; // (stage, A then B)

    // Instruction counts per wave, for the scheduler hints.
    static constexpr int half_m = Acc::fragments_m / 2;
    static constexpr int reads_first_half =
        half_m * ReaderA::reads_per_fragment +
        ReaderB::Map::num_fragments * ReaderB::reads_per_fragment;
    static constexpr int reads_second_half =
        (Acc::fragments_m - half_m) * ReaderA::reads_per_fragment;
    static constexpr int mfma_per_step =
        Acc::fragments_m * Acc::fragments_n * Acc::Instruction::per_chunk;
    static constexpr int num_loads = LoaderA::num_loads + LoaderB::num_loads;
    // When tile t+1 must have arrived, the loads of tiles t+2 to t+num_stages-1 may stay in flight.
    static constexpr int younger_loads = (Config::num_stages - 2) * num_loads;

    static_assert(ReaderB::Map::num_steps == num_steps,
                  "A and B must be split into the same k steps");
    static_assert(num_steps % 2 == 0, "two fragment buffers alternate, so the number of k steps "
                                      "must be even for step 0 to use the first");
    static_assert(Config::num_stages >= 2,
                  "one tile is read while another is loaded, so the ring needs two stages");
    static_assert(younger_loads + num_loads < 64, "vmcnt counts up to 63");

    const GemmArgs &args;
    const Position &at;
    const ReaderA reader_a;
    const ReaderB reader_b;
    LoaderA loader_a;
    LoaderB loader_b;
    Fragments<Config, ReaderA, ReaderB> fragments[2];
    LdsBase const lds;
    u32 stage = 0; // byte offset of the stage being read

    CUPYGEMM_INLINE DirectToLds(const GemmArgs &arguments, const Position &position, LdsBase shared)
        : args(arguments), at(position), reader_a(at.wave_m, at.lane), reader_b(at.wave_n, at.lane),
          loader_a(at.a, args.lda, args.m, args.k, at.row, at.k.begin, at.thread, wave()),
          loader_b(at.b, args.ldb, args.n, args.k, at.column, at.k.begin, at.thread, wave()),
          lds(shared) {}

    CUPYGEMM_INLINE u32 wave() const { return at.wave_m * Config::waves_n + at.wave_n; }

    CUPYGEMM_INLINE i32 depth() const { return at.k.end - at.k.begin; }

    // acc = A B over the workgroup's part of k
    CUPYGEMM_INLINE void run(Acc &acc) {
        const i32 whole_tiles = (depth() - 1) / Config::tile_k;
        prologue(whole_tiles);
        acc.clear();
        for (i32 tile = 0; tile <= whole_tiles; ++tile) {
            prepare(tile + Config::num_stages <= whole_tiles);
            multiply_all_but_last_step(acc);
            advance(acc);
        }
        end_phase();
        // No load to LDS, and no read of the unused fragments, is in flight. The compiler treats a
        // wait without lgkmcnt as one that leaves 15 reads outstanding, and would reuse the
        // registers of a sixteenth before its data arrives.
        wait_for_all_accesses();
        end_phase();
        unswap_fragments(acc, at.lane);
    }

    // Put the last tile along k, 1 to tile_k deep, into LDS, and start loading the first tiles.
    CUPYGEMM_INLINE void prologue(i32 whole_tiles) {
        const i32 m_left = args.m - static_cast<i32>(at.row);
        const i32 n_left = args.n - static_cast<i32>(at.column);
        const i32 k_left = depth() - whole_tiles * Config::tile_k;
        const bool ragged = !is_whole<A>(m_left, k_left) || !is_whole<B>(n_left, k_left);
        typename LoaderA::RaggedUnits ragged_a;
        typename LoaderB::RaggedUnits ragged_b;
        if (ragged) {
            loader_a.load_ragged(ragged_a, whole_tiles, m_left, k_left);
            loader_b.load_ragged(ragged_b, whole_tiles, n_left, k_left);
        } else {
            loader_a.load_last(lds, whole_tiles);
            loader_b.load_last(lds + a_bytes, whole_tiles);
        }
        end_phase();
#pragma unroll
        for (i32 tile = 0; tile < Config::num_stages - 1; ++tile) {
            prepare(tile < whole_tiles);
            load(lds + (tile + 1) * stage_bytes);
        }
        end_phase();
        if (ragged) {
            loader_a.store_ragged(lds, ragged_a, m_left, k_left);
            loader_b.store_ragged(lds + a_bytes, ragged_b, n_left, k_left);
        }
        load_and_lds_barrier<younger_loads + num_loads>(); // stage 0 is in LDS
        read_first_half(0);
        read_second_half(0);
    }

    CUPYGEMM_INLINE void multiply_all_but_last_step(Acc &acc) {
#pragma unroll
        for (u32 step = 0; step + 1 < num_steps; ++step) {
            read_first_half(step + 1);
            acc.multiply(fragments[step % 2], 0, half_m);
            // Interleave reads twice as densely as an even spread, so that the last read returns
            // before the step ends.
            interleave_with_mfma<kind::lds_read, reads_first_half,
                                 ceil_div(mfma_per_step / 2, 2 * reads_first_half)>();
            end_phase();
            read_second_half(step + 1);
            acc.multiply(fragments[step % 2], half_m, Acc::fragments_m);
            interleave_with_mfma<kind::lds_read, reads_second_half, 1>();
            if (step + 2 == num_steps) {
                loader_a.prepare_now();
                loader_b.prepare_now();
            }
            end_phase();
        }
    }

    // Move on to the next tile and start loading into the freed stage, during the last step of the
    // multiplication.
    CUPYGEMM_INLINE void advance(Acc &acc) {
        load_and_lds_barrier<younger_loads>(); // X
        end_phase();
        const u32 freed = stage;
        stage = stage + stage_bytes == lds_bytes ? 0 : stage + stage_bytes;
        read_first_half(0);
        acc.multiply(fragments[(num_steps - 1) % 2], 0, half_m);
        begin_with_mfma<2>();
        interleave_with_mfma<kind::lds_read, reads_first_half, 1>();
        end_phase();
        read_second_half(0);
        load(lds + freed);
        acc.multiply(fragments[(num_steps - 1) % 2], half_m, Acc::fragments_m);
        interleave_with_mfma<kind::lds_read, reads_second_half, 1>();
        interleave_with_mfma<kind::global_read, num_loads, 1>();
        end_phase();
    }

    CUPYGEMM_INLINE void prepare(bool exists) {
        loader_a.prepare(exists);
        loader_b.prepare(exists);
    }

    CUPYGEMM_INLINE void load(LdsBase to) {
        loader_a.load(to);
        loader_b.load(to + a_bytes);
    }

    // The fragments of a step are read in two halves: all of B with half of A, then the rest of A.
    // Meanwhile the matching half of A of the previous step is multiplied, and its registers become
    // free.
    CUPYGEMM_INLINE void read_first_half(u32 step) {
        fragments[step % 2].read_b(reader_b, lds + stage + a_bytes, step);
        fragments[step % 2].read_a(reader_a, lds + stage, step, 0, half_m);
    }

    CUPYGEMM_INLINE void read_second_half(u32 step) {
        fragments[step % 2].read_a(reader_a, lds + stage, step, half_m, Acc::fragments_m);
    }
};

} // namespace cupygemm
