// Solves L x = b for few right-hand sides, with L lower triangular of at most `threads` rows.
//
// A workgroup owns one right-hand side and a thread one row of L, in registers. Step j divides by
// the diagonal, and every thread below takes its part of x_j off its own sum. Strides are those of
// triangular_solve.hpp.
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
constexpr u32 threads = Config::threads;

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_triangular_vector(const cupygemm::TriangularArgs args) {
    using namespace cupygemm;
    __shared__ S solved[threads];
    const u32 row = local_thread(), matrix = group_index_y(), n = args.n;
    const S *const l = reinterpret_cast<const S *>(args.l) + matrix * args.l_stride +
                       static_cast<i64>(row) * args.l_row;
    S *const b = reinterpret_cast<S *>(args.b) + matrix * args.b_stride +
                 static_cast<i64>(group_index_x()) * args.b_column +
                 static_cast<i64>(row) * args.b_row;
    S of_row[threads]; // this thread's row of L
#pragma unroll
    for (u32 j = 0; j < threads; ++j) {
        of_row[j] = of_real<S>(row == j ? 1 : 0);
        if (row < n && (j < row || (j == row && !Config::unit)))
            of_row[j] = l[static_cast<i64>(j) * args.l_column];
        if (Config::conjugate)
            of_row[j] = conjugated(of_row[j]);
    }
    S x = row < n ? *b : S{};
#pragma unroll
    for (u32 j = 0; j < threads; ++j) {
        if (row == j)
            solved[j] = x = Config::unit ? x : divided(x, of_row[j]);
        workgroup_barrier(); // x_j is in shared memory
        if (row > j)
            x = minus_product(x, of_row[j], solved[j]);
    }
    if (row < n)
        *b = x;
}
