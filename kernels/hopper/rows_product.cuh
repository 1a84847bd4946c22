// Rows of a block minus a product, by mma.sync: fp64, and fp32 as sums of two tf32 terms. The
// interface is that of common/solvers/rows_product.hpp.
//
// A warp computes 32 rows of 16 or 32 columns. The fragments of C and L21 come from global memory,
// and those of U from shared memory.
#pragma once

#include "common/solvers/rows_product.hpp"
#include "hopper/tf32_terms.cuh"

namespace cupygemm {

template <class S, u32 width> struct RowsByMmaSync {
    static_assert(width % 16 == 0, "a round takes 16 k, and a product 8 columns");
    using Stage = RowStage<S, width>;
    // the 32 bytes that lanes read in a row follow those of the previous row.
    static constexpr u32 u_pitch = width + 32 / sizeof(S);
    static constexpr u32 strips = width / 8;
    // In fp64, all of k would not fit in registers.
    static constexpr u32 depth = sizeof(S) == 8 ? 16 : width;
    using Sums = S[2][strips][4]; // (16 rows, 8 columns, element of mma.sync)
    using Left = S[4][depth / 4]; // (8 rows, 4 k)

    CUPYGEMM_INLINE static void subtract(Stage &stage, const BlockView<S> &view,
                                         const S (&u)[width][u_pitch], u32 at, u32 lane,
                                         const RowsInScratch<S> &to) {
        const u32 g = lane / 4, t = lane % 4;
        Sums sums;
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            const u32 source = stage.positions[8 * i + g];
#pragma unroll
            for (u32 j = 0; j < strips; ++j)
#pragma unroll
                for (u32 e = 0; e < 2; ++e) {
                    const u32 column = 8 * j + 2 * t + e;
                    const bool inside = source != none && column < view.n;
                    sums[i / 2][j][i % 2 * 2 + e] =
                        inside ? view.a[source * view.lda + column] : S{};
                }
        }
#pragma unroll 1
        for (u32 k0 = 0; k0 < width; k0 += depth) {
            Left left;
#pragma unroll
            for (u32 i = 0; i < 4; ++i)
#pragma unroll
                for (u32 k = 0; k < depth / 4; ++k) {
                    const u32 row = at + 8 * i + g, column = k0 + 4 * k + t;
                    const bool inside = row < view.end && column < view.count;
                    left[i][k] = inside ? view.a[row * view.lda + column - view.count] : S{};
                }
            subtract_products(sums, left, &u[k0], g, t);
        }
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
#pragma unroll
            for (u32 j = 0; j < strips; ++j)
#pragma unroll
                for (u32 e = 0; e < 2; ++e)
                    to.start[(8 * j + 2 * t + e) * to.pitch + 8 * i + g] =
                        sums[i / 2][j][i % 2 * 2 + e];
    }

private:
    // Subtract the product of the columns of `left` and the same number of rows of U.
    CUPYGEMM_INLINE static void subtract_products(double (&sums)[2][strips][4],
                                                  const double (&left)[4][depth / 4],
                                                  const double (*u)[u_pitch], u32 g, u32 t) {
#pragma unroll
        for (u32 k = 0; k < depth / 4; k += 2)
#pragma unroll
            for (u32 j = 0; j < strips; ++j) {
                const double *const from = &u[4 * k + t][8 * j + g];
                const Fragment right{-from[0], -from[4 * u_pitch]};
#pragma unroll
                for (u32 i = 0; i < 2; ++i)
                    mma_m16n8k8(sums[i][j], {left[2 * i][k], left[2 * i][k + 1]},
                                {left[2 * i + 1][k], left[2 * i + 1][k + 1]}, right);
            }
    }
    CUPYGEMM_INLINE static void subtract_products(float (&sums)[2][strips][4],
                                                  const float (&left)[4][depth / 4],
                                                  const float (*u)[u_pitch], u32 g, u32 t) {
        float low[2][strips][4] = {}, high[2][strips][4] = {};
#pragma unroll
        for (u32 k = 0; k < depth / 4; k += 2) {
            Terms<2> right[strips];
#pragma unroll
            for (u32 j = 0; j < strips; ++j)
#pragma unroll
                for (u32 e = 0; e < 2; ++e)
                    right[j].set(e, u[4 * k + 4 * e + t][8 * j + g]);
#pragma unroll
            for (u32 i = 0; i < 2; ++i) {
                Terms<4> terms;
#pragma unroll
                for (u32 e = 0; e < 4; ++e)
                    terms.set(e, -left[2 * i + e % 2][k + e / 2]);
                mma_low_terms(low[i], terms, right);
                mma_high_terms(high[i], terms, right);
            }
        }
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
            add_sums(high[i], low[i]);
            add_sums(sums[i], high[i]);
        }
    }
};

template <> struct RowsProduct<double, 16> : RowsByMmaSync<double, 16> {};
template <> struct RowsProduct<double, 32> : RowsByMmaSync<double, 32> {};
template <> struct RowsProduct<float, 16> : RowsByMmaSync<float, 16> {};
template <> struct RowsProduct<float, 32> : RowsByMmaSync<float, 32> {};

} // namespace cupygemm
