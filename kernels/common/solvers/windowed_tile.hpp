// Factors 128 columns of a window of rows, P A = L U, and inverts L and U, in one launch.
//
// Each pivot is the largest element of its column in the window, which is taller than wide, so that
// the last pivots have a choice, too. No row moves: the kernel stores the inverses of the 128 x 128
// triangles, and the moves that bring the rows of the pivots, in order, to the top of the window.
// The rest of L and of U follows by products with the inverses.
//
// A group of 32 threads has 8 columns (small_rows.hpp). While it finds their pivots, the other
// groups update their columns with the previous 8 columns. The next group updates its own first:
//
//   group 0   factor 0 | -           | -
//   group 1   -        | update by 0 | factor 1    | -           | -
//   group 2   -        | -           | update by 0 | update by 1 | factor 2 ...
//   group 3   -        | -           | update by 0 | -           | update by 1 ...
//                      ^ barrier     ^ barrier     ^ barrier     ^ barrier
//
// Finished columns are updated like later ones, since they hold L^-1: in [A I], an elimination
// would fill the column of I that belongs to its pivot's row, and this column is stored in place of
// the zeros below the pivot. When 8 columns are finished, they hold in row r the factors w(r, 0) to
// w(r, 7), and
//
//   row r += the sum over j of w(r, j) times the row of pivot j, as it was before
//
// in all other columns; w(r, j) is zero if row r is pivot i of the 8, and j >= i. Then U^-1
// replaces U: a group adds the blocks of rows to its left, from the last one on, with the factors W
// = -U(r, block) U(block, block)^-1, which all groups share.
#include "common/solvers/moves.hpp"
#include "common/solvers/small_rows.hpp"

