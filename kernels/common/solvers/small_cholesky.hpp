// Factors small matrices, A = L L^H, in one launch. The groups of 32 threads divide the columns
// (small_rows.hpp).
#include "common/solvers/small_rows.hpp"

namespace cupygemm {

struct SmallCholeskyArgs {
    u64 a;             // element (0, 0) of the first matrix; only lower triangles are read
    i64 a_row, a_next; // elements between rows, and between matrices
    u64 l;             // where the factors go; may be `a`
    i64 l_row, l_next;
    u64 info; // i32 for each matrix, or 0: becomes 1 + the first column that is not positive
    i32 n, batches;
    i32 first, unused; // the first column, if these are blocks of larger matrices
};
static_assert(sizeof(SmallCholeskyArgs) == 72,
              "SmallCholeskyArgs must match the dtype that the launcher packs");

struct Shared {
    alignas(16) Panel panels[2];
    i32 failed;
};

// The diagonal elements of a group's columns are all in row `top` of the lanes. Code for one `top`
// leaves out the rows above, and chooses no registers at run time.
//
// Factor column k of a group. Returns 1 + the column of the matrix if it is not positive, or 0. The
// elements above the diagonal become zeros.
//
// Every lane computes the next pivot, from elements that other lanes send while the root of the
// current pivot is computed. So the chain from pivot to pivot has one root and two products, and no
// exchange.
template <u32 top> CUPYGEMM_INLINE i32 factor_column(const Place &at, S (&mine)[rows][width], u32 k,
                                                     R &pivot, S (&column)[height]) {
    const u32 j = at.first + k, diagonal = at.first % lanes + k; // the lane that has row j
    const bool is_positive = pivot > 0;
    const R inverse = inverse_square_root(pivot), near = pivot * inverse; // NaN if negative
    const R root = fma_of(fma_of(-near, near, pivot), inverse / 2, near);
    S next{};
    if (k + 1 < width) {
        next = times(from_lane_of<lanes>(mine[top][k], diagonal + 1), inverse);
        const R corner = from_lane_of<lanes>(real_part(mine[top][(k + 1) % width]), diagonal + 1);
        pivot = real_part(minus_product(of_real<S>(corner), next, conjugated(next)));
    }
#pragma unroll
    for (u32 i = top; i < rows; ++i) {
        S &element = mine[i][k];
        element = times(element, inverse);
        if (i == top)
            element = at.lane > diagonal ? element : at.lane == diagonal ? of_real<S>(root) : S{};
        column[at.row(i)] = element;
    }
    wave_barrier(); // the column is in shared memory
#pragma unroll
    for (u32 c = 1; c < width; ++c)
        if (c > k) {
            const S across = conjugated(c == k + 1 ? next : column[at.first + c]);
#pragma unroll
            for (u32 i = top; i < rows; ++i)
                mine[i][c] = minus_product(mine[i][c], mine[i][k], across);
        }
    return is_positive ? 0 : static_cast<i32>(j) + 1;
}

template <u32 top = 0>
CUPYGEMM_INLINE i32 factor_columns(const Place &at, S (&mine)[rows][width], u32 n, Panel &panel) {
    if constexpr (top + 1 < rows)
        if (at.first / lanes != top)
            return factor_columns<top + 1>(at, mine, n, panel);
    R pivot = from_lane_of<lanes>(real_part(mine[top][0]), at.first % lanes); // the next one
    i32 failed = 0;
#pragma unroll
    for (u32 k = 0; k < width; ++k)
        if (at.first + k < n) {
            const i32 found = factor_column<top>(at, mine, k, pivot, panel[k]);
            failed = failed == 0 ? found : failed;
        }
    return failed;
}

// Update the columns of a group to the right of a factored group.
template <u32 top = 0>
CUPYGEMM_INLINE void update(const Place &at, S (&mine)[rows][width], const Panel &panel) {
    if constexpr (top + 1 < rows)
        if (at.first / lanes != top)
            return update<top + 1>(at, mine, panel);
#pragma unroll 2
    for (u32 k = 0; k < width; ++k) {
        S factor[rows];
#pragma unroll
        for (u32 i = top; i < rows; ++i)
            factor[i] = panel[k][at.row(i)];
#pragma unroll
        for (u32 c = 0; c < width; ++c) {
            const S across = conjugated(panel[k][at.first + c]);
#pragma unroll
            for (u32 i = top; i < rows; ++i)
                mine[i][c] = minus_product(mine[i][c], factor[i], across);
        }
    }
}

} // namespace cupygemm

CUPYGEMM_RESIDENT_KERNEL(cupygemm::Config::threads, cupygemm::resident)
cupygemm_small_cholesky(const cupygemm::SmallCholeskyArgs args) {
    using namespace cupygemm;
    __shared__ Shared all[matrices];
    const Place at(args.batches);
    Shared &shared = all[at.slot];
    const u32 n = args.n;
    S mine[rows][width];
    at.load<width>(reinterpret_cast<const S *>(args.a) + at.matrix * args.a_next, args.a_row, n,
                   at.first, n, mine, at.first); // not the rows above the diagonal
    if (at.is_first())
        shared.failed = 0;
    workgroup_barrier(); // no column has failed yet, and every matrix has been loaded
#pragma unroll 1
    for (u32 owner = 0; owner * width < n; ++owner) {
        Panel &panel = shared.panels[owner % 2];
        if (at.group == owner) {
            const i32 failed = factor_columns(at, mine, n, panel);
            if (at.lane == 0 && failed != 0 && shared.failed == 0)
                shared.failed = failed;
        }
        workgroup_barrier(); // the columns are in shared memory, and the last ones were used
        if (at.group > owner)
            update(at, mine, panel);
    }
    S *const l = reinterpret_cast<S *>(args.l) + at.matrix * args.l_next;
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
        at.store(l, args.l_row, n, at.row(i), mine[i]);
    if (at.inside && at.is_first())
        report(args.info, at.matrix, shared.failed == 0 ? 0 : args.first + shared.failed);
}
