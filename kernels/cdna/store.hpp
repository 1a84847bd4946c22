// Stores a wave's accumulators to C, through the epilogue.
//
// A lane holds runs of consecutive columns of one row: 4 in a quad of accumulators and, because of
// the row order of B's tile, 8 in a pair of quads. One store writes a run of up to 16 bytes; a quad
// of complex64 is therefore two runs. In fp64 a quad is 4 runs of one column, and 4 lanes together
// store 32 adjacent bytes. Elements are stored one by one where C's rows are not dword-aligned, and
// in the run that straddles column n. Nothing outside the m x n matrix is written: the bounds check
// of the buffer does not suffice, since the memory that follows a row of C may belong to another
// array.
#pragma once

#include "cdna/buffer.hpp"
#include "cdna/tile.hpp"
#include "common/arguments.hpp"

namespace cupygemm {

// Maps a lane's accumulators to elements of C, and tells which of them exist.
template <class Config> struct TilePlace {
    using Acc = Accumulators<Config>;
    static constexpr u32 wave_n = Config::tile_n / Config::waves_n;

    const Position &at;
    const i32 rows_left, columns_left; // of C, from the tile's first row and column

    static_assert(wave_n % RowOrder::block == 0,
                  "a wave's columns must be whole blocks of the row order");

    CUPYGEMM_INLINE TilePlace(const GemmArgs &args, const Position &position)
        : at(position), rows_left(args.m - static_cast<i32>(at.row)),
          columns_left(args.n - static_cast<i32>(at.column)) {}

    // Row and column within the tile.
    CUPYGEMM_INLINE u32 row(u32 fm) const {
        return RowOrder::tile_row(Acc::lds_row_of_a(at.wave_m, fm, at.lane % Config::mma_m));
    }
    CUPYGEMM_INLINE u32 column(u32 quad, u32 e) const {
        return RowOrder::tile_row(at.wave_n * wave_n + Acc::lds_row(at.lane, quad, e));
    }

    // How many elements C has in this row from `column` on; the number may exceed a quad.
    CUPYGEMM_INLINE i32 left(u32 fm, u32 column) const {
        const bool row_inside = static_cast<i32>(row(fm)) < rows_left;
        return row_inside ? columns_left - static_cast<i32>(column) : 0;
    }
    CUPYGEMM_INLINE bool inside(u32 fm, u32 quad) const { return left(fm, column(quad, 0)) > 0; }
};

template <class Config, class Epilogue> struct TileStore {
    using Acc = Accumulators<Config>;
    using Scalar = typename Acc::Scalar;
    using Bits = typename Epilogue::Bits;
    static constexpr int run = // columns
        Acc::quads_are_runs ? minimum<int>(8, 16 / sizeof(Bits)) : 1;
    // The second quad of a run lies 16 LDS rows after the first (RowOrder).
    static constexpr int partner = 16 / Acc::quad_stride;
    // A group is as many quads as form whole runs. These are its quads and its runs.
    static constexpr int group_quads = run == 8 ? 2 : 1;
    static constexpr int group_runs = group_quads * 4 / run;
    static constexpr int num_groups = Acc::num_quads / group_quads;

    const TilePlace<Config> place;
    const Epilogue epilogue;
    Resource memory;
    u32 pitch; // in bytes
    bool whole_runs;

    CUPYGEMM_INLINE TileStore(const GemmArgs &args, const Position &at, const Epilogue &functor)
        : place(args, at), epilogue(functor), pitch(static_cast<u32>(args.ldc) * sizeof(Bits)) {
        const i64 tile_offset = (at.row * args.ldc + at.column) * static_cast<i64>(sizeof(Bits));
        const i64 end = ((args.m - 1) * args.ldc + args.n) * static_cast<i64>(sizeof(Bits));
        memory = exact_resource({at.c + tile_offset, end - tile_offset});
        whole_runs = place.columns_left >= Config::tile_n || place.columns_left % run == 0;
    }

    // Quad i of a group.
    CUPYGEMM_INLINE static constexpr u32 quad_of(u32 group, u32 i) {
        return run == 8 ? group / partner * 2 * partner + group % partner + i * partner : group;
    }

    // The epilogue's per-element sources are fetched one row ahead, so that they arrive while the
    // previous row is stored. In fp64 the sums leave no registers for that.
    static constexpr int rows_ahead = sizeof(Scalar) == 8 ? 0 : 1;

    CUPYGEMM_INLINE void store(const Acc &acc) const {
        GroupColumns columns[num_groups];
        Row rows[Acc::fragments_m];
        GroupElements elements[rows_ahead + 1][num_groups];
#pragma unroll
        for (int group = 0; group < num_groups; ++group) {
            load_columns(columns[group], group);
            if (rows_ahead > 0)
                load_elements(elements[0][group], 0, group);
        }
#pragma unroll
        for (int fm = 0; fm < Acc::fragments_m; ++fm)
            load_row(rows[fm], fm);
#pragma unroll
        for (int fm = 0; fm < Acc::fragments_m; ++fm) {
            const int ahead = fm + rows_ahead;
            if (ahead < Acc::fragments_m) {
#pragma unroll
                for (int group = 0; group < num_groups; ++group)
                    load_elements(elements[ahead % (rows_ahead + 1)][group], ahead, group);
            }
#pragma unroll
            for (int group = 0; group < num_groups; ++group) {
                Scalar sums[group_quads][4];
#pragma unroll
                for (int i = 0; i < group_quads; ++i)
#pragma unroll
                    for (int e = 0; e < 4; ++e)
                        sums[i][e] = acc.element(fm, quad_of(group, i), e);
                finish(fm, group, sums, rows[fm], columns[group],
                       elements[fm % (rows_ahead + 1)][group]);
            }
        }
    }

    CUPYGEMM_INLINE void store_group(u32 fm, u32 group,
                                     const Scalar (&sums)[group_quads][4]) const {
        GroupColumns columns;
        GroupElements elements;
        Row row;
        load_columns(columns, group);
        load_elements(elements, fm, group);
        load_row(row, fm);
        finish(fm, group, sums, row, columns, elements);
    }

private:
    using Row = typename Epilogue::Row;
    struct GroupColumns {
        typename Epilogue::template Columns<run> runs[group_runs];
    };
    struct GroupElements {
        typename Epilogue::template Elements<run> runs[group_runs];
    };

    // The first column of run `index` of a group.
    CUPYGEMM_INLINE u32 column_of(u32 group, int index) const {
        return place.column(quad_of(group, 0), index * run);
    }

    CUPYGEMM_INLINE void load_row(Row &row, u32 fm) const {
        const bool inside = static_cast<i32>(place.row(fm)) < place.rows_left;
        epilogue.load(row, place.row(fm), 0, inside ? 1 : 0);
    }
    CUPYGEMM_INLINE void load_columns(GroupColumns &columns, u32 group) const {
#pragma unroll
        for (int index = 0; index < group_runs; ++index) {
            const u32 column = column_of(group, index);
            epilogue.load(columns.runs[index], 0, column,
                          place.columns_left - static_cast<i32>(column));
        }
    }
    CUPYGEMM_INLINE void load_elements(GroupElements &elements, u32 fm, u32 group) const {
#pragma unroll
        for (int index = 0; index < group_runs; ++index) {
            const u32 column = column_of(group, index);
            epilogue.load(elements.runs[index], place.row(fm), column, place.left(fm, column));
        }
    }

    CUPYGEMM_INLINE void finish(u32 fm, u32 group, const Scalar (&sums)[group_quads][4],
                                const Row &row_part, const GroupColumns &columns,
                                const GroupElements &elements) const {
        const u32 row = place.row(fm);
#pragma unroll
        for (int index = 0; index < group_runs; ++index) {
            const u32 column = column_of(group, index);
            const i32 left = place.left(fm, column);
            const u32 offset = row * pitch + column * sizeof(Bits);

            Bits bits[run];
#pragma unroll
            for (int e = 0; e < run; ++e)
                bits[e] = epilogue.finish(sums[e / 4][index * run + e % 4], e, row_part,
                                          columns.runs[index], elements.runs[index]);

            if constexpr (Config::c_dword_aligned) {
                store_run(bits, memory, left >= run ? offset : out_of_range);
                if (!whole_runs)
                    store_elements(bits, memory, offset, left < run ? left : 0);
            } else {
                store_elements(bits, memory, offset, left);
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
            static_assert(sizeof(bits) == 8, "a run must be stored by one instruction");
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
