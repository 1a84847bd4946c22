// Solves L X = B for many right-hand sides, with L lower triangular; X replaces B.
//
// A thread owns one column of B. It computes `block` rows at a time in registers: it subtracts what
// the rows above contribute, and then substitutes within the diagonal block. The blocks of L go
// through shared memory, from which all threads read the same element. This is substitution, not a
// product with an inverse, and has its small backward error for every L.
//
// L and B may have any strides, so a transposed or an upper triangular matrix is the same problem
// with other strides: the strides of an upper triangular one are negative, from its last element.
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

// Load a block of L. Elements that are not part of it become those of the identity.
CUPYGEMM_INLINE void load_block(S (&l)[block][block], const TriangularArgs &args, const S *from,
                                u32 row0, u32 column0, u32 thread) {
    const u32 n = args.n;
    for (u32 at = thread; at < block * block; at += threads) {
        // Neighbouring threads read neighbouring elements.
        const u32 fast = at % block, slow = at / block;
        const u32 i = Config::rows_adjacent ? fast : slow, j = Config::rows_adjacent ? slow : fast;
        const u32 row = row0 + i, column = column0 + j;
        S element = of_real<S>(row == column ? 1 : 0);
        if (row < n && (row > column || (row == column && !Config::unit)))
            element = from[row * args.l_row + column * args.l_column];
        l[i][j] = Config::conjugate ? conjugated(element) : element;
    }
}

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_triangular_solve(const cupygemm::TriangularArgs args) {
    using namespace cupygemm;
    __shared__ S l[block][block];
    const u32 thread = local_thread(), matrix = group_index_y(), n = args.n;
    const S *const from = reinterpret_cast<const S *>(args.l) + matrix * args.l_stride;
    const u32 column = group_index_x() * threads + thread;
    const bool inside = column < static_cast<u32>(args.columns);
    S *const b = reinterpret_cast<S *>(args.b) + matrix * args.b_stride + column * args.b_column;
#pragma unroll 1
    for (u32 row0 = 0; row0 < n; row0 += block) {
        S x[block];
#pragma unroll
        for (u32 i = 0; i < block; ++i)
            x[i] = inside && row0 + i < n ? b[(row0 + i) * args.b_row] : S{};
#pragma unroll 1
        for (u32 column0 = 0; column0 <= row0; column0 += block) {
            workgroup_barrier(); // the block before has been read
            load_block(l, args, from, row0, column0, thread);
            workgroup_barrier(); // the block is in shared memory
            if (column0 == row0)
                break;
#pragma unroll 4
            for (u32 j = 0; j < block; ++j) {
                const S above = inside ? b[(column0 + j) * args.b_row] : S{};
#pragma unroll
                for (u32 i = 0; i < block; ++i)
                    x[i] = minus_product(x[i], l[i][j], above);
            }
        }
        solve_in_registers<Config::unit>(x, [](u32 i, u32 j) { return l[i][j]; });
#pragma unroll
        for (u32 i = 0; i < block; ++i)
            if (inside && row0 + i < n)
                b[(row0 + i) * args.b_row] = x[i];
    }
}
