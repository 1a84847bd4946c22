// The sums of a block reflector over chunks of rows: V^H C, for the few columns of V of one block.
//
// A workgroup sums over one chunk of rows, for 64 columns of C; reflect_apply.hpp adds the chunks
// in order, so that results are bitwise reproducible. A thread computes width / 4 rows of two
// columns of V^H C. With 256 threads, it sums over every other 8 rows only, and another thread over
// the rest. Both operands go through shared memory, and the next rows are loaded while the current
// ones are multiplied.
#include "common/solvers/flag.hpp"
#include "config.hpp"

namespace cupygemm {

struct SumsArgs {
    u64 v; // (m, width) of each matrix
    i64 ldv, v_stride;
    u64 c; // (m, n)
    i64 ldc, c_stride;
    u64 sums; // (chunks, width, n) of each matrix
    i64 sums_stride;
    u64 done;    // 0, or the address of a flag: if it is set, nothing is applied
    i32 m, n, k; // k: columns of V
    i32 chunk;   // rows
};
static_assert(sizeof(SumsArgs) == 88, "SumsArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
constexpr u32 width = Config::width, threads = Config::threads;
constexpr u32 tile = 64, depth = 16, each = width < 4 ? 1 : width / 4, padded = 4 * each;
constexpr u32 v_loads = (depth * padded + threads - 1) / threads, c_loads = depth * tile / threads;
constexpr u32 parts = threads / 128, rows_of_part = depth / parts;
static_assert(threads == 128 || threads == 256,
              "each of 128 threads must have a quarter of V's columns and two of C's");

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_reflect_sums(const cupygemm::SumsArgs args) {
    using namespace cupygemm;
    __shared__ S v[depth][padded], c[depth][tile];
    __shared__ S others[parts == 1 ? 1 : padded][tile]; // the sums of the second part
    if (is_set(args.done))
        return;
    const u32 thread = local_thread(), matrix = group_index_y(),
              tiles = ceil_div<u32>(args.n, tile);
    const u32 chunk = group_index_x() / tiles, column0 = group_index_x() % tiles * tile;
    const u32 m = args.m, n = args.n, k = args.k, begin = chunk * args.chunk;
    const u32 end = minimum<u32>(begin + args.chunk, m);
    const S *const from_v = reinterpret_cast<const S *>(args.v) + matrix * args.v_stride;
    const S *const from_c = reinterpret_cast<const S *>(args.c) + matrix * args.c_stride;
    const u32 x = thread % 32, y = thread / 32 % 4, part = thread / 128;
    S next_v[v_loads], next_c[c_loads], sums[each][2] = {};
    const auto load = [&](u32 row0) {
#pragma unroll
        for (u32 i = 0; i < v_loads; ++i) {
            const u32 at = i * threads + thread, row = row0 + at / padded, column = at % padded;
            next_v[i] = S{};
            if (row < end && column < k)
                next_v[i] = from_v[row * args.ldv + column];
        }
#pragma unroll
        for (u32 i = 0; i < c_loads; ++i) {
            const u32 at = i * threads + thread, row = row0 + at / tile, column = at % tile;
            next_c[i] = S{};
            if (row < end && column0 + column < n)
                next_c[i] = from_c[row * args.ldc + column0 + column];
        }
    };
    load(begin);
#pragma unroll 1
    for (u32 row0 = begin; row0 < end; row0 += depth) {
        workgroup_barrier(); // the previous rows have been read
#pragma unroll
        for (u32 i = 0; i < v_loads; ++i)
            if (i * threads + thread < depth * padded)
                v[(i * threads + thread) / padded][(i * threads + thread) % padded] = next_v[i];
#pragma unroll
        for (u32 i = 0; i < c_loads; ++i)
            c[(i * threads + thread) / tile][(i * threads + thread) % tile] = next_c[i];
        workgroup_barrier(); // the rows are in shared memory
        load(row0 + depth);
#pragma unroll 4
        for (u32 next = 0; next < rows_of_part; ++next) {
            const u32 row = part * rows_of_part + next;
#pragma unroll
            for (u32 i = 0; i < each; ++i)
#pragma unroll
                for (u32 j = 0; j < 2; ++j)
                    sums[i][j] = plus_product(sums[i][j], conjugated(v[row][y * each + i]),
                                              c[row][x + 32 * j]);
        }
    }
    if constexpr (parts == 2) {
        if (part == 1)
#pragma unroll
            for (u32 i = 0; i < each; ++i)
#pragma unroll
                for (u32 j = 0; j < 2; ++j)
                    others[y * each + i][x + 32 * j] = sums[i][j];
        workgroup_barrier(); // the sums of the other rows are in shared memory
        if (part == 1)
            return;
#pragma unroll
        for (u32 i = 0; i < each; ++i)
#pragma unroll
            for (u32 j = 0; j < 2; ++j)
                sums[i][j] = plus(sums[i][j], others[y * each + i][x + 32 * j]);
    }
    S *const to = reinterpret_cast<S *>(args.sums) + matrix * args.sums_stride +
                  static_cast<i64>(chunk) * width * n;
#pragma unroll
    for (u32 i = 0; i < each; ++i)
#pragma unroll
        for (u32 j = 0; j < 2; ++j)
            if (y * each + i < width && column0 + x + 32 * j < n)
                to[(y * each + i) * n + column0 + x + 32 * j] = sums[i][j];
}
