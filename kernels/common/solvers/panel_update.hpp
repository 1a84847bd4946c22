// Subtracts a product with small k, C -= A B or C -= A B^H, inside a panel or for few right-hand
// sides, or stores it, C = A B.
//
// The updates of the trailing matrix are products of this library. Inside a panel, products are too
// small for those kernels: k is the width of one block. A workgroup computes a tile of C, and a
// thread 4 x 4 of its elements; both operands go through shared memory.
#include "common/solvers/update_args.hpp"

namespace cupygemm {

using S = Config::Scalar;
constexpr u32 threads = 256, tile = 64, depth = Config::depth;
constexpr u32 loads = tile * depth / threads; // of an operand, by a thread for a slab of k
static_assert(tile * depth % threads == 0, "all threads must load as much");

// A slab of both operands in registers: all loads are issued before the first is waited for.
struct Slab {
    S a[loads], b[loads];

    CUPYGEMM_INLINE static u32 k_of_a(u32 at) { return at % depth; }
    CUPYGEMM_INLINE static u32 row_of_a(u32 at) { return at / depth; }
    CUPYGEMM_INLINE static u32 k_of_b(u32 at) {
        return Config::conjugate_transpose ? at % depth : at / tile;
    }
    CUPYGEMM_INLINE static u32 column_of_b(u32 at) {
        return Config::conjugate_transpose ? at / depth : at % tile;
    }

    CUPYGEMM_INLINE void load(const UpdateArgs &args, const S *from_a, const S *from_b, u32 row0,
                              u32 column0, u32 k0, u32 thread) {
        const u32 m = args.m, n = args.n, end = args.k;
#pragma unroll
        for (u32 i = 0; i < loads; ++i) {
            const u32 at = thread + i * threads, row = row0 + row_of_a(at), k = k0 + k_of_a(at);
            a[i] = S{};
            if (row < m && k < end)
                a[i] = from_a[row * args.a_row + k * args.a_column];
        }
#pragma unroll
        for (u32 i = 0; i < loads; ++i) {
            const u32 at = thread + i * threads, k = k0 + k_of_b(at);
            const u32 column = column0 + column_of_b(at);
            b[i] = S{};
            if (column < n && k < end)
                b[i] = Config::conjugate_transpose ? conjugated(from_b[column * args.ldb + k])
                                                   : from_b[k * args.ldb + column];
        }
    }

    CUPYGEMM_INLINE void store(S (&to_a)[depth][tile + 1], S (&to_b)[depth][tile + 1],
                               u32 thread) const {
#pragma unroll
        for (u32 i = 0; i < loads; ++i) {
            const u32 at = thread + i * threads;
            to_a[k_of_a(at)][row_of_a(at)] = a[i];
            to_b[k_of_b(at)][column_of_b(at)] = b[i];
        }
    }
};

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
    Slab slab;
    slab.load(args, from_a, from_b, row0, column0, 0, thread);
#pragma unroll 1
    for (u32 k0 = 0; k0 < static_cast<u32>(args.k); k0 += depth) {
        workgroup_barrier(); // the previous tiles have been read
        slab.store(a, b, thread);
        workgroup_barrier(); // the tiles are in shared memory
        slab.load(args, from_a, from_b, row0, column0, k0 + depth, thread);
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
