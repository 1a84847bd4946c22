// Solves small systems, A X = B with at most 32 rows and few right-hand sides: one per 32 lanes, or
// one per 16 lanes if systems have at most 16 rows.
//
// A lane holds a row of A and of B in registers. As in lu_panel.hpp, no row moves: a lane knows the
// position of its row. The rows of pivots are sent from lane to lane. Padding rows are rows of the
// identity, and become the pivot only in their own column.
#include "common/solvers/divisor.hpp"
#include "common/solvers/report.hpp"
#include "config.hpp"

namespace cupygemm {

struct SystemArgs {
    u64 a;    // (n, n) of each matrix, contiguous
    u64 b, x; // (n, columns) of each matrix
    u64 info; // i32 for each matrix, or 0: becomes 1 + the first column without a pivot
    i32 n, columns, batches, unused;
};
static_assert(sizeof(SystemArgs) == 48, "SystemArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
using R = Real<S>;
using W = Word<S>;
constexpr u32 threads = Config::threads, size = Config::size, most = Config::columns;
constexpr u32 lanes = size <= 16 ? 16 : 32;
static_assert(size <= lanes, "a lane must have one row");

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_small_system(const cupygemm::SystemArgs args) {
    using namespace cupygemm;
    const u32 lane = local_thread() % lanes, columns = args.columns;
    const u32 matrix = group_index_x() * (threads / lanes) + local_thread() / lanes;
    const bool inside = matrix < static_cast<u32>(args.batches); // others have no rows
    const i64 first = static_cast<i64>(matrix) * args.n;
    const u32 n = inside ? args.n : 0;
    const S *const a = reinterpret_cast<const S *>(args.a) + first * args.n;
    const S *const b = reinterpret_cast<const S *>(args.b) + first * columns;
    S *const x = reinterpret_cast<S *>(args.x) + first * columns;
    S row[size], right[most];
#pragma unroll
    for (u32 k = 0; k < size; ++k) {
        S element = of_real<S>(k == lane ? 1 : 0);
        if (lane < n && k < n)
            element = a[lane * n + k];
        row[k] = element; // one store: clang copies the whole row where a branch writes
    }
#pragma unroll
    for (u32 c = 0; c < most; ++c)
        right[c] = lane < n && c < columns ? b[lane * columns + c] : S{};
    u32 position = lane;
    u32 zeros = 0; // a bit for each column without a pivot
#pragma unroll
    for (u32 j = 0; j < size; ++j) {
        const S element = row[j];
        const W rank = bits_of(magnitude(element)) & (~static_cast<W>(0) >> 1);
        const bool active = position >= j;
        const u32 leader = largest_of<lanes>(active ? rank : 0, active ? position : ~0u);
        const u32 was = word_from_lane_of<lanes>(position, leader);
        const S pivot = from_lane_of<lanes>(element, leader);
        const bool zero = magnitude(pivot) == 0;
        zeros |= static_cast<u32>(zero) << j;
        position = position == was ? j : position == j ? was : position;
        const Divisor divisor(zero ? of_real<S>(1) : pivot);
        const S factor = position > j && !zero ? divisor.under(element) : S{};
#pragma unroll
        for (u32 k = j + 1; k < size; ++k)
            row[k] = minus_product(row[k], factor, from_lane_of<lanes>(row[k], leader));
#pragma unroll
        for (u32 c = 0; c < most; ++c)
            right[c] = minus_product(right[c], factor, from_lane_of<lanes>(right[c], leader));
    }
#pragma unroll
    for (u32 j = size; j-- > 0;) {
        const S element = row[j];
        const u32 owner = first_of<lanes>(position == j);
        const Divisor diagonal(from_lane_of<lanes>(element, owner));
#pragma unroll
        for (u32 c = 0; c < most; ++c) {
            const S solved = diagonal.under(from_lane_of<lanes>(right[c], owner));
            right[c] = position == j
                           ? solved
                           : minus_product(right[c], position < j ? element : S{}, solved);
        }
    }
#pragma unroll
    for (u32 c = 0; c < most; ++c)
        if (position < n && c < columns)
            x[position * columns + c] = right[c];
    const i32 failed = zeros == 0 ? 0 : static_cast<i32>(first_bit(zeros)) + 1;
    if (inside && lane == 0)
        report(args.info, static_cast<i32>(matrix), failed);
}
