// fp32 numbers as sums of two tf32 terms, for products by mma.sync.
//
// Three of the four products of terms are added, the smallest first. The error is less than 2^-19
// of a product.
#pragma once

#include "hopper/mma_sync.cuh"

namespace cupygemm {

constexpr u32 tf32_fraction = 0x1fff; // the bits of fp32 that tf32 lacks

// The terms of a lane's numbers in a fragment of A or of B.
template <u32 count> struct Terms {
    u32 high[count], low[count];

    // The first term is rounded to nearest and the second is truncated, by integer operations:
    // cvt.rna.tf32 is a sequence of five.
    CUPYGEMM_INLINE void set(u32 i, float x) {
        high[i] = (f32_bits(x) + (tf32_fraction + 1) / 2) & ~tf32_fraction;
        low[i] = f32_bits(x - float_of_bits(high[i])) & ~tf32_fraction;
    }
};

// mma.sync truncates its sums, so long sums become too small. Therefore products are summed from
// zero over some k, and these partial sums are added by instructions that round. Products with low
// terms are so small that their sums may have any length.

// d[j] += a b[j], but only the products of a high and a low term. A product waits for the previous
// one with the same sums, so the products of different sums alternate.
template <u32 count>
CUPYGEMM_INLINE void mma_low_terms(float (*d)[4], const Terms<4> &a, const Terms<2> (&b)[count]) {
#pragma unroll
    for (u32 j = 0; j < count; ++j)
        mma_m16n8k8(d[j], a.low, b[j].high);
#pragma unroll
    for (u32 j = 0; j < count; ++j)
        mma_m16n8k8(d[j], a.high, b[j].low);
}

// d[j] += a b[j], but only the products of the high terms.
template <u32 count>
CUPYGEMM_INLINE void mma_high_terms(float (*d)[4], const Terms<4> &a, const Terms<2> (&b)[count]) {
#pragma unroll
    for (u32 j = 0; j < count; ++j)
        mma_m16n8k8(d[j], a.high, b[j].high);
}

template <u32 count> CUPYGEMM_INLINE void add_sums(float (*d)[4], const float (&sums)[count][4]) {
#pragma unroll
    for (u32 j = 0; j < count; ++j)
#pragma unroll
        for (u32 e = 0; e < 4; ++e)
            d[j][e] += sums[j][e];
}

} // namespace cupygemm
