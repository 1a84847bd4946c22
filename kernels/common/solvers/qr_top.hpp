// Computes the reflections of a tall matrix A = Q R from R and from the first rows A1 of A, in one
// launch of one workgroup.
//
// With S = diag(-sign of the pivots), V1 W = A1 - S R: an LU factorisation without row swaps, whose
// step k subtracts row k of S R from row k. No pivot is a difference of numbers of the same sign.
// Then V = A W^-1 are the reflections, and S R is the R that they give, as in LAPACK:
//
//   (I - V T V^T)^T A = S R
//
// R comes from A^T A, and V^T V gives T (reflector.hpp). So the reflections are orthogonal to
// working precision for any R, and errors of R are errors of A: a few units of rounding times the
// condition number of A with columns scaled to norm 1. Only the flag and W are stored if a bound of
// this is too large, or if a pivot shows that a column is nearly triangular already, so that its
// reflection is the identity in LAPACK.
//
// A group of 32 threads has 8 columns, and a lane has every 32nd row, all in registers:
//
//   group 0   factor 0 | bound of the condition ...
//   group 1   wait     | update, factor 1 | -
//   group 2   wait     | update           | update, factor 2 | ...
//                      ^ barrier          ^ barrier
//
// (G. Ballard, J. Demmel, L. Grigori, M. Jacquelin, H. D. Nguyen and E. Solomonik, "Reconstructing
// Householder vectors from tall-skinny QR", 2014)
#include "common/solvers/row_vectors.hpp"
#include "config.hpp"

namespace cupygemm {

// All rows begin at multiples of 16 bytes.
struct QrTopArgs {
    u64 a; // (n, n): A1, which becomes S R, with zeros below the diagonal
    i64 lda;
    u64 gram; // A^T A, of which the diagonal is read
    i64 ldg;
    u64 l; // R^T, lower triangular
    i64 ldl;
    u64 v; // (n, n): V1
    i64 ldv;
    u64 w; // (n, n): W; elements below its diagonal are arbitrary
    i64 ldw;
    u64 flag; // u32: becomes 1 if the reflections are accurate, and 0 otherwise
};
static_assert(sizeof(QrTopArgs) == 88, "QrTopArgs must match the dtype that the launcher packs");

using S = Config::Scalar;
constexpr u32 rows = Config::rows, groups = Config::groups, threads = Config::threads;
constexpr u32 width = 8, size = rows * 32;
static_assert(groups * width == size && threads == groups * 32,
              "the groups must have the columns of a square");
// Reflections are stored if the bound of the condition number is at most this. The errors of R, and
// so of Q R, are then some hundred units of rounding.
constexpr S most_condition = 256;

using Block = S[width][width];

struct Shared {
    alignas(16) S panels[2][width][size]; // multipliers, by column; zeros above
    alignas(16) Block of_r[groups];       // 8 rows of R, in the columns of each group
    alignas(16) Block taken[groups];      // and of A1, then of W
    S signs[size];                        // S
    u32 is_accurate;
};

// The position of a thread, and its elements.
struct Mine {
    S value[rows][width];
    S next_r[2]; // of the next rows of R: two elements of a column
    u32 lane, group, first;

    CUPYGEMM_INLINE u32 row(u32 i) const { return lane + 32 * i; }
};

// Load the elements that a lane stores of rows `from` to from + 7 of R in the columns of its group.
CUPYGEMM_INLINE void load_r(const QrTopArgs &args, Mine &mine, u32 from) {
    const S *const l = reinterpret_cast<const S *>(args.l);
    const u32 c = mine.lane / 4, k = mine.lane % 4 * 2;
#pragma unroll
    for (u32 e = 0; e < 2; ++e)
        mine.next_r[e] = l[(mine.first + c) * args.ldl + from + k + e];
}
CUPYGEMM_INLINE void show_r(Mine &mine, Block &of_r) {
    const u32 c = mine.lane / 4, k = mine.lane % 4 * 2;
#pragma unroll
    for (u32 e = 0; e < 2; ++e)
        of_r[k + e][c] = mine.next_r[e];
    wave_barrier(); // the rows of R are in shared memory
}

// A bound of the infinity norm of the inverse of R with columns scaled to norm 1: the off-diagonal
// elements of R are replaced by minus their magnitudes, and u = R^-1 (1, 1, ...) is found by back
// substitution. The threads of a group do a few rows at a time. (N. J. Higham, "Accuracy and
// Stability of Numerical Algorithms", section 8.3)
struct Bound {
    S sums[rows] = {}; // of the row of a lane: |r| u over the columns that are done
    bool is_fine = true;

