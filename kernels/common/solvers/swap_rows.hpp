// Applies up to `max_pivots` row swaps to a strip of columns in one pass.
//
// The swaps are sequential, but each displaced row moves only once. Either the kernel of the panel
// or swap_moves.hpp has planned the moves, or a thread traces each destination back through the
// swaps to its source row. All rows of a strip are loaded to registers before the first is stored.
//
// With `solve`, the first rows of the columns after the gap are also solved with the unit lower
// triangle of their block: they become rows of U. A lane owns a row of the triangle, and 32 lanes
// solve for several columns together.
#include "common/solvers/moves.hpp"
#include "config.hpp"

namespace cupygemm {

struct SwapArgs {
    u64 a;           // element (0, 0) of the first matrix
    i64 lda, stride; // elements between rows, and between matrices
    u64 pivots;      // i32, of row `first` on: the row that it is swapped with
    i64 pivot_stride;
    u64 moves;            // if they are planned
    i32 first, count;     // the rows that are swapped, in this order
    i32 column, columns;  // the columns of the launch
    i32 gap, gap_columns; // columns from `gap` on that the launch skips
    i32 inverse;          // the last swap is applied first
    i32 unused;
};
static_assert(sizeof(SwapArgs) == 80, "SwapArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
constexpr u32 threads = Config::threads, max_pivots = Config::max_pivots, across = Config::across;
constexpr u32 max_moves = 2 * max_pivots, lines = threads / across, per_thread = max_moves / lines;

struct Triangle {
    S below[max_pivots][max_pivots]; // (column, row), zero on and above the diagonal
    S strip[max_pivots][across + 1];

    CUPYGEMM_INLINE void load(const S *l, i64 lda, u32 count, u32 thread) {
        for (u32 at = thread; at < max_pivots * max_pivots; at += threads) {
            const u32 row = at / max_pivots, column = at % max_pivots;
            below[column][row] = row < count && column < row ? l[row * lda + column] : S{};
        }
    }

    // Solve for the first rows of a strip, which is in registers. The moves of these rows come
    // first, in order.
    CUPYGEMM_INLINE void solve(S (&moved)[per_thread], u32 count, u32 thread) {
        static_assert(!Config::solve || max_pivots == 32, "a lane must own a row of the triangle");
        constexpr u32 each = across / (threads / 32); // columns of 32 lanes
        const u32 in_strip = thread % across, line = thread / across;
        const u32 lane = thread % 32, first = thread / 32 * each;
#pragma unroll
        for (u32 i = 0; i < per_thread / 2; ++i)
            strip[i * lines + line][in_strip] = i * lines + line < count ? moved[i] : S{};
        workgroup_barrier(); // the first rows, and the triangle, are in shared memory
        S x[each];
#pragma unroll
        for (u32 c = 0; c < each; ++c)
            x[c] = strip[lane][first + c];
#pragma unroll 8
        for (u32 j = 0; j < max_pivots; ++j) {
            const S element = below[j][lane];
#pragma unroll
            for (u32 c = 0; c < each; ++c)
                x[c] = minus_product(x[c], element, from_lane(x[c], j));
        }
#pragma unroll
        for (u32 c = 0; c < each; ++c)
            strip[lane][first + c] = x[c];
        workgroup_barrier(); // the rows of U are in shared memory
#pragma unroll
        for (u32 i = 0; i < per_thread / 2; ++i)
            if (i * lines + line < count)
                moved[i] = strip[i * lines + line][in_strip];
    }
};

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads) cupygemm_swap_rows(const cupygemm::SwapArgs args) {
    using namespace cupygemm;
    __shared__ u32 pivots[max_pivots];
    __shared__ u32 destinations[max_moves], sources[max_moves];
    const u32 thread = local_thread(), matrix = group_index_y();
    const u32 first = args.first, count = args.count;
    S *const a = reinterpret_cast<S *>(args.a) + matrix * args.stride;
    const i32 *given = reinterpret_cast<const i32 *>(args.pivots) + matrix * args.pivot_stride;
    if constexpr (!Config::planned) {
        for (u32 i = thread; i < count; i += threads)
            pivots[i] = given[i];
        workgroup_barrier(); // the pivots are in shared memory
    }
    for (u32 at = thread; at < max_moves; at += threads) {
        Move move;
        if constexpr (Config::planned)
            move = reinterpret_cast<const Move *>(args.moves)[matrix * max_moves + at];
        else
            move = traced_move<max_pivots>(pivots, at, first, 0, count, args.inverse != 0);
        const bool stays = move.source == move.destination && !(Config::solve && at < max_pivots);
        destinations[at] = stays ? none : move.destination;
        sources[at] = move.source;
    }
    const u32 in_strip = thread % across, line = thread / across;
    const i32 column0 = args.column + static_cast<i32>(group_index_x() * across);
    i32 column = column0 + static_cast<i32>(in_strip);
    const bool inside = column < args.column + args.columns, behind = column >= args.gap;
    column += behind ? args.gap_columns : 0;
    const bool solves = Config::solve && column0 + static_cast<i32>(across) > args.gap;
    __shared__ char storage[Config::solve ? sizeof(Triangle) : 16] __attribute__((aligned(16)));
    [[maybe_unused]] Triangle &triangle = *reinterpret_cast<Triangle *>(storage);
    if constexpr (Config::solve)
        if (solves)
            triangle.load(a + first * args.lda + first, args.lda, count, thread);
    workgroup_barrier(); // the moves are in shared memory

    S moved[per_thread];
#pragma unroll
    for (u32 i = 0; i < per_thread; ++i) {
        const u32 move = i * lines + line;
        moved[i] = S{};
        if (inside && destinations[move] != none)
            moved[i] = a[sources[move] * args.lda + column];
    }
    if constexpr (Config::solve) {
        S solved[per_thread];
#pragma unroll
        for (u32 i = 0; i < per_thread; ++i)
            solved[i] = moved[i];
        if (solves)
            triangle.solve(solved, count, thread);
#pragma unroll
        for (u32 i = 0; i < per_thread; ++i)
            moved[i] = behind ? solved[i] : moved[i];
    }
    workgroup_barrier(); // every displaced row of the strip has been loaded
#pragma unroll
    for (u32 i = 0; i < per_thread; ++i) {
        const u32 move = i * lines + line;
        if (inside && destinations[move] != none)
            a[destinations[move] * args.lda + column] = moved[i];
    }
}
