// Factors 128 columns of a window of rows, P A = L U, and inverts L and U, in one launch.
//
// Each pivot is the largest element of its column in the window, which is taller than wide, so
// that the last pivots have a choice, too. No row moves: what is stored are the inverses of the
// triangles of 128 x 128, and the moves that bring the rows of the pivots, in their order, to the
// head of the window. The rest of L and of U follows by products with the inverses.
//
// A group of 32 threads has 8 columns (small_rows.hpp). It finds their pivots, while the other
// groups update theirs with the 8 columns before:
//
//   group 0   factor 0 | -
//   group 1   -        | update by 0, factor 1 | -
//   group 2   -        | update by 0           | update by 1, factor 2 | ...
//                      ^ barrier               ^ barrier
//
// Columns that are done are updated like those to come, since they hold L^-1: beside an identity
// an elimination would fill the column of its pivot's row, which takes the place of the zeros
// below the pivot. When 8 columns are done, these hold in row r the factors w(r, 0) to w(r, 7), and
//
//   row r += the sum over j of w(r, j) times the row of pivot j, as it was before
//
// in all other columns; w(r, j) is zero if row r is pivot i of the 8, and j >= i. Then U^-1 takes
// the place of U, block by block from the last on, with W = -U(r, block) U(block, block)^-1.
#include "common/solvers/moves.hpp"
#include "common/solvers/small_rows.hpp"

namespace cupygemm {

struct WindowedTileArgs {
    u64 a;     // element (0, 0) of the window
    i64 a_row; // elements between rows
    u64 lower; // element (0, 0) of L^-1, and of U^-1
    u64 upper;
    i64 triangle_row; // elements between their rows
    u64 moves;        // of moves.hpp: `most_moves`
    u64 info;         // i32: 1 + the first column without a pivot; unchanged if it is not zero
    i32 first;        // the number of the first row and column
    i32 count;        // the rows of the window: at least 128
};
static_assert(sizeof(WindowedTileArgs) == 64,
              "WindowedTileArgs must match the dtype that the launcher packs");

constexpr u32 columns = groups * width, most_moves = 512;
constexpr u32 beyond = height - columns; // rows of the window that are no pivots
constexpr u32 outside = ~1u; // the position of no row; that of a row without a pivot is `none`
static_assert(columns == 128 && height > columns, "the window must be taller than its 128 columns");

struct Eight {
    alignas(16) S value[width];
};

struct Shared {
    Eight factors[2][height];   // w of 8 columns, by row
    u32 which[2][height];       // of the pivots of 8 columns a row is; 8 if none
    Eight heads[groups][width]; // of each group: the rows of 8 pivots
    u32 position[height];       // of a row among the pivots
    u32 row_of[columns];        // the row of a pivot
    u32 displaced[beyond], vacated[beyond];
};

struct Elements {
    S value[rows][width];

