// Factors a panel, A = Q R, by Householder reflections, and computes the T of Q = I - V T V^H, in
// one launch.
//
// A thread holds `rows` whole rows in registers. One sum over the rows gives everything that a
// column needs. With x the current column below the diagonal, s_k = sum conj(x_i) a_ik over these
// rows is the square of the norm for column x itself, gives the update of a later column k, and is
// an element of V^H V for an earlier column k. A step of one column:
//
//   every thread    its part of the sums
//   32 threads      shuffles -> a sum per register              -> shared memory
//   workgroup       barrier -> sums over groups of 32; they and the diagonal's row are published
//   team            exchange -> the sums of all workgroups, added in their order
//   every thread    reflection of its rows
//
// If `by_products`, a whole block is factored by products of its columns first (qr_products.hpp),
// and column by column only where that is not accurate.
//
// As in lu_panel.hpp, registers are rotated by one column per step. The order of summation is
// fixed, so the result is bitwise reproducible.
//
// The reflections are LAPACK's: H_j = I - tau v v^H with v_j = 1 and a real diagonal of R. V is
// also stored separately, with its zeros and ones, for the products that follow.
#include "common/solvers/flag.hpp"
#include "common/solvers/qr_products.hpp"
#include "common/solvers/rows.hpp"
#include "config.hpp"

