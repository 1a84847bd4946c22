// Inverts small matrices in one launch, by Gauss-Jordan elimination in place with partial pivoting.
//
// The columns are distributed over groups of 32 threads (small_rows.hpp). With factors f and row r
// of pivot k, step k replaces element (i, c) by
//
//   f(i) r(c)            in row i of the pivot, where f(i) is the inverse of the pivot
//   a(i, c) + f(i) r(c)  in other rows, where f(i) is -a(i, k) times that inverse
//   f(i)                 in column k itself
//
// A group publishes the factors of its 8 columns, and all others apply these to theirs:
//
//   group 0   steps 0 to 7 | apply 8 to 15              | apply 16 to 23 | ...
//   group 1   -            | apply 0 to 7, steps 8 ...  | apply 16 to 23 | ...
//   group 2   -            | apply 0 to 7               | apply 8 to 15, steps 16 ... | ...
//                          ^ barrier                    ^ barrier
//
// This computes L^-1 below and U^-1 L^-1 above the current step, as LU factors would give it. Row i
// of the inverse is in the row of pivot i, and column k belongs where the row of pivot k was in A.
// So the columns are reordered in shared memory at the end.
#include "common/solvers/small_pivots.hpp"

namespace cupygemm {

struct SmallInverseArgs {
    u64 a, x; // (n, n) of each matrix, contiguous
    u64 info; // i32 for each matrix, or 0: becomes 1 + the first column without a pivot
    i32 n, batches;
};
static_assert(sizeof(SmallInverseArgs) == 32,
              "SmallInverseArgs must match the dtype that the launcher packs");

struct Shared {
    alignas(16) Panel panels[2];
    alignas(16) PivotRows taken[groups];
    Pivot pivots[height];
    Positions positions[2];
    i32 failed;
};

// Step j of the elimination in the columns of its own group: column k of the group has the pivot.
// Returns 1 + j if there is none, or 0; the inverse then has NaN.
CUPYGEMM_INLINE i32 eliminate(const Place &at, Elements &mine, u32 k, u32 n, PivotRows &taken,
                              S (&factors)[height], Pivot &found) {
    const u32 j = at.first + k;
    const Leader leader(mine, k, j, end_of_candidates(j, n));
    const Candidate own(mine, k, leader.i);
    const ColumnPivot pivot(mine, own, leader.lane);
    mine.swap(at, pivot.found, j);
    const S no_number = with_parts<S>(real_of_bits(~static_cast<W>(0) >> 1));
    S factor[rows];
#pragma unroll
    for (u32 i = 0; i < rows; ++i) {
        const bool is_pivot = at.row(i) == pivot.found.row;
        const S quotient = pivot.divide(is_pivot ? of_real<S>(-1) : mine.value[i][k]);
        factor[i] = pivot.is_zero ? no_number : negated(quotient);
        factors[at.row(i)] = factor[i];
    }
    if (at.lane == 0)
        found = pivot.found;
    show_row<true>(at, mine, pivot.found.row, taken[k % 2]);
#pragma unroll
    for (u32 c = 1; c < width; ++c) // first the column of the next pivot
        add_products(mine, factor, taken[k % 2], (k + c) % width);
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
        mine.value[i][k] = factor[i];
    return pivot.is_zero ? static_cast<i32>(j) + 1 : 0;
}

CUPYGEMM_INLINE void invert(const Place &at, Elements &mine, u32 n, Shared &shared) {
    PivotRows &taken = shared.taken[at.group];
#pragma unroll 1
    for (u32 first = 0; first < n; first += width) {
        const u32 owner = first / width, steps = minimum(width, n - first);
        Panel &panel = shared.panels[owner % 2];
        Pivot(&found)[width] = *reinterpret_cast<Pivot(*)[width]>(shared.pivots + first);
        factor_panel(at, mine, owner, shared.positions[owner % 2], shared.failed,
                     [&](u32 k) { return eliminate(at, mine, k, n, taken, panel[k], found[k]); });
        if (at.group != owner)
            apply_panel<width, true>(at, mine, steps, panel, found, taken);
    }
    workgroup_barrier(); // the last factors were used
}

// Store X P, 8 columns at a time, which the groups gather in shared memory.
CUPYGEMM_INLINE void store(const SmallInverseArgs &args, const Place &at, const Elements &mine,
                           Shared &shared) {
    const u32 n = args.n;
    S *const x = reinterpret_cast<S *>(args.x) + static_cast<i64>(at.matrix) * n * n;
    u32 column[width];
#pragma unroll
    for (u32 k = 0; k < width; ++k)
        column[k] = at.first + k < n ? shared.pivots[at.first + k].row : ~0u;
#pragma unroll 1
    for (u32 owner = 0; owner * width < n; ++owner) {
        Panel &panel = shared.panels[owner % 2];
#pragma unroll
        for (u32 k = 0; k < width; ++k)
            if (column[k] / width == owner)
#pragma unroll
                for (u32 i = 0; i < rows; ++i)
                    panel[column[k] % width][mine.position[i]] = mine.value[i][k];
        workgroup_barrier(); // the columns are in shared memory, and the last ones were stored
        if (at.group == owner)
#pragma unroll
            for (u32 i = 0; i < rows; ++i) {
                S row[width];
#pragma unroll
                for (u32 k = 0; k < width; ++k)
                    row[k] = panel[k][at.row(i)];
                at.store(x, n, n, at.row(i), row);
            }
    }
}

} // namespace cupygemm

CUPYGEMM_RESIDENT_KERNEL(cupygemm::Config::threads, cupygemm::resident)
cupygemm_small_inverse(const cupygemm::SmallInverseArgs args) {
    using namespace cupygemm;
    __shared__ Shared all[matrices];
    const Place at(args.batches);
    Shared &shared = all[at.slot];
    const u32 n = args.n;
    Elements mine;
    at.load<width>(reinterpret_cast<const S *>(args.a) + static_cast<i64>(at.matrix) * n * n, n, n,
                   at.first, n, mine.value);
    mine.pad(at, n);
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
        mine.position[i] = at.row(i);
    if (at.is_first())
        shared.failed = 0;
    workgroup_barrier(); // no column has failed yet
    invert(at, mine, n, shared);
    store(args, at, mine, shared);
    if (at.inside && at.is_first())
        report(args.info, at.matrix, shared.failed);
}
