// Solves L X = B for many right-hand sides, with L lower triangular; X replaces B.
//
// A thread owns one column of B. It computes `block` rows at a time in registers: it subtracts the
// contributions of the rows above, and then substitutes within the diagonal block. The blocks of L
// go through shared memory, from which all threads read the same element. This is substitution, not
// a product with an inverse, so the backward error is small for every L.
//
// L and B may have any strides, so transposed and upper triangular matrices need no other kernel:
// an upper triangular matrix has negative strides, from its last element. Where the rows of B are
// adjacent, not its columns, B goes through shared memory.
#include "common/solvers/rows.hpp"
#include "config.hpp"

namespace cupygemm {

struct TriangularArgs {
    u64 l, b;                      // element (0, 0) of the first matrix
    i64 l_row, l_column, l_stride; // elements between rows, columns and matrices
    i64 b_row, b_column, b_stride;
    i32 n, columns; // of L, and of B
};
static_assert(sizeof(TriangularArgs) == 72,
              "TriangularArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
constexpr u32 block = Config::block, threads = Config::threads;

struct Shared {
    S l[block][block];    // (column, row): a column is read in order
    S inverse[block];     // of the scaled diagonal
    Real<S> scale[block]; // a power of two
    RowStage<S, block> stages[Config::b_rows_adjacent ? threads / 32 : 1]; // of B
};

// Load rows `row0` to row0 + block - 1 of B, each thread its own column.
CUPYGEMM_INLINE void load_columns(Shared &shared, const TriangularArgs &args, const S *b, u32 row0,
                                  u32 thread, S (&x)[block]) {
    const u32 n = args.n, columns = args.columns, first = group_index_x() * threads;
    if constexpr (Config::b_rows_adjacent) {
        const u32 group = thread / 32;
        load_lines(shared.stages[group], thread % 32, x, [&](u32 line, u32 i) {
            const u32 column = first + group * 32 + line;
            S element{};
            if (column < columns && row0 + i < n)
                element = b[column * args.b_column + row0 + i];
            return element;
        });
    } else {
        const u32 column = first + thread;
#pragma unroll
        for (u32 i = 0; i < block; ++i)
            x[i] = column < columns && row0 + i < n
                       ? b[column * args.b_column + (row0 + i) * args.b_row]
                       : S{};
    }
}

CUPYGEMM_INLINE void store_columns(Shared &shared, const TriangularArgs &args, S *b, u32 row0,
                                   u32 thread, const S (&x)[block]) {
    const u32 n = args.n, columns = args.columns, column = group_index_x() * threads + thread;
    if constexpr (Config::b_rows_adjacent) {
        store_rows(shared.stages[thread / 32], x, column, 0, thread % 32,
                   [&](u32 to, u32 i, S element) {
                       if (to < columns && row0 + i < n)
                           b[to * args.b_column + row0 + i] = element;
                   });
    } else {
#pragma unroll
        for (u32 i = 0; i < block; ++i)
            if (column < columns && row0 + i < n)
                b[column * args.b_column + (row0 + i) * args.b_row] = x[i];
    }
}

// Load a block of L. Elements outside L become those of the identity.
CUPYGEMM_INLINE void load_block(Shared &shared, const TriangularArgs &args, const S *from, u32 row0,
                                u32 column0, u32 thread) {
    const u32 n = args.n;
#pragma unroll 8
    for (u32 at = thread; at < block * block; at += threads) {
        // Neighbouring threads read neighbouring elements.
        const u32 fast = at % block, slow = at / block;
        const u32 i = Config::rows_adjacent ? fast : slow, j = Config::rows_adjacent ? slow : fast;
        const u32 row = row0 + i, column = column0 + j;
        S element = of_real<S>(row == column ? 1 : 0);
        if (row < n && (row > column || (row == column && !Config::unit)))
            element = from[row * args.l_row + column * args.l_column];
        shared.l[j][i] = Config::conjugate ? conjugated(element) : element;
    }
}

// Subtract the contribution of one row above, whose element in the thread's column is `above`.
CUPYGEMM_INLINE void subtract(const Shared &shared, u32 j, S above, S (&x)[block]) {
#pragma unroll
    for (u32 i = 0; i < block; ++i)
        x[i] = minus_product(x[i], shared.l[j][i], above);
    keep_all_here(x);
}

// Invert the diagonal of a block. An element whose inverse may overflow is scaled first.
CUPYGEMM_INLINE void invert_diagonal(Shared &shared, u32 thread) {
    static_assert(threads >= block, "a thread must invert an element");
    using R = Real<S>;
    if (thread < block) {
        const S element = shared.l[thread][thread];
        const bool fits = magnitude(element) >= static_cast<R>(Config::smallest_invertible);
        const R scale = fits ? 1 : 1 / static_cast<R>(Config::tolerance);
        shared.inverse[thread] = divided(of_real<S>(1), times(element, scale));
        shared.scale[thread] = scale;
    }
    workgroup_barrier(); // the inverses are in shared memory
}

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_triangular_solve(const cupygemm::TriangularArgs args) {
    using namespace cupygemm;
    __shared__ Shared shared;
    const u32 thread = local_thread(), matrix = group_index_y(), n = args.n;
    const S *const from = reinterpret_cast<const S *>(args.l) + matrix * args.l_stride;
    S *const b = reinterpret_cast<S *>(args.b) + matrix * args.b_stride;
    const u32 column = group_index_x() * threads + thread;
    const bool inside = column < static_cast<u32>(args.columns);
#pragma unroll 1
    for (u32 row0 = 0; row0 < n; row0 += block) {
        S x[block];
        load_columns(shared, args, b, row0, thread, x);
#pragma unroll 1
        for (u32 column0 = 0; column0 <= row0; column0 += block) {
            workgroup_barrier(); // the previous block has been read
            load_block(shared, args, from, row0, column0, thread);
            workgroup_barrier(); // the block is in shared memory
            if (column0 == row0)
                break;
            if constexpr (Config::b_rows_adjacent) {
                S above[block];
                load_columns(shared, args, b, column0, thread, above);
#pragma unroll
                for (u32 j = 0; j < block; ++j)
                    subtract(shared, j, above[j], x);
            } else {
                const S *const own = b + column * args.b_column;
#pragma unroll 16
                for (u32 j = 0; j < block; ++j)
                    subtract(shared, j, inside ? own[(column0 + j) * args.b_row] : S{}, x);
            }
        }
        const auto element = [](u32 i, u32 j) { return shared.l[j][i]; };
        // If a step only subtracted, compilers would hoist all loads of complex elements together.
        if constexpr (Config::unit && Parts<S>::words == 1) {
            solve_in_registers(x, element, [](S sum, u32) { return sum; });
        } else {
            invert_diagonal(shared, thread);
            solve_in_registers(x, element, [](S sum, u32 j) {
                return times(times(sum, shared.inverse[j]), shared.scale[j]);
            });
        }
        store_columns(shared, args, b, row0, thread, x);
    }
}
