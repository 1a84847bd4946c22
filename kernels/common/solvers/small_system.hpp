// Solves small systems, A X = B with at most 32 rows, one per 32 lanes: for few right-hand sides,
// or for the identity, which gives the inverse.
//
// A lane holds a row of A and of B in registers. As in lu_panel.hpp no row moves: a lane knows the
// position of its row. The rows of the pivots go from lane to lane. Rows that pad the matrix are
// those of the identity, and no pivot before their own column.
//
// The steps of an inverse are a loop: unrolled, they would take some 100 KB of machine code and ten
// seconds to compile. In a loop the columns of A move on by one register in each step, so that a
// step is the same code for every column.
#include "common/solvers/divisor.hpp"
#include "config.hpp"

namespace cupygemm {

struct SystemArgs {
    u64 a;    // (n, n) of each matrix, contiguous
    u64 b, x; // (n, columns) of each matrix; no address of b means the identity
    u64 info; // i32 for each matrix: 1 + the first column without a pivot, or 0
    i32 n, columns, batches, unused;
};
static_assert(sizeof(SystemArgs) == 48, "SystemArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
using R = Real<S>;
using W = Word<S>;
constexpr u32 threads = Config::threads, size = Config::size, most = Config::columns;
constexpr bool unrolled = most < size;
constexpr u32 steps = unrolled ? size : 1; // in the body of a loop
static_assert(size <= 32, "a lane must have one row");

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_small_system(const cupygemm::SystemArgs args) {
    using namespace cupygemm;
    const u32 lane = local_thread() % 32, n = args.n, columns = args.columns;
    const u32 matrix = group_index_x() * (threads / 32) + local_thread() / 32;
    if (matrix >= static_cast<u32>(args.batches))
        return;
    const S *const a = reinterpret_cast<const S *>(args.a) + static_cast<i64>(matrix) * n * n;
    const S *const b = reinterpret_cast<const S *>(args.b) + static_cast<i64>(matrix) * n * columns;
    S *const x = reinterpret_cast<S *>(args.x) + static_cast<i64>(matrix) * n * columns;
    S row[size], right[most];
#pragma unroll
    for (u32 k = 0; k < size; ++k) {
        row[k] = of_real<S>(k == lane ? 1 : 0);
        if (lane < n && k < n)
            row[k] = a[lane * n + k];
    }
#pragma unroll
    for (u32 c = 0; c < most; ++c) {
        right[c] = of_real<S>(c == lane ? 1 : 0);
        if (args.b != 0)
            right[c] = lane < n && c < columns ? b[lane * columns + c] : S{};
    }
    u32 position = lane;
    i32 failed = 0;
#pragma unroll steps
    for (u32 j = 0; j < size; ++j) {
        const S element = row[unrolled ? j : 0]; // of column j
        const W rank = bits_of(magnitude(element)) & (~static_cast<W>(0) >> 1);
        const bool active = position >= j;
        const u32 leader = largest_of_32(active ? rank : 0, active ? position : ~0u);
        const u32 was = from_lane(position, leader);
        const S pivot = from_lane(element, leader);
        const bool zero = magnitude(pivot) == 0;
        if (zero && failed == 0)
            failed = static_cast<i32>(j) + 1;
        position = position == was ? j : position == j ? was : position;
        const Divisor divisor(zero ? of_real<S>(1) : pivot);
        const S factor = position > j && !zero ? divisor.under(element) : S{};
        if constexpr (unrolled) {
#pragma unroll
            for (u32 k = j + 1; k < size; ++k)
                row[k] = minus_product(row[k], factor, from_lane(row[k], leader));
        } else { // the columns that are done follow the others, with zeros in the pivot's row
#pragma unroll
            for (u32 k = 1; k < size; ++k)
                row[k - 1] = minus_product(row[k], factor, from_lane(row[k], leader));
            row[size - 1] = position > j ? S{} : element;
        }
#pragma unroll
        for (u32 c = 0; c < most; ++c)
            right[c] = minus_product(right[c], factor, from_lane(right[c], leader));
    }
#pragma unroll steps
    for (u32 j = size; j-- > 0;) {
        const S element = row[unrolled ? j : size - 1]; // of column j
        if constexpr (!unrolled) {
#pragma unroll
            for (u32 k = size - 1; k > 0; --k)
                row[k] = row[k - 1];
        }
        const u32 owner = first_of_32(position == j);
        const Divisor diagonal(from_lane(element, owner));
#pragma unroll
        for (u32 c = 0; c < most; ++c) {
            const S solved = diagonal.under(from_lane(right[c], owner));
            right[c] = position == j
                           ? solved
                           : minus_product(right[c], position < j ? element : S{}, solved);
        }
    }
#pragma unroll
    for (u32 c = 0; c < most; ++c)
        if (position < n && c < columns)
            x[position * columns + c] = right[c];
    if (lane == 0)
        reinterpret_cast<i32 *>(args.info)[matrix] = failed;
}
