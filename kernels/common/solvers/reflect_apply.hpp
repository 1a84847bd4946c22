// Applies the inverse of a block reflector, C -= V T^H (V^H C), given the sums of reflect_sums.hpp.
//
// A workgroup has a few columns of C and some rows. It adds the sums of all chunks in their order
// and multiplies them by T^H, both in shared memory, and then subtracts the product with V from its
// rows, one per thread in registers.
#include "common/solvers/flag.hpp"
#include "common/solvers/rows.hpp"
#include "config.hpp"

namespace cupygemm {

struct ApplyArgs {
    u64 v; // (m, width) of each matrix
    i64 ldv, v_stride;
    u64 t; // (k, k), upper triangular
    i64 ldt, t_stride;
    u64 c; // (m, n)
    i64 ldc, c_stride;
    u64 sums; // (chunks, width, n) of each matrix
    i64 sums_stride;
    u64 done;    // 0, or the address of a flag: if it is set, nothing is applied
    i32 m, n, k; // k: columns of V
    i32 chunks;
    i32 rows; // of a workgroup
    i32 unused;
};
static_assert(sizeof(ApplyArgs) == 120, "ApplyArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
constexpr u32 width = Config::width, threads = Config::threads, tile = Config::tile;

constexpr u32 larger = width > tile ? width : tile;

struct Reflector {
    S t[width][width], sums[width][tile];
};

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_reflect_apply(const cupygemm::ApplyArgs args) {
    using namespace cupygemm;
    using Stage = RowStage<S, larger>;
    constexpr u32 stages_bytes = sizeof(Stage) * (threads / 32);
    constexpr u32 bytes = sizeof(Reflector) > stages_bytes ? sizeof(Reflector) : stages_bytes;
    // -T^H V^H C. The sums are negated once instead of each product: on CDNA, an instruction with a
    // negated operand takes 8 instead of 4 bytes.
    __shared__ S factors[width][tile];
    __shared__ char storage[bytes] __attribute__((aligned(16)));
    if (is_set(args.done))
        return;
    Reflector &reflector = *reinterpret_cast<Reflector *>(storage);
    const u32 thread = local_thread(), lane = thread % 32, matrix = group_index_y();
    const u32 tiles = ceil_div<u32>(args.n, tile), column0 = group_index_x() % tiles * tile;
    const u32 m = args.m, n = args.n, k = args.k, columns = minimum(n - column0, tile);
    const u32 begin = group_index_x() / tiles * args.rows;
    const u32 end = minimum<u32>(begin + args.rows, m);
    const S *const t = reinterpret_cast<const S *>(args.t) + matrix * args.t_stride;
    const S *const sums = reinterpret_cast<const S *>(args.sums) + matrix * args.sums_stride;
    const S *const v = reinterpret_cast<const S *>(args.v) + matrix * args.v_stride;
    S *const c = reinterpret_cast<S *>(args.c) + matrix * args.c_stride + column0;
    for (u32 at = thread; at < width * width; at += threads) {
        const u32 row = at / width, column = at % width;
        reflector.t[row][column] = row <= column && column < k ? t[row * args.ldt + column] : S{};
    }
#pragma unroll 2
    for (u32 at = thread; at < width * tile; at += threads) {
        const u32 row = at / tile, column = at % tile;
        S sum{};
        if (column < columns)
#pragma unroll 8
            for (i32 chunk = 0; chunk < args.chunks; ++chunk)
                sum =
                    plus(sum, sums[(static_cast<i64>(chunk) * width + row) * n + column0 + column]);
        reflector.sums[row][column] = sum;
    }
    workgroup_barrier(); // T and the sums are in shared memory
    for (u32 at = thread; at < width * tile; at += threads) {
        const u32 row = at / tile, column = at % tile;
        S sum{};
#pragma unroll 8
        for (u32 i = 0; i < width; ++i)
            sum = plus_product(sum, conjugated(reflector.t[i][row]), reflector.sums[i][column]);
        factors[row][column] = negated(sum);
    }
    workgroup_barrier(); // the factors are in shared memory, and T and the sums have been read
    char *const stage = storage + thread / 32 * sizeof(Stage);
    auto &stage_of_c = *reinterpret_cast<RowStage<S, tile> *>(stage);
    auto &stage_of_v = *reinterpret_cast<RowStage<S, width> *>(stage);
#pragma unroll 1
    for (u32 row0 = begin; row0 < end; row0 += threads) {
        const u32 first = row0 + thread / 32 * 32;
        S row[tile], of_v[width];
        load_rows(stage_of_c, c, args.ldc, end, columns, first, lane, row);
        load_rows(stage_of_v, v, args.ldv, end, k, first, lane, of_v);
#pragma unroll
        for (u32 i = 0; i < width; ++i) {
#pragma unroll
            for (u32 j = 0; j < tile; ++j)
                row[j] = plus_product(row[j], of_v[i], factors[i][j]);
            keep_all_here(row);
        }
        store_rows(stage_of_c, row, first + lane, 0, lane, [&](u32 at, u32 column, S element) {
            if (at < end && column < columns)
                c[at * args.ldc + column] = element;
        });
    }
}
