// Mainloop for products with at most 16 rows or 16 columns, which read one long operand once.
//
// Such a product is bound by memory: its speed depends only on the number of bytes in flight. All
// waves of a workgroup compute the same tile of C, and each wave sums a slice of every tile_k of k.
// It reads its slice of the long operand straight into the fragments of matrix instructions
// (slice.hpp). One slice is multiplied while num_stages - 1 are in flight, and no wave waits for
// another:
//
//   global -> registers   0 | 1 | 2 | .. (num_stages slices) ..  t + num_stages
//   MFMA                          | 0 | 1 | ..                   t
//
// Finally the waves' sums are added through LDS in a fixed order, and each wave receives its part
// of the tile in the order of rows and columns of Accumulators. The last tile of the workgroup's
// part of k, which may be ragged, is multiplied first.
//
// The tile is 32 wide along the short side, of which 16 are computed. The waves lie along the long
// side.
#pragma once

#include "cdna/slice.hpp"
#include "cdna/store.hpp"
#include "cdna/waitcnt.hpp"
#include "common/addition.hpp"
#include "common/arguments.hpp"

namespace cupygemm {

template <class Config> struct DirectToRegister {
    static constexpr bool short_m = Config::tile_m == 32;
    template <bool first, class T, class U> struct Either {
        using Type = T;
    };
    template <class T, class U> struct Either<false, T, U> {
        using Type = U;
    };
    using Long = typename Either<short_m, OperandB<Config>, OperandA<Config>>::Type;
    using Short = typename Either<short_m, OperandA<Config>, OperandB<Config>>::Type;
    using Acc = Accumulators<Config>;
    using Scalar = typename Acc::Scalar;

    static constexpr u32 num_waves = Config::num_threads / wave_size;
    static constexpr u32 slice_k = Config::tile_k / num_waves;
    static constexpr u32 step_k = chunks_per_step * SliceWindow<Long>::elements;
    static constexpr u32 num_steps = slice_k / step_k;
    using LongTile = LongSlice<Long, num_steps>;
    using ShortTile = ShortSlice<Short, num_steps>;
    static constexpr u32 num_fragments = LongTile::num_fragments;

    // The long operand is the instruction's first, so all sums of a lane have one short index.
    using Instruction = Mma<typename Long::Element, typename Short::Element, Config::mma_m,
                            Config::mma_n, Config::mma_k>;
    using Sums = typename Instruction::Accumulator[num_fragments];

    // LDS, used only for the final exchange: (region, long index, short index). A pitch of 17
    // avoids bank conflicts in both directions.
    static constexpr u32 num_regions = num_waves / 2;
    static constexpr u32 pitch = slice_rows + 1;
    static constexpr u32 region_bytes = Long::tile_rows * pitch * sizeof(Scalar);
    static constexpr u32 lds_bytes = num_regions * region_bytes;

    static_assert(Config::mma_m == 16, "the short side must be the 16 of an instruction");
    static_assert(Instruction::num_chunks == 1, "a k step must feed whole instructions");
    static_assert(num_waves == 4, "the sums of four waves are added in two rounds of two");
    static_assert(slice_k % step_k == 0, "a wave's slice of k must be whole steps");
    static_assert((short_m ? Config::waves_m : Config::waves_n) == 1 &&
                      (short_m ? Config::tile_m : Config::tile_n) == 32,
                  "the tile must be 32 wide along the short side, with one wave");

    struct Slice {
        LongTile of_long;
        ShortTile of_short;
    };

    const GemmArgs &args;
    const Position &at;
    const LdsBase lds;
    const u32 wave;
    const u32 k0;           // first k of the wave's slice within a tile
    const i32 short_extent; // rows of the short operand
    SliceWindow<Long> of_long;
    SliceWindow<Short> of_short;

    CUPYGEMM_INLINE DirectToRegister(const GemmArgs &arguments, const Position &position,
                                     LdsBase shared)
        : args(arguments), at(position), lds(shared), wave(at.wave_m + at.wave_n),
          k0(wave * slice_k), short_extent(short_m ? args.m : args.n), of_long(window<Long>()),
          of_short(window<Short>()) {}

    // acc = A B over the workgroup's part of k
    CUPYGEMM_INLINE void run(Acc &acc) {
        const i32 depth = at.k.end - at.k.begin;
        const i32 whole_tiles = (depth - 1) / Config::tile_k;
        Sums sums = {};
        Slice ragged, slices[Config::num_stages];
        load_ragged(ragged, whole_tiles, depth - whole_tiles * Config::tile_k);
#pragma unroll
        for (i32 stage = 0; stage + 1 < Config::num_stages; ++stage)
            load(slices[stage], stage < whole_tiles);
        multiply(sums, ragged);
        __builtin_amdgcn_sched_barrier(0); // the last stage reuses the ragged slice's registers
        load(slices[Config::num_stages - 1], Config::num_stages <= whole_tiles);
        // Tiles beyond the last whole one are not read; their registers hold zeros.
        for (i32 tile = 0; tile < whole_tiles; tile += Config::num_stages) {
#pragma unroll
            for (i32 stage = 0; stage < Config::num_stages; ++stage) {
                multiply(sums, slices[stage]);
                load(slices[stage], tile + stage + Config::num_stages < whole_tiles);
            }
        }
        share(sums, acc);
    }

    CUPYGEMM_INLINE void load(Slice &slice, bool exists) {
        slice.of_long.load(of_long, k0, at.lane, exists);
        slice.of_short.load(of_short, k0, at.lane, short_extent, exists);
        of_long.window.advance(of_long.tile_step);
        of_short.window.advance(of_short.tile_step);
    }

    CUPYGEMM_INLINE void load_ragged(Slice &slice, i32 tile, i32 k_left) {
        const i32 rows_left = static_cast<i32>(short_m ? args.n - at.column : args.m - at.row);
        slice.of_long.load_ragged(of_long, of_long.tile(tile), k0, at.lane, rows_left, k_left);
        __builtin_amdgcn_sched_barrier(0); // the masks of each operand fill the scalar registers
        slice.of_short.load_ragged(of_short, of_short.tile(tile), k0, at.lane, short_extent,
                                   k_left);
    }

    CUPYGEMM_INLINE static void multiply(Sums &sums, const Slice &slice) {
#pragma unroll
        for (u32 step = 0; step < num_steps; ++step)
#pragma unroll
            for (u32 f = 0; f < num_fragments; ++f)
                Instruction::multiply(slice.of_long.chunk(step, f), slice.of_short.chunks[step],
                                      sums[f]);
    }

    // (wave 0 + wave 2) + (wave 1 + wave 3), handed to the waves that store them
    CUPYGEMM_INLINE void share(Sums &sums, Acc &acc) {
        const LdsBase region = lds + wave % num_regions * region_bytes;
        if (wave >= num_regions)
            write(sums, region);
        lds_barrier(); // the sums of waves 2 and 3 are in LDS
        if (wave < num_regions)
            add(sums, region);
        lds_barrier(); // every wave has read them: LDS may be overwritten
        if (wave < num_regions)
            write(sums, region);
        lds_barrier(); // the sums of pairs of waves are in LDS
        read(acc);
    }

    CUPYGEMM_INLINE void write(const Sums &sums, LdsBase region) const {
        for_each([&](u32 f, u32 e, u32 offset) { element(region, offset) = sums[f][e]; });
    }
    CUPYGEMM_INLINE void add(Sums &sums, LdsBase region) const {
        for_each([&](u32 f, u32 e, u32 offset) {
            sums[f][e] = added(sums[f][e], element(region, offset));
        });
    }

    // Visit each of a lane's sums with its offset in a region. Its long index follows from
    // lane / 16 and its place in the accumulator, its short index from lane % 16.
    template <class Visit> CUPYGEMM_INLINE void for_each(Visit visit) const {
        const u32 part = at.lane / slice_rows;
#pragma unroll
        for (u32 f = 0; f < num_fragments; ++f)
#pragma unroll
            for (u32 e = 0; e < 4; ++e) {
                const u32 i = Instruction::rows_are_runs ? part * 4 + e : e * 4 + part;
                visit(f, e, offset(LongTile::row_of(f, i), at.lane % slice_rows));
            }
    }

    CUPYGEMM_INLINE void read(Acc &acc) const {
        const TilePlace<Config> place(args, at);
#pragma unroll
        for (u32 fm = 0; fm < Acc::fragments_m; ++fm)
#pragma unroll
            for (u32 quad = 0; quad < Acc::num_quads; ++quad)
#pragma unroll
                for (u32 e = 0; e < 4; ++e) {
                    const u32 row = place.row(fm), column = place.column(quad, e);
                    const u32 from = offset(short_m ? column : row, short_m ? row : column);
                    const bool computed = (short_m ? row : column) < slice_rows;
                    const u32 inside = computed ? from : 0;
                    Scalar sum = element(lds, inside);
#pragma unroll
                    for (u32 region = 1; region < num_regions; ++region)
                        sum = added(sum, element(lds + region * region_bytes, inside));
                    acc.registers[fm][quad][e] = sum;
                }
    }

    CUPYGEMM_INLINE static u32 offset(u32 of_long, u32 of_short) {
        return (of_long * pitch + of_short) * sizeof(Scalar);
    }
    CUPYGEMM_INLINE static auto &element(LdsBase region, u32 offset) {
        return *reinterpret_cast<LdsPointer<Scalar>>(region + offset);
    }

    template <class Operand> CUPYGEMM_INLINE SliceWindow<Operand> window() const {
        if constexpr (IsSame<Operand, OperandA<Config>>::value)
            return {at.a, args.lda, args.m, args.k, at.row, at.k.begin};
        else
            return {at.b, args.ldb, args.n, args.k, at.column, at.k.begin};
    }
};

} // namespace cupygemm
