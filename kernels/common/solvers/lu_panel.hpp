// Factors a panel, P A = L U, with partial pivoting, in one launch. On request, the panel before is
// applied to its columns first (block_before.hpp).
//
// A thread holds `rows` whole rows in registers. No row moves: a thread knows the position of each
// of its rows, and a swap changes two positions. A step of one column:
//
//   every thread    largest element of its rows at position >= step
//   32 threads      the largest of their rows
//   workgroup       the largest of the workgroup, if the team works by workgroups (team.hpp)
//   every thread    the update of the step before, in the next column
//   team            the head of the largest element's row is published: it and the next element
//   every thread    the update of the step before, in the other columns
//   team            wait for all heads -> the pivot, whose row is published
//   every thread    multiplier, and the update of this step in the next column
//
// So the rest of a pivot's row travels, and is used, while the next pivot is looked for.
//
// If rows are late, a head tells two more numbers: an element that lacks the update of the step
// before, and the multiplier of that step. The receivers update it as soon as they have the pivot's
// row of that step, so they know the first three elements of the next pivot's row from its head:
//
//   every thread    largest element of its rows
//   team            the head of the largest element's row is published
//   team            wait for the row of the pivot before -> its update in the other columns
//   team            wait for all heads -> the pivot and the start of its row, which is published
//   every thread    multiplier, and the update of this step in the next two columns
//
// The update moves the columns of a row down by one register, so that the current column is always
// in the first and the loop over columns is not unrolled; multipliers enter at the last. After n
// steps, register k holds column (k + n) mod width. The first of several largest elements is the
// pivot, as in LAPACK.
#include "common/solvers/block_before.hpp"
#include "config.hpp"

