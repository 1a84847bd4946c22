// Inverts small matrices in one launch: P A = L U, V = U^-1, W = L^-1, and the inverse is V W P.
//
// The columns are distributed over groups of 32 threads (small_rows.hpp), and all results overwrite
// the matrix. Each of the four steps proceeds column by column: a group publishes 8 columns in
// shared memory, and the groups to its right (>) or left (<) apply these to their own columns:
//
//   P A = L U  columns 0, 1, ...  > subtract l(k) u(k, c)
//   V U = I    columns 0, 1, ...  > subtract v(k) u(k, c), and divide column c by u(c, c)
//   W L = I    columns n - 1, ... < subtract w(k) l(k, c)
//   X = V W    columns 0, 1, ...  < add v(k) w(k, c)
//
// Element (k, c) is read when column k is applied, and the sum that replaces it begins with zero.
// No step changes it earlier, so 8 rows are read together. Row i of X is in the row of pivot i, and
// column k belongs where the row of pivot k was in A. So the columns are reordered in shared memory
// at the end.
#include "common/solvers/small_pivots.hpp"

namespace cupygemm {

struct SmallInverseArgs {
    u64 a, x; // (n, n) of each matrix, contiguous
    u64 info; // i32 for each matrix, or 0: becomes 1 + the first column without a pivot
    i32 n, batches;
};
static_assert(sizeof(SmallInverseArgs) == 32,
              "SmallInverseArgs must match the dtype that the launcher packs");

// 8 rows of the columns of a group, which all of its lanes read together.
using Block = S[width][width];

struct Shared {
    Panel panels[2];
    alignas(16) Block taken[groups];
    Pivot pivots[height];
    Positions positions[2];
    i32 failed;
};

// Copy rows `first` to first + 7 of the group's columns to shared memory; taken(row, column) says
// whether the sum of an element of these 8 x 8 begins with zero.
template <class Taken>
CUPYGEMM_INLINE void take_rows(Elements &mine, u32 first, Block &block, const Taken &taken) {
    wave_barrier(); // the previous rows have been read
#pragma unroll
    for (u32 i = 0; i < rows; ++i) {
        const u32 row = mine.position[i] - first;
        if (row < width)
#pragma unroll
            for (u32 c = 0; c < width; ++c) {
                block[row][c] = mine.value[i][c];
                mine.value[i][c] = taken(row, c) ? S{} : mine.value[i][c];
            }
    }
    wave_barrier(); // the rows are in shared memory
}

// Add the product of a finished column, whose element in each row of this lane is `factor`, and a
// row that was copied, to columns `from` to `to` of a group.
CUPYGEMM_INLINE void apply(Elements &mine, const S (&factor)[rows], const S (&row)[width],
                           u32 from = 0, u32 to = width) {
#pragma unroll
    for (u32 c = 0; c < width; ++c)
        if (c >= from && c < to)
#pragma unroll
            for (u32 i = 0; i < rows; ++i)
                mine.value[i][c] = plus_product(mine.value[i][c], factor[i], row[c]);
}

// Apply the columns that another group has published.
CUPYGEMM_INLINE void apply_panel(const Place &at, Elements &mine, Shared &shared, u32 owner,
                                 u32 n) {
    const u32 first = owner * width;
    const Panel &panel = shared.panels[owner % 2];
    Block &block = shared.taken[at.group];
    take_rows(mine, first, block, [](u32, u32) { return true; });
#pragma unroll 1
    for (u32 k = 0; k < minimum(width, n - first); ++k) {
        S factor[rows];
#pragma unroll
        for (u32 i = 0; i < rows; ++i)
            factor[i] = panel[k][at.row(i)];
        apply(mine, factor, block[k]);
    }
}

CUPYGEMM_INLINE void factor(const Place &at, Elements &mine, u32 n, Shared &shared) {
#pragma unroll 1
    for (u32 first = 0; first < n; first += width) {
        const u32 owner = first / width, steps = minimum(width, n - first);
        Panel &panel = shared.panels[owner % 2];
        Pivot(&found)[width] = *reinterpret_cast<Pivot(*)[width]>(shared.pivots + first);
        factor_panel(at, mine, n, owner, panel, found, shared.positions[owner % 2], shared.failed);
        if (at.group > owner)
            update<width>(at, mine, steps, panel, found);
    }
    workgroup_barrier(); // the last multipliers were used
}

// Publish -v of the group's columns, and apply each to the columns to its right.
CUPYGEMM_INLINE void invert_columns(const Place &at, Elements &mine, u32 n, Block &block,
                                    Panel &panel) {
    take_rows(mine, at.first, block, [](u32 row, u32 column) { return column > row; });
    const u32 which = at.lane % width; // all quotients with the diagonal are prepared together
    const Divisor own(at.first + which < n ? block[which][which] : of_real<S>(1));
#pragma unroll
    for (u32 k = 0; k < width; ++k) {
        const u32 j = at.first + k;
        const R scale = from_lane_of<lanes>(own.scale, k);
        const S over = from_lane_of<lanes>(own.over, k);
        S factor[rows];
#pragma unroll
        for (u32 i = 0; i < rows; ++i) {
            const u32 position = mine.position[i];
            S &element = mine.value[i][k];
            if (position <= j)
                element = times(times(position == j ? of_real<S>(1) : element, scale), over);
            factor[i] = position <= j ? negated(element) : S{};
            panel[k][at.row(i)] = factor[i];
        }
        apply(mine, factor, block[k], k + 1);
    }
}

// Publish -w of the group's columns, and apply each to the columns to its left.
CUPYGEMM_INLINE void invert_unit_columns(const Place &at, Elements &mine, Block &block,
                                         Panel &panel) {
    take_rows(mine, at.first, block, [](u32 row, u32 column) { return column < row; });
#pragma unroll
    for (u32 k = width; k-- > 0;) {
        const u32 j = at.first + k;
        S factor[rows];
#pragma unroll
        for (u32 i = 0; i < rows; ++i) {
            const u32 position = mine.position[i];
            factor[i] = position > j    ? negated(mine.value[i][k])
                        : position == j ? of_real<S>(-1)
                                        : S{};
            panel[k][at.row(i)] = factor[i];
        }
        apply(mine, factor, block[k], 0, k);
    }
}

// Publish v of the group's columns, and apply each to the columns to its left.
CUPYGEMM_INLINE void multiply_columns(const Place &at, Elements &mine, Block &block, Panel &panel) {
    take_rows(mine, at.first, block, [](u32 row, u32 column) { return column < row; });
#pragma unroll
    for (u32 k = 0; k < width; ++k) {
        S factor[rows];
#pragma unroll
        for (u32 i = 0; i < rows; ++i) {
            factor[i] = mine.position[i] <= at.first + k ? mine.value[i][k] : S{};
            panel[k][at.row(i)] = factor[i];
        }
        apply(mine, factor, block[k], 0, k);
    }
}

// V = U^-1, in the place of U.
CUPYGEMM_INLINE void invert_upper(const Place &at, Elements &mine, u32 n, Shared &shared) {
#pragma unroll 1
    for (u32 owner = 0; owner * width < n; ++owner) {
        Panel &panel = shared.panels[owner % 2];
        if (at.group == owner)
            invert_columns(at, mine, n, shared.taken[owner], panel);
        workgroup_barrier(); // the columns are in shared memory, and the last ones were used
        if (at.group > owner)
            apply_panel(at, mine, shared, owner, n);
    }
    workgroup_barrier(); // the last columns were used
}

// W = L^-1, in the place of L.
CUPYGEMM_INLINE void invert_lower(const Place &at, Elements &mine, u32 n, Shared &shared) {
#pragma unroll 1
    for (u32 owner = groups; owner-- > 0;) {
        Panel &panel = shared.panels[owner % 2];
        if (at.group == owner)
            invert_unit_columns(at, mine, shared.taken[owner], panel);
        workgroup_barrier(); // the columns are in shared memory, and the last ones were used
        if (at.group < owner)
            apply_panel(at, mine, shared, owner, n);
    }
    workgroup_barrier(); // the last columns were used
}

// X = V W, in the place of both.
CUPYGEMM_INLINE void multiply(const Place &at, Elements &mine, u32 n, Shared &shared) {
#pragma unroll 1
    for (u32 owner = 0; owner * width < n; ++owner) {
        Panel &panel = shared.panels[owner % 2];
        if (at.group == owner)
            multiply_columns(at, mine, shared.taken[owner], panel);
        workgroup_barrier(); // the columns are in shared memory, and the last ones were used
        if (at.group < owner)
            apply_panel(at, mine, shared, owner, n);
    }
    workgroup_barrier(); // the last columns were used
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
    factor(at, mine, n, shared);
    invert_upper(at, mine, n, shared);
    invert_lower(at, mine, n, shared);
    multiply(at, mine, n, shared);
    store(args, at, mine, shared);
    if (at.inside && at.is_first())
        report(args.info, at.matrix, shared.failed);
}
