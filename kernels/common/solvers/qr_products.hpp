// Factors a block of columns, A = Q R, by products of its columns instead of column by column, and
// computes the Householder reflections that give the same Q.
//
//   R1^T R1 = A^T A, Q1 = A R1^-1; R2^T R2 = Q1^T Q1, Q2 = Q1 R2^-1    Q2 is orthogonal
//   Q2 - S = V U, S = diag(-sign of the pivots)                         V: the reflections
//   A = (Q2 S) (S R2 R1), T = -U S V1^-T, with the first rows V1 of V
//
// The workgroups of a team therefore exchange sums twice instead of once for each column:
//
//   every workgroup   sums | exchange | R1, rows R1^-1 | sums | exchange | R2, V1 U, rows (U R2)^-1
//
// Each computes the small factors redundantly, from the same bits. V = Q1 (U R2)^-1 needs only the
// first rows of Q2. If the columns are well-conditioned, no second pass is needed: Q1 is then as
// orthogonal as Q2, and V = A (U R1)^-1 needs only the first rows of Q1:
//
//   every workgroup   sums | exchange | R1, V1 U, rows (U R1)^-1
//
// Where this is not as accurate as reflections, the result is false, and the caller reflects column
// by column. This happens for nearly dependent columns, and for columns that are nearly triangular
// already, whose reflections are the identity in LAPACK.
//
// (T. Fukaya, Y. Nakatsukasa, Y. Yanagisawa and Y. Yamamoto, "CholeskyQR2", 2014; G. Ballard,
// J. Demmel, L. Grigori, M. Jacquelin, H. D. Nguyen and E. Solomonik, "Reconstructing Householder
// vectors from tall-skinny QR", 2014)
#pragma once

#include "common/solvers/gram_sums.hpp"
#include "common/solvers/small_triangles.hpp"

namespace cupygemm {

template <class S, u32 width, u32 threads, u32 size, class Constants, class Memory>
struct QrProducts {
    using Sums = GramSums<S, width>;
    using Places = typename Sums::Places;
    static constexpr u32 groups = threads / 32, num_parts = minimum(groups, 4u);
    static constexpr u32 share = ceil_div(Places::count, size); // the sums that a workgroup adds
    static constexpr u32 of_thread = ceil_div(width * width, threads); // elements of a square
    using Triangles = SmallTriangles<S, width>;
    static constexpr u32 pitch = Triangles::pitch, chunk = Triangles::chunk;
    using Square = typename Triangles::Square;

    union alignas(16) Region {
        S stages[groups][Sums::lines][Sums::pitch]; // some rows of 32 threads
        S parts[num_parts][Places::count];          // sums over their rows
        struct {
            Square top, w; // the first rows, then V1 and U; and U R
        };
    } region;
    alignas(16) Square first, gram; // R1; A^T A or Q1^T Q1, and then R2
    S inbox[size][share];
    S inverses[width]; // of a diagonal
    S signs[width];
    u32 is_accurate, takes_two;

    // Factor the rows that the threads hold: position(r) is the position of row r of a thread. Each
    // becomes its row of V and R. load_top(i, j) returns an element of the first rows, from memory
    // that is not overwritten before all workgroups have loaded it. store_t(i, j, x) is called for
    // the elements of T.
    template <u32 rows, class Position, class LoadTop, class StoreT>
    CUPYGEMM_INLINE bool factor(S (&row)[rows][width], u32 rank, const Position &position,
                                const LoadTop &load_top, const StoreT &store_t) {
        const u32 thread = local_thread(), lane = thread % 32, group = thread / 32;
        workgroup_barrier(); // the previous contents of shared memory have been read
        if (thread == 0)
            is_accurate = 1;
        bool is_last = false;
#pragma unroll 1
        for (u32 pass = 0; !is_last; ++pass) {
            Square &r = pass == 0 ? first : gram;
            sum_products(row, lane, group);
            S top[of_thread] = {};
            if (pass == 0)
                each_element(thread, [&](u32 n, u32 i, u32 j) { top[n] = load_top(i, j); });
            exchange(rank, thread, r, [&] {
                if (pass == 0)
                    each_element(thread, [&](u32 n, u32 i, u32 j) { region.top[i][j] = top[n]; });
                else if (rank == 0)
                    share_top(row[0], thread);
            });
            if (group == 0) {
                if (pass == 0)
                    count_passes(lane);
                else
                    require_orthogonal(lane);
                cholesky(r, lane);
                if (pass == 1 || !takes_two)
                    factor_top(r, lane);
            }
            workgroup_barrier(); // the factors are in shared memory
            if (!is_accurate)
                return false;
            is_last = pass == 1 || !takes_two;
            if (is_last) {
                Triangles::multiply(region.w, region.top, r, thread, threads);
                workgroup_barrier(); // U R is in shared memory
                if (thread < width)
                    inverses[thread] = inverse(region.w[thread][thread]);
                workgroup_barrier(); // the inverses of its diagonal, too
            }
            const Square &divisor = is_last ? region.w : first;
            Triangles::substitute(
                row, [&](u32 j, u32 i) { return divisor[j][i]; },
                [&](u32 j) { return inverses[j]; });
        }
        if (rank != 0)
            return true;
        if (takes_two) {
            workgroup_barrier(); // U R2 has been read
            Triangles::multiply(region.w, gram, first, thread, threads);
            workgroup_barrier(); // R2 R1 is in shared memory
        }
        if (group == 0)
            finish_top(row[0], takes_two ? region.w : first, position(0), lane);
        if (group == groups - 1)
            find_t(lane, store_t);
        return true;
    }

private:
    // Add up the products of the columns over the rows of this workgroup.
    template <u32 rows>
    CUPYGEMM_INLINE void sum_products(const S (&row)[rows][width], u32 lane, u32 group) {
        Sums sums;
        auto &stage = region.stages[group];
#pragma unroll
        for (u32 r = 0; r < rows; ++r)
#pragma unroll 1
            for (u32 start = 0; start < 32; start += Sums::lines) {
                if (lane - start < Sums::lines)
#pragma unroll
                    for (u32 k = 0; k < width; ++k)
                        stage[lane - start][k] = row[r][k];
                wave_barrier(); // the rows are in shared memory
                sums.add(stage, lane);
                wave_barrier(); // the rows have been read
            }
        workgroup_barrier(); // all rows have been read
#pragma unroll 1
        for (u32 first_group = 0; first_group < groups; first_group += num_parts) {
            if (group - first_group < num_parts) {
                S *const part = region.parts[group - first_group];
                if (first_group == 0)
                    sums.template store<false>(part, lane);
                else
                    sums.template store<true>(part, lane);
            }
            workgroup_barrier(); // these groups' sums are in shared memory
        }
    }

