// Makes the rows of a matrix orthogonal by plane rotations, and applies the same rotations to the
// rows of another matrix: the one-sided Jacobi method for singular values.
//
// A round rotates n / 2 disjoint pairs of rows, one pair per 32 threads. A sweep has n - 1 rounds,
// the schedule of a round-robin tournament, which include every pair once. If a matrix has a single
// workgroup, this runs whole sweeps until one rotates nothing. Otherwise a launch is one round, and
// counts its rotations.
//
// Rows whose norm is below `negligible` are not rotated: they are rounding errors of larger rows.
// (G. H. Golub and C. F. Van Loan, "Matrix Computations", 4th edition, section 8.6.3)
#include "config.hpp"

namespace cupygemm {

struct JacobiArgs {
    u64 a, j;     // rows to make orthogonal, and rows that are rotated with them
    i64 lda, ldj; // elements between rows
    i64 a_stride, j_stride;
    u64 rotations;     // u32 for each matrix: counts rotations
    i32 n, columns;    // rows of both, and columns of a
    i32 round, sweeps; // the round of this launch, or -1 and the maximum number of sweeps
};
static_assert(sizeof(JacobiArgs) == 72, "JacobiArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
using R = Real<S>;
constexpr u32 threads = Config::threads, groups = threads / 32;

template <class T> CUPYGEMM_INLINE T lanes_sum(T x) {
#pragma unroll
    for (u32 mask = 16; mask > 0; mask /= 2)
        x = plus(x, exchanged(x, mask));
    return x;
}

CUPYGEMM_INLINE void rotate(S *p, S *q, u32 count, u32 lane, R cosine, S sine) {
    for (u32 i = lane; i < count; i += 32) {
        const S x = p[i], y = q[i];
        p[i] = minus_product(times(x, of_real<S>(cosine)), sine, y);
        q[i] = plus_product(times(y, of_real<S>(cosine)), conjugated(sine), x);
    }
}

// Rotate rows p and q. Returns whether they were not orthogonal.
CUPYGEMM_INLINE bool meet(const JacobiArgs &args, S *a, S *j, u32 p, u32 q, u32 lane) {
    S *const row_p = a + p * args.lda, *const row_q = a + q * args.lda;
    R norm_p = 0, norm_q = 0;
    S inner{}; // sum of p conj(q)
    for (u32 i = lane; i < static_cast<u32>(args.columns); i += 32) {
        const S x = row_p[i], y = row_q[i];
        norm_p += real_part(times(x, conjugated(x)));
        norm_q += real_part(times(y, conjugated(y)));
        inner = plus_product(inner, x, conjugated(y));
    }
    norm_p = lanes_sum(norm_p);
    norm_q = lanes_sum(norm_q);
    inner = lanes_sum(inner);
    const R least = norm_p < norm_q ? norm_p : norm_q;
    const R re = real_part(inner), im = imaginary_part(inner);
    const R size = square_root(re * re + im * im);
    constexpr R tolerance = Config::tolerance, negligible = Config::negligible;
    if (!(least > negligible) || !(size > tolerance * square_root(norm_p) * square_root(norm_q)))
        return false;
    // tan of the angle: the smaller root of t^2 + 2 zeta t - 1 = 0
    const R zeta = (norm_q - norm_p) / (2 * size);
    const bool steep = zeta * tolerance > 1 || zeta * tolerance < -1; // its square may overflow
    const R root = steep ? absolute(zeta) : square_root(1 + zeta * zeta);
    const R tangent = 1 / (zeta < 0 ? zeta - root : zeta + root);
    const R cosine = 1 / square_root(1 + tangent * tangent);
    const S phase = divided(inner, size);
    const S sine = times(phase, of_real<S>(cosine * tangent));
    rotate(row_p, row_q, args.columns, lane, cosine, sine);
    rotate(j + p * args.ldj, j + q * args.ldj, args.n, lane, cosine, sine);
    return true;
}

// The players of a pair: player 0 stays, and the others move by one place per round.
CUPYGEMM_INLINE u32 player(u32 seat, u32 round, u32 players) {
    return seat == 0 ? 0 : 1 + (seat - 1 + round) % (players - 1);
}

CUPYGEMM_INLINE u32 play(const JacobiArgs &args, S *a, S *j, u32 round, u32 first, u32 step,
                         u32 lane) {
    const u32 n = args.n, players = n + n % 2;
    u32 rotated = 0;
    for (u32 pair = first; pair < players / 2; pair += step) {
        const u32 x = player(pair, round, players), y = player(players - 1 - pair, round, players);
        const u32 p = x < y ? x : y, q = x < y ? y : x;
        if (q < n) // otherwise this row sits out
            rotated += meet(args, a, j, p, q, lane);
    }
    return rotated;
}

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads) cupygemm_jacobi(const cupygemm::JacobiArgs args) {
    using namespace cupygemm;
    __shared__ u32 rotated[groups];
    const u32 thread = local_thread(), lane = thread % 32, group = thread / 32;
    const u32 matrix = group_index_y();
    S *const a = reinterpret_cast<S *>(args.a) + matrix * args.a_stride;
    S *const j = reinterpret_cast<S *>(args.j) + matrix * args.j_stride;
    u32 *const rotations = reinterpret_cast<u32 *>(args.rotations);
    if (args.round >= 0) {
        // The counts of a launch are stored, not added: one word per group of 32.
        const u32 at = group_index_x() * groups + group;
        const u32 pairs = (static_cast<u32>(args.n) + 1) / 2;
        if (at < pairs && play(args, a, j, args.round, at, pairs, lane) > 0 && lane == 0)
            rotations[matrix * pairs + at] = 1;
        return;
    }
    const u32 rounds = args.n + args.n % 2 - 1;
    for (i32 sweep = 0; sweep < args.sweeps; ++sweep) {
        u32 count = 0;
        for (u32 round = 0; round < rounds; ++round) {
            count += play(args, a, j, round, group, groups, lane);
            device_fence();
            workgroup_barrier(); // the rows of this round are rotated, in memory
        }
        if (lane == 0)
            rotated[group] = count;
        workgroup_barrier(); // the counts of all groups are stored
        u32 total = 0;
        for (u32 g = 0; g < groups; ++g)
            total += rotated[g];
        workgroup_barrier(); // the counts have been read
        if (total == 0)
            return;
    }
}
