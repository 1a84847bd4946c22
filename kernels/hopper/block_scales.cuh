// Block scales: factors that change along k, for rows of A and for columns of B.
//
//   acc += (A B over one step of k) * scale_a(row, block) * scale_b(block, column)
//
// A step of the mainloop is 128 bytes of k and lies in one block. Two warps of the producer copy
// the scales of a tile's rows and columns to the stage in shared memory, while one thread loads the
// operands of the step. They arrive at the stage's barrier when the scales have landed, so
// consumers need no other wait:
//
//   thread of warp 0   wait empty 0 | load A, B 0      | wait empty 1 | load A, B 1      | ...
//   warp 1             wait empty 0 | copy scales of A | wait empty 1 | copy scales of A | ...
//   warp 2             wait empty 0 | copy scales of B | wait empty 1 | copy scales of B | ...
//
// If the blocks of B are at least 64 columns wide, up to 64 columns of a tile share a scale;
// otherwise each column has its own.
#pragma once

#include "hopper/cp_async.cuh"
#include "hopper/scheduler.cuh"
#include "hopper/tma.cuh"

namespace cupygemm {

// The scales of B in a stage.
template <class Config> struct ScaledColumns {
    static constexpr bool each = Config::scale_per_column;
    // The number of adjacent columns of any tile that are in one block.
    static constexpr u32 shared_by = each                       ? 1
                                     : Config::tile_n % 64 == 0 ? 64
                                     : Config::tile_n % 32 == 0 ? 32
                                                                : 16;
    static constexpr u32 count = Config::tile_n / shared_by;
};

// Copies scales to shared memory, if present.
template <class Config, bool present = Config::block_scaled> struct BlockScales {
    template <class Args, class Ring> CUPYGEMM_INLINE static void
    produce(const Args &, const Work &, u32, u32, SharedAddress, Ring &) {}
};

template <class Config> struct BlockScales<Config, true> {
    using T = Tile<Config>;
    using Columns = ScaledColumns<Config>;
    using Ring = RingPosition<Config::num_stages>;
    static constexpr u32 lanes = 32;

    // Copy the scales of all steps of a unit of work: warp 1 for A, and warp 2 for B.
    template <class Args> CUPYGEMM_INLINE static void produce(const Args &args, const Work &work,
                                                              u32 warp, u32 lane,
                                                              SharedAddress shared, Ring &ring) {
        const BlockScaleArgs &of = args.scales; // in parameter memory
        if (warp == 1) {
            copy<Config::tile_m, 1>(args, work, {of.a, of.a_batch, of.a_row, of.a_k, of.a_rows},
                                    work.row, args.m, 0, lane, shared, ring);
        } else {
            copy<Columns::count, Columns::shared_by>(
                args, work, {of.b, of.b_batch, of.b_column, of.b_k, of.b_columns}, work.column,
                args.n, Config::tile_m, lane, shared, ring);
        }
    }

private:
    struct Scales {
        u64 address;
        i64 batch;     // elements between matrices
        i32 pitch, k;  // elements between scales along the rows or columns, and along k
        u32 shared_by; // rows or columns that share a scale
    };

    // Copy `count` scales, each of `apart` rows or columns, from row or column `first` on, to the
    // stage from place `place` on.
    template <u32 count, u32 apart, class Args>
    CUPYGEMM_INLINE static void copy(const Args &args, const Work &work, const Scales &scales,
                                     u32 first, u32 extent, u32 place, u32 lane,
                                     SharedAddress shared, Ring &ring) {
        const u64 from = scales.address + work.batch * scales.batch * sizeof(float);
        if constexpr (apart == 1) {
            const u64 first_from = from + first * sizeof(float);
            const bool adjacent = scales.shared_by == 1 && scales.pitch == 1;
            if (adjacent && first_from % 16 == 0 && scales.k % 4 == 0) {
                const u32 left = extent - minimum(first, extent), present = minimum(left, count);
                if (Config::num_consumers > 1 && present % 4 == 0)
                    copy_bytes(args, work, first_from, scales.k, present * sizeof(float), place,
                               lane, shared, ring);
                else
                    copy_vectors<count>(args, work, first_from, scales.k, left, place, lane, shared,
                                        ring);
                return;
            }
        }
        copy_each<count, apart>(args, work, from, scales, first, extent, place, lane, shared, ring);
    }

    // The same for scales that are adjacent in memory, by one instruction: more instructions would
    // delay one warp of each consumer, for which its other warps wait. Rows or columns whose scales
    // are not copied are not stored either.
    template <class Args> CUPYGEMM_INLINE static void copy_bytes(const Args &args, const Work &work,
                                                                 u64 from, i64 pitch_k, u32 bytes,
                                                                 u32 place, u32 lane,
                                                                 SharedAddress shared, Ring &ring) {
        each_step(args, work, shared, ring,
                  [&](i32 block, SharedAddress stage, SharedAddress full) {
                      __syncwarp(); // all lanes have seen that the stage is empty
                      if (lane != 0)
                          return;
                      mbarrier_arrive_for(full, lanes - 1);
                      mbarrier_arrive_expect_tx(full, bytes);
                      if (bytes)
                          tma_load_bytes(stage + place * sizeof(float),
                                         from + block * pitch_k * sizeof(float), bytes, full);
                  });
    }

    // The same where the copy engine would take longer, or does not support the scales. A single
    // consumer waits for its scales. Scales after the `left` rows or columns become 0.
    template <u32 count, class Args>
    CUPYGEMM_INLINE static void copy_vectors(const Args &args, const Work &work, u64 from,
                                             i64 pitch_k, u32 left, u32 place, u32 lane,
                                             SharedAddress shared, Ring &ring) {
        constexpr u32 of_vector = 4, runs = ceil_div(count, lanes * of_vector);
        u32 present[runs];
#pragma unroll
        for (u32 i = 0; i < runs; ++i) {
            const u32 index = (lane + i * lanes) * of_vector;
            present[i] = minimum(left - minimum(left, index), of_vector) * sizeof(float);
        }
        const u64 of_lane = from + lane * 16;
        each_step(
            args, work, shared, ring, [&](i32 block, SharedAddress stage, SharedAddress full) {
                const u64 at = block * pitch_k * sizeof(float);
                const SharedAddress to = stage + place * sizeof(float) + lane * 16;
#pragma unroll
                for (u32 i = 0; i < runs; ++i)
                    if (count % (lanes * of_vector) == 0 || (lane + i * lanes) * of_vector < count)
                        copy_async<16>(to + i * lanes * 16,
                                       (present[i] ? of_lane + i * lanes * 16 : from) + at,
                                       present[i]);
                copy_async_arrive(full);
            });
    }

    // The same for any strides. Beyond `extent`, the last scale is repeated.
    template <u32 count, u32 apart, class Args>
    CUPYGEMM_INLINE static void copy_each(const Args &args, const Work &work, u64 from,
                                          const Scales &scales, u32 first, u32 extent, u32 place,
                                          u32 lane, SharedAddress shared, Ring &ring) {
        constexpr u32 runs = ceil_div(count, lanes);
        i32 offsets[runs]; // for block 0 of k
#pragma unroll
        for (u32 i = 0; i < runs; ++i) {
            const u32 index = minimum<u32>(first + (lane + i * lanes) * apart, extent - 1);
            offsets[i] = static_cast<i32>(index / scales.shared_by) * scales.pitch;
        }
        each_step(args, work, shared, ring,
                  [&](i32 block, SharedAddress stage, SharedAddress full) {
                      const SharedAddress to = stage + (place + lane) * sizeof(float);
#pragma unroll
                      for (u32 i = 0; i < runs; ++i) {
                          const i64 at = offsets[i] + block * scales.k;
                          if (count % lanes == 0 || lane + i * lanes < count)
                              copy_async<4>(to + i * lanes * sizeof(float), from + at * 4, 4);
                      }
                      copy_async_arrive(full);
                  });
    }

    // Call copy(block of k, scales of the stage, its barrier) when the stage of a step is empty.
    template <class Args, class Copy>
    CUPYGEMM_INLINE static void each_step(const Args &args, const Work &work, SharedAddress shared,
                                          Ring &ring, const Copy &copy) {
        const u32 last_step = ceil_div<u32>(args.k, Config::tile_k) - 1;
        for (u32 step = work.begin; step < work.end; ++step, ring.advance()) {
            const u32 of_k = minimum(step_of_k<Config>(args, work, step), last_step);
            mbarrier_wait(T::empty(shared, ring.stage), ring.parity ^ 1);
            copy(block_of(args.scales.inverse, of_k), T::scales(shared, ring.stage),
                 T::full(shared, ring.stage));
        }
    }

    // Exact while step * (steps per block) < 2^31.
    CUPYGEMM_INLINE static i32 block_of(u32 inverse, u32 step) {
        if constexpr (Config::scales_each_step)
            return static_cast<i32>(step);
        else
            return static_cast<i32>(static_cast<u64>(step) * inverse >> 31);
    }
};

// The scales of a full stage, for one lane of a consumer.
template <class Config> struct ScalesOfStage {
    using T = Tile<Config>;
    using Columns = ScaledColumns<Config>;
    SharedAddress rows, columns; // of the lane's first row and of its first column

    CUPYGEMM_INLINE ScalesOfStage(SharedAddress scales, u32 consumer, u32 thread)
        : rows(scales +
               (consumer * T::consumer_rows + thread / 32 * 16 + thread % 32 / 4) * sizeof(float)),
          columns(scales +
                  (Config::tile_m + (Columns::each ? thread % 4 * 2 : 0)) * sizeof(float)) {}

    // The scales of another stage, if these are those of stage 0.
    CUPYGEMM_INLINE ScalesOfStage moved(u32 stages) const {
        ScalesOfStage other = *this;
        other.rows += stages * T::scale_bytes;
        other.columns += stages * T::scale_bytes;
        return other;
    }

    // Factors of the sums of a block of 64 rows: products of both scales, or the scales of the rows
    // alone where each column has its own.
    struct Factors {
        float value[Columns::each ? 1 : Columns::count][2];
    };
    struct OfRows {
        float value[2];
    };
    struct OfColumns {
        float value[Columns::each ? 1 : Columns::count];
    };

    CUPYGEMM_INLINE OfRows rows_of_block(u32 block) const {
        return {load(rows + block * block_rows * sizeof(float)),
                load(rows + (block * block_rows + 8) * sizeof(float))};
    }

    CUPYGEMM_INLINE OfColumns columns_of_step() const {
        OfColumns found;
#pragma unroll
        for (u32 i = 0; i < (Columns::each ? 1 : Columns::count); ++i)
            found.value[i] = Columns::each ? 1.0f : load(columns + i * sizeof(float));
        return found;
    }

    CUPYGEMM_INLINE static Factors factors(const OfRows &of_rows, const OfColumns &of_columns) {
        Factors found;
#pragma unroll
        for (u32 i = 0; i < (Columns::each ? 1 : Columns::count); ++i)
#pragma unroll
            for (u32 half = 0; half < 2; ++half)
                found.value[i][half] = of_rows.value[half] * of_columns.value[i];
        return found;
    }

    CUPYGEMM_INLINE Factors factors(u32 block) const {
        return factors(rows_of_block(block), columns_of_step());
    }

    // Add the scaled sums of one step, for a block of 64 rows.
    template <u32 count> CUPYGEMM_INLINE void add(float (&acc)[count], const float (&sums)[count],
                                                  const Factors &factors) const {
#pragma unroll
        for (u32 i = 0; i < count; i += 4) { // of 8 columns
            float of_columns[2];
            if constexpr (Columns::each) {
                of_columns[0] = load(columns + i * 2 * sizeof(float));
                of_columns[1] = load(columns + (i * 2 + 1) * sizeof(float));
            }
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
                const float (&of_rows)[2] =
                    factors.value[Columns::each ? 0 : i * 2 / Columns::shared_by];
                const float factor = of_rows[j / 2];
                acc[i + j] += sums[i + j] * (Columns::each ? factor * of_columns[j % 2] : factor);
            }
        }
    }

private:
    CUPYGEMM_INLINE static float load(SharedAddress from) {
        float value;
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(from) : "memory");
        return value;
    }
};

} // namespace cupygemm