namespace cupygemm {

struct LuPanelArgs {
    u64 a;           // element (0, 0) of the panel of the first matrix
    i64 lda, stride; // elements between rows, and between matrices
    u64 pivots;      // i32, of the panel's first column
    i64 pivot_stride;
    u64 info;      // i32 for each matrix: 1 + the first column without a pivot, or 0
    u64 workspace; // flags and records of teams
    u64 records;
    u64 moves;        // 64 of each matrix, as of moves.hpp: the rows that the swaps displace
    u64 moves_before; // of the panel before
    u64 scratch;      // of each team, as many elements as threads hold
    i32 m, n;         // rows and columns of the panel
    i32 first;        // the panel's first row and column, within the matrix
    i32 batches;      // matrices
    i32 teams;        // in the launch
    i32 before;       // columns of the panel before that is applied, or 0
};
static_assert(sizeof(LuPanelArgs) == 112,
              "LuPanelArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
using R = Real<S>;
using W = Word<S>;
constexpr u32 width = Config::width, rows = Config::rows, threads = Config::threads;
constexpr u32 num_groups = threads / 32, most_pivots = 32;
static_assert(width <= most_pivots, "the moves of a block have as many places");
constexpr u32 words = Parts<S>::words;
constexpr u32 whole = 16 / sizeof(W); // words of 16 bytes, in which messages are sent
// Whether a head is sent without waiting for the row of the pivot before, which then is not on the
// critical path. Float32 is no faster so: its messages are short.
constexpr bool is_late =
    groups_send_heads<Config::team, num_groups> && width >= 4 && sizeof(W) == 8;
// A head is the bits of a magnitude, a position, and two elements, padded; if rows are late, also
// an element that lacks the update of the step before, and the multiplier of that step. A row is
// all elements.
constexpr u32 head_words = (is_late ? 8 : 4) * words;
constexpr u32 row_words = (width * words + whole - 1) / whole * whole;

// The bits of a magnitude, which are ordered as the numbers are, with NaN above all.
CUPYGEMM_INLINE W rank_of(S x) { return bits_of(magnitude(x)) & (~static_cast<W>(0) >> 1); }

// A pivot: the bits of its magnitude, and its row. Among equal ones, the first row wins.
struct Candidate {
    W magnitude;
    u32 position; // ~0: none

    CUPYGEMM_INLINE bool meet(W other, u32 at) {
        const bool wins = other > magnitude || (other == magnitude && at < position);
        magnitude = wins ? other : magnitude;
        position = wins ? at : position;
        return wins;
    }
};

using Before = BlockBefore<S, width, threads>;
using Exchange = PivotTeam<W, Config::team, num_groups, head_words, row_words>;

struct Shared {
    RowStage<S, width> stages[num_groups];
    Before before;
    Exchange team;
    alignas(16) W heads[num_groups][head_words]; // to be published
    alignas(16) W record[head_words + row_words];
    W zeros[row_words];
    W magnitudes[2][num_groups]; // by the parity of the step
    u32 positions[2][num_groups];
};

struct Pivot {
    W magnitude;
    u32 position, slot;
    S next, reciprocal, diagonal;
    S second; // the element behind the next one, if rows are late
};

// Find the pivot of a step among the heads of the team. Lanes divide while they compare.
CUPYGEMM_INLINE Pivot pivot_of(const Shared &shared, const W *row_before, u32 step, u32 lane) {
    constexpr u32 slots = Exchange::slots;
    Candidate mine{0, ~0u};
    u32 slot = 0;
#pragma unroll
    for (u32 first = 0; first < slots; first += 32)
        if (slots % 32 == 0 || first + lane < slots) {
            const W *head = shared.team.head(step, first + lane);
            if (mine.meet(head[0], static_cast<u32>(head[1])))
                slot = first + lane;
        }
    const S own = from_words<S>(shared.team.head(step, slot) + 2);
    const S reciprocal = inverse(mine.magnitude == 0 ? of_real<S>(1) : own);
    const u32 winner = slots == 1 ? 0 : largest_of_32(mine.magnitude, mine.position);
    slot = slots == 1 ? 0 : from_lane(slot, winner);
    const W *head = shared.team.head(step, slot);
    S second{};
    if constexpr (is_late)
        second =
            minus_product(from_words<S>(head + 2 + 2 * words), from_words<S>(head + 2 + 3 * words),
                          from_words<S>(row_before + 3 * words));
    return {head[0],
            static_cast<u32>(head[1]),
            slot,
            from_words<S>(head + 2 + words),
            from_lane(reciprocal, winner),
            from_words<S>(head + 2),
            second};
}

// Find the group of 32 threads with the largest candidate of the workgroup.
CUPYGEMM_INLINE u32 publisher_of(Shared &shared, Candidate best, u32 leader, u32 step, u32 lane,
                                 u32 group) {
    if (lane == leader) {
        shared.magnitudes[step % 2][group] = best.magnitude;
        shared.positions[step % 2][group] = best.position;
    }
    workgroup_barrier(); // the candidates of all groups of 32 are in shared memory
    const bool compares = lane < num_groups;
    return largest_of_32(compares ? shared.magnitudes[step % 2][lane % num_groups] : 0,
                         compares ? shared.positions[step % 2][lane % num_groups] : ~0u);
}

CUPYGEMM_INLINE void factor(const LuPanelArgs &args, Shared &shared, u32 rank, u32 team, i32 matrix,
                            u32 &step) {
    const u32 thread = local_thread(), lane = thread % 32, group = thread / 32;
    S *const a = reinterpret_cast<S *>(args.a) + matrix * args.stride;
    const u32 m = args.m, n = args.n, steps = m < n ? m : n;
    u32 *const flags = team_flags<Config::team>(args.workspace, team);
    const u64 records =
        args.records +
        static_cast<u64>(team) * (2 * Config::team * (head_words + row_words) * sizeof(W));
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
    S row[rows][width]; // (row, column), rotated by the step
    S factor[rows];     // of the step before
    u32 position[rows];
#pragma unroll
    for (u32 r = 0; r < rows; ++r) {
        const u32 first = (r * Config::team + rank) * threads + group * 32;
        position[r] = first + lane;
        factor[r] = S{};
        if (args.before > 0) {
#pragma unroll
            for (u32 k = 0; k < width; ++k)
                row[r][k] = scratch[k * pitch + position[r]];
        } else
            load_rows(shared.stages[group], a, args.lda, m, n, first, lane, row[r]);
    }
    const W *pivot_row = shared.zeros; // of the step before

    i32 failed = 0;
#pragma unroll 1
    for (u32 j = 0; j < steps; ++j, ++step) {
        Candidate best{0, ~0u};
#pragma unroll
        for (u32 r = 0; r < rows; ++r)
            if (position[r] >= j && position[r] < m)
                best.meet(rank_of(row[r][0]), position[r]);
        const u32 leader = largest_of_32(best.magnitude, best.position);
        bool publishes = true;
        if constexpr (!Exchange::by_groups)
            publishes = group == publisher_of(shared, best, leader, step, lane, group);
        const bool owns = publishes && lane == leader;
        if (!is_late && j > 0)
            shared.team.wait_row(step - 1, thread);
        S next[rows];
#pragma unroll
        for (u32 r = 0; r < rows; ++r)
            next[r] = is_late     ? row[r][1]
                      : width < 3 ? row[r][width - 1]
                                  : minus_product(row[r][1 % width], factor[r],
                                                  from_words<S>(&pivot_row[2 % width * words]));
        W *const record = shared.record, *const of_row = record + head_words;
        W *const head = Exchange::by_groups ? shared.heads[group] : record;
        const u32 slot = Exchange::by_groups ? rank * num_groups + group : rank;
        if (owns) { // without a candidate, the head says so
            head[0] = best.magnitude;
            head[1] = best.position;
#pragma unroll
            for (u32 r = 0; r < rows; ++r)
                if (position[r] == best.position) {
                    to_words(row[r][0], head + 2);
                    to_words(j + 1 < width ? next[r] : S{}, head + 2 + words);
                    if constexpr (is_late) {
                        to_words(j + 2 < width ? row[r][2] : S{}, head + 2 + 2 * words);
                        to_words(j + 2 < width ? factor[r] : S{}, head + 2 + 3 * words);
                    }
                }
        }
        if (publishes) {
            wave_barrier(); // the head is complete
            shared.team.publish_head(slot, step, lane, head);
        }
        if (is_late && j > 0)
            shared.team.wait_row(step - 1, thread);
#pragma unroll
        for (u32 k = 2; k < width; ++k) { // an element of the pivot's row serves all rows
            const S element =
                k + 1 < width ? from_words<S>(&pivot_row[(k + 1) % width * words]) : S{};
#pragma unroll
            for (u32 r = 0; r < rows; ++r) {
                row[r][k - 1] =
                    k + 1 < width ? minus_product(row[r][k], factor[r], element) : row[r][k];
                compute_now(row[r][k - 1]);
            }
        }
        const auto publish_row = [&] {
#pragma unroll
            for (u32 r = 0; r < rows; ++r)
                if (owns && position[r] == best.position) {
#pragma unroll
                    for (u32 k = is_late ? 3 : 2; k < width; ++k)
                        to_words(row[r][k - 1], of_row + k * words);
                }
            wave_barrier(); // the row is complete; its last elements are multipliers
            shared.team.publish_row(records, rank, step, lane, of_row, (width - j) * words);
        };
        if (!Exchange::by_groups && publishes)
            publish_row();
        shared.team.template wait_head<threads>(flags, records, rank, step, thread);

        const Pivot pivot = pivot_of(shared, pivot_row, step, lane);
        pivot_row = shared.team.row(step, pivot.slot);
        if (Exchange::by_groups && pivot.slot == slot)
            publish_row();
        const bool zero = pivot.magnitude == 0;
        // The inverse of a smaller number may overflow, and that of a larger one vanish.
        constexpr R least = Config::smallest_invertible;
        const R size = real_of_bits(pivot.magnitude);
        const bool by_reciprocal = size >= least && size <= 1 / (4 * least);
        if (zero && failed == 0)
            failed = static_cast<i32>(j) + 1;
        if (rank == 0 && thread == 0)
            reinterpret_cast<i32 *>(args.pivots)[matrix * args.pivot_stride + j] =
                static_cast<i32>(pivot.position) + args.first;
        S entering[rows];
        if (by_reciprocal) {
#pragma unroll
            for (u32 r = 0; r < rows; ++r)
                entering[r] = times(row[r][0], pivot.reciprocal);
        } else {
#pragma unroll
            for (u32 r = 0; r < rows; ++r)
                entering[r] = divided(row[r][0], zero ? of_real<S>(1) : pivot.diagonal);
        }
#pragma unroll
        for (u32 r = 0; r < rows; ++r) {
            const u32 was = position[r];
            position[r] = was == pivot.position ? j : was == j ? pivot.position : was;
            const bool active = position[r] > j && !zero;
            factor[r] = active ? entering[r] : S{};
            entering[r] = active ? entering[r] : row[r][0];
            row[r][0] = minus_product(next[r], factor[r], pivot.next);
            if constexpr (is_late)
                row[r][1] = minus_product(row[r][1], factor[r], pivot.second);
            row[r][width - 1] = entering[r];
        }
    }
    if (steps > 0)
        shared.team.wait_row(step - 1, thread);

    Move *const moves = reinterpret_cast<Move *>(args.moves) + matrix * (2 * most_pivots);
    if (rank == 0 && thread < most_pivots && thread >= steps)
        moves[thread] = moves[most_pivots + thread] = {none, none};
#pragma unroll
    for (u32 r = 0; r < rows; ++r) {
        const u32 from = (r * Config::team + rank) * threads + thread, to = position[r];
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
        store_rows(shared.stages[group], row[r], position[r], steps, lane,
                   [&](u32 at, u32 column, S element) {
                       if (at < m && column < n)
                           a[at * args.lda + column] = element;
                   });
    i32 *const info = reinterpret_cast<i32 *>(args.info) + matrix;
    if (rank == 0 && thread == 0 && failed != 0 && *info == 0)
        *info = args.first + failed;
}

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
CUPYGEMM_TEAM_ATTRIBUTE cupygemm_lu_panel(const cupygemm::LuPanelArgs args) {
    using namespace cupygemm;
    __shared__ Shared shared;
    const u32 rank = group_index_x(), team = group_index_y();
    u32 step = 0; // of all matrices of this team
    for (u32 i = local_thread(); i < head_words + row_words; i += threads)
        shared.record[i] = 0; // published as it is if this workgroup has no candidate
    for (u32 i = local_thread(); i < row_words; i += threads)
        shared.zeros[i] = 0;
    shared.team.begin();
    workgroup_barrier(); // the zeros are in shared memory
#pragma unroll 1
    for (i32 matrix = static_cast<i32>(team); matrix < args.batches; matrix += args.teams) {
        factor(args, shared, rank, team, matrix, step);
        workgroup_barrier(); // shared memory has been read
    }
}
