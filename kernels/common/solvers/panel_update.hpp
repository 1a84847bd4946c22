// Subtracts a product of a few columns, C -= A B or C -= A B^H, inside a panel, or of few
// right-hand sides; or stores it, C = A B.
//
// The trailing updates of a factorisation are products of this library. Inside a panel, the
// products are too small for those: k is the width of one block. A workgroup computes a tile of C,
// and a thread 4 x 4 of its elements; both operands go through shared memory.
#include "config.hpp"

namespace cupygemm {

struct UpdateArgs {
    u64 a, b, c;                      // element (0, 0) of the first matrix
    i64 a_row, a_column;              // elements between rows and between columns
    i64 ldb, ldc;                     // elements between rows
    i64 a_stride, b_stride, c_stride; // elements between matrices
    i32 m, n, k;
    i32 lower; // skip tiles above the diagonal
};
static_assert(sizeof(UpdateArgs) == 96, "UpdateArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
constexpr u32 threads = 256, tile = 64, depth = Config::depth;

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::threads) cupygemm_panel_update(const cupygemm::UpdateArgs args) {
    using namespace cupygemm;
    __shared__ S a[depth][tile + 1], b[depth][tile + 1]; // (k, row of A), (k, column of B)
    const u32 thread = local_thread(), matrix = group_index_y();
    const u32 m = args.m, n = args.n, tiles_n = ceil_div(n, tile);
    const u32 row0 = group_index_x() / tiles_n * tile, column0 = group_index_x() % tiles_n * tile;
    if (args.lower && column0 >= row0 + tile)
        return;
    const S *const from_a = reinterpret_cast<const S *>(args.a) + matrix * args.a_stride;
    const S *const from_b = reinterpret_cast<const S *>(args.b) + matrix * args.b_stride;
    S *const c = reinterpret_cast<S *>(args.c) + matrix * args.c_stride;
    const u32 x = thread % 16, y = thread / 16;
    S sums[4][4] = {};
#pragma unroll 1
    for (u32 k0 = 0; k0 < static_cast<u32>(args.k); k0 += depth) {
        workgroup_barrier(); // the tiles before have been read
        for (u32 at = thread; at < tile * depth; at += threads) {
            const u32 k = at % depth, row = at / depth;
            const bool inside = row0 + row < m && k0 + k < static_cast<u32>(args.k);
            S element{};
            if (inside)
                element = from_a[(row0 + row) * args.a_row + (k0 + k) * args.a_column];
            a[k][row] = element;
        }
        for (u32 at = thread; at < tile * depth; at += threads) {
            const u32 k = Config::conjugate_transpose ? at % depth : at / tile;
            const u32 column = Config::conjugate_transpose ? at / depth : at % tile;
            S element{};
            if (column0 + column < n && k0 + k < static_cast<u32>(args.k))
                element = Config::conjugate_transpose
                              ? conjugated(from_b[(column0 + column) * args.ldb + k0 + k])
                              : from_b[(k0 + k) * args.ldb + column0 + column];
            b[k][column] = element;
        }
        workgroup_barrier(); // the tiles are in shared memory
#pragma unroll 4
        for (u32 k = 0; k < depth; ++k)
#pragma unroll
            for (u32 i = 0; i < 4; ++i)
#pragma unroll
                for (u32 j = 0; j < 4; ++j)
                    sums[i][j] = plus_product(sums[i][j], a[k][y + 16 * i], b[k][x + 16 * j]);
    }
#pragma unroll
    for (u32 i = 0; i < 4; ++i)
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            const u32 row = row0 + y + 16 * i, column = column0 + x + 16 * j;
            if (row < m && column < n) {
                S *const place = c + row * args.ldc + column;
                *place = Config::replaces ? sums[i][j] : plus(*place, negated(sums[i][j]));
            }
        }
}
