// Blocks of 8 columns of a tile: the factorisation of 8 rows on the diagonal.
//
// A block lies in shared memory by row, with rows of 12 elements.
#pragma once

#include "common/threads.hpp"
#include "config.hpp"

namespace cupygemm {

using S = Config::Scalar;
constexpr u32 block = 8, block_pitch = block + 4;

CUPYGEMM_INLINE bool has_ordinary_inverse(S x) {
    constexpr S least = Config::smallest_invertible;
    return x >= least && x <= 1 / (4 * least);
}

// Quotients with one denominator, rounded a few times. The inverse of its square root does not
// overflow. If its inverse does not overflow either, an fp64 quotient multiplies by an approximate
// inverse, whose correction is computed beside that product.
template <class R, bool any_size> struct Quotient {
    R inverse_root;
    CUPYGEMM_INLINE explicit Quotient(R x) : inverse_root(inverse_square_root(x)) {}
    CUPYGEMM_INLINE R operator()(R x) const { return x * inverse_root * inverse_root; }
};
template <> struct Quotient<float, false> {
    float inverse;
    CUPYGEMM_INLINE explicit Quotient(float x) : inverse(1 / x) {}
    CUPYGEMM_INLINE float operator()(float x) const { return x * inverse; }
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

// Factor 8 rows on the diagonal, as every thread does for itself, and solve for the thread's row.
// Between one pivot and the next, there is one quotient and no branch: columns are scaled, and
// pivots tested, at the end. Returns 1 + the first column that is not positive, or 0; or ~0 if the
// inverse of a pivot may overflow or vanish, unless `any_size`.
template <bool any_size> CUPYGEMM_INLINE u32 factor_block(const S *rows, const S *mine, u32 own,
                                                          u32 columns, S (&x)[block]) {
    S d[block][block];
#pragma unroll
    for (u32 j = 0; j < block; ++j)
        x[j] = mine[j];
#pragma unroll
    for (u32 i = 0; i < block; ++i)
#pragma unroll
        for (u32 j = 0; j <= i; ++j)
            d[i][j] = i < columns ? rows[i * block_pitch + j] : i == j ? 1 : 0;
#pragma unroll
    for (u32 j = 0; j < block; ++j) {
        const Quotient<S, any_size> over(d[j][j]);
#pragma unroll
        for (u32 k = j + 1; k < block; ++k) {
            const S factor = over(d[k][j]);
#pragma unroll
            for (u32 i = k; i < block; ++i)
                d[i][k] = fma_of(-d[i][j], factor, d[i][k]);
            x[k] = fma_of(-x[j], factor, x[k]);
        }
    }
    u32 failed = 0;
#pragma unroll
    for (u32 j = 0; j < block; ++j) {
        if (!any_size && !has_ordinary_inverse(d[j][j]))
            return ~0u;
        if (!(d[j][j] > 0) && failed == 0)
            failed = j + 1;
        const S inverse = inverse_square_root(d[j][j]); // NaN if the pivot is negative
        const S root = x[j] * inverse;                  // if this is the pivot's row
        const S better = fma_of(fma_of(-root, root, x[j]), inverse / 2, root);
        x[j] = own == j ? better : root;
    }
    return failed;
}

} // namespace cupygemm
