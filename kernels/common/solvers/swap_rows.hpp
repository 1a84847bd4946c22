// Applies up to `max_pivots` row swaps to a strip of columns in one pass.
//
// Swaps follow one another, but each row that they displace is moved only once: a thread traces a
// destination back through the swaps to the row that ends there. All rows of a strip are loaded to
// registers before the first is stored.
//
// With `solve`, the first rows are solved with the unit lower triangle of their block, too: they
// become rows of U. A thread solves for one column of the strip, in registers.
//
// The columns of the panel that the pivots belong to are part of the launch: a block of `leaf`
// columns was swapped by its own pivots and those before when it was factored, so only later ones
// apply to it.
#include "common/solvers/moves.hpp"
#include "config.hpp"

namespace cupygemm {

struct SwapArgs {
    u64 a;           // element (0, 0) of the first matrix
    i64 lda, stride; // elements between rows, and between matrices
    u64 pivots;      // i32, of row `first` on: the row that it is swapped with
    i64 pivot_stride;
    i32 first, count;     // the rows that are swapped, in this order
    i32 column, columns;  // the columns of the launch
    i32 panel, leaf;      // first column of the panel of `count` columns, and its blocks; or -1
    i32 strip;            // columns of a workgroup
    i32 inverse;          // the last swap comes first
    u64 moves;            // of swap_moves.hpp, if they are planned
    i32 gap, gap_columns; // columns from `gap` on that are no part of the launch
};
static_assert(sizeof(SwapArgs) == 88, "SwapArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
constexpr u32 threads = Config::threads, max_pivots = Config::max_pivots, across = Config::across;
constexpr u32 max_moves = 2 * max_pivots, lines = threads / across, per_thread = max_moves / lines;
// Solve for the first rows of a strip, which lie with the others in registers. The moves of these
// rows come first, in order. `l` is the triangle.
CUPYGEMM_INLINE void solve_first_rows(const S *l, i64 lda, S (&moved)[per_thread], u32 count,
                                      u32 thread) {
    __shared__ S triangle[max_pivots][max_pivots]; // (column, row)
    __shared__ S strip[max_pivots][across];
    for (u32 at = thread; at < max_pivots * max_pivots; at += threads) {
        const u32 row = at / max_pivots, column = at % max_pivots;
        triangle[column][row] = row < count && column < row ? l[row * lda + column] : S{};
    }
    const u32 in_strip = thread % across, line = thread / across;
#pragma unroll
    for (u32 i = 0; i < per_thread; ++i)
        if (i * lines + line < count)
            strip[i * lines + line][in_strip] = moved[i];
    workgroup_barrier(); // every row of the strip has been loaded; the first are in shared memory
    if (thread < across) {
        S x[max_pivots];
#pragma unroll
        for (u32 i = 0; i < max_pivots; ++i)
            x[i] = i < count ? strip[i][thread] : S{};
        solve_in_registers<true>(x, [](u32 i, u32 j) { return triangle[j][i]; });
#pragma unroll
        for (u32 i = 0; i < max_pivots; ++i)
            strip[i][thread] = x[i];
    }
    workgroup_barrier(); // the rows of U are in shared memory
#pragma unroll
    for (u32 i = 0; i < per_thread; ++i)
        if (i * lines + line < count)
            moved[i] = strip[i * lines + line][in_strip];
}

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads) cupygemm_swap_rows(const cupygemm::SwapArgs args) {
    using namespace cupygemm;
    __shared__ u32 pivots[max_pivots];
    __shared__ u32 destinations[max_moves], sources[max_moves];
    const u32 thread = local_thread(), matrix = group_index_y();
    const u32 first = args.first, count = args.count;
    const i32 column0 = args.column + static_cast<i32>(group_index_x()) * args.strip;
    u32 from = 0; // the first swap that applies to the strip
    if (args.panel >= 0 && column0 >= args.panel && column0 < args.panel + static_cast<i32>(count))
        from = ((column0 - args.panel) / args.leaf + 1) * args.leaf;
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
            move = traced_move<max_pivots>(pivots, at, first, from, count, args.inverse != 0);
        const bool stays = move.source == move.destination && !(Config::solve && at < max_pivots);
        destinations[at] = stays ? none : move.destination;
        sources[at] = move.source;
    }
    workgroup_barrier(); // the moves are in shared memory

    S *const a = reinterpret_cast<S *>(args.a) + matrix * args.stride;
    const u32 in_strip = thread % across, line = thread / across;
    i32 column = column0 + static_cast<i32>(in_strip);
    const bool inside =
        in_strip < static_cast<u32>(args.strip) && column < args.column + args.columns;
    column += column >= args.gap ? args.gap_columns : 0;
    S moved[per_thread];
#pragma unroll
    for (u32 i = 0; i < per_thread; ++i) {
        const u32 move = i * lines + line;
        if (inside && destinations[move] != none)
            moved[i] = a[sources[move] * args.lda + column];
    }
    if constexpr (Config::solve)
        solve_first_rows(a + first * args.lda + first, args.lda, moved, count, thread);
    else
        workgroup_barrier(); // every displaced row of the strip has been loaded
#pragma unroll
    for (u32 i = 0; i < per_thread; ++i) {
        const u32 move = i * lines + line;
        if (inside && destinations[move] != none)
            a[destinations[move] * args.lda + column] = moved[i];
    }
}
