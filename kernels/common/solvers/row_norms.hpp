// The sum of magnitudes of each row of A and of R A C, with R and C diagonal and positive.
//
// A group of 32 threads adds a row.
#include "common/solvers/scalar.hpp"
#include "config.hpp"

namespace cupygemm {

struct RowNormsArgs {
    u64 a;
    u64 rows, columns; // the diagonals of R and C
    u64 sums, scaled;
    i64 a_row; // elements between rows of A
    i32 m, n;
};
static_assert(sizeof(RowNormsArgs) == 56,
              "RowNormsArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
constexpr u32 threads = Config::threads, groups = threads / 32;
constexpr u32 ahead = 8; // loads that a lane has in flight

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_row_norms(const cupygemm::RowNormsArgs args) {
    using namespace cupygemm;
    const u32 thread = local_thread(), lane = thread % 32, n = args.n;
    const u32 row = group_index_x() * groups + thread / 32;
    if (row >= static_cast<u32>(args.m))
        return;
    const S *const a = reinterpret_cast<const S *>(args.a) + row * args.a_row;
    const S *const columns = reinterpret_cast<const S *>(args.columns);
    S sum{}, scaled{};
#pragma unroll 1
    for (u32 first = lane; first < n; first += 32 * ahead) {
        S element[ahead], factor[ahead];
#pragma unroll
        for (u32 i = 0; i < ahead; ++i) {
            const u32 at = first + 32 * i;
            element[i] = at < n ? absolute(a[at]) : S{};
            factor[i] = at < n ? columns[at] : S{};
        }
#pragma unroll
        for (u32 i = 0; i < ahead; ++i) {
            sum = plus(sum, element[i]);
            scaled = plus_product(scaled, element[i], factor[i]);
        }
    }
#pragma unroll
    for (u32 mask = 16; mask > 0; mask /= 2) {
        sum = plus(sum, exchanged(sum, mask));
        scaled = plus(scaled, exchanged(scaled, mask));
    }
    if (lane == 0) {
        reinterpret_cast<S *>(args.sums)[row] = sum;
        reinterpret_cast<S *>(args.scaled)[row] =
            times(scaled, reinterpret_cast<const S *>(args.rows)[row]);
    }
}
