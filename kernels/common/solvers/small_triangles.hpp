// Solves and products of rows and small squares with triangles in shared memory.
//
// Registers cannot be indexed at run time. So loops process columns by `chunk` and rotate the
// registers, so that the next chunk comes first.
#pragma once

#include "common/solvers/scalar.hpp"

namespace cupygemm {

template <class S, u32 width> struct SmallTriangles {
    static constexpr u32 pitch = width + 2, chunk = 8;
    static_assert(width % chunk == 0, "columns are taken by chunks");
    using Square = S[width][pitch];

    // Subtract `factor` times a row from the registers after register j.
    CUPYGEMM_INLINE static void update(S (&x)[width], u32 j, u32 base, S factor,
                                       const S (&row)[pitch]) {
#pragma unroll
        for (u32 i = 1; i < chunk; ++i)
            if (i > j)
                x[i] = minus_product(x[i], factor, row[base + i]);
#pragma unroll
        for (u32 at = chunk; at < width; at += chunk)
            if (base + at < width)
#pragma unroll
                for (u32 i = 0; i < chunk; ++i)
                    x[at + i] = minus_product(x[at + i], factor, row[base + at + i]);
    }

    CUPYGEMM_INLINE static void rotate(S (&x)[width]) {
        S finished[chunk];
#pragma unroll
        for (u32 i = 0; i < chunk; ++i)
            finished[i] = x[i];
#pragma unroll
        for (u32 i = chunk; i < width; ++i)
            x[i - chunk] = x[i];
#pragma unroll
        for (u32 i = 0; i < chunk; ++i)
            x[width - chunk + i] = finished[i];
    }

    // Replace rows x by x R^-1: element(j, i) returns an element of R, and inverse(j) the inverse
    // of a diagonal element.
    template <u32 rows, class Element, class Inverse> CUPYGEMM_INLINE static void
    substitute(S (&row)[rows][width], const Element &element, const Inverse &inverse) {
#pragma unroll 1
        for (u32 base = 0; base < width; base += chunk) {
#pragma unroll
            for (u32 j = 0; j < chunk; ++j) {
                const S scale = inverse(base + j);
#pragma unroll
                for (u32 own = 0; own < rows; ++own)
                    row[own][j] = times(row[own][j], scale);
#pragma unroll
                for (u32 i = j + 1; i < chunk; ++i) {
                    const S factor = element(base + j, base + i);
#pragma unroll
                    for (u32 own = 0; own < rows; ++own)
                        row[own][i] = minus_product(row[own][i], factor, row[own][j]);
                }
            }
#pragma unroll
            for (u32 at = chunk; at < width; at += chunk)
                if (base + at < width)
#pragma unroll
                    for (u32 j = 0; j < chunk; ++j)
#pragma unroll
                        for (u32 i = 0; i < chunk; ++i) {
                            const S factor = element(base + j, base + at + i);
#pragma unroll
                            for (u32 own = 0; own < rows; ++own)
                                row[own][at + i] =
                                    minus_product(row[own][at + i], factor, row[own][j]);
                        }
#pragma unroll
            for (u32 own = 0; own < rows; ++own)
                rotate(row[own]);
        }
    }

    // The product of the upper triangles of two squares. Called by every thread.
    CUPYGEMM_INLINE static void multiply(Square &to, const Square &x, const Square &y, u32 thread,
                                         u32 threads) {
        for (u32 at = thread; at < width * width; at += threads) {
            const u32 i = at / width, j = at % width;
            S sum{};
#pragma unroll 4
            for (u32 k = i; k <= j; ++k)
                sum = plus_product(sum, x[i][k], y[k][j]);
            to[i][j] = sum;
        }
    }
};

} // namespace cupygemm
