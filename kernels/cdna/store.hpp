// Writing a wave's accumulators to C.
//
// A lane holds runs of consecutive columns of one row: 4 in a quad of accumulators and, through the
// row order of B's tile, 8 in a pair of quads. A run is one store of up to 16 bytes; in fp64 a quad
// is 4 runs of one column, of which 4 lanes store 32 adjacent bytes. Where C's rows are not
// dword-aligned, and in the run that straddles column n, elements are stored one by one. Nothing
// outside the m x n matrix is written: rows and columns are checked here, not left to the end of
// the buffer, since what follows a row of C may belong to somebody else.
#pragma once

#include "cdna/buffer.hpp"
#include "cdna/tile.hpp"
#include "common/arguments.hpp"

namespace cupygemm {

template <class Config, class Epilogue> struct TileStore {
    using Acc = Accumulators<Config>;
    using Bits = typename Epilogue::Bits;
    static constexpr int run = !Acc::quads_are_runs ? 1 : sizeof(Bits) >= 4 ? 4 : 8; // columns
    static constexpr int num_runs = Acc::num_quads * 4 / run;
    static constexpr u32 wave_m = Config::tile_m / Config::waves_m;
    static constexpr u32 wave_n = Config::tile_n / Config::waves_n;
    // The second quad of a run lies 16 LDS rows after the first (RowOrder).
    static constexpr int partner = 16 / Acc::quad_stride;

    static_assert(wave_n % RowOrder::block == 0,
                  "a wave's columns are whole blocks of the row order");

    // First quad of a run, such that quads `first` and `first + partner` make up one of 8.
    CUPYGEMM_INLINE static constexpr int first_quad(int index) {
        return run == 8 ? index / partner * 2 * partner + index % partner : index * run / 4;
    }

    CUPYGEMM_INLINE static void store(const GemmArgs &args, const Position &at, const Acc &acc,
                                      const Epilogue &epilogue) {
        const i64 tile_offset = (at.row * args.ldc + at.column) * static_cast<i64>(sizeof(Bits));
        const i64 end = ((args.m - 1) * args.ldc + args.n) * static_cast<i64>(sizeof(Bits));
        const Resource memory = exact_resource({at.c + tile_offset, end - tile_offset});
        const u32 pitch = static_cast<u32>(args.ldc) * sizeof(Bits);
        const i32 rows_left = args.m - static_cast<i32>(at.row);
        const i32 columns_left = args.n - static_cast<i32>(at.column);
        const bool whole_runs = columns_left >= Config::tile_n || columns_left % run == 0;

#pragma unroll
        for (int fm = 0; fm < Acc::fragments_m; ++fm) {
            const u32 row = RowOrder::tile_row(at.wave_m * wave_m + fm * Config::mma_m +
                                               at.lane % Config::mma_m);
            const bool row_inside = static_cast<i32>(row) < rows_left;
#pragma unroll
            for (int index = 0; index < num_runs; ++index) {
                const int quad = first_quad(index);
                const int first = run == 1 ? index % 4 : 0;
                const u32 column =
                    RowOrder::tile_row(at.wave_n * wave_n + Acc::lds_row(at.lane, quad, first));
                const i32 left = row_inside ? columns_left - static_cast<i32>(column) : 0;
                const u32 offset = row * pitch + column * sizeof(Bits);

                Bits bits[run];
#pragma unroll
                for (int e = 0; e < run; ++e)
                    bits[e] = epilogue(acc.element(fm, quad + e / 4 * partner, first + e % 4),
                                       static_cast<i32>(at.row + row),
                                       static_cast<i32>(at.column + column) + e);

                if constexpr (Config::c_dword_aligned) {
                    store_run(bits, memory, left >= run ? offset : out_of_range);
                    if (!whole_runs)
                        store_elements(bits, memory, offset, left < run ? left : 0);
                } else {
                    store_elements(bits, memory, offset, left);
                }
            }
        }
    }

    CUPYGEMM_INLINE static void store_run(const Bits (&bits)[run], Resource memory, u32 offset) {
        if constexpr (run == 1) {
            buffer_store_bits(bits[0], memory, offset);
        } else if constexpr (sizeof(bits) == 16) {
            u32x4 words;
            __builtin_memcpy(&words, bits, sizeof(words));
            buffer_store_b128(words, memory, offset);
        } else {
            static_assert(sizeof(bits) == 8, "a run is stored by one instruction");
            u32x2 words;
            __builtin_memcpy(&words, bits, sizeof(words));
            buffer_store_b64(words, memory, offset);
        }
    }

    CUPYGEMM_INLINE static void store_elements(const Bits (&bits)[run], Resource memory, u32 offset,
                                               i32 left) {
#pragma unroll
        for (int e = 0; e < run; ++e)
            buffer_store_bits(bits[e], memory, e < left ? offset + e * sizeof(Bits) : out_of_range);
    }
};

} // namespace cupygemm
