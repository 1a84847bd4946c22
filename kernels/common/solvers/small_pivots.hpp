// Steps of an LU factorisation of small matrices with partial pivoting (small_rows.hpp).
//
// As in lu_panel.hpp, no row moves: a lane knows the positions of its rows, and every group tracks
// the swaps.
#pragma once

#include "common/solvers/small_rows.hpp"

namespace cupygemm {

struct Pivot {
    u32 row, position; // before it is swapped
};
using Positions = u32[height]; // of all rows

struct Elements {
    S value[rows][width];
    u32 position[rows];

    // The bits of an element's magnitude, which have the same order as the magnitudes.
    CUPYGEMM_INLINE W rank(u32 r, u32 k) const {
        return bits_of(magnitude(value[r][k])) & (~static_cast<W>(0) >> 1);
    }

    // Whether a row is a candidate for pivot j of a matrix of `end` rows.
    CUPYGEMM_INLINE bool competes(u32 r, u32 j, u32 end) const { return position[r] - j < end - j; }

    // Replace columns and rows from n on by those of the identity, so that a group factors all
    // columns alike.
    CUPYGEMM_INLINE void pad(const Place &at, u32 n) {
        if (at.first + width <= n)
            return;
#pragma unroll
        for (u32 i = 0; i < rows; ++i)
#pragma unroll
            for (u32 k = 0; k < width; ++k)
                if (at.row(i) >= n && at.row(i) == at.first + k)
                    value[i][k] = of_real<S>(1);
    }

    CUPYGEMM_INLINE void swap(const Place &at, Pivot pivot, u32 j) {
#pragma unroll
        for (u32 i = 0; i < rows; ++i)
            position[i] = at.row(i) == pivot.row ? j
                          : position[i] == j     ? pivot.position
                                                 : position[i];
    }
};

// The lane that has the pivot of column j, and which of its rows, for a matrix of `end` rows.
//
// The first 32 bits of the magnitudes nearly always decide. The code uses few predicates, because
// each takes longer than arithmetic.
struct Leader {
    u32 i, lane; // i: of each lane's own largest element

    CUPYGEMM_INLINE Leader(const Elements &mine, u32 k, u32 j, u32 end) {
        u32 each[rows], high = 0;
#pragma unroll
        for (u32 r = 0; r < rows; ++r) {
            each[r] = mine.competes(r, j, end) ? high_word(mine.rank(r, k)) : 0;
            high = each[r] > high ? each[r] : high;
        }
        bool is_found = false, is_tied = false;
#pragma unroll
        for (u32 r = rows; r-- > 0;) {
            const bool is_largest = each[r] == high;
            is_tied |= is_found && is_largest;
            is_found |= is_largest;
            i = r + 1 == rows || is_largest ? r : i;
        }
        const bool leads = high == maximum_of<lanes>(high);
        const u32 leaders = ballot_of_32(leads), tied = ballot_of_32(leads && is_tied);
        const bool is_decided = tied == 0 && has_one_bit_at_most(leaders & (~0u >> (32 - lanes))) &&
                                (lanes == 32 || has_one_bit_at_most(leaders >> 16));
        lane = first_bit(lanes == 32 ? leaders : leaders >> (local_thread() & 16));
        if (__builtin_expect(!is_decided, 0)) // for all lanes, also those of another matrix
            compare_all_bits(mine, k, j, end);
    }

private:
    // Among equal magnitudes, the first position wins, as in LAPACK.
    CUPYGEMM_INLINE void compare_all_bits(const Elements &mine, u32 k, u32 j, u32 end) {
        W rank = 0;
        u32 position = ~0u;
#pragma unroll
        for (u32 r = 0; r < rows; ++r) {
            const W other = mine.rank(r, k);
            const u32 at = mine.position[r];
            if (mine.competes(r, j, end) && (other > rank || (other == rank && at < position))) {
                rank = other;
                position = at;
                i = r;
            }
        }
        lane = largest_of<lanes>(rank, position);
    }
};

// Each lane's largest element, and its divisor if it becomes the pivot.
struct Candidate {
    u32 i;   // its row
    R scale; // of its divisor; 0 if it is zero
    S over;

    CUPYGEMM_INLINE Candidate(const Elements &mine, u32 k, u32 which) : i(which) {
        S own = mine.value[0][k];
#pragma unroll
        for (u32 r = 1; r < rows; ++r) {
            const S other = mine.value[r][k]; // without a run-time index
            own = i == r ? other : own;
        }
        const Divisor divisor(own);
        scale = magnitude(own) == 0 ? 0 : divisor.scale;
        over = divisor.over;
    }
};

// The pivot of a column of a group, which all lanes know.
struct ColumnPivot {
    Pivot found;
    bool is_zero;
    R scale; // of its divisor
    S over;

