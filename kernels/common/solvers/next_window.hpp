// Applies a tile that is factored to the window of the next tile, in one launch:
//
//   D = C - A (U^-1 (L^-1 B))      B: 128 x 128, A: 160 x 128, C and D: 160 x 128
//
// B has the rows of the tile's pivots, and A and C those that follow them, A in the columns of the
// tile, B and C in those of the next one. No row has moved yet: the moves of the tile say where
// they are. D is stored apart. So the next tile can be factored while other launches move the rows
// of the matrix, and apply the tile to all of them.
//
// A workgroup has some columns. A group of 32 threads multiplies a row at a time: a lane has four
// of its elements, and keeps as many rows of the right factor in registers. Rows are loaded before
// the barrier that they need not wait for:
//
//   load moves | load B, rows of L^-1 and U^-1 | L^-1 B | load A and C | U^-1 (...) | C - A (...)
//              ^ barrier                       ^ barrier               ^ barrier    ^ barrier
#include "common/solvers/moves.hpp"
#include "common/solvers/row_vectors.hpp"
#include "config.hpp"

namespace cupygemm {

struct NextWindowArgs {
    u64 a; // element (0, 0) of the matrix
    i64 a_row;
    u64 lower, upper; // element (0, 0) of L^-1, and of U^-1
    i64 triangle_row;
    u64 moves;  // of the tile, `most_moves`, as windowed_tile.hpp stores them
    u64 window; // D, whose rows are adjacent
    i32 first;  // the number of the tile's first row and column
    i32 count;  // the rows of the next window
};
static_assert(sizeof(NextWindowArgs) == 64,
              "NextWindowArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
constexpr u32 threads = Config::threads, groups = threads / 32, across = Config::across;
constexpr u32 size = 128, most_rows = Config::rows, most_moves = 512;
constexpr u32 of_lane = size / 32;
static_assert(of_lane == RowVector<S>::count, "a lane must load its part of a row at once");
static_assert(across == of_lane, "columns are summed by pairs of halves of the lanes");
static_assert(size % groups == 0 && most_rows % groups == 0, "groups must have whole rows");

struct Shared {
    u32 sources[size + most_rows];         // of a row after `first`: where it is
    alignas(16) S factor[2][size][across]; // B or U^-1 (L^-1 B), and L^-1 B
};

template <u32 count> using Rows = S[count][of_lane];

// The sum over a group of each column's parts. Lane 8 c has that of column c.
CUPYGEMM_INLINE S sum_of_column(const S (&part)[across], u32 lane) {
    S half[2];
    const bool is_upper = (lane & 16) != 0, is_odd = (lane & 8) != 0;
#pragma unroll
    for (u32 c = 0; c < 2; ++c) {
        const S other = exchanged(is_upper ? part[c] : part[c + 2], 16);
        half[c] = plus(is_upper ? part[c + 2] : part[c], other);
    }
    S sum = plus(is_odd ? half[1] : half[0], exchanged(is_odd ? half[0] : half[1], 8));
#pragma unroll
    for (u32 mask = 4; mask > 0; mask /= 2)
        sum = plus(sum, exchanged(sum, mask));
    return sum;
}

// The products of a group's rows and a factor. Lane 8 c has those of column c.
template <u32 count> CUPYGEMM_INLINE void
multiply(const Rows<count> &left, const S (&factor)[size][across], u32 lane, S (&product)[count]) {
    S right[of_lane][across];
#pragma unroll
    for (u32 k = 0; k < of_lane; ++k)
        load_vectors(factor[lane * of_lane + k], right[k]);
#pragma unroll
    for (u32 i = 0; i < count; ++i) {
        S part[across] = {};
#pragma unroll
        for (u32 k = 0; k < of_lane; ++k)
#pragma unroll
            for (u32 c = 0; c < across; ++c)
                part[c] = plus_product(part[c], left[i][k], right[k][c]);
        product[i] = sum_of_column(part, lane);
    }
}

// Find where the rows of the tile and of the next window are.
CUPYGEMM_INLINE void find_sources(const NextWindowArgs &args, Shared &shared, u32 thread) {
    const Move *const moves = reinterpret_cast<const Move *>(args.moves);
    const u32 first = args.first;
    for (u32 i = thread; i < size + most_rows; i += threads)
        shared.sources[i] = i < size ? moves[i].source : first + i;
    workgroup_barrier(); // all rows have a source, those that have not moved the last one
    for (u32 i = thread; i < most_moves / 2; i += threads) {
        const Move move = moves[most_moves / 2 + i];
        if (move.destination != none)
            shared.sources[move.destination - first] = move.source;
    }
}

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_next_window(const cupygemm::NextWindowArgs args) {
    using namespace cupygemm;
    constexpr u32 of_tile = size / groups, of_window = most_rows / groups; // rows of a group
    __shared__ Shared shared;
    const u32 thread = local_thread(), lane = thread % 32, group = thread / 32;
    const u32 first = args.first, column = first + size + group_index_x() * across;
    const S *const a = reinterpret_cast<const S *>(args.a);
    const u32 own = lane / 8; // the column whose products the lane has
    Rows<of_tile> lower, upper;
#pragma unroll
    for (u32 i = 0; i < of_tile; ++i) {
        const i64 at = (group + groups * i) * args.triangle_row + lane * of_lane;
        load_vectors(reinterpret_cast<const S *>(args.lower) + at, lower[i]);
        load_vectors(reinterpret_cast<const S *>(args.upper) + at, upper[i]);
    }
    find_sources(args, shared, thread);
    workgroup_barrier(); // all sources are in shared memory
    for (u32 row = thread; row < size; row += threads) {
        S of_b[across];
        load_vectors(a + shared.sources[row] * args.a_row + column, of_b);
        store_vectors(of_b, shared.factor[0][row]);
    }
    workgroup_barrier(); // B is in shared memory
    S product[of_tile];
    multiply(lower, shared.factor[0], lane, product);
#pragma unroll
    for (u32 i = 0; i < of_tile; ++i)
        if (lane % 8 == 0)
            shared.factor[1][group + groups * i][own] = product[i];
    Rows<of_window> left;
    S target[of_window];
#pragma unroll
    for (u32 i = 0; i < of_window; ++i) {
        const u32 row = group + groups * i;
        const bool inside = row < static_cast<u32>(args.count);
        const S *const from = a + shared.sources[inside ? size + row : size] * args.a_row;
        load_vectors(from + first + lane * of_lane, left[i]);
        target[i] = from[column + own];
    }
    workgroup_barrier(); // L^-1 B is in shared memory, and B has been read
    multiply(upper, shared.factor[1], lane, product);
#pragma unroll
    for (u32 i = 0; i < of_tile; ++i)
        if (lane % 8 == 0)
            shared.factor[0][group + groups * i][own] = product[i];
    workgroup_barrier(); // U^-1 (L^-1 B) is in shared memory
    S subtracted[of_window];
    multiply(left, shared.factor[0], lane, subtracted);
    S *const window = reinterpret_cast<S *>(args.window);
#pragma unroll
    for (u32 i = 0; i < of_window; ++i) {
        const u32 row = group + groups * i;
        if (lane % 8 == 0 && row < static_cast<u32>(args.count))
            window[row * size + group_index_x() * across + own] =
                plus(target[i], negated(subtracted[i]));
    }
}