    static constexpr u32 count = 4; // rows whose elements are loaded together

    CUPYGEMM_INLINE void add(const QrTopArgs &args, u32 lane, u32 from) {
        const S *const l = reinterpret_cast<const S *>(args.l) + from * args.ldl;
        S column[count][rows];
#pragma unroll
        for (u32 j = 0; j < count; ++j)
#pragma unroll
            for (u32 i = 0; i < rows; ++i)
                column[j][i] = lane + 32 * i < from + j ? l[j * args.ldl + lane + 32 * i] : 0;
        const u32 own_row = lane % count; // whose pivot and norm this lane has
        const S norm = reinterpret_cast<const S *>(args.gram)[(from + own_row) * (args.ldg + 1)];
        const S over = inverse(l[own_row * args.ldl + from + own_row]);
        // The square of the norm of a column must be far from underflow.
        is_fine &= norm >= static_cast<S>(Config::smallest_invertible / Config::tolerance);
        S found = 0; // of this lane's row
#pragma unroll
        for (u32 j = count; j-- > 0;) {
            S own = sums[0];
#pragma unroll
            for (u32 i = 1; i < rows; ++i) {
                const S other = sums[i]; // without a run-time index into registers
                own = (from + j) / 32 == i ? other : own;
            }
            const S u = (1 + from_lane(own, (from + j) % 32)) * from_lane(over, j);
            found = own_row == j ? u : found;
#pragma unroll
            for (u32 i = 0; i < rows; ++i)
                sums[i] = plus_product(sums[i], absolute(column[j][i]), u);
        }
        is_fine &= found * found * norm <= most_condition * most_condition;
    }
};

// Factor the 8 columns of a group. Their diagonal blocks are in register `top` of the lanes.
template <u32 top = 0> CUPYGEMM_INLINE bool factor_columns(Mine &mine, Shared &shared, u32 owner) {
    if constexpr (top + 1 < rows)
        if (mine.first / 32 != top)
            return factor_columns<top + 1>(mine, shared, owner);
    const Block &of_r = shared.of_r[mine.group];
    auto &panel = shared.panels[owner % 2];
    const u32 diagonal = mine.first % 32;
    bool is_fine = true;
#pragma unroll
    for (u32 k = 0; k < width; ++k) {
        const bool at = mine.lane == diagonal + k;
        const S before = from_lane(mine.value[top][k], diagonal + k), r = of_r[k][k];
        const S sign = before >= 0 ? -1 : 1;
        // A pivot this close to the norm of its column has nearly nothing below it.
        is_fine &= absolute(before) <= r * static_cast<S>(1 - 0x1p-10);
        const S over = inverse(before - sign * r);
        // Without a branch: the compiler would move registers in both parts of it.
        const S own_sign = at ? sign : 0;
        S across[width];
#pragma unroll
        for (u32 c = k; c < width; ++c) {
            S &element = mine.value[top][c];
            element = minus_product(element, own_sign, of_r[k][c]);
            across[c] = from_lane(element, diagonal + k);
        }
#pragma unroll
        for (u32 i = 0; i < top; ++i)
            panel[k][mine.row(i)] = 0;
#pragma unroll
        for (u32 i = top; i < rows; ++i) {
            const bool below = i > top || (i == top && mine.lane > diagonal + k);
            S &element = mine.value[i][k];
            const S factor = below ? times(element, over) : 0;
            element = below ? factor : element;
            panel[k][mine.row(i)] = factor;
#pragma unroll
            for (u32 c = k + 1; c < width; ++c)
                mine.value[i][c] = minus_product(mine.value[i][c], factor, across[c]);
        }
        if (mine.lane == 0)
            shared.signs[mine.first + k] = sign;
    }
    return is_fine;
}

// Update the columns of a group to the right of the owner's, whose diagonal block is in register
// `top` of the lanes.
template <u32 top = 0> CUPYGEMM_INLINE void update(Mine &mine, Shared &shared, u32 owner) {
    const u32 first = owner * width, diagonal = first % 32;
    if constexpr (top + 1 < rows)
        if (first / 32 != top)
            return update<top + 1>(mine, shared, owner);
    const auto &panel = shared.panels[owner % 2];
    Block &taken = shared.taken[mine.group];
    const u32 own = mine.lane - diagonal; // the row of the 8 that this lane has, if it is below 8
    if (own < width)
#pragma unroll
        for (u32 c = 0; c < width; ++c)
            taken[own][c] = mine.value[top][c];
    wave_barrier(); // the rows are in shared memory
    S x[width];     // a column of them, which becomes W
    const u32 column = mine.lane % width;
#pragma unroll
    for (u32 k = 0; k < width; ++k)
        x[k] = minus_product(taken[k][column], shared.signs[first + k],
                             shared.of_r[mine.group][k][column]);
#pragma unroll
    for (u32 k = 0; k < width; ++k)
#pragma unroll
        for (u32 j = k + 1; j < width; ++j)
            x[j] = minus_product(x[j], panel[k][first + j], x[k]);
    wave_barrier(); // the rows have been read
    if (mine.lane < width)
#pragma unroll
        for (u32 k = 0; k < width; ++k)
            taken[k][column] = x[k];
    wave_barrier(); // they are now rows of W
    if (own < width)
#pragma unroll
        for (u32 c = 0; c < width; ++c)
            mine.value[top][c] = taken[own][c];
#pragma unroll 2
    for (u32 k = 0; k < width; ++k) {
        S across[width];
#pragma unroll
        for (u32 c = 0; c < width; ++c)
            across[c] = taken[k][c];
#pragma unroll
        for (u32 i = top; i < rows; ++i) {
            const bool below = i > top || mine.lane >= diagonal + width;
            const S factor = below ? panel[k][mine.row(i)] : 0;
#pragma unroll
            for (u32 c = 0; c < width; ++c)
                mine.value[i][c] = minus_product(mine.value[i][c], factor, across[c]);
        }
    }
}

// Store S R, V1 and W, or W alone.
CUPYGEMM_INLINE void store(const QrTopArgs &args, const Mine &mine, const Shared &shared) {
    const S *const l = reinterpret_cast<const S *>(args.l);
    S *const a = reinterpret_cast<S *>(args.a);
    S *const v = reinterpret_cast<S *>(args.v);
    S *const w = reinterpret_cast<S *>(args.w);
    const bool is_accurate = shared.is_accurate != 0;
#pragma unroll
    for (u32 i = 0; i < rows; ++i) {
        const u32 row = mine.row(i);
        store_vectors(mine.value[i], w + row * args.ldw + mine.first);
        if (!is_accurate)
            continue;
        const S sign = shared.signs[row];
        S of_r[width], of_v[width];
#pragma unroll
        for (u32 c = 0; c < width; ++c) {
            const u32 column = mine.first + c;
            of_r[c] = times(sign, l[column * args.ldl + row]);
            of_v[c] = row > column ? mine.value[i][c] : static_cast<S>(row == column ? 1 : 0);
        }
        store_vectors(of_r, a + row * args.lda + mine.first);
        store_vectors(of_v, v + row * args.ldv + mine.first);
    }
}

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads)
cupygemm_qr_top(const cupygemm::QrTopArgs args) {
    using namespace cupygemm;
    __shared__ Shared shared;
    const u32 thread = local_thread();
    Mine mine;
    mine.lane = thread % 32;
    mine.group = thread / 32;
    mine.first = mine.group * width;
    const S *const a = reinterpret_cast<const S *>(args.a) + mine.first;
#pragma unroll
    for (u32 i = 0; i < rows; ++i)
        load_vectors(a + mine.row(i) * args.lda, mine.value[i]);
    load_r(args, mine, 0);
    if (thread == 0)
        shared.is_accurate = 1;
    workgroup_barrier(); // nothing has been found inaccurate
    Bound bound;         // by group 0, which has factored its columns first
    bool is_fine = true;
#pragma unroll 1
    for (u32 owner = 0; owner < groups; ++owner) {
        if (mine.group >= owner) {
            show_r(mine, shared.of_r[mine.group]);
            if (mine.group > owner)
                load_r(args, mine, (owner + 1) * width);
        }
        if (mine.group == owner)
            is_fine = factor_columns(mine, shared, owner);
        workgroup_barrier(); // the multipliers are in shared memory, and the last ones were used
        if (mine.group > owner)
            update(mine, shared, owner);
        else if (mine.group == 0)
#pragma unroll 1
            for (u32 part = 1; part <= width / Bound::count; ++part)
                bound.add(args, mine.lane, (groups - owner) * width - part * Bound::count);
    }
    if (!(is_fine && bound.is_fine))
        shared.is_accurate = 0;
    workgroup_barrier(); // all checks of the accuracy are done
    store(args, mine, shared);
    if (thread == 0)
        *reinterpret_cast<u32 *>(args.flag) = shared.is_accurate;
}
