// Rows of a block less a product, in fp64 by mma.sync. See common/solvers/rows_product.hpp, whose
// interface this is.
//
// A warp computes 32 rows of 32 columns. The fragments of C and L21 come from global memory,
// and those of U from shared memory.
#pragma once

#include "common/solvers/rows_product.hpp"
#include "hopper/mma_sync.cuh"

namespace cupygemm {

template <> struct RowsProduct<double, 32> {
    using Stage = RowStage<double, 32>;
    static constexpr u32 width = 32;
    // 16 lanes read four adjacent columns of four rows, which are 4 elements apart (modulo 16).
    static constexpr u32 u_pitch = width + 4;

    CUPYGEMM_INLINE static void subtract(Stage &stage, const BlockView<double> &view,
                                         const double (&u)[width][u_pitch], u32 at, u32 lane,
                                         const RowsInScratch<double> &to) {
        const u32 g = lane / 4, t = lane % 4;
        double sums[2][4][4]; // (16 rows, 8 columns, element of mma.sync)
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            const u32 source = stage.positions[8 * i + g];
#pragma unroll
            for (u32 j = 0; j < 4; ++j)
#pragma unroll
                for (u32 e = 0; e < 2; ++e) {
                    const u32 column = 8 * j + 2 * t + e;
                    const bool inside = source != none && column < view.n;
                    sums[i / 2][j][i % 2 * 2 + e] = inside ? view.a[source * view.lda + column] : 0;
                }
        }
#pragma unroll 1
        for (u32 k0 = 0; k0 < width; k0 += 16) { // all of k would not fit in registers
            Fragment left[4][2];                 // (8 rows, 8 k)
#pragma unroll
            for (u32 i = 0; i < 4; ++i)
#pragma unroll
                for (u32 k = 0; k < 4; ++k) {
                    const u32 row = at + 8 * i + g, column = k0 + 4 * k + t;
                    const bool inside = row < view.end && column < view.count;
                    left[i][k / 2].k[k % 2] =
                        inside ? view.a[row * view.lda + column - view.count] : 0;
                }
#pragma unroll
            for (u32 k = 0; k < 2; ++k)
#pragma unroll
                for (u32 j = 0; j < 4; ++j) {
                    const double *const of_k = &u[k0 + 8 * k + t][8 * j + g];
                    const Fragment right{-of_k[0], -of_k[4 * u_pitch]};
#pragma unroll
                    for (u32 i = 0; i < 2; ++i)
                        mma_m16n8k8(sums[i][j], left[2 * i][k], left[2 * i + 1][k], right);
                }
        }
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
#pragma unroll
            for (u32 j = 0; j < 4; ++j)
#pragma unroll
                for (u32 e = 0; e < 2; ++e)
                    to.start[(8 * j + 2 * t + e) * to.pitch + 8 * i + g] =
                        sums[i / 2][j][i % 2 * 2 + e];
    }
};

} // namespace cupygemm
