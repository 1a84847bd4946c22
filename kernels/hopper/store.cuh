// The epilogue: accumulators are rounded, staged in shared memory, and stored from there.
//
// A warpgroup stages blocks of 64 rows and 128 bytes, or 64 single ones, in the swizzle of TMA, and
// goes on while the copy engine stores them; a buffer is written again when the store that last
// read it has. With enough buffers the stores of one tile overlap the mainloop of the next. Where
// TMA cannot write C (its rows begin or end at no multiples of 16 bytes) each warp stores the rows
// that it has staged, see store_rows.cuh. Where the kernel computes the transpose of C
// (`c_turned`), blocks are turned as they are staged: their rows, of C, are the kernel's columns,
// of which there may be any multiple of 8, and up to 64 are staged at once.
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
    // Rows of C that a TMA store takes, of which a staged block holds as many as it has room for.
    static constexpr u32 box_rows = Config::c_turned ? T::turned_box_rows() : block_rows;
    // What a staged block takes of a block of sums: of its columns, and of its rows. Of columns
    // that are turned, the last of a tile's blocks may take fewer.
    static constexpr u32 staged_columns =
        Config::c_turned ? block_rows / box_rows * box_rows : columns;
    static constexpr u32 staged_rows = Config::c_turned ? columns : block_rows;
    static constexpr u32 strips = block_rows / staged_rows;

    static constexpr u32 parts = ceil_div(Config::tile_n, staged_columns) * strips;
    static_assert(Config::c_turned || Config::tile_n % columns == 0 || Config::has_narrow_boxes,
                  "narrower boxes of C have a map of their own");
    using Epilogue = TileEpilogue<Config, groups>;

    static_assert(!Config::c_turned || out_bytes == (T::a_in_registers ? 4 : 2),
                  "a staged row holds 32 rows of an A in registers, or 64 of one in shared memory");

    u32 buffer = 0; // the next to be written

    // One warpgroup. `thread` counts within it, `staging` is its own.
    template <class Args>
    CUPYGEMM_INLINE void store(const Args &args, const Work &work, u32 consumer, u32 thread,
                               SharedAddress staging, Accumulators<Config> &acc,
                               Epilogue &epilogue) {
        const u32 barrier = 1 + consumer;
        const BoxIndex batch = c_box(args, work);
#pragma unroll
        for (u32 block = 0; block < T::consumer_blocks; ++block) {
#pragma unroll
            for (u32 part = 0; part < parts; ++part) {
                const u32 column = part / strips * staged_columns;
                const u32 strip = part % strips * staged_rows;
                const u32 c_rows = Config::c_turned
                                       ? minimum(staged_columns, Config::tile_n - column)
                                       : block_rows;
                const u32 row =
                    work.row + (consumer * T::consumer_blocks + block) * block_rows + strip;
                const u32 c_row = Config::c_turned ? work.column + column : row;
                const u32 c_column = Config::c_turned ? row : work.column + column;
                const u32 c_columns =
                    Config::c_turned ? columns : minimum(columns, Config::tile_n - column);
                const SharedAddress staged = staging + buffer * staged_bytes;
                if constexpr (Config::tma_store) {
                    if (thread == 0)
                        tma_store_wait_read<num_buffers - 1>();
                }
                staged_sync(barrier); // the buffer may be written
                if constexpr (Config::has_epilogue)
                    stage_finished(staged, thread, acc, block, part, epilogue);
                else if constexpr (Config::c_turned)
                    stage_turned(staged, thread, acc.value[block], column, strip, c_rows);
                else
                    stage(staged, thread, acc.value[block], column);
                if constexpr (Config::tma_store) {
                    fence_async_shared();
                    fetch_next(epilogue, block, part); // after the fence, which would wait for it
                    warpgroup_sync(barrier);           // it is written, and the copy engine sees it
                    if (thread == 0) {
                        BoxIndex box = batch;
                        box.inner = static_cast<i32>(c_column);
#pragma unroll
                        for (u32 at = 0; at < c_rows; at += box_rows) {
                            box.outer = static_cast<i32>(c_row + at);
                            tma_store<Config::result_rank>(map_of(args, c_columns), box,
                                                           staged + at * slab_bytes);
                        }
                        tma_store_commit();
                    }
                } else {
                    staged_sync(barrier); // it is written
                    store_block_rows(args, work, c_row, c_column, c_rows, c_columns, thread,
                                     staged);
                    fetch_next(epilogue, block, part); // there were no registers before
                }
                buffer = buffer + 1 == num_buffers ? 0 : buffer + 1;
            }
        }
    }

    // Shared memory must outlive the stores that read it.
    CUPYGEMM_INLINE static void drain(u32 thread) {
        if constexpr (Config::tma_store) {
            if (thread == 0)
                tma_store_wait_read<0>();
        }
    }

