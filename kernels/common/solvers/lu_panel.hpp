// Factors a panel, P A = L U, with partial pivoting, in one launch.
//
// A thread holds `rows` whole rows in registers. No row moves: a thread knows the position of each
// of its rows, and a swap changes two positions. A step of one column:
//
//   every thread    largest element of its rows at position >= step
//   32 threads      shuffles -> the largest of their rows       -> shared memory
//   workgroup       barrier -> the largest of the workgroup; its row is published to the team
//   team            exchange -> the pivot's row, in shared memory of every workgroup
//   every thread    multiplier and update of its rows
//
// The update moves the columns of a row down by one register, so that the current column is always
// in the first and the loop over columns is not unrolled; multipliers enter at the last. After n
// steps, register k holds column (k + n) mod width. The first of several largest elements is the
// pivot, as in LAPACK.
#include "common/solvers/rows.hpp"
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
    i32 m, n;    // rows and columns of the panel
    i32 first;   // the panel's first row and column, within the matrix
    i32 batches; // matrices
    i32 teams;   // in the launch
    i32 unused;
};
static_assert(sizeof(LuPanelArgs) == 88,
              "LuPanelArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
using R = Real<S>;
using W = Word<S>;
constexpr u32 width = Config::width, rows = Config::rows, threads = Config::threads;
constexpr u32 num_groups = threads / 32;
constexpr u32 header = 16 / sizeof(W); // words: the candidate's magnitude, its position, padding
constexpr u32 record_words = header + width * Parts<S>::words;

// A pivot: the bits of its magnitude, which are ordered as the numbers are, with NaN above all, and
// its row. Among equal ones, the first row wins.
struct Candidate {
    W magnitude;
    u32 position; // ~0: none

    CUPYGEMM_INLINE void meet(W other, u32 at) {
        if (other > magnitude || (other == magnitude && at < position)) {
            magnitude = other;
            position = at;
        }
    }
};

CUPYGEMM_INLINE W rank_of(S x) { return bits_of(magnitude(x)) & (~static_cast<W>(0) >> 1); }

// The best of the candidates of 32 threads.
CUPYGEMM_INLINE Candidate best_of_32(Candidate mine) {
    Candidate best{maximum_of_32(mine.magnitude), ~0u};
    best.position = minimum_of_32(mine.magnitude == best.magnitude ? mine.position : ~0u);
    return best;
}

struct Shared {
    RowStage<S, width> stages[num_groups];
    Team<W, Config::team, record_words> team;
    W record[record_words];
    W magnitudes[num_groups];
    u32 positions[num_groups];
};

CUPYGEMM_INLINE void factor(const LuPanelArgs &args, Shared &shared, u32 rank, u32 team, i32 matrix,
                            u32 &step) {
    const u32 thread = local_thread(), lane = thread % 32, group = thread / 32;
    S *const a = reinterpret_cast<S *>(args.a) + matrix * args.stride;
    const u32 m = args.m, n = args.n, steps = m < n ? m : n;
    u32 *const flags = team_flags<Config::team>(args.workspace, team);
    const u64 records =
        args.records + static_cast<u64>(team) * (2 * Config::team * record_words * sizeof(W));

    S row[rows][width]; // (row, column), rotated by the step
    u32 position[rows];
#pragma unroll
    for (u32 r = 0; r < rows; ++r) {
        const u32 first = (r * Config::team + rank) * threads + group * 32;
        position[r] = first + lane;
        load_rows(shared.stages[group], a, args.lda, m, n, first, lane, row[r]);
    }

    i32 failed = 0;
#pragma unroll 1
    for (u32 j = 0; j < steps; ++j, ++step) {
        Candidate best{0, ~0u};
#pragma unroll
        for (u32 r = 0; r < rows; ++r)
            if (position[r] >= j && position[r] < m)
                best.meet(rank_of(row[r][0]), position[r]);
        best = best_of_32(best);
        if (lane == 0) {
            shared.magnitudes[group] = best.magnitude;
            shared.positions[group] = best.position;
        }
        workgroup_barrier(); // the candidates of all groups of 32 are in shared memory
        const u32 of_group = best.position;
        if constexpr (num_groups > 1)
            best = best_of_32(
                {shared.magnitudes[lane % num_groups], shared.positions[lane % num_groups]});
        // Without a candidate, the last group publishes that.
        if (best.position == of_group && (best.position != ~0u || group == num_groups - 1)) {
            if (lane == 0) {
                shared.record[0] = best.magnitude;
                shared.record[1] = best.position;
            }
#pragma unroll
            for (u32 r = 0; r < rows; ++r)
                if (position[r] == best.position) {
#pragma unroll
                    for (u32 k = 0; k < width; ++k)
                        to_words(k < width - j ? row[r][k] : S{}, // the rest are multipliers
                                 &shared.record[header + k * Parts<S>::words]);
                }
            wave_barrier(); // the record is complete
            shared.team.publish(records, rank, step, lane, shared.record);
        }
        shared.team.template exchange<threads>(flags, records, rank, step, thread);

        Candidate pivot{0, ~0u};
        u32 winner = 0;
#pragma unroll
        for (u32 other = 0; other < Config::team; ++other) {
            const W *record = shared.team.record(step, other);
            pivot.meet(record[0], static_cast<u32>(record[1]));
            if (pivot.position == static_cast<u32>(record[1]))
                winner = other;
        }
        const W *pivot_row = shared.team.record(step, winner) + header;
        const S diagonal = from_words<S>(pivot_row);
        const bool zero = pivot.magnitude == 0;
        // The reciprocal of a smaller number may overflow.
        const bool by_reciprocal =
            real_of_bits(pivot.magnitude) >= static_cast<R>(Config::smallest_invertible);
        const S reciprocal = divided(of_real<S>(1), zero ? of_real<S>(1) : diagonal);
        if (zero && failed == 0)
            failed = static_cast<i32>(j) + 1;
        if (rank == 0 && thread == 0)
            reinterpret_cast<i32 *>(args.pivots)[matrix * args.pivot_stride + j] =
                static_cast<i32>(pivot.position) + args.first;
        S entering[rows], factor[rows];
        if (by_reciprocal) {
#pragma unroll
            for (u32 r = 0; r < rows; ++r)
                entering[r] = times(row[r][0], reciprocal);
        } else {
#pragma unroll
            for (u32 r = 0; r < rows; ++r)
                entering[r] = divided(row[r][0], zero ? of_real<S>(1) : diagonal);
        }
#pragma unroll
        for (u32 r = 0; r < rows; ++r) {
            const u32 was = position[r];
            position[r] = was == pivot.position ? j : was == j ? pivot.position : was;
            const bool active = position[r] > j && !zero;
            factor[r] = active ? entering[r] : S{};
            entering[r] = active ? entering[r] : row[r][0];
        }
#pragma unroll
        for (u32 k = 1; k < width; ++k) { // an element of the pivot's row serves all rows
            const S element = from_words<S>(&pivot_row[k * Parts<S>::words]);
#pragma unroll
            for (u32 r = 0; r < rows; ++r)
                row[r][k - 1] = minus_product(row[r][k], factor[r], element);
        }
#pragma unroll
        for (u32 r = 0; r < rows; ++r)
            row[r][width - 1] = entering[r];
    }

// All rows were read before the first exchange.
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
    for (u32 i = local_thread(); i < record_words; i += threads)
        shared.record[i] = 0; // published as it is if this workgroup has no candidate
    shared.team.begin();
#pragma unroll 1
    for (i32 matrix = static_cast<i32>(team); matrix < args.batches; matrix += args.teams) {
        factor(args, shared, rank, team, matrix, step);
        workgroup_barrier(); // shared memory has been read
    }
}
