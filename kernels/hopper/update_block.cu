// Subtracts a product with small k, C -= A B, inside an fp64 panel, by mma.sync.
//
// The interface is that of common/solvers/panel_update.hpp, for k up to `depth`, matrices whose
// columns are adjacent, and rows of A and B that begin at multiples of 16 bytes. A thread block
// computes a tile of 64 x 64, and each of its four warps a quarter. All of k is copied together,
// and C is loaded meanwhile.
#include "common/solvers/update_args.hpp"
#include "hopper/cluster.cuh"
#include "hopper/dependent_launch.cuh"
#include "hopper/element_pairs.cuh"
#include "hopper/tile_operand.cuh"

namespace cupygemm {

constexpr u32 tile = 64, depth = Config::depth, threads = 128;
using Left = TileOperand<double, tile, depth, false, 2, threads>;
using Right = TileOperand<double, tile, depth, true, 2, threads>; // B^T, whose rows are B's columns
static_assert(sizeof(double) * (Left::elements + Right::elements) <= Config::shared_bytes,
              "both operands must fit in shared memory");

} // namespace cupygemm

extern "C" __global__ void __launch_bounds__(128, 4)
    cupygemm_update_block(const cupygemm::UpdateArgs args) {
    using namespace cupygemm;
    extern __shared__ __align__(128) double dynamic_shared[];
    double *const left = dynamic_shared, *const right = left + Left::elements;
    const u32 thread = thread_index(), lane = thread % 32, matrix = blockIdx.y;
    const u32 m = args.m, n = args.n, k = args.k, tiles_n = ceil_div(n, tile);
    const u32 row0 = blockIdx.x / tiles_n * tile, column0 = blockIdx.x % tiles_n * tile;
    const TileSource<double> a{reinterpret_cast<const double *>(args.a) + matrix * args.a_stride,
                               args.a_row, 1, m, k};
    const TileSource<double> b{reinterpret_cast<const double *>(args.b) + matrix * args.b_stride, 1,
                               args.ldb, n, k};
    wait_for_work_before();
    Left::copy(left, a, row0, 0, thread);
    Right::copy(right, b, column0, 0, thread);
    copy_async_commit();

    const u32 warp_row = thread / 64 * 32, warp_column = thread / 32 % 2 * 32;
    double *const c = reinterpret_cast<double *>(args.c) + matrix * args.c_stride;
    const u32 first_row = row0 + warp_row + lane / 4, column = column0 + warp_column + lane % 4 * 2;
    double *const first = c + first_row * args.ldc + column;
    const WarpPairs<double, Config::pairs> pairs{first, args.ldc, first_row, column, m, n};
    double sums[2][4][4]; // (16 rows, 8 columns, element of mma.sync)
    pairs.load(sums);
    copy_async_wait<0>();
    block_sync(threads); // both operands are in shared memory
#pragma unroll 1         // longer code would take longer to fetch
    for (u32 k0 = 0; k0 < depth; k0 += 8) {
        Fragment x[4], y[4];
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
            x[i] = fragment_of<Left>(left, warp_row + 8 * i, k0, lane);
#pragma unroll
        for (u32 j = 0; j < 4; ++j)
            y[j] = negated(fragment_of<Right>(right, warp_column + 8 * j, k0, lane));
#pragma unroll
        for (u32 i = 0; i < 2; ++i)
#pragma unroll
            for (u32 j = 0; j < 4; ++j)
                mma_m16n8k8(sums[i][j], x[2 * i], x[2 * i + 1], y[j]);
    }
    pairs.store(sums);
}
