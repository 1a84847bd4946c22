// Factors small matrices, P A = L U, with partial pivoting, and optionally solves A X = B, in one
// launch.
//
// The columns are distributed over groups of 32 threads (small_rows.hpp). As in lu_panel.hpp, no
// row moves: a lane knows the positions of its rows, and every group tracks the swaps.
//
// Group 0 finishes first. It stores its part of U to shared memory, loads the right-hand sides to
// its registers, and updates them as the other groups update their columns. When the matrix is
// factored, group 0 alone solves with U, whose columns the other groups publish in reverse order:
//
//   group 2   publish U | -
//   group 1   -         | publish U               | -
//   group 0   -         | solve, columns 16 to 23 | solve, columns 8 to 15 | columns 0 to 7
#include "common/solvers/small_pivots.hpp"

namespace cupygemm {

struct SmallLuArgs {
    u64 a;             // element (0, 0) of the first matrix
    i64 a_row, a_next; // elements between rows, and between matrices
    u64 lu;            // where the factors go, without right-hand sides; may be `a`
    i64 lu_row, lu_next;
    u64 pivots; // i32, (n,) of each matrix, without right-hand sides
    u64 b, x;   // (n, columns) of each matrix, contiguous
    u64 info;   // i32 for each matrix, or 0: becomes 1 + the first column without a pivot
    i32 n, columns, batches, unused;
};
static_assert(sizeof(SmallLuArgs) == 96,
              "SmallLuArgs must match the dtype that the launcher packs");

constexpr u32 right_sides = Config::right_sides;
constexpr bool solves = right_sides > 0;
static_assert(right_sides <= width, "right-hand sides belong to one group");

struct Shared {
    alignas(16) Panel panels[2];
    alignas(16) PivotRows shown[groups];
    S corner[width][width]; // the part of U that belongs to group 0, by column
    Pivot pivots[2][width];
    Positions positions[2];
    i32 failed;
};

// Group 0 stores its part of U to shared memory, and loads the right-hand sides.
CUPYGEMM_INLINE void take_right_sides(const SmallLuArgs &args, Shared &shared, const Place &at,
                                      Elements &mine) {
    const u32 n = args.n, columns = args.columns;
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
        if (mine.position[i] < width)
#pragma unroll
            for (u32 k = 0; k < width; ++k)
                shared.corner[k][mine.position[i]] = mine.value[i][k];
    const S *const b =
        reinterpret_cast<const S *>(args.b) + static_cast<i64>(at.matrix) * n * columns;
    at.load<solves ? right_sides : 1>(b, columns, n, 0, columns, mine.value);
}

CUPYGEMM_INLINE void factor(const SmallLuArgs &args, Shared &shared, const Place &at,
                            Elements &mine) {
    const u32 n = args.n;
    const bool has_right_sides = solves && at.group == 0;
    PivotRows &shown = shared.shown[at.group];
    i32 *const pivots = reinterpret_cast<i32 *>(args.pivots) + static_cast<i64>(at.matrix) * n;
#pragma unroll 1
    for (u32 first = 0; first < n; first += width) {
        const u32 owner = first / width, steps = minimum(width, n - first);
        Panel &panel = shared.panels[owner % 2];
        Pivot(&found)[width] = shared.pivots[owner % 2];
        factor_panel(at, mine, owner, shared.positions[owner % 2], shared.failed, [&](u32 k) {
            return factor_column(at, mine, k, n, shown, panel[k], found[k]);
        });
        if (!solves && at.group == owner && at.inside && at.lane < steps)
            pivots[first + at.lane] = static_cast<i32>(found[at.lane].position);
        if (has_right_sides && owner == 0)
            take_right_sides(args, shared, at, mine);
        if (has_right_sides)
            apply_panel<solves ? right_sides : 1, false>(at, mine, steps, panel, found, shown);
        else if (at.group > owner)
            apply_panel<width, false>(at, mine, steps, panel, found, shown);
    }
}

// Solve for 8 rows of X, or fewer at the end of U, by back substitution, given these columns of U.
template <u32 pitch> CUPYGEMM_INLINE void solve_rows(const Place &at, Elements &mine, u32 first,
                                                     u32 steps, const S (&panel)[width][pitch]) {
    const u32 which = at.lane % width;
    const Divisor own(which < steps ? panel[which][first + which] : of_real<S>(1));
#pragma unroll 1
    for (u32 k = steps; k-- > 0;) {
        const u32 j = first + k;
        Divisor diagonal = own;
        diagonal.scale = from_lane_of<lanes>(own.scale, k);
        diagonal.over = from_lane_of<lanes>(own.over, k);
        S above[rows];
#pragma unroll
        for (u32 i = 0; i < rows; ++i)
            above[i] = at.row(i) < j ? panel[k][at.row(i)] : S{};
#pragma unroll
        for (u32 c = 0; c < right_sides; ++c) {
            const S x = diagonal.under(of_row(mine.value, c, j));
#pragma unroll
            for (u32 i = 0; i < rows; ++i)
                mine.value[i][c] =
                    at.row(i) == j ? x : minus_product(mine.value[i][c], above[i], x);
        }
    }
}

// Permute the rows of the right-hand sides to their positions.
CUPYGEMM_INLINE void order_rows(const Place &at, Elements &mine, Panel &ordered) {
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
#pragma unroll
        for (u32 c = 0; c < right_sides; ++c)
            ordered[c][mine.position[i]] = mine.value[i][c];
    wave_barrier(); // the rows are in shared memory
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
#pragma unroll
        for (u32 c = 0; c < right_sides; ++c)
            mine.value[i][c] = ordered[c][at.row(i)];
}

CUPYGEMM_INLINE void solve(const SmallLuArgs &args, Shared &shared, const Place &at,
                           Elements &mine) {
    const u32 n = args.n, columns = args.columns;
    workgroup_barrier(); // the last multipliers were used
    if (at.group == 0)
        order_rows(at, mine, shared.panels[groups % 2]);
#pragma unroll 1
    for (u32 owner = groups; --owner > 0;) {
        const u32 first = owner * width;
        Panel &panel = shared.panels[owner % 2];
        if (at.group == owner)
#pragma unroll
            for (u32 i = 0; i < rows; ++i)
#pragma unroll
                for (u32 k = 0; k < width; ++k)
                    panel[k][mine.position[i]] = mine.value[i][k];
        workgroup_barrier(); // these columns of U are in shared memory
        if (at.group == 0)
            solve_rows(at, mine, first, minimum(width, n - first), panel);
    }
    if (at.group != 0)
        return;
    solve_rows(at, mine, 0, minimum(width, n), shared.corner);
    S *const x = reinterpret_cast<S *>(args.x) + static_cast<i64>(at.matrix) * n * columns;
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
#pragma unroll
        for (u32 c = 0; c < right_sides; ++c)
            if (at.inside && at.row(i) < n && c < columns)
                x[at.row(i) * columns + c] = mine.value[i][c];
}

CUPYGEMM_INLINE void store(const SmallLuArgs &args, const Place &at, const Elements &mine) {
    const u32 n = args.n;
    S *const lu = reinterpret_cast<S *>(args.lu) + at.matrix * args.lu_next;
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
        at.store(lu, args.lu_row, n, mine.position[i], mine.value[i]);
}

} // namespace cupygemm

CUPYGEMM_RESIDENT_KERNEL(cupygemm::Config::threads, cupygemm::resident)
cupygemm_small_lu(const cupygemm::SmallLuArgs args) {
    using namespace cupygemm;
    __shared__ Shared all[matrices];
    const Place at(args.batches);
    Shared &shared = all[at.slot];
    const u32 n = args.n;
    Elements mine;
    at.load<width>(reinterpret_cast<const S *>(args.a) + at.matrix * args.a_next, args.a_row, n,
                   at.first, n, mine.value);
    mine.pad(at, n);
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
        mine.position[i] = at.row(i);
    if (at.is_first())
        shared.failed = 0;
    workgroup_barrier(); // no column has failed yet, and every matrix has been loaded
    factor(args, shared, at, mine);
    if constexpr (solves)
        solve(args, shared, at, mine);
    else
        store(args, at, mine);
    if (at.inside && at.is_first())
        report(args.info, at.matrix, shared.failed);
}
