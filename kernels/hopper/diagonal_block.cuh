// Blocks of 8 columns of a tile: the factorisation of 8 rows on the diagonal.
//
// A block lies in shared memory by row.
#pragma once

#include "common/solvers/scalar.hpp"
#include "config.hpp"

namespace cupygemm {

using S = Config::Scalar;
constexpr u32 block = 8, block_pitch = block + 4;
constexpr S most_growth = 32; // of |T^-1| |T| for blocks on the diagonal whose inverses are used

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

// Factor 8 rows on the diagonal, one in each of the first lanes of a warp: x becomes a row of the
// factor T. In the other lanes x becomes y with y T^T = x. `own` is the number of the lane's row,
// or none of them.
// A step subtracts the products with a column. Its pivot is known to all lanes, which compute the
// next one for themselves: between the two, there is one quotient, and no message or branch.
// Columns are scaled, and pivots tested, at the end. Returns 1 + the first column that is not
// positive, or 0; or ~0 if the inverse of a pivot may overflow or vanish, unless `any_size`.
template <bool any_size> CUPYGEMM_INLINE u32 factor_block(S (&x)[block], u32 own) {
    const u32 which = local_thread() % block;
    S below[block]; // of the next column, the element in each row
    S next = from_lane(x[1], 1), pivot = from_lane(x[0], 0), own_pivot = pivot;
#pragma unroll
    for (u32 k = 1; k < block; ++k)
        below[k] = from_lane(x[0], k);
#pragma unroll
    for (u32 j = 0; j < block; ++j) {
        const Quotient<S, any_size> over(pivot);
        own_pivot = which == j ? pivot : own_pivot;
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
    }
    // Each lane has one root, and gets the others' from its neighbours.
    if (!any_size && __ballot_sync(~0u, !has_ordinary_inverse(own_pivot)) != 0)
        return ~0u;
    const u32 failed = __ffs(static_cast<int>(__ballot_sync(~0u, !(own_pivot > 0)))); // 0: none
    const S own_inverse = inverse_square_root(own_pivot); // NaN if the pivot is negative
#pragma unroll
    for (u32 j = 0; j < block; ++j) {
        const S inverse = from_lane(own_inverse, j), root = x[j] * inverse; // in the pivot's row
        const S better = fma_of(fma_of(-root, root, x[j]), inverse / 2, root);
        x[j] = own == j ? better : root;
    }
    return failed;
}

} // namespace cupygemm
