// Factors a diagonal block, A = L L^H, and solves X L^H = B for the rows below it, in one launch.
//
// Every workgroup factors the block in its shared memory, which takes less time than waiting for
// another to do so, and then solves for its own rows, one per thread, in registers. Only the lower
// triangle is read. The factor of the block is stored elsewhere, because other workgroups may still
// read the block; `cholesky_finish.hpp` moves it into its place.
#include "common/solvers/rows.hpp"
#include "config.hpp"

namespace cupygemm {

struct CholeskyPanelArgs {
    u64 a;           // element (0, 0) of the diagonal block of the first matrix
    i64 lda, stride; // elements between rows, and between matrices
    u64 block;       // where the factor of the block goes: (width, width) of each matrix
    i64 block_stride;
    u64 info; // i32 for each matrix: 1 + the first column that is not positive, or 0
    i32 m, n; // rows from the block on, and columns of the block
    i32 first;
    i32 unused;
};
static_assert(sizeof(CholeskyPanelArgs) == 64,
              "CholeskyPanelArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
using R = Real<S>;
constexpr u32 width = Config::width, threads = Config::threads;

struct Shared {
    S l[width][width];                 // (column, row): a column is read in order
    R diagonal[width], inverse[width]; // and its inverse
    i32 failed;
    RowStage<S, width> stages[threads / 32];
};

// Factor the block in shared memory. Lane i of the first 32 holds row i in registers, and reads the
// column of the other rows from shared memory.
CUPYGEMM_INLINE void factor_block(Shared &shared, u32 lane, u32 n) {
    S row[width];
#pragma unroll
    for (u32 k = 0; k < width; ++k)
        row[k] = lane < width ? shared.l[k][lane] : S{};
    i32 failed = 0;
#pragma unroll
    for (u32 j = 0; j < width; ++j) {
        if (j < n) {
            const R d = from_lane(real_part(row[j]), j);
            const R inverse = inverse_square_root(d); // NaN if d is negative
            if (!(d > 0) && failed == 0)
                failed = static_cast<i32>(j) + 1;
            const S x = lane > j ? times(row[j], inverse) : S{};
            if (lane < width)
                shared.l[j][lane] = x;
            wave_barrier(); // column j of L, without its diagonal, is in shared memory
            if (lane == j) {
                shared.diagonal[j] = square_root(d);
                shared.inverse[j] = inverse;
            }
#pragma unroll
            for (u32 k = j + 1; k < width; ++k)
                row[k] = minus_product(row[k], x, conjugated(shared.l[j][k]));
        }
    }
    if (lane == 0)
        shared.failed = failed;
}

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_cholesky_panel(const cupygemm::CholeskyPanelArgs args) {
    using namespace cupygemm;
    __shared__ Shared shared;
    const u32 thread = local_thread(), matrix = group_index_y(), n = args.n;
    S *const a = reinterpret_cast<S *>(args.a) + matrix * args.stride;
    for (u32 at = thread; at < width * width; at += threads) {
        const u32 row = at / width, column = at % width;
        S element{};
        if (row < n && column <= row)
            element = a[row * args.lda + column];
        shared.l[column][row] = element;
    }
    if (thread < width)
        shared.diagonal[thread] = shared.inverse[thread] = 1;
    workgroup_barrier(); // the block is in shared memory
    if (thread < 32)
        factor_block(shared, thread, n);
    workgroup_barrier(); // the factor is in shared memory

    if (group_index_x() == 0) {
        S *const block = reinterpret_cast<S *>(args.block) + matrix * args.block_stride;
        for (u32 at = thread; at < width * width; at += threads)
            block[at] = at % width == at / width ? of_real<S>(shared.diagonal[at / width])
                                                 : shared.l[at % width][at / width];
        i32 *const info = reinterpret_cast<i32 *>(args.info) + matrix;
        if (thread == 0 && shared.failed != 0 && *info == 0)
            *info = args.first + shared.failed;
    }
    const u32 lane = thread % 32, group = thread / 32, m = args.m;
    const u32 first = n + group_index_x() * threads + group * 32;
    S x[width];
    load_rows(shared.stages[group], a, args.lda, m, n, first, lane, x);
    solve_in_registers(
        x, [](u32 i, u32 j) { return conjugated(shared.l[j][i]); },
        [](S sum, u32 j) { return times(sum, shared.inverse[j]); });
    store_rows(shared.stages[group], x, first + lane, 0, lane, [&](u32 row, u32 column, S element) {
        if (row < m && column < n)
            a[row * args.lda + column] = element;
    });
}
