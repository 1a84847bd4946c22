// Block scales: factors that change along k, for rows of A and for columns of B.
//
//   acc += (A B over one step of k) * scale_a(row, block) * scale_b(block, column)
//
// A step of the mainloop is 128 bytes of k and lies in one block. While the tensor cores multiply a
// step, each lane reads the scales of its rows and columns from global memory. If the blocks of B
// are at least 64 columns wide, 64 columns of a tile share a scale; otherwise each column has its
// own.
#pragma once

#include "hopper/scheduler.cuh"

namespace cupygemm {

template <class Config> struct BlockScales {
    using T = Tile<Config>;
    static constexpr bool by_column = Config::scale_per_column;
    static constexpr u32 shared_columns = 64; // that share a scale, unless each column has its own
    static constexpr u32 num_columns = Config::tile_n / (by_column ? 4 : shared_columns);

    const float *rows[T::consumer_blocks][2]; // (block of 64 rows, half): for block 0 of k
    const float *columns;
    i64 a_k, b_k; // from one block of k to the next
    i64 b_column;
    u32 steps; // per block of k
    u32 column0, last_column, b_columns;
    float a[2], b[num_columns];

    CUPYGEMM_INLINE BlockScales(const HopperArgs &args, const BlockScaleArgs &scales,
                                const Work &work, u32 consumer, u32 thread)
        : columns(reinterpret_cast<const float *>(scales.b)), a_k(scales.a_k), b_k(scales.b_k),
          b_column(scales.b_column), steps(scales.steps),
          column0(work.column + (by_column ? thread % 4 * 2 : 0)), last_column(args.n - 1),
          b_columns(scales.b_columns) {
        const u32 first =
            work.row + consumer * T::consumer_rows + thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
        for (u32 block = 0; block < T::consumer_blocks; ++block) {
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                // Rows and columns beyond the matrix use the scale of the last one.
                const u32 row = minimum<u32>(first + block * block_rows + 8 * half, args.m - 1);
                rows[block][half] = reinterpret_cast<const float *>(scales.a) +
                                    static_cast<i64>(row / scales.a_rows) * scales.a_row;
            }
        }
    }

    CUPYGEMM_INLINE void load_columns(u32 step) {
        const float *from = columns + static_cast<i64>(step / steps) * b_k;
#pragma unroll
        for (u32 i = 0; i < num_columns; ++i) {
            const u32 column = minimum(
                column0 + (by_column ? i / 2 * 8 + i % 2 : i * shared_columns), last_column);
            b[i] = from[(by_column ? column : column / b_columns) * b_column];
        }
    }
    CUPYGEMM_INLINE void load_rows(u32 step, u32 block) {
        const i64 at = static_cast<i64>(step / steps) * a_k;
        a[0] = rows[block][0][at];
        a[1] = rows[block][1][at];
    }

    // Add the scaled sums of one step, for a block of 64 rows.
    template <u32 count>
    CUPYGEMM_INLINE void add(float (&acc)[count], const float (&sums)[count]) const {
        constexpr u32 shared_by = count / num_columns; // registers that share a scale of B
        if constexpr (by_column) {
#pragma unroll
            for (u32 i = 0; i < count; ++i)
                acc[i] += sums[i] * (a[i / 2 % 2] * b[i / 4 * 2 + i % 2]);
        } else {
#pragma unroll
            for (u32 group = 0; group < num_columns; ++group) {
                const float scale[2] = {a[0] * b[group], a[1] * b[group]};
#pragma unroll
                for (u32 i = group * shared_by; i < (group + 1) * shared_by; ++i)
                    acc[i] += sums[i] * scale[i / 2 % 2];
            }
        }
    }
};

} // namespace cupygemm