    // Add the sums of all workgroups: each adds a share of them, in the order of the workgroups.
    // The matrix is symmetric, and only its elements above the diagonal are computed. `between` may
    // use the region.
    template <class Between>
    CUPYGEMM_INLINE void exchange(u32 rank, u32 thread, Square &to, const Between &between) {
        for (u32 at = thread; at < Places::count; at += threads) {
            S sum = region.parts[0][at];
#pragma unroll
            for (u32 part = 1; part < num_parts; ++part)
                sum = plus(sum, region.parts[part][at]);
            give(&inbox[rank][at % share], at / share, sum);
        }
        Memory::barrier(); // the inbox is complete, and the region has been read
        for (u32 at = thread; at < share * size; at += threads) {
            const u32 own = at % share, place = rank * share + own;
            if (place >= Places::count)
                continue;
            S sum = inbox[0][own];
#pragma unroll
            for (u32 other = 1; other < size; ++other)
                sum = plus(sum, inbox[other][own]);
            give(&to[Places::row(place)][Places::column(place)], at / share, sum);
        }
        between();
        Memory::barrier(); // all sums are complete
    }

    // Call visit(n, i, j) for the elements of a square that are this thread's.
    template <class Visit>
    CUPYGEMM_INLINE static void each_element(u32 thread, const Visit &visit) {
#pragma unroll
        for (u32 n = 0; n < of_thread; ++n) {
            const u32 at = n * threads + thread;
            if (at < width * width)
                visit(n, at / width, at % width);
        }
    }

    // Send the first rows to all workgroups. Called by the first workgroup.
    CUPYGEMM_INLINE void share_top(const S (&row)[width], u32 thread) {
        if (thread < width)
#pragma unroll
            for (u32 k = 0; k < width; ++k)
                region.w[thread][k] = row[k];
        workgroup_barrier(); // the rows are in this workgroup's shared memory
#pragma unroll 4
        for (u32 at = thread; at < width * width * size; at += threads) {
            const u32 i = at / width % width, j = at % width;
            give(&region.top[i][j], at / (width * width), region.w[i][j]);
        }
    }

    CUPYGEMM_INLINE void give(S *place, u32 rank, S x) {
        Word<S> word;
        to_words(x, &word);
        Memory::give(reinterpret_cast<Word<S> *>(place), rank, word);
    }

    CUPYGEMM_INLINE void refuse_unless(bool is_fine) {
        if (maximum_of_32(is_fine ? 0u : 1u) != 0)
            is_accurate = 0;
    }

    // Return whether A needs a second pass. With columns scaled to norm 1, A^T A differs from the
    // identity by a matrix whose 2-norm is at most its Frobenius norm. If this is at most sqrt(3) /
    // 2, the condition number of A is at most 4, and rounding errors of Q1 grow no further. Norms
    // of columns must be far from underflow. Called by 32 threads.
    CUPYGEMM_INLINE void count_passes(u32 lane) {
        const u32 column = lane % width;
        const S own = first[column][column];
        const bool is_tiny =
            !(own >= static_cast<S>(Constants::smallest_invertible / Constants::tolerance));
        const S scale = inverse_square_root(own);
        inverses[column] = scale;
        wave_barrier(); // the inverse norms of all columns are in shared memory
        S sum = 0;
#pragma unroll 4
        for (u32 i = 0; i < width; ++i) {
            const S cosine = i < column ? first[i][column] * scale * inverses[i] : 0;
            sum = plus_product(sum, cosine, cosine);
        }
#pragma unroll
        for (u32 mask = width / 2; mask > 0; mask /= 2)
            sum = plus(sum, exchanged(sum, mask));
        const u32 is_far = is_tiny || !(sum <= static_cast<S>(0.375)) ? 1 : 0;
        const u32 any_is_far = maximum_of_32(is_far);
        if (lane == 0)
            takes_two = any_is_far;
        wave_barrier(); // the answer is in shared memory, and the norms have been read
    }

