// Steps of an LU factorisation of small matrices with partial pivoting (small_rows.hpp).
//
// As in lu_panel.hpp no row moves: a lane knows the positions of its rows, and every group keeps
// account of the swaps.
#pragma once

#include "common/solvers/small_rows.hpp"

namespace cupygemm {

struct Pivot {
    u32 row, position; // before it is swapped
};

struct Elements {
    S value[rows][width];
    u32 position[rows];

    CUPYGEMM_INLINE void swap(const Place &at, Pivot pivot, u32 j) {
#pragma unroll
        for (u32 i = 0; i < rows; ++i)
            position[i] = at.row(i) == pivot.row ? j
                          : position[i] == j     ? pivot.position
                                                 : position[i];
    }
};

// The best candidate of a lane for the pivot of a column, before the lanes compare theirs. Its
// inverse is computed and its row is chosen meanwhile.
struct Candidate {
    W rank = 0;
    u32 i = 0, position = ~0u; // of its row
    S row[width];              // from the column on
    R scale;                   // of its divisor; 0 if it is zero
    S over;

    CUPYGEMM_INLINE Candidate(const Elements &mine, u32 k, u32 j, u32 n) {
#pragma unroll
        for (u32 r = 0; r < rows; ++r) {
            const W other = bits_of(magnitude(mine.value[r][k])) & (~static_cast<W>(0) >> 1);
            const u32 where = mine.position[r];
            const bool is_candidate = where >= j && where < n;
            const bool wins = other > rank || (other == rank && where < position);
            if (is_candidate && wins) {
                rank = other;
                position = where;
                i = r;
            }
        }
#pragma unroll
        for (u32 c = 0; c < width; ++c)
            if (c >= k) {
                row[c] = mine.value[0][c];
#pragma unroll
                for (u32 r = 1; r < rows; ++r) {
                    const S other =
                        mine.value[r][c]; // in a register, and not chosen by its address
                    row[c] = i == r ? other : row[c];
                }
            }
        const bool zero = magnitude(row[k]) == 0;
        const Divisor divisor(zero ? with_parts<S>(1) : row[k]); // 0 / 1 would take a slow branch
        scale = zero ? 0 : divisor.scale;
        over = divisor.over;
    }
};

// Factor column k of a group. Returns 1 + the column of the matrix if it has no pivot, or 0.
CUPYGEMM_INLINE i32 factor_column(const Place &at, Elements &mine, u32 k, u32 n,
                                  S (&multipliers)[height], Pivot &found) {
    const u32 j = at.first + k;
    const Candidate own(mine, k, j, n);
    const u32 leader = largest_of<lanes>(own.rank, own.position);
    const R scale = from_lane_of<lanes>(own.scale, leader);
    const S over = from_lane_of<lanes>(own.over, leader);
    const Pivot pivot = {leader + lanes * word_from_lane_of<lanes>(own.i, leader),
                         word_from_lane_of<lanes>(own.position, leader)};
    mine.swap(at, pivot, j);
    S factor[rows];
#pragma unroll
    for (u32 i = 0; i < rows; ++i) {
        S &element = mine.value[i][k];
        factor[i] = S{};
        if (mine.position[i] > j && scale != 0)
            element = factor[i] = times(times(element, scale), over);
        multipliers[at.row(i)] = factor[i];
    }
    if (at.lane == 0)
        found = pivot;
#pragma unroll
    for (u32 c = 1; c < width; ++c)
        if (c > k) {
            const S across = from_lane_of<lanes>(own.row[c], leader);
#pragma unroll
            for (u32 i = 0; i < rows; ++i)
                mine.value[i][c] = minus_product(mine.value[i][c], factor[i], across);
        }
    return scale == 0 ? static_cast<i32>(j) + 1 : 0;
}

// Factor the columns of a group, as its threads do. Returns 1 + the first without a pivot, or 0.
CUPYGEMM_INLINE i32 factor_columns(const Place &at, Elements &mine, u32 n, Panel &panel,
                                   Pivot (&pivots)[width]) {
    i32 failed = 0;
#pragma unroll
    for (u32 k = 0; k < width; ++k)
        if (at.first + k < n) {
            const i32 found = factor_column(at, mine, k, n, panel[k], pivots[k]);
            failed = failed == 0 ? found : failed;
        }
    return failed;
}

// Let a group factor its columns, of which `steps` are of the matrix, and the others follow its
// swaps. Then the multipliers are in `panel`, which nothing reads any more before. `failed` is that
// of the matrix.
CUPYGEMM_INLINE void factor_panel(const Place &at, Elements &mine, u32 n, u32 owner, u32 steps,
                                  Panel &panel, Pivot (&pivots)[width], i32 &failed) {
    if (at.group == owner) {
        const i32 found = factor_columns(at, mine, n, panel, pivots);
        if (at.lane == 0 && found != 0 && failed == 0)
            failed = found;
    }
    workgroup_barrier(); // the multipliers are in shared memory, and the last ones were used
    if (at.group != owner)
#pragma unroll 1
        for (u32 k = 0; k < steps; ++k)
            mine.swap(at, pivots[k], owner * width + k);
}

// Update `count` columns of a group behind one that has been factored.
template <u32 count> CUPYGEMM_INLINE void update(const Place &at, Elements &mine, u32 steps,
                                                 const Panel &panel, const Pivot (&pivots)[width]) {
#pragma unroll 2
    for (u32 k = 0; k < steps; ++k) {
        const u32 row = pivots[k].row;
        S factor[rows];
#pragma unroll
        for (u32 i = 0; i < rows; ++i)
            factor[i] = panel[k][at.row(i)];
#pragma unroll
        for (u32 c = 0; c < count; ++c) {
            const S across = of_row(mine.value, c, row);
#pragma unroll
            for (u32 i = 0; i < rows; ++i)
                mine.value[i][c] = minus_product(mine.value[i][c], factor[i], across);
        }
    }
}

} // namespace cupygemm
