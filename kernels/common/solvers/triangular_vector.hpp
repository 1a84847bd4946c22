// Solves L x = b for few right-hand sides, with L lower triangular, in one launch.
//
// The workgroups of a matrix take blocks of `leaf` rows in turn. For each block, a workgroup
// subtracts the contributions of the solved blocks, in order and as soon as each is available, and
// then solves with the diagonal block:
//
//   workgroup 0   | invert | solve block 0 |                                     | block G ...
//   workgroup 1   | invert, load L         | wait | subtract | solve block 1 |
//   workgroup 2   | invert, load L         | wait | subtract | load L        | wait | subtract ...
//
// Each block waits for the previous one, so the diagonal blocks are inverted beforehand: a block
// then takes two products instead of a chain through all its rows. This is as accurate as
// substitution where |T^-1| |T| is small for the block T. Otherwise, or if few workgroups would
// have to invert many blocks, the rows are solved by substitution.
//
// A thread that waits for a number polls until it is nonzero. The messages must be zero before the
// launch, and all workgroups of a matrix must be resident at the same time. Strides are those of
// triangular_solve.hpp.
#include "config.hpp"

namespace cupygemm {

struct VectorArgs {
    u64 l, b;                      // element (0, 0) of the first matrix
    i64 l_row, l_column, l_stride; // elements between rows, columns and matrices
    i64 b_row, b_column, b_stride;
    u64 messages;   // the solution: words of each row, column and matrix; 0 for one workgroup
    i32 n, columns; // of L, and of B
    i32 leaf;       // rows of a block
    i32 groups;     // of a matrix
};
static_assert(sizeof(VectorArgs) == 88, "VectorArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
constexpr u32 threads = Config::threads, block = Config::block, most = Config::columns;
constexpr u32 parts = threads / block, each = block / parts;      // a thread's columns of a block
constexpr u32 own_count = (most * block + threads - 1) / threads; // the elements of B of a thread
constexpr u32 least_groups = 8;                                   // that invert blocks
constexpr float most_condition = 1000; // the largest element of | T^-1 | | T | e, with e of ones

struct Shared {
    S diagonal[block][block + 1]; // (row, column)
    S received[2][most][block];   // of blocks in turn; first, rows of the inverse
    S solved[most][block];
    S sums[most][parts][block];
};

// The position of a thread: neighbours read neighbouring elements.
struct Place {
    u32 row, part;

    CUPYGEMM_INLINE u32 column(u32 j) const {
        return Config::rows_adjacent ? part * each + j : j * parts + part;
    }
};
CUPYGEMM_INLINE Place place_of(u32 thread) {
    if constexpr (Config::rows_adjacent)
        return {thread % block, thread / block};
    return {thread / parts, thread % parts};
}

// The words of a number as a message. No word is zero: zeros are sent as -0.
CUPYGEMM_INLINE void send(Word<S> *to, S x) {
    Word<S> words[Parts<S>::words];
    to_words(x, words);
#pragma unroll
    for (u32 w = 0; w < static_cast<u32>(Parts<S>::words); ++w)
        device_store(to + w, words[w] != 0 ? words[w] : Word<S>{1} << (8 * sizeof(Word<S>) - 1));
}
CUPYGEMM_INLINE S receive(const Word<S> *from) {
    Word<S> words[Parts<S>::words];
#pragma unroll
    for (u32 w = 0; w < static_cast<u32>(Parts<S>::words); ++w)
        do
            words[w] = device_load(from + w);
        while (words[w] == 0);
    return from_words<S>(words);
}

// Call visit(element of the thread, row, column) for the thread's elements of a block of B.
template <class Visit> CUPYGEMM_INLINE void for_own(u32 thread, const Visit &visit) {
#pragma unroll
    for (u32 e = 0; e < own_count; ++e) {
        const u32 i = (thread + e * threads) % block, c = (thread + e * threads) / block;
        if (c < most)
            visit(e, i, c);
    }
}

// Invert the diagonal block, row by row. Returns whether the inverse is accurate enough to use.
// Called by every thread, after the block is in shared memory.
CUPYGEMM_INLINE bool invert(Shared &shared, const Place &at, u32 thread, S (&x)[each]) {
    using R = Real<S>;
    R of_row = 0;
#pragma unroll
    for (u32 j = 0; j < each; ++j) {
        x[j] = of_real<S>(at.column(j) == at.row ? 1 : 0);
        of_row += magnitude(shared.diagonal[at.row][at.column(j)]);
    }
    shared.sums[0][at.part][at.row] = of_real<S>(of_row);
#pragma unroll 1
    for (u32 k = 0; k < block; ++k) {
        S(&line)[block] = shared.received[k % 2][0];
        if (at.row == k) {
            const S scale = divided(of_real<S>(1), shared.diagonal[k][k]);
#pragma unroll
            for (u32 j = 0; j < each; ++j) {
                x[j] = Config::unit ? x[j] : times(x[j], scale);
                line[at.column(j)] = x[j];
            }
        }
        workgroup_barrier(); // row k is in shared memory, and the previous row has been read
        if (at.row > k) {
            const S factor = shared.diagonal[at.row][k];
#pragma unroll
            for (u32 j = 0; j < each; ++j)
                x[j] = minus_product(x[j], factor, line[at.column(j)]);
        }
    }
    R condition = 0;
#pragma unroll
    for (u32 j = 0; j < each; ++j) {
        R of_column = 0;
#pragma unroll
        for (u32 p = 0; p < parts; ++p)
            of_column += magnitude(shared.sums[0][p][at.column(j)]);
        condition += magnitude(x[j]) * of_column;
    }
    workgroup_barrier();                                    // the sums have been read
    const bool small = condition * parts <= most_condition; // false if it is NaN
    shared.sums[0][at.part][at.row] = of_real<S>(small ? 0 : 1);
    workgroup_barrier(); // all answers are stored
    if (thread < 32) {
        R large = 0;
#pragma unroll
        for (u32 i = thread; i < block; i += 32)
#pragma unroll
            for (u32 p = 0; p < parts; ++p)
                large += magnitude(shared.sums[0][p][i]);
        shared.solved[0][thread] = of_real<S>(large);
    }
    workgroup_barrier(); // the answers of 32 threads are stored
    R large = 0;
#pragma unroll
    for (u32 i = 0; i < 32; ++i)
        large += magnitude(shared.solved[0][i]);
    return large == 0;
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
    Word<S> *const messages = reinterpret_cast<Word<S> *>(args.messages) +
                              static_cast<i64>(matrix) * n * columns * Parts<S>::words;
    const auto message = [&](u32 i, u32 c) { return messages + (c * n + i) * Parts<S>::words; };
    const Place at = place_of(thread);
    const auto element = [&](u32 i, u32 j) {
        const S value = l[static_cast<i64>(i) * args.l_row + static_cast<i64>(j) * args.l_column];
        return Config::conjugate ? conjugated(value) : value;
    };
    const auto of_b = [&](u32 i, u32 c) -> S & {
        return b[static_cast<i64>(i) * args.b_row + c * args.b_column];
    };
#pragma unroll 1
    for (u32 mine = group_index_x(); mine < blocks; mine += args.groups) {
        const u32 row0 = mine * leaf, rows = minimum(leaf, n - row0);
        const auto load = [&](u32 other, S(&of_l)[each]) {
#pragma unroll
            for (u32 j = 0; j < each; ++j)
                of_l[j] = at.row < rows && at.column(j) < leaf
                              ? element(row0 + at.row, other * leaf + at.column(j))
                              : S{};
        };
        workgroup_barrier(); // shared memory has been read
#pragma unroll
        for (u32 j = 0; j < each; ++j) {
            const u32 row = at.row, column = at.column(j);
            const bool inside = row < rows && (column < row || (column == row && !Config::unit));
            shared.diagonal[row][column] = of_real<S>(row == column ? 1 : 0);
            if (inside)
                shared.diagonal[row][column] = element(row0 + row, row0 + column);
        }
        S own[own_count] = {};
        for_own(thread, [&](u32 e, u32 i, u32 c) {
            own[e] = i < rows && c < columns ? of_b(row0 + i, c) : S{};
        });
        S inverse[each] = {};
        bool inverted = false;
        if constexpr (parts > 1)
            if (static_cast<u32>(args.groups) >= least_groups) {
                workgroup_barrier(); // the diagonal block is in shared memory
                inverted = invert(shared, at, thread, inverse);
                workgroup_barrier(); // shared memory has been read
            }
        S sums[most] = {};
        if constexpr (parts > 1) { // otherwise there is one block
            S of_next[each];
            if (mine > 0)
                load(0, of_next);
#pragma unroll 1
            for (u32 other = 0; other < mine; ++other) {
                for_own(thread, [&](u32, u32 i, u32 c) {
                    S x{};
                    if (i < leaf && c < columns)
                        x = args.groups > 1 ? receive(message(other * leaf + i, c))
                                            : of_b(other * leaf + i, c);
                    shared.received[other % 2][c][i] = x;
                });
                S of_l[each];
#pragma unroll
                for (u32 j = 0; j < each; ++j)
                    of_l[j] = of_next[j];
                workgroup_barrier(); // the block is in shared memory, the previous one read
                if (other + 1 < mine)
                    load(other + 1, of_next);
                const auto &received = shared.received[other % 2];
#pragma unroll
                for (u32 j = 0; j < each; ++j)
#pragma unroll
                    for (u32 c = 0; c < most; ++c)
                        sums[c] = plus_product(sums[c], of_l[j], received[c][at.column(j)]);
            }
        }
        const auto sum_of = [&](u32 i, u32 c) {
            S x{};
#pragma unroll
            for (u32 p = 0; p < parts; ++p)
                x = plus(x, shared.sums[c][p][i]);
            return x;
        };
#pragma unroll
        for (u32 c = 0; c < most; ++c)
            shared.sums[c][at.part][at.row] = sums[c];
        workgroup_barrier(); // the sums are in shared memory
        for_own(thread, [&](u32 e, u32 i, u32 c) {
            shared.solved[c][i] = plus(own[e], negated(sum_of(i, c)));
        });
        workgroup_barrier(); // the right-hand sides are in shared memory, and the sums are read
        const auto finish = [&](u32 i, u32 c, S x) {
            if (args.groups > 1)
                send(message(row0 + i, c), x);
            of_b(row0 + i, c) = x;
        };
        if (inverted) {
#pragma unroll
            for (u32 c = 0; c < most; ++c) {
                S sum{};
#pragma unroll
                for (u32 j = 0; j < each; ++j)
                    sum = plus_product(sum, inverse[j], shared.solved[c][at.column(j)]);
                shared.sums[c][at.part][at.row] = sum;
            }
            workgroup_barrier(); // the sums are in shared memory
            for_own(thread, [&](u32, u32 i, u32 c) {
                if (i < rows && c < columns)
                    finish(i, c, sum_of(i, c));
            });
        } else if (thread < 32) {
            substitute(shared, thread);
            for (u32 e = thread; e < most * block; e += 32) {
                const u32 i = e % block, c = e / block;
                if (i < rows && c < columns)
                    finish(i, c, shared.solved[c][i]);
            }
        }
    }
}
