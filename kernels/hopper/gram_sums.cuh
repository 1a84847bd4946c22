// The sums of a Gram matrix in fp64 by mma.sync. The interface is that of
// common/solvers/gram_sums.hpp.
//
// The columns are both the rows of the first operand and the columns of the second, so a lane loads
// each element once for both.
#pragma once

#include "common/solvers/gram_sums.hpp"
#include "hopper/mma_sync.cuh"

namespace cupygemm {

template <> struct GramSums<double, 32> {
    using Places = GramPlaces<32>;
    // 16 lanes read four adjacent columns of four rows, which are 4 elements apart (modulo 16).
    static constexpr u32 lines = 8, pitch = 36;
    double sums[2][4][4] = {}; // (16 rows, 8 columns, element of mma.sync)

    CUPYGEMM_INLINE void add(const double (&rows)[lines][pitch], u32 lane) {
        const u32 g = lane / 4, t = lane % 4;
        Fragment columns[4];
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
            columns[i] = {{rows[t][8 * i + g], rows[t + 4][8 * i + g]}};
#pragma unroll
        for (u32 i = 0; i < 2; ++i)
#pragma unroll
            for (u32 j = 2 * i; j < 4; ++j)
                mma_m16n8k8(sums[i][j], columns[2 * i], columns[2 * i + 1], columns[j]);
    }

    // Store the sums, or add them to the stored ones.
    template <bool adds> CUPYGEMM_INLINE void store(double *to, u32 lane) {
        const u32 g = lane / 4, t = lane % 4;
#pragma unroll
        for (u32 i = 0; i < 2; ++i)
#pragma unroll
            for (u32 j = 2 * i; j < 4; ++j)
#pragma unroll
                for (u32 e = 0; e < 4; ++e) {
                    double &place =
                        to[Places::place(16 * i + 8 * (e / 2) + g, 8 * j + 2 * t + e % 2)];
                    place = adds ? place + sums[i][j][e] : sums[i][j][e];
                }
    }
};

} // namespace cupygemm
