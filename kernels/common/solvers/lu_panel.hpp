// Factors a panel, P A = L U, with partial pivoting, in one launch. On request, the panel before is
// applied to its columns first (block_before.hpp).
//
// A thread holds `rows` whole rows in registers. No row moves: a thread knows the position of each
// of its rows, and a swap changes two positions. How the threads find a pivot for each column, and
// tell each other of its row, is in lu_steps.hpp, and in lu_late_steps.hpp for clusters.
//
// The update moves the columns of a row down by one register, so that the current column is always
// in the first and the loop over columns is not unrolled; multipliers enter at the last. After n
// steps, register k holds column (k + n) mod width. The first of several largest elements is the
// pivot, as in LAPACK.
#include "common/solvers/lu_late_steps.hpp"
#include "common/solvers/lu_steps.hpp"

namespace cupygemm {

struct LuPanelArgs {
    u64 a;           // element (0, 0) of the panel of the first matrix
    i64 lda, stride; // elements between rows, and between matrices
    u64 pivots;      // i32, of the panel's first column
    i64 pivot_stride;
    u64 info;      // i32 for each matrix: 1 + the first column without a pivot, or 0
    u64 workspace; // flags and records of teams
    u64 records;
    u64 moves;        // 64 for each matrix: the rows that the swaps displace (moves.hpp)
    u64 moves_before; // those of the panel before
    u64 scratch;      // of each team, as many elements as threads hold
    i32 m, n;         // rows and columns of the panel
    i32 first;        // the panel's first row and column, within the matrix
    i32 batches;      // matrices
    i32 teams;        // in the launch
    i32 before;       // columns of the panel before that is applied, or 0
};
static_assert(sizeof(LuPanelArgs) == 112,
              "LuPanelArgs must match the dtype that the launcher packs");

CUPYGEMM_INLINE void factor(const LuPanelArgs &args, Shared &shared, u32 rank, u32 team, i32 matrix,
                            u32 &step, u32 &row_number) {
    const u32 thread = local_thread(), lane = thread % 32, group = thread / 32;
    S *const a = reinterpret_cast<S *>(args.a) + matrix * args.stride;
    const u32 m = args.m, n = args.n, steps = m < n ? m : n;
    const u32 first_row = args.first;
    const Before::View view{a - first_row * args.lda,      args.lda,      first_row,
                            static_cast<u32>(args.before), first_row + m, n};
    constexpr u32 pitch = rows * Config::team * threads;
    S *const scratch = reinterpret_cast<S *>(args.scratch) + team * (pitch * width);
    if (args.before > 0) {
        const Move *const moves = reinterpret_cast<const Move *>(args.moves_before);
        shared.before.solve(view, moves + matrix * (2 * most_pivots), most_pivots, thread);
        workgroup_barrier(); // U is in shared memory
#pragma unroll 1
        for (u32 r = 0; r < rows; ++r) {
            const u32 first = (r * Config::team + rank) * threads + group * 32;
            shared.before.apply(shared.stages[group], view, first, lane, {scratch + first, pitch});
        }
        wave_barrier(); // the rows of the 32 threads are in scratch memory
    }
    Held held;
#pragma unroll
    for (u32 r = 0; r < rows; ++r) {
        const u32 first = (r * Config::team + rank) * threads + group * 32;
        held.position[r] = first + lane;
        if (args.before > 0) {
#pragma unroll
            for (u32 k = 0; k < width; ++k)
                held.row[r][k] = scratch[k * pitch + first + lane];
        } else
            load_rows(shared.stages[group], a, args.lda, m, n, first, lane, held.row[r]);
    }
    Pivots pivots;
    if constexpr (is_late)
        factor_late_steps(shared.team, shared, held, pivots, m, steps, rank, thread, step,
                          row_number);
    else
        factor_steps(shared.team, shared, held, pivots, m, steps, rank, thread, step,
                     team_flags<Config::team>(args.workspace, team),
                     args.records + static_cast<u64>(team) * Exchange::records_bytes);

    if (rank == 0 && thread < steps) // the first 32 threads
        reinterpret_cast<i32 *>(args.pivots)[matrix * args.pivot_stride + lane] =
            static_cast<i32>(pivots.of_lane) + args.first;
    Move *const moves = reinterpret_cast<Move *>(args.moves) + matrix * (2 * most_pivots);
    if (rank == 0 && thread < most_pivots && thread >= steps)
        moves[thread] = moves[most_pivots + thread] = {none, none};
#pragma unroll
    for (u32 r = 0; r < rows; ++r) {
        const u32 from = (r * Config::team + rank) * threads + thread, to = held.position[r];
        if (to < steps)
            moves[to] = {first_row + to, first_row + from};
        if (from < steps)
            moves[most_pivots + from] =
                to < steps ? Move{none, none} : Move{first_row + to, first_row + from};
    }
    // All rows were read before the first exchange.
    if (rank == 0 && args.before > 0)
        shared.before.store(view, thread);
#pragma unroll
    for (u32 r = 0; r < rows; ++r)
        store_rows(shared.stages[group], held.row[r], held.position[r], steps, lane,
                   [&](u32 at, u32 column, S element) {
                       if (at < m && column < n)
                           a[at * args.lda + column] = element;
                   });
    i32 *const info = reinterpret_cast<i32 *>(args.info) + matrix;
    if (rank == 0 && thread == 0 && pivots.failed != 0 && *info == 0)
        *info = args.first + pivots.failed;
}

} // namespace cupygemm

CUPYGEMM_TEAM_KERNEL(cupygemm::Config::threads)
cupygemm_lu_panel(const cupygemm::LuPanelArgs args) {
    using namespace cupygemm;
    __shared__ Shared shared;
    const u32 rank = group_index_x(), team = group_index_y();
    u32 step = 0, row_number = 0; // of all matrices of this team
    for (u32 i = local_thread(); i < head_words + row_words; i += threads)
        shared.record[i] = 0; // published as it is if this workgroup has no candidate
    for (u32 i = local_thread(); i < row_words; i += threads)
        shared.zeros[i] = 0;
    shared.team.begin();
    workgroup_barrier(); // the zeros are in shared memory
#pragma unroll 1
    for (i32 matrix = static_cast<i32>(team); matrix < args.batches; matrix += args.teams) {
        factor(args, shared, rank, team, matrix, step, row_number);
        workgroup_barrier(); // shared memory has been read
    }
}
