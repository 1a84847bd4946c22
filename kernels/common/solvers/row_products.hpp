// Multiplies a matrix by a vector, y = R (b - A x) or y = R A x, with R diagonal. A is read once,
// from memory; x is read from a cache.
//
// A group of 32 threads multiplies a row.
#include "common/solvers/scalar.hpp"
#include "config.hpp"

namespace cupygemm {

struct RowProductsArgs {
    u64 a, x;
    u64 b;     // or zero; it may be y
    u64 scale; // the diagonal of R, or zero for one
    u64 y;
    i64 a_row; // elements between rows of A
    i32 m, k;
};
static_assert(sizeof(RowProductsArgs) == 56,
              "RowProductsArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
constexpr u32 threads = Config::threads, groups = threads / 32;
constexpr u32 ahead = 4; // loads that a lane has in flight, of each operand

template <u32 count> struct alignas(count * sizeof(S)) Elements {
    S value[count];
};

// A lane's part of the product of a row and the vector. Both begin at multiples of `count`
// elements, and `k` is a multiple of it.
template <u32 count> CUPYGEMM_INLINE S part_of_row(const S *row, const S *x, u32 k, u32 lane) {
    S sums[ahead] = {};
#pragma unroll 1
    for (u32 k0 = lane * count; k0 < k; k0 += ahead * 32 * count) {
        Elements<count> left[ahead], right[ahead];
#pragma unroll
        for (u32 i = 0; i < ahead; ++i) {
            const u32 at = k0 + i * 32 * count;
            left[i] = right[i] = Elements<count>{};
            if (at < k) {
                left[i] = *reinterpret_cast<const Elements<count> *>(row + at);
                right[i] = *reinterpret_cast<const Elements<count> *>(x + at);
            }
        }
#pragma unroll
        for (u32 i = 0; i < ahead; ++i)
#pragma unroll
            for (u32 c = 0; c < count; ++c)
                sums[i] = plus_product(sums[i], left[i].value[c], right[i].value[c]);
    }
    return plus(plus(sums[0], sums[1]), plus(sums[2], sums[3]));
}

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_row_products(const cupygemm::RowProductsArgs args) {
    using namespace cupygemm;
    constexpr u32 count = 16 / sizeof(S);
    const u32 thread = local_thread(), lane = thread % 32;
    const u32 row = group_index_x() * groups + thread / 32, k = args.k;
    if (row >= static_cast<u32>(args.m))
        return;
    const S *const a = reinterpret_cast<const S *>(args.a) + row * args.a_row;
    const S *const x = reinterpret_cast<const S *>(args.x);
    const bool aligned = (args.a | args.x | args.a_row * sizeof(S) | k * sizeof(S)) % 16 == 0;
    S sum = aligned ? part_of_row<count>(a, x, k, lane) : part_of_row<1>(a, x, k, lane);
#pragma unroll
    for (u32 mask = 16; mask > 0; mask /= 2)
        sum = plus(sum, exchanged(sum, mask));
    if (lane != 0)
        return;
    if (args.b != 0)
        sum = plus(reinterpret_cast<const S *>(args.b)[row], negated(sum));
    if (args.scale != 0)
        sum = times(sum, reinterpret_cast<const S *>(args.scale)[row]);
    reinterpret_cast<S *>(args.y)[row] = sum;
}