    CUPYGEMM_INLINE Eight eight(u32 i) const {
        Eight of;
#pragma unroll
        for (u32 c = 0; c < width; ++c)
            of.value[c] = value[i][c];
        return of;
    }
};

// Put the rows of 8 pivots in shared memory, for the group itself. A row of the lane is the pivot
// `which` of them; none if that is 8 or more.
CUPYGEMM_INLINE void share_heads(const Place &at, const Elements &mine, Shared &shared,
                                 const u32 (&which)[rows]) {
    wave_barrier(); // the last ones were used
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
        if (which[i] < width)
            shared.heads[at.group][which[i]] = mine.eight(i);
    wave_barrier(); // the rows of the pivots are in shared memory
}

// Add w times the rows of 8 pivots to the columns of the group.
CUPYGEMM_INLINE void update(const Place &at, Elements &mine, const Shared &shared,
                            const Eight (&factors)[height]) {
    Eight w[rows];
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
        w[i] = factors[at.row(i)];
#pragma unroll
    for (u32 j = 0; j < width; ++j) {
        const Eight head = shared.heads[at.group][j];
#pragma unroll
        for (u32 i = 0; i < rows; ++i)
#pragma unroll
            for (u32 c = 0; c < width; ++c)
                mine.value[i][c] = plus_product(mine.value[i][c], w[i].value[j], head.value[c]);
    }
}

// Find the pivot of column k of the group, and eliminate with it. `free` has a bit for each row of
// the lane that is no pivot yet. Returns whether there is a pivot.
CUPYGEMM_INLINE bool factor_column(const Place &at, Elements &mine, Shared &shared, u32 k,
                                   u32 &free) {
    W largest = 0;
    u32 best = rows;
#pragma unroll
    for (u32 i = 0; i < rows; ++i) {
        const W rank = bits_of(mine.value[i][k]) & (~static_cast<W>(0) >> 1); // of its magnitude
        const bool wins = (free >> i & 1) != 0 && (best == rows || rank > largest);
        largest = wins ? rank : largest;
        best = wins ? i : best;
    }
    S head[width];
#pragma unroll
    for (u32 c = 0; c < width; ++c) {
        head[c] = mine.value[0][c];
#pragma unroll
        for (u32 i = 1; i < rows; ++i)
            head[c] = best == i ? mine.value[i][c] : head[c];
    }
    // Lanes whose rows are all pivots come last.
    const u32 leader = largest_of_32(largest, at.row(best));
#pragma unroll
    for (u32 c = 0; c < width; ++c)
        head[c] = from_lane(head[c], leader);
    if (at.lane == leader) {
        free &= ~(1u << best);
        shared.position[at.row(best)] = at.first + k;
        shared.row_of[at.first + k] = at.row(best);
    }
    const bool is_zero = head[k] == 0;
    const Divisor divisor(is_zero ? of_real<S>(1) : head[k]);
#pragma unroll
    for (u32 i = 0; i < rows; ++i) {
        const bool below = (free >> i & 1) != 0;
        const S factor = below ? negated(divisor.under(mine.value[i][k])) : S{};
#pragma unroll
        for (u32 c = 0; c < width; ++c)
            if (c != k)
                mine.value[i][c] = plus_product(mine.value[i][c], factor, head[c]);
        mine.value[i][k] = below ? factor : mine.value[i][k];
    }
    return !is_zero;
}

// Factor the columns of the group, and share what the others update with.
CUPYGEMM_INLINE void factor_columns(const WindowedTileArgs &args, const Place &at, Elements &mine,
                                    Shared &shared) {
    u32 free = 0;
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
        free |= shared.position[at.row(i)] == none ? 1u << i : 0;
    const u32 before = free;
    i32 failed = 0;
#pragma unroll
    for (u32 k = 0; k < width; ++k)
        if (!factor_column(at, mine, shared, k, free) && failed == 0)
            failed = args.first + static_cast<i32>(at.first + k) + 1;
    i32 *const info = reinterpret_cast<i32 *>(args.info);
    if (at.lane == 0 && failed != 0 && *info == 0)
        *info = failed;
    wave_barrier(); // the positions are in shared memory
#pragma unroll
    for (u32 i = 0; i < rows; ++i) {
        const bool is_free = (free >> i & 1) != 0, was_free = (before >> i & 1) != 0;
        const bool is_new = was_free && !is_free;
        const u32 which = is_new ? shared.position[at.row(i)] - at.first : width;
        const u32 count = is_free || is_new ? which : 0;
        Eight w = mine.eight(i);
#pragma unroll
        for (u32 j = 0; j < width; ++j)
            w.value[j] = j < count ? w.value[j] : S{};
        shared.factors[at.group % 2][at.row(i)] = w;
        shared.which[at.group % 2][at.row(i)] = which;
    }
}

CUPYGEMM_INLINE void factor(const WindowedTileArgs &args, const Place &at, Elements &mine,
                            Shared &shared) {
#pragma unroll 1
    for (u32 owner = 0; owner < groups; ++owner) {
        if (at.group == owner)
            factor_columns(args, at, mine, shared);
        workgroup_barrier(); // the factors and the positions are in shared memory
        if (at.group == owner)
            continue;
        u32 which[rows];
#pragma unroll
        for (u32 i = 0; i < rows; ++i)
            which[i] = shared.which[owner % 2][at.row(i)];
        share_heads(at, mine, shared, which);
        update(at, mine, shared, shared.factors[owner % 2]);
    }
}

// Replace 8 columns of U by the factors w, and by U(block, block)^-1 in the rows of its pivots.
CUPYGEMM_INLINE void invert_block(const Place &at, Elements &mine, Shared &shared,
                                  const u32 (&position)[rows]) {
    u32 which[rows];
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
        which[i] = position[i] - at.first; // at least 8 for rows that are not in the block
    share_heads(at, mine, shared, which);
    const Eight(&u)[width] = shared.heads[at.group];
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
#pragma unroll
        for (u32 j = 0; j < width; ++j) {
            const S of_identity = of_real<S>(which[i] == j ? 1 : 0);
            const S above = position[i] < at.first ? negated(mine.value[i][j]) : S{};
            mine.value[i][j] = which[i] < width ? of_identity : above;
        }
#pragma unroll
    for (u32 j = 0; j < width; ++j) {
        const Divisor divisor(u[j].value[j]);
#pragma unroll
        for (u32 i = 0; i < rows; ++i) {
            mine.value[i][j] = divisor.under(mine.value[i][j]);
#pragma unroll
            for (u32 c = j + 1; c < width; ++c)
                mine.value[i][c] = minus_product(mine.value[i][c], mine.value[i][j], u[j].value[c]);
        }
    }
}

CUPYGEMM_INLINE void invert_upper(const Place &at, Elements &mine, Shared &shared,
                                  const u32 (&position)[rows]) {
    invert_block(at, mine, shared, position);
#pragma unroll 1
    for (u32 owner = groups; owner-- > 0;) {
        const u32 first = owner * width;
        Eight(&factors)[height] = shared.factors[(owner + 1) % 2]; // `factor` used the other last
        if (at.group == owner)
#pragma unroll
            for (u32 i = 0; i < rows; ++i)
                factors[at.row(i)] = mine.eight(i);
        workgroup_barrier(); // the factors are in shared memory
        if (at.group <= owner)
            continue;
        u32 which[rows];
#pragma unroll
        for (u32 i = 0; i < rows; ++i)
            which[i] = position[i] - first;
        share_heads(at, mine, shared, which);
#pragma unroll
        for (u32 i = 0; i < rows; ++i)
#pragma unroll
            for (u32 c = 0; c < width; ++c)
                mine.value[i][c] = which[i] < width ? S{} : mine.value[i][c];
        update(at, mine, shared, factors);
    }
}

// Store the triangle that the rows of the pivots hold, in their order.
template <bool is_lower> CUPYGEMM_INLINE void
store(const Place &at, const Elements &mine, const u32 (&position)[rows], u64 to, i64 to_row) {
#pragma unroll
    for (u32 i = 0; i < rows; ++i) {
        S of[width];
#pragma unroll
        for (u32 c = 0; c < width; ++c) {
            const u32 column = at.first + c, row = position[i];
            const bool inside = is_lower ? column < row : column >= row;
            of[c] = inside ? mine.value[i][c] : of_real<S>(is_lower && column == row ? 1 : 0);
        }
        at.store(reinterpret_cast<S *>(to), to_row, columns, position[i], of);
    }
}

// Rows of the first 128 that are no pivots go to the places of pivots behind these. One group plans
// the moves.
CUPYGEMM_INLINE void plan_moves(const WindowedTileArgs &args, const Place &at, Shared &shared,
                                const u32 (&position)[rows]) {
    u32 displaced = 0, vacated = 0; // their numbers so far
#pragma unroll
    for (u32 i = 0; i < rows; ++i) {
        const bool is_head = 32 * i < columns, moves = (position[i] < columns) != is_head;
        const u32 all = ballot_of_32(moves), before = ones_in(all & ((1u << at.lane) - 1));
        if (moves)
            (is_head ? shared.displaced[displaced + before] : shared.vacated[vacated + before]) =
                at.row(i);
        (is_head ? displaced : vacated) += ones_in(all);
    }
    wave_barrier(); // the lists are in shared memory
    Move *const moves = reinterpret_cast<Move *>(args.moves);
    const u32 first = args.first;
    for (u32 i = at.lane; i < most_moves / 2; i += 32) {
        Move to_head{none, none}, beyond_head{none, none};
        if (i < columns)
            to_head = {first + i, first + shared.row_of[i]};
        if (i < vacated)
            beyond_head = {first + shared.vacated[i], first + shared.displaced[i]};
        moves[i] = to_head;
        moves[most_moves / 2 + i] = beyond_head;
    }
}

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_windowed_tile(const cupygemm::WindowedTileArgs args) {
    using namespace cupygemm;
    __shared__ Shared shared;
    const Place at(1);
    for (u32 row = local_thread(); row < height; row += threads)
        shared.position[row] = row < static_cast<u32>(args.count) ? none : outside;
    Elements mine;
    at.load<width>(reinterpret_cast<const S *>(args.a), args.a_row, args.count, at.first, columns,
                   mine.value);
    workgroup_barrier(); // no row has a position
    factor(args, at, mine, shared);
    u32 position[rows];
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
        position[i] = shared.position[at.row(i)];
    store<true>(at, mine, position, args.lower, args.triangle_row);
    if (at.group == 0)
        plan_moves(args, at, shared, position);
    invert_upper(at, mine, shared, position);
    store<false>(at, mine, position, args.upper, args.triangle_row);
}