    CUPYGEMM_INLINE ColumnPivot(const Elements &mine, const Candidate &own, u32 leader)
        : scale(from_lane_of<lanes>(own.scale, leader)),
          over(from_lane_of<lanes>(own.over, leader)) {
        is_zero = high_word(bits_of(scale)) == 0;
        u32 position = mine.position[0];
#pragma unroll
        for (u32 r = 1; r < rows; ++r)
            position = own.i == r ? mine.position[r] : position;
        found = {leader + lanes * word_from_lane_of<lanes>(own.i, leader),
                 word_from_lane_of<lanes>(position, leader)};
    }

    CUPYGEMM_INLINE S divide(S x) const { return times(times(x, scale), over); }
};

// Padding rows are candidates for the pivots of padding columns only.
CUPYGEMM_INLINE u32 end_of_candidates(u32 j, u32 n) { return j < n ? n : height; }

// The row of a pivot in the columns of a group, which all of its lanes read. Two rows alternate:
// one is written while lanes still read the other.
using PivotRows = S[2][width];

// Show a row of the group's columns to all lanes, from column `from` on, and optionally replace it
// by zeros.
template <bool clears> CUPYGEMM_INLINE void show_row(const Place &at, Elements &mine, u32 row,
                                                     S (&shown)[width], u32 from = 0) {
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
        if (at.row(i) == row)
#pragma unroll
            for (u32 c = 0; c < width; ++c)
                if (c >= from) {
                    shown[c] = mine.value[i][c];
                    if (clears)
                        mine.value[i][c] = S{};
                }
    wave_barrier(); // the row is in shared memory, and the row before last was read
}

// Add the products of factors, one for each row of this lane, and a row that is shown, to one
// column of a group.
CUPYGEMM_INLINE void add_products(Elements &mine, const S (&factor)[rows], const S (&row)[width],
                                  u32 c) {
    const S across = row[c];
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
        mine.value[i][c] = plus_product(mine.value[i][c], factor[i], across);
}

// Factor column k of a group. Returns 1 + the column of the matrix if it has no pivot, or 0.
CUPYGEMM_INLINE i32 factor_column(const Place &at, Elements &mine, u32 k, u32 n, PivotRows &shown,
                                  S (&multipliers)[height], Pivot &found) {
    const u32 j = at.first + k;
    const Leader leader(mine, k, j, end_of_candidates(j, n));
    const Candidate own(mine, k, leader.i);
    const ColumnPivot pivot(mine, own, leader.lane);
    mine.swap(at, pivot.found, j);
    S factor[rows];
#pragma unroll
    for (u32 i = 0; i < rows; ++i) {
        S &element = mine.value[i][k];
        const S quotient = pivot.divide(element);
        const bool is_below = mine.position[i] > j && !pivot.is_zero;
        factor[i] = is_below ? negated(quotient) : S{};
        element = is_below ? quotient : element;
        multipliers[at.row(i)] = factor[i];
    }
    if (at.lane == 0)
        found = pivot.found;
    show_row<false>(at, mine, pivot.found.row, shown[k % 2], k + 1);
#pragma unroll
    for (u32 c = 1; c < width; ++c)
        if (c > k)
            add_products(mine, factor, shown[k % 2], c);
    return pivot.is_zero ? static_cast<i32>(j) + 1 : 0;
}

// A group processes its columns, from left to right, and the others take its positions of all
// rows. column(k) returns 1 + the column of the matrix if it has no pivot, or 0; `failed`, of the
// matrix, becomes the first of these. Afterwards, what the group published can be read. No thread
// may still be reading what it publishes, nor `positions`.
template <class Column> CUPYGEMM_INLINE void factor_panel(const Place &at, Elements &mine,
                                                          u32 owner, Positions &positions,
                                                          i32 &failed, const Column &column) {
    if (at.group == owner) {
        i32 first = 0;
#pragma unroll
        for (u32 k = 0; k < width; ++k) {
            const i32 found = column(k);
            first = first == 0 ? found : first;
        }
        if (at.lane == 0 && first != 0 && failed == 0)
            failed = first;
#pragma unroll
        for (u32 i = 0; i < rows; ++i)
            positions[at.row(i)] = mine.position[i];
    }
    workgroup_barrier(); // the panel is in shared memory, and the last one was used
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
        mine.position[i] = positions[at.row(i)];
}

// Apply the steps of another group, which published their factors, to `count` columns of a group:
// the negative multipliers of an LU factorisation, or those of an inverse, which clears the rows of
// the pivots.
template <u32 count, bool clears>
CUPYGEMM_INLINE void apply_panel(const Place &at, Elements &mine, u32 steps, const Panel &panel,
                                 const Pivot (&pivots)[width], PivotRows &shown) {
#pragma unroll 2
    for (u32 k = 0; k < steps; ++k) {
        S factor[rows];
#pragma unroll
        for (u32 i = 0; i < rows; ++i)
            factor[i] = panel[k][at.row(i)];
        show_row<clears>(at, mine, pivots[k].row, shown[k % 2]);
#pragma unroll
        for (u32 c = 0; c < count; ++c)
            add_products(mine, factor, shown[k % 2], c);
    }
}

} // namespace cupygemm