private:
    // Whether a tile has the columns of a group of 8 of a part: its last part may be narrow.
    CUPYGEMM_INLINE static constexpr bool has_group(u32 column, u32 group) {
        return column + group * 8 < Config::tile_n;
    }

    // The map whose boxes have so many columns.
    template <class Args>
    CUPYGEMM_INLINE static const TensorMap &map_of(const Args &args, u32 wide) {
        if constexpr (Config::has_narrow_boxes)
            return wide < columns ? args.narrow_c : args.c;
        else
            return args.c;
    }

    // Fetch what the epilogue takes for the part that follows this one.
    CUPYGEMM_INLINE static void fetch_next(Epilogue &epilogue, u32 block, u32 part) {
        if constexpr (Epilogue::is_ahead) {
            if (part + 1 < parts)
                epilogue.fetch(block, (part + 1) * columns);
            else if (block + 1 < T::consumer_blocks)
                epilogue.fetch(block + 1, 0);
        }
    }

    // Write what the epilogue makes of the accumulators of a part of a block.
    CUPYGEMM_INLINE static void stage_finished(SharedAddress staged, u32 thread,
                                               const Accumulators<Config> &acc, u32 block, u32 part,
                                               Epilogue &epilogue) {
        static_assert(!Config::c_turned, "the transpose of C is computed without an epilogue");
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
                __syncwarp(); // or the compiler moves all loads of the part here, and spills
                epilogue.fetch(block, part * columns + first * 8);
            }
            if constexpr (out_bytes == 2) {
                const u32 row = 16 * warp + (lane & 15); // as in `stage`
                const SharedAddress line = staged + row * slab_bytes;
#pragma unroll
                for (u32 group = first; group < first + Epilogue::groups; group += 2) {
                    if (!has_group(part * columns, group))
                        break;
                    u32 words[4]; // (group, row)
#pragma unroll
                    for (u32 i = 0; i < 4; ++i)
                        words[i] = finish(group + i / 2, i % 2, 0) | finish(group + i / 2, i % 2, 1)
                                                                         << 16;
                    const u32 chunk = group + (lane >> 4);
                    stmatrix_x4(line + ((chunk ^ (row & 7)) << 4), words[0], words[1], words[2],
                                words[3]);
                }
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

    // Orders what a warp reads and writes of a staging buffer with what the others do, or only with
    // what its own lanes do, where it stores what it staged itself.
    CUPYGEMM_INLINE static void staged_sync(u32 barrier) {
        if constexpr (Config::tma_store || Config::c_turned || T::a_in_registers)
            warpgroup_sync(barrier);
        else
            __syncwarp();
    }

    // Parts of k are matrices of a workspace, one behind the other: (split, batch, m, n).
    CUPYGEMM_INLINE static BoxIndex c_box(const HopperArgs &args, const Work &work) {
        if constexpr (Config::split_k) {
            const u32 batches = args.batch0 * args.batch1 * args.batch2;
            return {0, 0, static_cast<i32>(work.split * batches + work.batch), 0, 0};
        } else {
            return batch_box<Config::result_rank>(args, work.batch);
        }
    }

    // Write `columns` columns of a block's accumulators from `column` on.
    template <int count>
    CUPYGEMM_INLINE static void stage(SharedAddress staged, u32 thread,
                                      typename Config::Accumulator (&value)[count], u32 column) {
        const u32 warp = thread / 32, lane = thread % 32;
        if constexpr (out_bytes == 2) {
            // Lane l names row l % 8 of matrix l / 8; matrices go down 16 rows, then right.
            const u32 row = row_of<Config>(warp, lane & 15);
            const SharedAddress line = staged + row * slab_bytes;
#pragma unroll
            for (u32 group = 0; group < groups; group += 2) {
                if (!has_group(column, group))
                    break;
                const auto *four = &value[(column / 8 + group) * 4];
                const u32 chunk = group + (lane >> 4);
                stmatrix_x4(line + ((chunk ^ (row & 7)) << 4), pack<Out>(four[0], four[1]),
                            pack<Out>(four[2], four[3]), pack<Out>(four[4], four[5]),
                            pack<Out>(four[6], four[7]));
            }
        } else if constexpr (out_bytes == 1) {
            // stmatrix would take four neighbouring columns of a lane, which has two. No two of a
            // warp's pairs are in different words of one bank: eight rows have chunks of their own
            // (of rows from an A in registers, two share one).
            const u32 row = row_of<Config>(warp, lane / 4);
            constexpr u32 below = row_of<Config>(0, 8);
            static_assert(below % 8 == 0, "the swizzle of both rows is the same");
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

    // Write the transpose of `rows` columns of a block's accumulators from `column` on: of all its
    // rows, or, of 32 bits, of the 32 that `strip` begins: the lane's first of each pair, or its
    // second.
    template <int count>
    CUPYGEMM_INLINE static void stage_turned(SharedAddress staged, u32 thread,
                                             typename Config::Accumulator (&value)[count],
                                             u32 column, u32 strip, u32 rows) {
        const u32 warp = thread / 32, lane = thread % 32;
        if constexpr (out_bytes == 2) {
            // Matrices go right, 16 columns of C, which are the warp's rows, then down.
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

    // Store a staged block of `rows` rows, `wide` columns of it, without TMA. A warp stores 16,
    // which it has staged itself where no others had to.
    CUPYGEMM_INLINE static void store_block_rows(const HopperArgs &args, const Work &work, u32 row,
                                                 u32 column, u32 rows, u32 wide, u32 thread,
                                                 SharedAddress staged) {
        const BoxIndex batch = batch_box<5>(args, work.batch);
        const i64 matrix = batch.batch0 * args.c_stride[0] + batch.batch1 * args.c_stride[1] +
                           batch.batch2 * args.c_stride[2];
        const i32 c_rows = Config::c_turned ? args.n : args.m;
        const i32 c_columns = Config::c_turned ? args.m : args.n;
        const i32 limit = minimum(static_cast<i32>(wide), c_columns - static_cast<i32>(column));
        const u32 lane = thread % 32, line = thread / 32 * 16;
        const u64 first = args.c_address +
                          (matrix + static_cast<i64>(row + line) * args.ldc + column) * out_bytes;
        // Promoted sums, many sums, and three consumers, leave few registers.
        constexpr bool many = T::consumer_blocks * Config::tile_n / 2 > 128;
        constexpr u32 ahead = many ? 1
                              : Config::promote || Config::num_consumers == 3 || T::a_in_registers
                                  ? 2
                                  : 4;
        const i32 below = c_rows - static_cast<i32>(row + line);
        const i32 height = Config::c_turned ? minimum(below, static_cast<i32>(rows - line)) : below;
        store_rows<typename Numeric<Out>::Bits, ahead>(staged, line, lane, first,
                                                       args.ldc * out_bytes, height, limit);
    }
};

} // namespace cupygemm
