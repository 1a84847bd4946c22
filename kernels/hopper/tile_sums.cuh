// The sums of a tile of 128 x 128 in the registers of 256 threads, or of 64 x 128 in those of 128,
// from operands in shared memory.
//
// Each warp has 16 rows, and multiplies by mma.sync: in fp64, or in fp32 by three
// products of tf32 terms.
#pragma once

#include "hopper/tf32_terms.cuh"
#include "hopper/tile_operand.cuh"

namespace cupygemm {

// A lane's sums of a row and a block of 8 columns are also elements of A as mma.sync takes them,
// with k = 2 t and 2 t + 1.
template <class S> struct FragmentsOfTile {
    static constexpr bool multiplies_inverses = true;
    static constexpr u32 blocks = 16; // of 8 columns
    S value[blocks][4];               // (block of columns, element of mma.sync)
    u32 lane, row;                    // the warp's first row

    CUPYGEMM_INLINE explicit FragmentsOfTile(u32 thread)
        : lane(thread % 32), row(thread / 32 * 16) {}

    // Call visit(sum, row, column) for all sums of the thread in blocks `first` to `end` - 1 of 8
    // columns.
    template <class Visit> CUPYGEMM_INLINE void for_each(u32 first, u32 end, const Visit &visit) {
#pragma unroll
        for (u32 j = 0; j < blocks; ++j)
            if (j >= first && j < end)
#pragma unroll
                for (u32 e = 0; e < 4; ++e)
                    visit(value[j][e], row + lane / 4 + e / 2 * 8, j * 8 + lane % 4 * 2 + e % 2);
    }
};

template <class S> struct TileSums;

template <> struct TileSums<double> : FragmentsOfTile<double> {
    using FragmentsOfTile<double>::FragmentsOfTile;

    // Subtract left right^T for 8 k, in the blocks of columns from `first` on, up to `end`.
    template <class Left, class Right> CUPYGEMM_INLINE void
    subtract(const double *left, const double *right, u32 right_k, u32 first, u32 end) {
        const Rows a = load<Left>(left, 0);
#pragma unroll
        for (u32 j = 0; j < blocks; ++j)
            if (j >= first && j < end)
                multiply(j, a, fragment_of<Right>(right, j * 8, right_k, lane));
    }

    // Subtract left right^T for `depth` k. B's fragments are loaded two blocks ahead and A's one
    // step ahead, so that no load waits for registers that an instruction reads.
    template <u32 depth, class Left, class Right, class Between> CUPYGEMM_INLINE void
    subtract_all(const double *left, const double *right, const Between &between) {
        constexpr u32 steps = depth / 8;
        Rows a[2];
        Fragment b[4];
        a[0] = load<Left>(left, 0);
        b[0] = fragment_of<Right>(right, 0, 0, lane);
        b[1] = fragment_of<Right>(right, 8, 0, lane);
#pragma unroll
        for (u32 step = 0; step < steps; ++step) {
            if (step == 1)
                between();
#pragma unroll
            for (u32 j = 0; j < blocks; j += 2) {
                multiply(j, a[step % 2], b[j % 4]);
                const bool last = j + 2 == blocks;
                const u32 next = (j + 2) % blocks, k = (step + last) * 8;
                if (step + last < steps) {
                    b[next % 4] = fragment_of<Right>(right, next * 8, k, lane);
                    b[next % 4 + 1] = fragment_of<Right>(right, next * 8 + 8, k, lane);
                    if (last)
                        a[1 - step % 2] = load<Left>(left, k);
                }
                multiply(j + 1, a[step % 2], b[j % 4 + 1]);
            }
        }
    }

    // Solve X T^T = sums, given the inverses of T's 8 x 8 blocks on the diagonal, (row, column).
    // Warps are independent.
    template <class Triangle>
    CUPYGEMM_INLINE void solve(const double *triangle, const double *inverses, u32 pitch) {
        const u32 g = lane / 4, t = lane % 4;
#pragma unroll
        for (u32 b = 0; b < blocks; ++b) {
            const double *const inverse = inverses + (b * 8 + g) * pitch + 2 * t;
            double (&x)[4] = value[b];
            const Rows sums = {{x[0], x[1]}, {x[2], x[3]}};
            x[0] = x[1] = x[2] = x[3] = 0;
            mma_m16n8k8(x, sums.above, sums.below, {inverse[0], inverse[1]});
            const Rows negative = {negated({x[0], x[1]}), negated({x[2], x[3]})};
#pragma unroll
            for (u32 j = b + 1; j < blocks; ++j) {
                const double *const at = triangle + Triangle::place(j * 8 + g, b * 8 + 2 * t);
                mma_m16n8k8(value[j], negative.above, negative.below,
                            {at[0], at[Triangle::place(0, 1)]});
            }
        }
    }

private:
    struct Rows {
        Fragment above, below; // negated in products
    };

    template <class Left> CUPYGEMM_INLINE Rows load(const double *left, u32 k) const {
        return {negated(fragment_of<Left>(left, row, k, lane)),
                negated(fragment_of<Left>(left, row + 8, k, lane))};
    }

    CUPYGEMM_INLINE void multiply(u32 j, const Rows &a, const Fragment &b) {
        mma_m16n8k8(value[j], a.above, a.below, b);
    }
};

template <> struct TileSums<float> : FragmentsOfTile<float> {
    using FragmentsOfTile<float>::FragmentsOfTile;

    // As for fp64.
    template <class Left, class Right> CUPYGEMM_INLINE void
    subtract(const float *left, const float *right, u32 right_k, u32 first, u32 end) {
        const Terms<4> a = load<Left, Right>(left, 0);
#pragma unroll
        for (u32 j = 0; j < blocks; j += together) {
            if (j + together <= first || j >= end)
                continue;
            Columns b;
            set(b, [&](u32 i, u32 e) { return element<Right>(right, j + i, right_k, e); });
            float sums[together][4] = {};
            mma_low_terms(sums, a, b);
            mma_high_terms(sums, a, b);
#pragma unroll
            for (u32 i = 0; i < together; ++i)
                if (j + i >= first && j + i < end)
#pragma unroll
                    for (u32 e = 0; e < 4; ++e)
                        value[j + i][e] += sums[i][e];
        }
    }

    // Products of 16 k are summed before they are added.
    template <u32 depth, class Left, class Right, class Between> CUPYGEMM_INLINE void
    subtract_all(const float *left, const float *right, const Between &between) {
        constexpr u32 steps = depth / 8;
        Terms<4> a[steps];
#pragma unroll
        for (u32 step = 0; step < steps; ++step)
            a[step] = load<Left, Right>(left, step * 8);
#pragma unroll
        for (u32 j = 0; j < blocks; j += together) {
            if (j == blocks / 2)
                between();
            Columns b[steps];
            float sums[together][4] = {};
#pragma unroll
            for (u32 step = 0; step < steps; ++step) {
                set(b[step],
                    [&](u32 i, u32 e) { return element<Right>(right, j + i, step * 8, e); });
                mma_low_terms(sums, a[step], b[step]);
            }
#pragma unroll
            for (u32 step = 0; step < steps; ++step)
                mma_high_terms(sums, a[step], b[step]);
            add_sums(value + j, sums);
        }
    }

    template <class Triangle>
    CUPYGEMM_INLINE void solve(const float *triangle, const float *inverses, u32 pitch) {
        const u32 g = lane / 4, t = lane % 4;
        float low[blocks][4] = {};
#pragma unroll
        for (u32 b = 0; b < blocks; ++b) {
            const float *const inverse = inverses + (b * 8 + g) * pitch + 2 * t;
            Terms<2> of_inverse[1];
            set(of_inverse, [&](u32, u32 e) { return inverse[e]; });
            float (&x)[4] = value[b];
#pragma unroll
            for (u32 e = 0; e < 4; ++e)
                x[e] += low[b][e];
            const Terms<4> sums = rows_of(x, 1);
            x[0] = x[1] = x[2] = x[3] = 0;
            mma_low_terms(&x, sums, of_inverse);
            mma_high_terms(&x, sums, of_inverse);
            const Terms<4> negative = rows_of(x, -1);
#pragma unroll
            for (u32 j = b + 1; j < blocks; ++j) {
                Terms<2> of_triangle[1];
                set(of_triangle, [&](u32, u32 e) {
                    return triangle[Triangle::place(j * 8 + g, b * 8 + 2 * t + e)];
                });
                float high[1][4] = {};
                mma_low_terms(low + j, negative, of_triangle);
                mma_high_terms(high, negative, of_triangle);
                add_sums(value + j, high);
            }
        }
    }

private:
    static constexpr u32 together = 4; // blocks of columns
    using Columns = Terms<2>[together];

    template <u32 count, class Element>
    CUPYGEMM_INLINE static void set(Terms<2> (&b)[count], const Element &element) {
#pragma unroll
        for (u32 i = 0; i < count; ++i)
#pragma unroll
            for (u32 e = 0; e < 2; ++e)
                b[i].set(e, element(i, e));
    }

    // A block of sums as elements of A, times 1 or -1.
    CUPYGEMM_INLINE static Terms<4> rows_of(const float (&x)[4], float sign) {
        Terms<4> a;
#pragma unroll
        for (u32 e = 0; e < 4; ++e)
            a.set(e, sign * x[e % 2 * 2 + e / 2]);
        return a;
    }

    // Element `half` of a lane along k, assigned so that lanes read different banks.
    template <class Right> CUPYGEMM_INLINE u32 place_of(u32 half) const {
        return Right::of_rows ? 2 * (lane % 4) + half : lane % 4 + 4 * half;
    }
    template <class Right>
    CUPYGEMM_INLINE float element(const float *right, u32 j, u32 k, u32 half) const {
        return right[Right::place(j * 8 + lane / 4, k + place_of<Right>(half))];
    }
    template <class Left, class Right>
    CUPYGEMM_INLINE Terms<4> load(const float *left, u32 k) const {
        Terms<4> a;
#pragma unroll
        for (u32 e = 0; e < 4; ++e)
            a.set(e, -left[Left::place(row + e % 2 * 8 + lane / 4, k + place_of<Right>(e / 2))]);
        return a;
    }
};

} // namespace cupygemm
