// Solves L x = b for few right-hand sides, with L lower triangular, in one launch.
//
// The rows are blocks of `leaf`, which the workgroups of a matrix take in turn. For each block, a
// workgroup subtracts what the solved blocks contribute, in their order, as soon as each is there,
// and substitutes within the diagonal block:
//
//   workgroup 0   | solve block 0 | flag |                                    | block G ...
//   workgroup 1   | load L        | wait | subtract | solve block 1 | flag |
//   workgroup 2   | load L        | wait | subtract | load L        | wait | subtract | solve ...
//
// The flags must be zero before the launch, and all workgroups of a matrix resident together.
// Strides are those of triangular_solve.hpp.
#include "config.hpp"

namespace cupygemm {

struct VectorArgs {
    u64 l, b;                      // element (0, 0) of the first matrix
    i64 l_row, l_column, l_stride; // elements between rows, columns and matrices
    i64 b_row, b_column, b_stride;
    u64 flags;      // u32 for each block of each matrix
    i32 n, columns; // of L, and of B
    i32 leaf;       // rows of a block
    i32 groups;     // of a matrix
};
static_assert(sizeof(VectorArgs) == 88, "VectorArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
constexpr u32 threads = Config::threads, block = Config::block, most = Config::columns;
constexpr u32 parts = threads / block, each = block / parts; // a thread's columns of a block

struct Shared {
    S diagonal[block][block + 1]; // (row, column)
    S solved[most][block];
    S sums[most][parts][block];
};

// The place of a thread: neighbours read neighbouring elements.
struct Place {
    u32 row, part;
};
CUPYGEMM_INLINE Place place_of(u32 thread) {
    if constexpr (Config::rows_adjacent)
        return {thread % block, thread / block};
    return {thread / parts, thread % parts};
}

// Substitute within the diagonal block. 32 lanes own 32 rows, with all right-hand sides. An element
// of the diagonal whose inverse may overflow is scaled before it is inverted.
CUPYGEMM_INLINE void substitute(Shared &shared, u32 lane) {
    using R = Real<S>;
#pragma unroll 1
    for (u32 first = 0; first < block; first += 32) {
        S x[most];
#pragma unroll
        for (u32 c = 0; c < most; ++c)
            x[c] = shared.solved[c][first + lane];
#pragma unroll 8
        for (u32 j = 0; j < first; ++j)
#pragma unroll
            for (u32 c = 0; c < most; ++c)
                x[c] = minus_product(x[c], shared.diagonal[first + lane][j], shared.solved[c][j]);
        const S own = shared.diagonal[first + lane][first + lane];
        const bool fits = magnitude(own) >= static_cast<R>(Config::smallest_invertible);
        const R scale = fits ? 1 : 1 / static_cast<R>(Config::tolerance);
        const S inverse = divided(of_real<S>(1), times(own, scale));
#pragma unroll 8
        for (u32 j = 0; j < 32; ++j) {
            const S element = lane > j ? shared.diagonal[first + lane][first + j] : S{};
#pragma unroll
            for (u32 c = 0; c < most; ++c) {
                const S solved = Config::unit ? x[c] : times(times(x[c], inverse), scale);
                const S given = from_lane(solved, j);
                x[c] = lane == j ? solved : minus_product(x[c], element, given);
            }
        }
#pragma unroll
        for (u32 c = 0; c < most; ++c)
            shared.solved[c][first + lane] = x[c];
        wave_barrier(); // these rows are solved
    }
}

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_triangular_vector(const cupygemm::VectorArgs args) {
    using namespace cupygemm;
    __shared__ Shared shared;
    const u32 thread = local_thread(), matrix = group_index_y(), n = args.n, leaf = args.leaf;
    const u32 columns = args.columns, blocks = ceil_div(n, leaf);
    const S *const l = reinterpret_cast<const S *>(args.l) + matrix * args.l_stride;
    S *const b = reinterpret_cast<S *>(args.b) + matrix * args.b_stride;
    u32 *const flags = reinterpret_cast<u32 *>(args.flags) + matrix * blocks;
    const auto [row, part] = place_of(thread);
    const auto element = [&](u32 i, u32 j) {
        const S value = l[static_cast<i64>(i) * args.l_row + static_cast<i64>(j) * args.l_column];
        return Config::conjugate ? conjugated(value) : value;
    };
#pragma unroll 1
    for (u32 mine = group_index_x(); mine < blocks; mine += args.groups) {
        const u32 row0 = mine * leaf, rows = minimum(leaf, n - row0);
        workgroup_barrier(); // shared memory has been read
#pragma unroll
        for (u32 j = 0; j < each; ++j) {
            const u32 column = Config::rows_adjacent ? part * each + j : j * parts + part;
            const bool inside = row < rows && (column < row || (column == row && !Config::unit));
            shared.diagonal[row][column] =
                inside ? element(row0 + row, row0 + column) : of_real<S>(row == column ? 1 : 0);
        }
        S sums[most] = {};
#pragma unroll 1
        for (u32 other = 0; other < mine; ++other) {
            S of_l[each];
#pragma unroll
            for (u32 j = 0; j < each; ++j) {
                const u32 column = Config::rows_adjacent ? part * each + j : j * parts + part;
                of_l[j] =
                    row < rows && column < leaf ? element(row0 + row, other * leaf + column) : S{};
            }
            if (args.groups > 1)
                while (device_load(flags + other) == 0) {
                }
            device_fence();
            workgroup_barrier(); // the flag has been seen, and the block before has been read
            for (u32 at = thread; at < most * block; at += threads) {
                const u32 i = at % block, c = at / block;
                if (i < leaf && c < columns) {
                    S x;
                    Word<S> words[Parts<S>::words];
                    const Word<S> *const from = reinterpret_cast<const Word<S> *>(
                        b + (static_cast<i64>(other) * leaf + i) * args.b_row + c * args.b_column);
#pragma unroll
                    for (u32 w = 0; w < static_cast<u32>(Parts<S>::words); ++w)
                        words[w] = device_load(from + w);
                    x = from_words<S>(words);
                    shared.solved[c][i] = x;
                } else {
                    shared.solved[c][i] = S{};
                }
            }
            workgroup_barrier(); // the solved block is in shared memory
#pragma unroll
            for (u32 j = 0; j < each; ++j) {
                const u32 column = Config::rows_adjacent ? part * each + j : j * parts + part;
#pragma unroll
                for (u32 c = 0; c < most; ++c)
                    sums[c] = plus_product(sums[c], of_l[j], shared.solved[c][column]);
            }
        }
#pragma unroll
        for (u32 c = 0; c < most; ++c)
            shared.sums[c][part][row] = sums[c];
        workgroup_barrier(); // the sums are in shared memory, and the last block has been read
        for (u32 at = thread; at < most * block; at += threads) {
            const u32 i = at % block, c = at / block;
            S x{};
            if (i < rows && c < columns) {
                x = b[static_cast<i64>(row0 + i) * args.b_row + c * args.b_column];
#pragma unroll
                for (u32 p = 0; p < parts; ++p)
                    x = plus(x, negated(shared.sums[c][p][i]));
            }
            shared.solved[c][i] = x;
        }
        workgroup_barrier(); // the right-hand sides are in shared memory
        if (thread < 32) {
            substitute(shared, thread);
            for (u32 at = thread; at < most * block; at += 32) {
                const u32 i = at % block, c = at / block;
                if (i < rows && c < columns)
                    b[static_cast<i64>(row0 + i) * args.b_row + c * args.b_column] =
                        shared.solved[c][i];
            }
            device_fence();
            wave_barrier(); // this block is solved, in memory
            if (thread == 0 && args.flags != 0)
                device_store(flags + mine, 1u);
        }
    }
}
