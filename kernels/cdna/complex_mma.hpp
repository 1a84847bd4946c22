// Complex products with real matrix instructions.
//
// A 16-byte chunk of complex numbers holds re im re im: twice as many real values along k. Two
// versions of the first operand are made in registers, and each is multiplied by the unchanged
// second operand:
//
//   conjugate   re -im re -im    sums  re re - im im,  the real part
//   swapped     im  re im  re    sums  im re + re im,  the imaginary part
//
// Operands keep their place and layout. A complex product takes four real ones, and a fragment
// takes twice the accumulators. Sums, and the places of NaN and infinities, follow the definition
// (a + bi)(c + di) = (ac - bd) + (ad + bc) i.
#pragma once

#include "cdna/mfma.hpp"

namespace cupygemm {

template <class Part, int mma_m, int mma_n, int mma_k> struct ComplexMma {
    using Real = Mma<Part, Part, mma_m, mma_n, mma_k>;
    using Scalar = Complex<typename Real::Scalar>;
    struct Accumulator {
        typename Real::Accumulator re, im;
    };
    static constexpr bool rows_are_runs = Real::rows_are_runs;
    static constexpr int per_chunk = 2 * Real::per_chunk; // instructions

    CUPYGEMM_INLINE static void multiply(u32x4 a, u32x4 b, Accumulator &acc) {
        Real::multiply(conjugate(a), b, acc.re);
        Real::multiply(swapped(a), b, acc.im);
    }

    CUPYGEMM_INLINE static Scalar element(const Accumulator &acc, int index) {
        return {acc.re[index], acc.im[index]};
    }

    CUPYGEMM_INLINE static u32x4 conjugate(u32x4 x) {
        constexpr u32 sign = 0x80000000u; // in the last dword of an imaginary part
        if constexpr (Numeric<Part>::bytes == 4)
            return u32x4{x.x, x.y ^ sign, x.z, x.w ^ sign};
        else
            return u32x4{x.x, x.y, x.z, x.w ^ sign};
    }

    CUPYGEMM_INLINE static u32x4 swapped(u32x4 x) {
        if constexpr (Numeric<Part>::bytes == 4)
            return u32x4{x.y, x.x, x.w, x.z};
        else
            return u32x4{x.z, x.w, x.x, x.y};
    }
};

template <int mma_m, int mma_n, int mma_k> struct Mma<c64, c64, mma_m, mma_n, mma_k>
    : ComplexMma<f32, mma_m, mma_n, mma_k> {};

template <int mma_m, int mma_n, int mma_k> struct Mma<c128, c128, mma_m, mma_n, mma_k>
    : ComplexMma<f64, mma_m, mma_n, mma_k> {};

} // namespace cupygemm
