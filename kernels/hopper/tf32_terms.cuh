// fp32 numbers as sums of two tf32 terms, for products by mma.sync.
//
// Three of the four products of terms are added, the smallest first. What is left out is 2^-22 of a
// product or less.
#pragma once

#include "hopper/mma_sync.cuh"

namespace cupygemm {

CUPYGEMM_INLINE u32 tf32_bits(float x) {
    u32 bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

// The terms of some numbers: those of a lane in a fragment of A, or of B.
template <u32 count> struct Terms {
    u32 high[count], low[count];

    CUPYGEMM_INLINE void set(u32 i, float x) {
        high[i] = tf32_bits(x);
        low[i] = tf32_bits(x - __uint_as_float(high[i]));
    }
};

// d[j] += a b[j]. A product waits for the last one with the same sums, so these take turns.
template <u32 count>
CUPYGEMM_INLINE void mma_terms(float (*d)[4], const Terms<4> &a, const Terms<2> (&b)[count]) {
#pragma unroll
    for (u32 term = 0; term < 3; ++term)
#pragma unroll
        for (u32 j = 0; j < count; ++j)
            mma_m16n8k8(d[j], term == 0 ? a.low : a.high, term == 1 ? b[j].low : b[j].high);
}

} // namespace cupygemm
