// The store of a tile: accumulators pass the epilogue, are staged in shared memory, and go to C.
//
// A warpgroup stages blocks of 64 rows by 128 bytes (64 bytes for 1-byte elements) in the swizzle
// of TMA, and continues while the copy engine stores them. It overwrites a buffer when the last
// store that read it is done. With enough buffers, the stores of one tile overlap the mainloop of
// the next. TMA cannot write C if its rows do not begin and end at multiples of 16 bytes; each warp
// then stores the rows that it has staged (store_rows.cuh). A kernel that computes the transpose of
// C (`transposed_c`) transposes blocks as it stages them: the rows of such a block, which are rows
// of C, are the kernel's columns. Their number is any multiple of 8, and up to 64 are staged
// together.
#pragma once

#include "hopper/cluster.cuh"
#include "hopper/mainloop_warp_specialized.cuh"
#include "hopper/store_rows.cuh"
#include "hopper/tile_epilogue.cuh"

namespace cupygemm {

template <class Config> struct TileStore {
    using T = Tile<Config>;
    using Out = typename Config::ElementC;
    static constexpr u32 out_bytes = Numeric<Out>::bytes;
    static constexpr u32 row_bytes = staged_row_bytes<typename Numeric<Out>::Bits>;
    static constexpr u32 columns = row_bytes / out_bytes; // of a staged block
    static constexpr u32 groups = columns / 8;            // of 8 columns: one tile of a wgmma
    static constexpr u32 staged_bytes = block_rows * row_bytes;
    static constexpr u32 num_buffers = Config::epilogue_buffers * (block_bytes / staged_bytes);
    // Rows of C in one TMA store. A staged block holds as many of these boxes as fit.
    static constexpr u32 box_rows = Config::transposed_c ? T::transposed_box_rows() : block_rows;
    // The columns and rows of a block of sums that go to one staged block. If columns are
    // transposed, the last staged block of a tile may take fewer.
    static constexpr u32 staged_columns =
        Config::transposed_c ? block_rows / box_rows * box_rows : columns;
    static constexpr u32 staged_rows = Config::transposed_c ? columns : block_rows;
    static constexpr u32 strips = block_rows / staged_rows;

    static constexpr u32 parts = ceil_div(Config::tile_n, staged_columns) * strips;
    static_assert(Config::transposed_c || Config::tile_n % columns == 0 || Config::has_narrow_boxes,
                  "narrower boxes of C need a map of their own");
    using Epilogue = TileEpilogue<Config, groups>;
    // Whether all blocks of a tile are staged before any is stored, which takes fewer barriers.
    static constexpr bool at_once =
        Config::block_scaled && Config::row_groups && Config::num_consumers > 1 &&
        Config::tma_store && !Config::has_epilogue && num_buffers >= T::consumer_blocks * parts;

    static_assert(
        !Config::transposed_c || out_bytes == (T::a_in_registers ? 4 : 2),
        "a staged row must hold 32 rows of an A in registers, or 64 rows of an A in shared memory");

    u32 barrier;    // of the warpgroup
    u32 buffer = 0; // the next buffer to be written

    CUPYGEMM_INLINE explicit TileStore(u32 barrier) : barrier(barrier) {}

    // One warpgroup. `thread` is the index within it, and `staging` is its own buffer.
    template <class Args>
    CUPYGEMM_INLINE void store(const Args &args, const Work &work, u32 consumer, u32 thread,
                               SharedAddress staging, Accumulators<Config> &acc,
                               Epilogue &epilogue) {
        if constexpr (at_once)
            store_at_once(args, work, consumer, thread, staging, acc);
        else
            store_in_parts(args, work, consumer, thread, staging, acc, epilogue);
    }

    // Wait until no store reads shared memory, which must outlive these stores.
    CUPYGEMM_INLINE static void drain(u32 thread) {
        if constexpr (Config::tma_store) {
            if (thread == 0)
                tma_store_wait_read<0>();
        }
    }

private:
    // Stage and store one block after the other.
    template <class Args>
    CUPYGEMM_INLINE void store_in_parts(const Args &args, const Work &work, u32 consumer,
                                        u32 thread, SharedAddress staging,
                                        Accumulators<Config> &acc, Epilogue &epilogue) {
#pragma unroll
        for (u32 block = 0; block < T::consumer_blocks; ++block) {
#pragma unroll
            for (u32 part = 0; part < parts; ++part) {
                const u32 column = part / strips * staged_columns;
                const u32 strip = part % strips * staged_rows;
                const u32 c_rows = Config::transposed_c
                                       ? minimum(staged_columns, Config::tile_n - column)
                                       : block_rows;
                const u32 row =
                    work.row + (consumer * T::consumer_blocks + block) * block_rows + strip;
                const u32 c_row = Config::transposed_c ? work.column + column : row;
                const u32 c_column = Config::transposed_c ? row : work.column + column;
                const u32 c_columns =
                    Config::transposed_c ? columns : minimum(columns, Config::tile_n - column);
                if (Config::row_groups && c_row >= work.row_end)
                    return; // later blocks have no rows of the group either
                const SharedAddress staged = staging + buffer * staged_bytes;
                if constexpr (Config::tma_store) {
                    if (thread == 0)
                        tma_store_wait_read<num_buffers - 1>();
                }
                staged_sync(barrier); // the buffer may be written
                if constexpr (Config::has_epilogue)
                    stage_finished(staged, thread, acc, block, part, epilogue);
                else if constexpr (Config::transposed_c)
                    stage_transposed(staged, thread, acc.value[block], column, strip, c_rows);
                else
                    stage(staged, thread, acc.value[block], column);
                if constexpr (Config::tma_store) {
                    fence_async_shared();
                    fetch_next(epilogue, block, part); // after the fence, which would wait for it
                    warpgroup_sync(barrier);           // it is written, and the copy engine sees it
                    store_staged(args, work, c_row, c_column, c_rows, c_columns, thread, staged);
                } else {
                    staged_sync(barrier); // it is written
                    store_block_rows(args, work, c_row, c_column, c_rows, c_columns, thread,
                                     staged);
                    fetch_next(epilogue, block, part); // no registers were free before
                }
                buffer = buffer + 1 == num_buffers ? 0 : buffer + 1;
            }
        }
    }

    // Store a tile that the buffers hold as a whole.
    template <class Args>
    CUPYGEMM_INLINE void store_at_once(const Args &args, const Work &work, u32 consumer, u32 thread,
                                       SharedAddress staging, Accumulators<Config> &acc) {
        if (thread == 0)
            tma_store_wait_read<0>();
        staged_sync(barrier); // the buffers may be written
        constexpr u32 count = T::consumer_blocks * parts;
#pragma unroll
        for (u32 i = 0; i < count; ++i)
            stage(staging + i * staged_bytes, thread, acc.value[i / parts], i % parts * columns);
        fence_async_shared();
        warpgroup_sync(barrier); // they are written, and the copy engine sees it
#pragma unroll
        for (u32 i = 0; i < count; ++i) {
            const u32 block = consumer * T::consumer_blocks + i / parts;
            const u32 row = work.row + block * block_rows, column = i % parts * columns;
            if (row >= work.row_end)
                return; // later blocks have no rows of the group either
            store_staged(args, work, row, work.column + column, block_rows,
                         minimum(columns, Config::tile_n - column), thread,
                         staging + i * staged_bytes);
        }
    }

    // Store a staged block: by TMA, which stores all rows, unless some belong to the next group.
    template <class Args>
    CUPYGEMM_INLINE static void store_staged(const Args &args, const Work &work, u32 row,
                                             u32 column, u32 rows, u32 wide, u32 thread,
                                             SharedAddress staged) {
        const bool whole = !Config::groups_share_rows || row + rows <= work.row_end;
        if (!whole)
            store_block_rows(args, work, row, column, rows, wide, thread, staged);
        if (thread == 0) {
            BoxIndex box = c_box(args, work);
            box.inner = static_cast<i32>(column);
#pragma unroll
            for (u32 at = 0; at < rows; at += box_rows) {
                box.outer = static_cast<i32>(row + at);
                if (whole)
                    tma_store<Config::result_rank>(map_of(args, wide), box,
                                                   staged + at * slab_bytes);
            }
            tma_store_commit(); // even if empty: waits count buffers
        }
    }

    // Whether the tile has a group of 8 columns of a part: the last part may be narrow.
    CUPYGEMM_INLINE static constexpr bool has_group(u32 column, u32 group) {
        return column + group * 8 < Config::tile_n;
    }

    // The map whose boxes have `wide` columns.
    template <class Args>
    CUPYGEMM_INLINE static const TensorMap &map_of(const Args &args, u32 wide) {
        if constexpr (Config::has_narrow_boxes)
            return wide < columns ? args.narrow_c : args.c;
        else
            return args.c;
    }

    // Fetch the epilogue's sources for the next part.
    CUPYGEMM_INLINE static void fetch_next(Epilogue &epilogue, u32 block, u32 part) {
        if constexpr (Epilogue::is_ahead) {
            if (part + 1 < parts)
                epilogue.fetch(block, (part + 1) * columns);
            else if (block + 1 < T::consumer_blocks)
                epilogue.fetch(block + 1, 0);
        }
    }

    // Stage the epilogue's results for a part of a block.
    CUPYGEMM_INLINE static void stage_finished(SharedAddress staged, u32 thread,
                                               const Accumulators<Config> &acc, u32 block, u32 part,
                                               Epilogue &epilogue) {
        static_assert(!Config::transposed_c, "the transpose of C cannot have an epilogue");
        const u32 warp = thread / 32, lane = thread % 32;
        const auto finish = [&](u32 group, u32 half, u32 e) {
            const u32 index = (part * groups + group) * 4 + 2 * half + e;
            return epilogue.finish(acc.value[block][index], group % Epilogue::groups, half, e);
        };
#pragma unroll
        for (u32 first = 0; first < groups; first += Epilogue::groups) {
            if (!has_group(part * columns, first))
                break;
            if constexpr (!Epilogue::is_ahead) {
                __syncwarp(); // otherwise the compiler moves all loads of the part here, and spills
                epilogue.fetch(block, part * columns + first * 8);
            }
            if constexpr (out_bytes == 2) {
                stage_halves(staged, 16 * warp + (lane & 15), lane, part * columns, first,
                             first + Epilogue::groups, [&](u32 group, u32 half) {
                                 return finish(group, half, 0) | finish(group, half, 1) << 16;
                             });
            } else if constexpr (out_bytes == 1) {
                const u32 row = 16 * warp + lane / 4;
#pragma unroll
                for (u32 group = first; group < first + Epilogue::groups; ++group) {
                    if (!has_group(part * columns, group))
                        break;
                    const SharedAddress pair =
                        staged_byte<row_bytes>(staged, row, group * 8 + lane % 4 * 2);
#pragma unroll
                    for (u32 half = 0; half < 2; ++half) {
                        const auto *two = &acc.value[block][(part * groups + group) * 4 + 2 * half];
                        store_shared_bytes(
                            pair + 8 * half * row_bytes,
                            epilogue.finish_bytes(two[0], two[1], group % Epilogue::groups, half));
                    }
                }
            } else {
                const u32 row = 16 * warp + lane / 4;
#pragma unroll
                for (u32 group = first; group < first + Epilogue::groups; ++group) {
                    if (!has_group(part * columns, group))
                        break;
                    const u32 at = ((group * 8 + lane % 4 * 2) * out_bytes) ^ ((row & 7) << 4);
                    const SharedAddress pair = staged + row * slab_bytes + at;
#pragma unroll
                    for (u32 half = 0; half < 2; ++half)
                        store_shared_pair(pair + 8 * half * slab_bytes, finish(group, half, 0),
                                          finish(group, half, 1));
                }
            }
        }
    }

    // Order a warp's accesses to a staging buffer with those of the warpgroup's other warps, or,
    // where a warp stores only what it staged itself, with those of its own lanes.
    CUPYGEMM_INLINE static void staged_sync(u32 barrier) {
        if constexpr (Config::tma_store || Config::transposed_c || T::a_in_registers)
            warpgroup_sync(barrier);
        else
            __syncwarp();
    }

    // The parts of a split are consecutive matrices of a workspace: (split, batch, m, n).
    CUPYGEMM_INLINE static BoxIndex c_box(const HopperArgs &args, const Work &work) {
        if constexpr (Config::split_k) {
            const u32 batches = args.batch0 * args.batch1 * args.batch2;
            return {0, 0, static_cast<i32>(work.split * batches + work.batch), 0, 0};
        } else if constexpr (Config::groups_share_rows) {
            return {0, 0, 0, 0, 0}; // all groups write rows of one matrix
        } else {
            return batch_box<Config::result_rank>(args, work.batch);
        }
    }

    // Stage groups of 8 columns of 16-bit elements, two at a time: the lane's pair of columns in a
    // group and in one of its two rows is `word(group, half)`.
    template <class Word> CUPYGEMM_INLINE static void stage_halves(SharedAddress staged, u32 row,
                                                                   u32 lane, u32 column, u32 first,
                                                                   u32 end, const Word &word) {
        // The lane's row, and matrices go down 16 rows, then right.
        const SharedAddress line = staged + row * slab_bytes;
#pragma unroll
        for (u32 group = first; group < end; group += 2) {
            if (!has_group(column, group))
                break;
            const SharedAddress to = line + (((group + (lane >> 4)) ^ (row & 7)) << 4);
            if (has_group(column, group + 1))
                stmatrix_x4(to, word(group, 0), word(group, 1), word(group + 1, 0),
                            word(group + 1, 1));
            else
                stmatrix_x2(to, word(group, 0), word(group, 1));
        }
    }

    // Stage `columns` columns of a block's accumulators, from `column` on.
    template <int count>
    CUPYGEMM_INLINE static void stage(SharedAddress staged, u32 thread,
                                      typename Config::Accumulator (&value)[count], u32 column) {
        const u32 warp = thread / 32, lane = thread % 32;
        if constexpr (out_bytes == 2) {
            stage_halves(staged, row_of<Config>(warp, lane & 15), lane, column, 0, groups,
                         [&](u32 group, u32 half) {
                             const auto *two = &value[(column / 8 + group) * 4 + 2 * half];
                             return pack<Out>(two[0], two[1]);
                         });
        } else if constexpr (out_bytes == 1) {
            // stmatrix would need four adjacent columns per lane, but a lane has two. A warp's
            // pairs never lie in different words of one bank, because each of eight rows has a
            // chunk of its own (with A in registers, two rows share one).
            const u32 row = row_of<Config>(warp, lane / 4);
            constexpr u32 below = row_of<Config>(0, 8);
            static_assert(below % 8 == 0, "both rows of a lane must have the same swizzle");
#pragma unroll
            for (u32 group = 0; group < groups; ++group) {
                if (!has_group(column, group))
                    break;
                const auto *four = &value[(column / 8 + group) * 4];
                const SharedAddress pair =
                    staged_byte<row_bytes>(staged, row, group * 8 + lane % 4 * 2);
                store_shared_bytes(pair, pack_bytes<Out>(four[0], four[1]));
                store_shared_bytes(pair + below * row_bytes, pack_bytes<Out>(four[2], four[3]));
            }
        } else {
            const u32 row = row_of<Config>(warp, lane / 4);
            constexpr u32 below = row_of<Config>(0, 8); // from a lane's first row to its second
#pragma unroll
            for (u32 group = 0; group < groups; ++group) {
                if (!has_group(column, group))
                    break;
                const auto *four = &value[(column / 8 + group) * 4];
                const u32 at = ((group * 8 + lane % 4 * 2) * out_bytes) ^ ((row & 7) << 4);
                const SharedAddress pair = staged + row * slab_bytes + at;
                store_shared_pair<Out>(pair, four[0], four[1]);
                store_shared_pair<Out>(pair + below * slab_bytes, four[2], four[3]);
            }
        }
    }

    // Stage the transpose of `rows` columns of a block's accumulators, from `column` on. 16-bit
    // elements take all rows of the block. 32-bit elements take the 32 rows from `strip` on: the
    // first row of each of the lane's pairs, or the second.
    template <int count>
    CUPYGEMM_INLINE static void stage_transposed(SharedAddress staged, u32 thread,
                                                 typename Config::Accumulator (&value)[count],
                                                 u32 column, u32 strip, u32 rows) {
        const u32 warp = thread / 32, lane = thread % 32;
        if constexpr (out_bytes == 2) {
            // Matrices go right by 16 columns of C, which are the warp's rows, and then down.
            const u32 line = (lane >> 4) * 8 + (lane & 7), chunk = 2 * warp + (lane >> 3 & 1);
            const SharedAddress to = staged + line * slab_bytes + ((chunk ^ (line & 7)) << 4);
#pragma unroll
            for (u32 row = 0; row < rows; row += 16) {
                const auto *four = &value[(column + row) / 2];
                const SharedAddress at = to + row * slab_bytes;
                const u32 left = pack<Out>(four[0], four[1]), right = pack<Out>(four[2], four[3]);
                if (row + 8 < rows)
                    stmatrix_x4_trans(at, left, right, pack<Out>(four[4], four[5]),
                                      pack<Out>(four[6], four[7]));
                else
                    stmatrix_x2_trans(at, left, right);
            }
        } else {
            const u32 at = row_of<Config>(warp, lane / 4) * out_bytes;
#pragma unroll
            for (u32 i = 0; i < rows / 4; ++i) {
                const u32 line = i / 2 * 8 + lane % 4 * 2 + i % 2;
                store_shared_element(staged + line * slab_bytes + (at ^ ((line & 7) << 4)),
                                     value[(column / 8 + i / 2) * 4 + strip / 16 + i % 2]);
            }
        }
    }

    // Store `rows` rows and `wide` columns of a staged block without TMA. A warp stores 16 rows,
    // which it has staged itself unless they came from other warps.
    CUPYGEMM_INLINE static void store_block_rows(const HopperArgs &args, const Work &work, u32 row,
                                                 u32 column, u32 rows, u32 wide, u32 thread,
                                                 SharedAddress staged) {
        const BoxIndex batch = batch_box<5>(args, work.batch);
        const i64 matrix = batch.batch0 * args.c_stride[0] + batch.batch1 * args.c_stride[1] +
                           batch.batch2 * args.c_stride[2];
        const i32 c_rows = Config::transposed_c        ? args.n
                           : Config::groups_share_rows ? static_cast<i32>(work.row_end)
                                                       : args.m;
        const i32 c_columns = Config::transposed_c ? args.m : args.n;
        const i32 limit = minimum(static_cast<i32>(wide), c_columns - static_cast<i32>(column));
        const u32 lane = thread % 32, line = thread / 32 * 16;
        const u64 first = args.c_address +
                          (matrix + static_cast<i64>(row + line) * args.ldc + column) * out_bytes;
        // Promoted sums, many sums, and three consumers leave few registers.
        constexpr bool many = T::consumer_blocks * Config::tile_n / 2 > 128;
        constexpr u32 ahead = many ? 1
                              : Config::promote || Config::num_consumers == 3 || T::a_in_registers
                                  ? 2
                                  : 4;
        const i32 below = c_rows - static_cast<i32>(row + line);
        const i32 height =
            Config::transposed_c ? minimum(below, static_cast<i32>(rows - line)) : below;
        store_rows<typename Numeric<Out>::Bits, ahead>(staged, line, lane, first,
                                                       args.ldc * out_bytes, height, limit);
    }
};

} // namespace cupygemm