namespace cupygemm {

struct QrPanelArgs {
    u64 a;           // element (0, 0) of the panel of the first matrix
    i64 lda, stride; // elements between rows, and between matrices
    u64 v;           // (m, n) of each matrix: V
    i64 ldv, v_stride;
    u64 tau;
    i64 tau_stride;
    u64 t; // (n, n) of each matrix, upper triangular
    i64 ldt, t_stride;
    u64 workspace; // flags and records of teams
    u64 records;
    u64 done;    // 0, or the address of a flag: if it is set, the panel has been factored
    i32 m, n;    // rows and columns of the panel
    i32 batches; // matrices
    i32 teams;   // in the launch
};
static_assert(sizeof(QrPanelArgs) == 128,
              "QrPanelArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
using R = Real<S>;
using W = Word<S>;
constexpr u32 words = Parts<S>::words;
constexpr u32 width = Config::width, rows = Config::rows, threads = Config::threads;
constexpr u32 num_groups = threads / 32;
constexpr u32 record_words = 2 * width * words; // sums, and the diagonal's row

// Sum each of `count` values over 32 lanes. Lane l returns the sum of value l / (32 / count): each
// shuffle halves the number of a lane's values.
template <u32 count> CUPYGEMM_INLINE S lane_sums(S (&values)[count], u32 lane, u32 mask = 16) {
    if constexpr (count == 1) {
        S sum = values[0];
        for (; mask > 0; mask /= 2)
            sum = plus(sum, exchanged(sum, mask));
        return sum;
    } else {
        S half[count / 2];
        const bool upper = (lane & mask) != 0;
#pragma unroll
        for (u32 i = 0; i < count / 2; ++i) {
            const S kept = upper ? values[count / 2 + i] : values[i];
            const S given = upper ? values[i] : values[count / 2 + i];
            half[i] = plus(kept, exchanged(given, mask));
        }
        return lane_sums(half, lane, mask / 2);
    }
}

struct Reflection {
    R beta;       // the diagonal of R
    S tau, scale; // scale: 1 / (alpha - beta)
};

// The reflection that maps a column with first element `alpha` to beta; `below` is the square of
// the norm of the elements below `alpha`.
CUPYGEMM_INLINE Reflection reflection(S alpha, R below) {
    const R re = real_part(alpha), im = imaginary_part(alpha);
    if (below == 0 && im == 0)
        return {re, S{}, S{}};
    const R norm = square_root(re * re + (im * im + below));
    const R beta = re >= 0 ? -norm : norm;
    const S shifted = plus(alpha, of_real<S>(-beta));
    return {beta, divided(negated(shifted), beta), divided(of_real<S>(1), shifted)};
}

struct Shared {
    RowStage<S, width, 32> stages[num_groups]; // half of the usual, to leave space for records
    Team<W, Config::team, record_words> team;
    W record[record_words];
    W sums[num_groups][width * words]; // of a group of 32
    W totals[width * words];
    S products[width][width]; // V^H V, above the diagonal
    S t[width][width];
    S tau[width];
};

template <bool by_products, u32 size> struct StorageOf {
    Shared shared;
};
template <u32 size> struct StorageOf<true, size> {
    using Memory = TeamMemory<size>;
    union {
        Shared shared;
        QrProducts<S, width, threads, size, Config, Memory> products;
    };
};
using Storage = StorageOf<Config::by_products, Config::team>;

// T of the block reflector. Column j is -tau_j T (V^H v_j); thread i computes row i.
CUPYGEMM_INLINE void block_reflector(Shared &shared, u32 thread, u32 steps) {
#pragma unroll 1
    for (u32 j = 0; j < steps; ++j) {
        if (thread <= j) {
            S sum{};
            for (u32 k = thread; k < j; ++k)
                sum = plus_product(sum, shared.t[thread][k], shared.products[k][j]);
            shared.t[thread][j] = thread == j ? shared.tau[j] : negated(times(shared.tau[j], sum));
        }
        workgroup_barrier(); // column j is complete
    }
}

// The rows of a block in registers: (row, column).
using Rows = S[rows][width];

CUPYGEMM_INLINE void load(const QrPanelArgs &args, Shared &shared, const S *a,
                          const u32 (&position)[rows], Rows &row) {
    const u32 lane = local_thread() % 32, group = local_thread() / 32;
#pragma unroll
    for (u32 r = 0; r < rows; ++r)
        load_rows(shared.stages[group], a, args.lda, args.m, args.n, position[r] - lane, lane,
                  row[r]);
}

// Store the rows of R and V, whose first register holds column `rotation`.
CUPYGEMM_INLINE void store(const QrPanelArgs &args, Shared &shared, i32 matrix,
                           const u32 (&position)[rows], const Rows &row, u32 rotation) {
    const u32 lane = local_thread() % 32, group = local_thread() / 32, m = args.m, n = args.n;
    S *const a = reinterpret_cast<S *>(args.a) + matrix * args.stride;
    S *const v = reinterpret_cast<S *>(args.v) + matrix * args.v_stride;
#pragma unroll
    for (u32 r = 0; r < rows; ++r)
        store_rows(shared.stages[group], row[r], position[r], rotation, lane,
                   [&](u32 at, u32 column, S element) {
                       if (at >= m || column >= n)
                           return;
                       a[at * args.lda + column] = element;
                       if (column < minimum(m, n))
                           v[at * args.ldv + column] =
                               at > column ? element : of_real<S>(at == column ? 1 : 0);
                   });
}

// Factor by products of the columns, if that is accurate.
template <class Storage>
CUPYGEMM_INLINE bool factor_by_products(const QrPanelArgs &args, Storage &storage, u32 rank,
                                        i32 matrix, const u32 (&position)[rows], Rows &row) {
    S *const t = reinterpret_cast<S *>(args.t) + matrix * args.t_stride;
    S *const tau = reinterpret_cast<S *>(args.tau) + matrix * args.tau_stride;
    const auto store_t = [&](u32 i, u32 j, S element) {
        t[i * args.ldt + j] = element;
        if (i == j)
            tau[i] = element;
    };
    const S *const a = reinterpret_cast<const S *>(args.a) + matrix * args.stride;
    const bool found = storage.products.factor(
        row, rank, [&](u32 r) { return position[r]; },
        [&](u32 i, u32 j) { return a[i * args.lda + j]; }, store_t);
    workgroup_barrier(); // this workgroup's shared memory has been read
    if (found)
        return true;
    Storage::Memory::barrier(); // and that of all other workgroups
    return false;
}

// Factor column by column. The rows are rotated by one column per step.
CUPYGEMM_INLINE void reflect(const QrPanelArgs &args, Shared &shared, u32 rank, u32 team,
                             const u32 (&position)[rows], Rows &row, u32 &step) {
    const u32 thread = local_thread(), lane = thread % 32, group = thread / 32;
    const u32 steps = minimum(args.m, args.n);
    u32 *const flags = team_flags<Config::team>(args.workspace, team);
    const u64 records =
        args.records + static_cast<u64>(team) * (2 * Config::team * record_words * sizeof(W));
#pragma unroll 1
    for (u32 j = 0; j < steps; ++j, ++step) {
        S sums[width];
#pragma unroll
        for (u32 k = 0; k < width; ++k)
            sums[k] = S{};
#pragma unroll
        for (u32 r = 0; r < rows; ++r) {
            const S x = position[r] > j ? conjugated(row[r][0]) : S{};
#pragma unroll
            for (u32 k = 0; k < width; ++k)
                sums[k] = plus_product(sums[k], x, row[r][k]);
            if (position[r] == j) {
#pragma unroll
                for (u32 k = 0; k < width; ++k)
                    to_words(row[r][k], &shared.record[(width + k) * words]);
            }
        }
        const S sum = lane_sums(sums, lane);
        constexpr u32 lanes_per_sum = 32 / width;
        if (lane % lanes_per_sum == 0)
            to_words(sum, &shared.sums[group][lane / lanes_per_sum * words]);
        workgroup_barrier(); // the sums of all groups of 32, and the diagonal's row, are stored
        if (group == 0) {
            if (lane < width) {
                S total = from_words<S>(&shared.sums[0][lane * words]);
#pragma unroll
                for (u32 g = 1; g < num_groups; ++g)
                    total = plus(total, from_words<S>(&shared.sums[g][lane * words]));
                to_words(total, &shared.record[lane * words]);
            }
            wave_barrier(); // the record is complete
            shared.team.publish(records, rank, step, lane, shared.record);
        }
        shared.team.template exchange<threads>(flags, records, rank, step, thread);
        const W *totals = shared.team.record(step, 0);
        if constexpr (Config::team > 1) {
            if (thread < width) {
                S total = from_words<S>(&totals[thread * words]);
#pragma unroll
                for (u32 other = 1; other < Config::team; ++other)
                    total = plus(total,
                                 from_words<S>(&shared.team.record(step, other)[thread * words]));
                to_words(total, &shared.totals[thread * words]);
            }
            workgroup_barrier(); // the sums of the team are in shared memory
            totals = shared.totals;
        }

        const W *diagonal = shared.team.record(step, j / threads % Config::team) + width * words;
        const S alpha = from_words<S>(diagonal);
        const Reflection h = reflection(alpha, real_part(from_words<S>(totals)));
        const S conjugated_scale = conjugated(h.scale);
        if (thread > 0 && thread < width) { // v^H a_k, of an earlier column k
            const u32 column = thread + j - width;
            if (thread >= width - j)
                shared.products[column][j] = conjugated(
                    plus_product(from_words<S>(&diagonal[thread * words]), conjugated_scale,
                                 from_words<S>(&totals[thread * words])));
        }
        if (thread == 0)
            shared.tau[j] = h.tau;
        S v[rows], entering[rows]; // this column of V, and the value that enters the last register
#pragma unroll
        for (u32 r = 0; r < rows; ++r) {
            const bool below = position[r] > j, at = position[r] == j;
            v[r] = below ? times(row[r][0], h.scale) : of_real<S>(at ? 1 : 0);
            entering[r] = below ? v[r] : at ? of_real<S>(h.beta) : row[r][0];
        }
        const S minus_tau = negated(conjugated(h.tau));
#pragma unroll
        for (u32 k = 1; k < width; ++k) {
            S factor{}; // of v, in the update of this column
            if (k < width - j)
                factor = times(minus_tau,
                               plus_product(from_words<S>(&diagonal[k * words]), conjugated_scale,
                                            from_words<S>(&totals[k * words])));
#pragma unroll
            for (u32 r = 0; r < rows; ++r)
                row[r][k - 1] = plus_product(row[r][k], v[r], factor);
        }
#pragma unroll
        for (u32 r = 0; r < rows; ++r)
            row[r][width - 1] = entering[r];
    }
    workgroup_barrier(); // the products of V's columns are in shared memory
    block_reflector(shared, thread, steps);
}

CUPYGEMM_INLINE void clear_record(Shared &shared) {
    workgroup_barrier(); // the previous contents of shared memory have been read
    for (u32 i = local_thread(); i < record_words; i += threads)
        shared.record[i] = 0; // the diagonal's row, where this workgroup does not hold it
    workgroup_barrier();      // the record is zero
}

template <class Storage> CUPYGEMM_INLINE void factor(const QrPanelArgs &args, Storage &storage,
                                                     u32 rank, u32 team, i32 matrix, u32 &step) {
    const u32 thread = local_thread(), steps = minimum(args.m, args.n);
    const S *const a = reinterpret_cast<const S *>(args.a) + matrix * args.stride;
    Shared &shared = storage.shared;
    Rows row;
    u32 position[rows];
#pragma unroll
    for (u32 r = 0; r < rows; ++r)
        position[r] = (r * Config::team + rank) * threads + thread;
    load(args, shared, a, position, row);
    bool found = false;
    if constexpr (Config::by_products) {
        if (static_cast<u32>(args.n) == width && args.m >= args.n) {
            found = factor_by_products(args, storage, rank, matrix, position, row);
            if (!found)
                load(args, shared, a, position, row); // the registers have changed
        }
    }
    if (!found) {
        if constexpr (Config::by_products)
            clear_record(shared);
        reflect(args, shared, rank, team, position, row, step);
    }
    store(args, shared, matrix, position, row, steps);
    if (found || rank != 0)
        return;
    if (thread < steps)
        reinterpret_cast<S *>(args.tau)[matrix * args.tau_stride + thread] = shared.tau[thread];
    S *const t = reinterpret_cast<S *>(args.t) + matrix * args.t_stride;
    for (u32 at = thread; at < steps * steps; at += threads)
        t[at / steps * args.ldt + at % steps] =
            at / steps <= at % steps ? shared.t[at / steps][at % steps] : S{};
}

} // namespace cupygemm

CUPYGEMM_TEAM_KERNEL(cupygemm::Config::threads)
cupygemm_qr_panel(const cupygemm::QrPanelArgs args) {
    using namespace cupygemm;
    __shared__ Storage storage;
    if (is_set(args.done))
        return;
    const u32 rank = group_index_x(), team = group_index_y();
    u32 step = 0; // of all matrices of this team
    clear_record(storage.shared);
    storage.shared.team.begin();
#pragma unroll 1
    for (i32 matrix = static_cast<i32>(team); matrix < args.batches; matrix += args.teams) {
        factor(args, storage, rank, team, matrix, step);
        workgroup_barrier(); // shared memory has been read
    }
}