namespace cupygemm {

// All rows begin at multiples of 16 bytes.
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
constexpr u32 outside = ~1u; // the position of no row; a row without a pivot has position `none`
static_assert(columns == 128 && height > columns, "the window must be taller than its 128 columns");

struct Eight {
    alignas(16) S value[width];
};

// Factors of rows, in halves: neighbours in a group read neighbouring 16 bytes.
template <u32 count> struct Factors {
    Vector half[2][count];

    CUPYGEMM_INLINE void set(u32 row, const Eight &w) {
#pragma unroll
        for (u32 k = 0; k < width; ++k)
            half[k / 4][row].elements[k % 4] = w.value[k];
    }
    CUPYGEMM_INLINE Eight of(u32 row) const {
        Eight w;
#pragma unroll
        for (u32 k = 0; k < width; ++k)
            w.value[k] = half[k / 4][row].elements[k % 4];
        return w;
    }
};
static_assert(width == 2 * Vector::count, "8 columns must be two vectors");

struct Shared {
    union {
        struct {
            Factors<height> factors[2]; // w of 8 columns, by row
            u32 which[2][height];       // of the pivots of 8 columns is this row; 8 if none
        };
        // W of all blocks, by the positions of rows among the pivots, down to the rows of the block
        Factors<groups *(groups + 1) / 2 * width> upper;
    };
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

// Store the rows of 8 pivots to shared memory, for the group itself. A row of the lane is pivot
// `which` of the 8, or none of them if `which` is 8 or more.
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
                            const Eight (&w)[rows]) {
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

// The rows of a lane, while the group factors its columns.
struct Candidates {
    W open[rows];    // all ones for a row that is no pivot, and zero for a pivot
    u32 which[rows]; // of the 8 pivots is this row; 8 if none
};

// The lane with the largest of 32 ranks, `most`; among equal ranks, the lane with the first row.
CUPYGEMM_INLINE u32 lane_of(W largest, W most, const W (&rank)[rows], const Place &at) {
    const u32 tied = ballot_of_32(largest == most);
    if ((tied & (tied - 1)) == 0)
        return first_bit(tied);
    u32 row = height;
#pragma unroll
    for (u32 i = rows; i-- > 0;)
        row = rank[i] == most ? at.row(i) : row;
    return minimum_of_32(row) % 32;
}

// Find the pivot of column k of the group, which is the first one in registers, and eliminate with
// it. Then the next column is the first, and this one the last, so that one loop serves all: other
// kernels run beside this one, and evict long code from the caches of instructions.
// Returns whether there is a pivot. A column waits for the one before, so what can precede the
// exchange between lanes does: a lane chooses among its rows, and the inverse comes from the rank
// of the pivot.
CUPYGEMM_INLINE bool factor_column(const Place &at, Elements &mine, u32 k, Candidates &candidates) {
    W rank[rows], largest = 0; // of magnitudes; zero for rows that are pivots, and only for these
#pragma unroll
    for (u32 i = 0; i < rows; ++i) {
        rank[i] = (bits_of(mine.value[i][0]) << 1 | 1) & candidates.open[i];
        largest = rank[i] > largest ? rank[i] : largest;
    }
    const W most = maximum_of_32(largest);
    S head[width];
#pragma unroll
    for (u32 c = 0; c < width; ++c) {
        head[c] = mine.value[rows - 1][c];
#pragma unroll
        for (u32 i = rows - 1; i-- > 0;) // the first of equal ranks
            head[c] = rank[i] == largest ? mine.value[i][c] : head[c];
    }
    const u32 leader = lane_of(largest, most, rank, at);
    const S size = real_of_bits(most >> 1);
    const bool is_zero = size == 0;
    const Divisor divisor(is_zero ? of_real<S>(1) : size);
#pragma unroll
    for (u32 c = 0; c < width; ++c)
        head[c] = from_lane(head[c], leader);
    const S over = head[0] < 0 ? divisor.over : negated(divisor.over); // of the negated pivot
    bool leads = at.lane == leader;
#pragma unroll
    for (u32 i = 0; i < rows; ++i) {
        const bool chosen = leads && rank[i] == most;
        leads = leads && !chosen;
        candidates.open[i] = chosen ? 0 : candidates.open[i];
        candidates.which[i] = chosen ? k : candidates.which[i];
        const S first = mine.value[i][0], factor = times(times(first, divisor.scale), over);
        const S below = real_of_bits(bits_of(factor) & candidates.open[i]);
#pragma unroll
        for (u32 c = 1; c < width; ++c)
            mine.value[i][c - 1] = plus_product(mine.value[i][c], below, head[c]);
        mine.value[i][width - 1] = candidates.open[i] != 0 ? below : first;
    }
    return !is_zero;
}

// Factor the columns of the group, and share the factors for the other groups' updates.
CUPYGEMM_INLINE void factor_columns(const WindowedTileArgs &args, const Place &at, Elements &mine,
                                    Shared &shared) {
    Candidates candidates;
#pragma unroll
    for (u32 i = 0; i < rows; ++i) {
        candidates.open[i] = shared.position[at.row(i)] == none ? ~static_cast<W>(0) : 0;
        candidates.which[i] = width;
    }
    i32 failed = 0;
#pragma unroll 1
    for (u32 k = 0; k < width; ++k)
        if (!factor_column(at, mine, k, candidates) && failed == 0)
            failed = args.first + static_cast<i32>(at.first + k) + 1;
    i32 *const info = reinterpret_cast<i32 *>(args.info);
    if (at.lane == 0 && failed != 0 && *info == 0)
        *info = failed;
#pragma unroll
    for (u32 i = 0; i < rows; ++i) {
        const u32 row = at.row(i), which = candidates.which[i];
        const bool is_new = which < width;
        if (is_new) {
            shared.position[row] = at.first + which;
            shared.row_of[at.first + which] = row;
        }
        const u32 count = candidates.open[i] != 0 || is_new ? which : 0;
        Eight w = mine.eight(i);
#pragma unroll
        for (u32 j = 0; j < width; ++j)
            w.value[j] = j < count ? w.value[j] : S{};
        shared.factors[at.group % 2].set(row, w);
        shared.which[at.group % 2][row] = which;
    }
}

// Update the columns of the group with the factors of another group.
CUPYGEMM_INLINE void update_by(const Place &at, Elements &mine, Shared &shared, u32 owner) {
    u32 which[rows];
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
        which[i] = shared.which[owner % 2][at.row(i)];
    share_heads(at, mine, shared, which);
    Eight w[rows];
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
        w[i] = shared.factors[owner % 2].of(at.row(i));
    update(at, mine, shared, w);
}

CUPYGEMM_INLINE void factor(const WindowedTileArgs &args, const Place &at, Elements &mine,
                            Shared &shared) {
#pragma unroll 1
    for (u32 owner = 0; owner < groups; ++owner) {
        if (at.group == owner)
            factor_columns(args, at, mine, shared);
        workgroup_barrier(); // the factors and the positions are in shared memory
#pragma unroll 1
        for (u32 turn = 0; turn < 2; ++turn) { // the next group has the first
            const bool is_next = at.group == owner + 1;
            if (at.group != owner && is_next == (turn == 0))
                update_by(at, mine, shared, owner);
            if (turn == 0)
                workgroup_barrier(); // the next group is ready to factor its columns
        }
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
    const auto place = [](u32 owner, u32 row) { return owner * (owner + 1) / 2 * width + row; };
    workgroup_barrier(); // all groups have updated their columns
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
        if (position[i] < at.first + width)
            shared.upper.set(place(at.group, position[i]), mine.eight(i));
    workgroup_barrier(); // the factors are in shared memory
#pragma unroll 1
    for (u32 owner = at.group; owner-- > 0;) {
        const u32 first = owner * width;
        u32 which[rows];
#pragma unroll
        for (u32 i = 0; i < rows; ++i)
            which[i] = position[i] - first; // at least 8 for rows that are not in the block
        share_heads(at, mine, shared, which);
        Eight w[rows];
#pragma unroll
        for (u32 i = 0; i < rows; ++i) {
            w[i] = Eight{};
            if (position[i] < first + width)
                w[i] = shared.upper.of(place(owner, position[i]));
#pragma unroll
            for (u32 c = 0; c < width; ++c)
                mine.value[i][c] = which[i] < width ? S{} : mine.value[i][c];
        }
        update(at, mine, shared, w);
    }
}

// Store the triangle that the rows of the pivots hold, in their order.
template <bool is_lower> CUPYGEMM_INLINE void
store(const Place &at, const Elements &mine, const u32 (&position)[rows], u64 to, i64 to_row) {
#pragma unroll
    for (u32 i = 0; i < rows; ++i) {
        const u32 row = position[i];
        S of[width];
#pragma unroll
        for (u32 c = 0; c < width; ++c) {
            const u32 column = at.first + c;
            const bool inside = is_lower ? column < row : column >= row;
            of[c] = inside ? mine.value[i][c] : of_real<S>(is_lower && column == row ? 1 : 0);
        }
        if (row < columns)
            store_vectors(of, reinterpret_cast<S *>(to) + row * to_row + at.first);
    }
}

// Rows among the first 128 that are not pivots move to where the pivots below row 128 were.
// One group plans the moves.
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
#pragma unroll 1
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
    const S *const a = reinterpret_cast<const S *>(args.a) + at.first;
#pragma unroll
    for (u32 i = 0; i < rows; ++i) {
        for (S &element : mine.value[i])
            element = S{};
        if (at.row(i) < static_cast<u32>(args.count))
            load_vectors(a + at.row(i) * args.a_row, mine.value[i]);
    }
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
