// Blocks of 8 columns of a tile: the factorisation of 8 rows on the diagonal.
//
// A block lies in shared memory by row, with rows of 12 elements.
#pragma once

#include "common/solvers/scalar.hpp"
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

// Factor 8 rows on the diagonal, as every thread does for itself, and solve for the thread's row.
// All threads of a warp must call this.
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
    // Each thread has one root, and gets the others' from its neighbours.
    const u32 which = local_thread() % block;
    S pivot = d[0][0];
#pragma unroll
    for (u32 j = 1; j < block; ++j)
        pivot = which == j ? d[j][j] : pivot;
    if (!any_size && __ballot_sync(~0u, !has_ordinary_inverse(pivot)) != 0)
        return ~0u;
    const u32 failed = __ffs(static_cast<int>(__ballot_sync(~0u, !(pivot > 0)))); // 0: none
    const S own_inverse = inverse_square_root(pivot); // NaN if the pivot is negative
#pragma unroll
    for (u32 j = 0; j < block; ++j) {
        const S inverse = from_lane(own_inverse, j), root = x[j] * inverse; // in the pivot's row
        const S better = fma_of(fma_of(-root, root, x[j]), inverse / 2, root);
        x[j] = own == j ? better : root;
    }
    return failed;
}

} // namespace cupygemm
