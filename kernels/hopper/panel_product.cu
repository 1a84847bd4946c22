// Multiplies fp32 blocks inside a panel, C = A B or C -= A B, by mma.sync with tf32 terms.
//
// The interface is that of common/solvers/panel_update.hpp, for matrices whose columns are
// adjacent and rows of A and B that begin at multiples of 16 bytes. Each number is a sum of two
// tf32 terms, and three of the four products of terms are added. A thread block computes a tile of
// 64 x 64, and each of its four warps a quarter. Slabs of k are copied several slabs ahead, and C
// is loaded meanwhile.
#include "common/solvers/update_args.hpp"
#include "hopper/cluster.cuh"
#include "hopper/cp_async.cuh"
#include "hopper/dependent_launch.cuh"
#include "hopper/element_pairs.cuh"
#include "hopper/tf32_terms.cuh"

namespace cupygemm {

constexpr u32 tile = 64, depth = Config::depth, stages = Config::stages, threads = 128;
// The lanes of a fragment of A differ in 8 rows and 4 adjacent k, and those of B in 4 k and 8
// adjacent columns: all read from different banks.
constexpr u32 pitch_a = depth + 4, pitch_b = tile + 8;
static_assert(pitch_a % 32 == 4 && pitch_b % 32 == 8, "32 lanes must read from different banks");
struct Stage {
    float a[tile * pitch_a], b[depth * pitch_b];
};
static_assert(sizeof(Stage) * stages == Config::shared_bytes,
              "the launcher must know the shared memory");

// Copy `lines` lines of `length` elements; those outside the matrix become zeros.
template <u32 lines, u32 length, u32 pitch> CUPYGEMM_INLINE void
copy_lines(float *to, const float *from, i64 from_line, u32 has_lines, u32 has, u32 thread) {
    constexpr u32 vectors = length / 4;
    constexpr u32 lines_of_all = threads / vectors;
    static_assert(threads % vectors == 0 && lines % lines_of_all == 0,
                  "a thread copies the same part of some lines");
    const u32 first = thread / vectors, along = thread % vectors * 4;
    const u32 present = along >= has ? 0 : minimum(has - along, 4u);
    const float *source = from + first * from_line + along;
#pragma unroll
    for (u32 line = 0; line < lines; line += lines_of_all) {
        const bool inside = first + line < has_lines && present > 0;
        copy_async<16>(shared_address(to + (first + line) * pitch + along),
                       reinterpret_cast<u64>(inside ? source : from), inside ? present * 4 : 0);
        source += lines_of_all * from_line;
    }
}

} // namespace cupygemm

// With fewer registers, some compilers keep sums in memory.
extern "C" __global__ void __launch_bounds__(128, 2)
    cupygemm_panel_product(const cupygemm::UpdateArgs args) {
    using namespace cupygemm;
    extern __shared__ __align__(128) float dynamic_shared[];
    Stage *const stage = reinterpret_cast<Stage *>(dynamic_shared);
    const u32 thread = thread_index(), lane = thread % 32, g = lane / 4, t = lane % 4;
    const u32 m = args.m, n = args.n, k = args.k, tiles_n = ceil_div(n, tile);
    const u32 row0 = blockIdx.x / tiles_n * tile, column0 = blockIdx.x % tiles_n * tile;
    const float *const a =
        reinterpret_cast<const float *>(args.a) + blockIdx.y * args.a_stride + row0 * args.a_row;
    const float *const b =
        reinterpret_cast<const float *>(args.b) + blockIdx.y * args.b_stride + column0;
    float *const c = reinterpret_cast<float *>(args.c) + blockIdx.y * args.c_stride;
    const u32 slabs = ceil_div(k, depth);
    const auto copy = [&](u32 slab) {
        if (slab < slabs) {
            const u32 k0 = slab * depth;
            Stage &to = stage[slab % stages];
            copy_lines<tile, depth, pitch_a>(to.a, a + k0, args.a_row, m - row0, k - k0, thread);
            copy_lines<depth, tile, pitch_b>(to.b, b + k0 * args.ldb, args.ldb, k - k0, n - column0,
                                             thread);
        }
        copy_async_commit();
    };
    wait_for_work_before();
#pragma unroll
    for (u32 slab = 0; slab < stages - 1; ++slab)
        copy(slab);

    const u32 warp_row = thread / 64 * 32, warp_column = thread / 32 % 2 * 32;
    const u32 first_row = row0 + warp_row + g, column = column0 + warp_column + t * 2;
    float *const first = c + first_row * args.ldc + column;
    const WarpPairs<float, Config::pairs> pairs{first, args.ldc, first_row, column, m, n};
    float sums[2][4][4] = {}, low[2][4][4] = {}; // (16 rows, 8 columns, element of mma.sync)
    if constexpr (!Config::replaces)
        pairs.load(sums);
#pragma unroll 1
    for (u32 slab = 0; slab < slabs; ++slab) {
        copy_async_wait<stages - 2>();
        block_sync(threads); // the slab is in shared memory, and the previous one has been read
        copy(slab + stages - 1);
        const Stage &from = stage[slab % stages];
        float high[2][4][4] = {};
#pragma unroll
        for (u32 k0 = 0; k0 < depth; k0 += 8) {
            Terms<4> x[2];
            Terms<2> y[4];
#pragma unroll
            for (u32 i = 0; i < 2; ++i)
#pragma unroll
                for (u32 e = 0; e < 4; ++e) {
                    const u32 row = warp_row + 16 * i + e % 2 * 8 + g;
                    const float element = from.a[row * pitch_a + k0 + e / 2 * 4 + t];
                    x[i].set(e, Config::replaces ? element : -element);
                }
#pragma unroll
            for (u32 j = 0; j < 4; ++j)
#pragma unroll
                for (u32 e = 0; e < 2; ++e)
                    y[j].set(e, from.b[(k0 + e * 4 + t) * pitch_b + warp_column + 8 * j + g]);
#pragma unroll
            for (u32 i = 0; i < 2; ++i) {
                mma_low_terms(low[i], x[i], y);
                mma_high_terms(high[i], x[i], y);
            }
        }
#pragma unroll
        for (u32 i = 0; i < 2; ++i)
            add_sums(sums[i], high[i]);
    }
#pragma unroll
    for (u32 i = 0; i < 2; ++i)
        add_sums(sums[i], low[i]);
    pairs.store(sums);
}
