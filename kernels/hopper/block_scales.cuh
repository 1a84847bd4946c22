// Block scales: factors that change along k, for rows of A and for columns of B.
//
//   acc += (A B over one step of k) * scale_a(row, block) * scale_b(block, column)
//
// A step of the mainloop is 128 bytes of k and lies in one block. Each lane reads the scales of its
// rows and columns from global memory to registers, one step ahead of the wgmma whose sums they
// scale:
//
//   step 0  issue wgmma 0 | load scales 1 | wait for wgmma 0 | add with scales 0 | scales 1 arrive
//
// If the blocks of B are at least 64 columns wide, 64 columns of a tile share a scale; otherwise
// each column has its own.
#pragma once

#include "hopper/scheduler.cuh"

namespace cupygemm {

template <class Config> struct BlockScales {
    using T = Tile<Config>;
    static constexpr bool by_column = Config::scale_per_column;
    static constexpr u32 shared_columns = 64; // that share a scale, unless each column has its own
    static constexpr u32 num_columns = Config::tile_n / (by_column ? 4 : shared_columns);
    static constexpr u32 num_places = by_column ? 1 : num_columns;

    // The scales of a step: of the lane's rows, (block of 64 rows, half), and of its columns.
    struct Step {
        float a[T::consumer_blocks][2];
        float b[by_column ? 1 : num_columns];
    };

    const BlockScaleArgs &scales;                         // in parameter memory
    const float *a, *b;                                   // of the tile's batch
    i32 rows[T::consumer_blocks][2], columns[num_places]; // offsets from them, for block 0 of k
    u32 column0, last_column, last_step;

    CUPYGEMM_INLINE BlockScales(const HopperArgs &args, const BlockScaleArgs &scales,
                                const Work &work, u32 consumer, u32 thread)
        : scales(scales),
          a(reinterpret_cast<const float *>(scales.a) + work.batch * scales.a_batch),
          b(reinterpret_cast<const float *>(scales.b) + work.batch * scales.b_batch),
          column0(work.column + (by_column ? thread % 4 * 2 : 0)), last_column(args.n - 1),
          last_step(ceil_div<u32>(args.k, Config::tile_k) - 1) {
        const u32 first =
            work.row + consumer * T::consumer_rows + thread / 32 * 16 + thread % 32 / 4;
        // Rows and columns beyond the matrix use the scale of the last one.
#pragma unroll
        for (u32 block = 0; block < T::consumer_blocks; ++block) {
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                const u32 row = minimum<u32>(first + block * block_rows + 8 * half, args.m - 1);
                rows[block][half] = static_cast<i32>(row / scales.a_rows) * scales.a_row;
            }
        }
#pragma unroll
        for (u32 i = 0; i < num_places; ++i) {
            const u32 column = minimum(column0 + i * shared_columns, last_column);
            columns[i] = static_cast<i32>(column / scales.b_columns) * scales.b_column;
        }
    }

    // Steps beyond k have the scales of the last one. Exact while step * (steps per block) < 2^31.
    CUPYGEMM_INLINE i32 block_of(u32 step) const {
        const u32 last = minimum(step, last_step);
        if constexpr (Config::scales_each_step)
            return static_cast<i32>(last);
        else
            return static_cast<i32>(static_cast<u64>(last) * scales.inverse >> 31);
    }

    CUPYGEMM_INLINE void load(Step &to, u32 step) const {
        const i32 block = block_of(step), a_at = block * scales.a_k, b_at = block * scales.b_k;
        if constexpr (!by_column) {
#pragma unroll
            for (u32 i = 0; i < num_columns; ++i)
                to.b[i] = b[columns[i] + b_at];
        }
#pragma unroll
        for (u32 i = 0; i < T::consumer_blocks; ++i) {
            to.a[i][0] = a[rows[i][0] + a_at];
            to.a[i][1] = a[rows[i][1] + a_at];
        }
    }

    // Load the scales of each of the lane's columns, for which no registers are left a step before.
    CUPYGEMM_INLINE void load_columns(float (&to)[num_columns], u32 step) const {
        const i32 b_at = block_of(step) * scales.b_k;
#pragma unroll
        for (u32 i = 0; i < num_columns; ++i)
            to[i] = b[static_cast<i32>(minimum(column0 + i / 2 * 8 + i % 2, last_column)) *
                          scales.b_column +
                      b_at];
    }

    // Factors of the sums of a block of 64 rows: products of both scales, or the scales of the rows
    // alone where each column has its own.
    struct Factors {
        float value[by_column ? 2 : 2 * num_columns];
    };

    // Compute the factors of a step here, so that its scales may be overwritten.
    CUPYGEMM_INLINE static void multiply(const Step &from, Factors (&factors)[T::consumer_blocks]) {
#pragma unroll
        for (u32 block = 0; block < T::consumer_blocks; ++block) {
#pragma unroll
            for (u32 i = 0; i < (by_column ? 2 : 2 * num_columns); ++i) {
                factors[block].value[i] = from.a[block][i % 2];
                if constexpr (!by_column)
                    factors[block].value[i] *= from.b[i / 2];
                settle_register(factors[block].value[i]);
            }
        }
    }

    // Add the scaled sums of one step, for a block of 64 rows.
    template <u32 count> CUPYGEMM_INLINE static void add(float (&acc)[count],
                                                         const float (&sums)[count],
                                                         const Factors &factors,
                                                         const float (&of_columns)[num_columns]) {
        constexpr u32 shared_by = count / num_columns; // registers that share a scale of B
#pragma unroll
        for (u32 i = 0; i < count; ++i) {
            const u32 half = i / 2 % 2;
            if constexpr (by_column)
                acc[i] += sums[i] * (factors.value[half] * of_columns[i / 4 * 2 + i % 2]);
            else
                acc[i] += sums[i] * factors.value[i / shared_by * 2 + half];
        }
    }
};

} // namespace cupygemm
