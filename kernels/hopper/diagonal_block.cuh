// Blocks of 8 columns of a tile: the factorisation of 8 rows on the diagonal.
//
// A block is stored in shared memory by row.
#pragma once

#include "common/solvers/scalar.hpp"
#include "config.hpp"

namespace cupygemm {

using S = Config::Scalar;
constexpr u32 block = 8, block_pitch = block + 4;
constexpr S most_growth = 32; // of |T^-1| |T| for blocks on the diagonal whose inverses are used

// The sign, the exponent and the first bits of a number. They have the order of positive numbers,
// and are larger for all other numbers except zeros.
CUPYGEMM_INLINE u32 high_word(float x) { return f32_bits(x); }
CUPYGEMM_INLINE u32 high_word(double x) { return static_cast<u32>(f64_bits(x) >> 32); }

// The inverse square root of a number whose inverse neither overflows nor underflows.
CUPYGEMM_INLINE float ordinary_inverse_root(float x) { return inverse_square_root(x); }
CUPYGEMM_INLINE double ordinary_inverse_root(double x) {
    double y;
    asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x)); // to 20 bits
    const double error = fma_of(-x * y, y, 1);
    return fma_of(y * error, fma_of(error, 0.375, 0.5), y);
}

// Quotients with one denominator, rounded a few times. The inverse of its square root does not
// overflow. If its inverse does not overflow either, an fp64 quotient multiplies by an approximate
// inverse, whose correction is computed in parallel with that product.
template <class R, bool any_size> struct Quotient {
    R inverse_root;
    CUPYGEMM_INLINE explicit Quotient(R x) : inverse_root(inverse_square_root(x)) {}
    CUPYGEMM_INLINE R operator()(R x) const { return x * inverse_root * inverse_root; }
};
template <> struct Quotient<float, false> {
    float reciprocal;
    CUPYGEMM_INLINE explicit Quotient(float x) : reciprocal(inverse(x)) {}
    CUPYGEMM_INLINE float operator()(float x) const { return x * reciprocal; }
};
template <> struct Quotient<double, false> {
    double inverse, correction;

    CUPYGEMM_INLINE explicit Quotient(double x) : inverse(approximate_inverse(x)) { // to 20 bits
        const double error = fma_of(-x, inverse, 1);
        correction = fma_of(error, error, error);
    }
    CUPYGEMM_INLINE double operator()(double x) const {
        const double product = x * inverse;
        return fma_of(product, correction, product);
    }
};

// Factor 8 rows on the diagonal, one in each of the first lanes of a warp: x becomes a row of the
// factor T. In the other lanes x becomes y with y T^T = x. `own` is the number of the lane's row;
// other lanes pass a number that no row has. A step subtracts the products with a column. All lanes
// know its pivot, and each computes the next one redundantly, so the chain from pivot to pivot has
// one quotient, and no shuffle or branch. Returns 1 + the first column whose pivot is not positive,
// or 0; or ~0 if the inverse of a pivot may overflow or underflow, unless `any_size`.
template <bool any_size> CUPYGEMM_INLINE u32 factor_block(S (&x)[block], u32 own) {
    constexpr S least = Config::smallest_invertible;
    S below[block]; // of the next column, the element in each row
    S next = from_lane(x[1], 1), pivot = from_lane(x[0], 0);
    u32 failed = 0, smallest = ~0u, largest = 0;
#pragma unroll
    for (u32 k = 1; k < block; ++k)
        below[k] = from_lane(x[0], k);
#pragma unroll
    for (u32 j = 0; j < block; ++j) {
        const Quotient<S, any_size> over(pivot);
        const S of_column = pivot;
        S factor[block];
#pragma unroll
        for (u32 k = j + 1; k < block; ++k) {
            factor[k] = over(below[k]);
            x[k] = fma_of(-x[j], factor[k], x[k]);
        }
        if (j + 1 < block)
            pivot = fma_of(-below[j + 1], factor[j + 1], next);
#pragma unroll
        for (u32 k = j + 2; k < block; ++k)
            below[k] = from_lane(x[j + 1], k);
        if (j + 2 < block)
            next = from_lane(x[j + 2], j + 2);
        if constexpr (any_size) {
            if (failed == 0 && !(of_column > 0))
                failed = j + 1;
        } else {
            const u32 word = high_word(of_column);
            smallest = word < smallest ? word : smallest;
            largest = word > largest ? word : largest;
        }
        // The column is scaled. A negative pivot has no root: NaN.
        const S inverse =
            any_size ? inverse_square_root(of_column) : ordinary_inverse_root(of_column);
        const S root = x[j] * inverse; // in the pivot's row
        const S better = fma_of(fma_of(-root, root, x[j]), inverse / 2, root);
        x[j] = own == j ? better : root;
    }
    if (!any_size && (smallest <= high_word(least) || largest >= high_word(1 / (4 * least))))
        return ~0u;
    return failed;
}

} // namespace cupygemm