    // Check that Q1 is close enough to orthogonal for Q2 to be orthogonal to working precision.
    // Called by 32 threads.
    CUPYGEMM_INLINE void require_orthogonal(u32 lane) {
        const u32 column = lane % width;
        bool is_fine = true;
#pragma unroll 4
        for (u32 i = 0; i < width; ++i)
            if (i <= column)
                is_fine &=
                    absolute(gram[i][column] - (i == column ? 1 : 0)) <= static_cast<S>(0x1p-6);
        refuse_unless(is_fine);
    }

    // The loops below process columns by `chunk` (small_triangles.hpp).

    // Replace G by R, R^T R = G. A lane has a column. Called by 32 threads.
    CUPYGEMM_INLINE void cholesky(Square &g, u32 lane) {
        const u32 column = lane % width;
        S x[width];
#pragma unroll
        for (u32 i = 0; i < width; ++i)
            x[i] = i <= column ? g[i][column] : 0;
        const S own = g[column][column];
        bool is_fine = true;
        wave_barrier(); // G has been read
#pragma unroll 1
        for (u32 base = 0; base < width; base += chunk) {
#pragma unroll
            for (u32 j = 0; j < chunk; ++j) {
                const u32 k = base + j;
                const S pivot = from_lane(x[j], k);
                // A pivot that consists of rounding errors carries no information about its column.
                is_fine &= pivot > from_lane(own, k) * static_cast<S>(64 * Constants::tolerance);
                const S inverse = inverse_square_root(pivot);
                const S element = k <= column ? times(x[j], inverse) : 0;
                if (lane < width)
                    g[k][lane] = element;
                if (lane == k)
                    inverses[k] = inverse;
                wave_barrier(); // row k of R is in shared memory
                Triangles::update(x, j, base, element, g[k]);
            }
            Triangles::rotate(x);
        }
        refuse_unless(is_fine);
    }

    // Compute V1 and U from the first rows, which are first divided by R. A lane has a row. Called
    // by 32 threads.
    CUPYGEMM_INLINE void factor_top(const Square &r, u32 lane) {
        const u32 own = lane % width;
        bool is_fine = true;
        S x[1][width];
#pragma unroll
        for (u32 k = 0; k < width; ++k)
            x[0][k] = region.top[own][k];
        wave_barrier(); // the first rows have been read, and R is in shared memory
        Triangles::substitute(
            x, [&](u32 j, u32 i) { return r[j][i]; }, [&](u32 j) { return inverses[j]; });
        S(&y)[width] = x[0];
#pragma unroll 1
        for (u32 base = 0; base < width; base += chunk) {
#pragma unroll
            for (u32 j = 0; j < chunk; ++j) {
                const u32 k = base + j;
                const S pivot = from_lane(y[j], k), sign = pivot >= 0 ? -1 : 1;
                is_fine &= absolute(pivot) <= static_cast<S>(1 - 0x1p-10);
                const S shifted = pivot - sign, inverse_of_u = inverse(shifted);
                if (lane == k) {
                    signs[k] = sign;
                    region.top[k][k] = shifted;
#pragma unroll
                    for (u32 i = 1; i < width; ++i)
                        if (i > j && base + i < width)
                            region.top[k][base + i] = y[i];
                }
                wave_barrier(); // row k of U is in shared memory
                const S factor = own > k ? times(y[j], inverse_of_u) : 0;
                if (own > k && lane < width)
                    region.top[own][k] = factor;
                Triangles::update(y, j, base, factor, region.top[k]);
            }
            Triangles::rotate(y);
        }
        refuse_unless(is_fine);
    }

    // Load a row of V1 and of S R, with R the product of both passes, to the registers of its
    // thread.
    CUPYGEMM_INLINE void finish_top(S (&row)[width], const Square &r, u32 position, u32 lane) {
        if (position >= width)
            return;
        const S sign = signs[lane];
#pragma unroll
        for (u32 k = 0; k < width; ++k)
            row[k] = k < lane ? region.top[lane][k] : times(r[lane][k], sign);
    }

    // Compute T. A lane has a row.
    template <class StoreT> CUPYGEMM_INLINE void find_t(u32 lane, const StoreT &store_t) {
        const u32 own = lane % width;
        S x[1][width];
#pragma unroll
        for (u32 j = 0; j < width; ++j)
            x[0][j] = j >= own ? negated(times(region.top[own][j], signs[j])) : 0;
        Triangles::substitute(
            x, [&](u32 j, u32 i) { return region.top[i][j]; }, [](u32) -> S { return 1; });
        if (lane < width)
#pragma unroll
            for (u32 j = 0; j < width; ++j)
                store_t(own, j, x[0][j]);
    }
};

} // namespace cupygemm
