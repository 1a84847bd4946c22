"""Random butterflies: orthogonal mixtures of rows and columns, but for random factors near one.

A system A x = b becomes (U^T A V) y = U^T b, with x = V y. Each row and each column of U^T A V
mixes four of A, whose distances are a quarter of the extent. A matrix whose leading blocks are
singular or nearly so, such as a permutation, then has leading blocks that can be factored, with
pivots from nearby rows. (D. S. Parker, "Random butterfly transformations with applications in
computational linear algebra", 1995; M. Baboulin, J. Dongarra, J. Herrmann and S. Tomov,
"Accelerating linear system solutions using randomization techniques", 2013.)

A butterfly of two levels, on quarters x0 to x3 of a vector, with diagonal matrices R and S::

    R: y0 = r0 (x0 + x2)    y2 = r2 (x0 - x2)        S: z0 = s0 (y0 + y1)    z1 = s1 (y0 - y1)
       y1 = r1 (x1 + x3)    y3 = r3 (x1 - x3)           z2 = s2 (y2 + y3)    z3 = s3 (y2 - y3)

each divided by the square root of two. Their elements are between 0.95 and 1.05, and depend on the
place alone, so a solution has the same bits each time.
"""

from __future__ import annotations

import functools
from typing import Any

from cupygemm._request.arrays import Array
from cupygemm._solvers.common.matrices import Matrices

_FUNCTIONS = """
// A factor between 0.95 and 1.05, by the finaliser of MurmurHash3, in the public domain.
__device__ double butterfly_factor(unsigned int side, unsigned int level, unsigned int place) {
    unsigned int bits = place * 4 + level * 2 + side;
    bits = (bits ^ bits >> 16) * 0x85ebca6bu;
    bits = (bits ^ bits >> 13) * 0xc2b2ae35u;
    return 0.95 + 0.1 * ((bits ^ bits >> 16) / 4294967296.0);
}
// U^T x of the places i, i + step, i + 2 step and i + 3 step.
__device__ void butterfly(double (&x)[4], unsigned int side, unsigned int i, unsigned int step) {
    const double y[4] = {butterfly_factor(side, 0, i) * (x[0] + x[2]),
                         butterfly_factor(side, 0, i + step) * (x[1] + x[3]),
                         butterfly_factor(side, 0, i + 2 * step) * (x[0] - x[2]),
                         butterfly_factor(side, 0, i + 3 * step) * (x[1] - x[3])};
    for (int q = 0; q < 4; ++q) {
        const double other = y[q ^ 1], sum = q % 2 == 0 ? y[q] + other : other - y[q];
        x[q] = 0.5 * butterfly_factor(side, 1, i + q * step) * sum;
    }
}
// V y of these places.
__device__ void back(double (&x)[4], unsigned int side, unsigned int i, unsigned int step) {
    double y[4];
    for (int q = 0; q < 4; ++q)
        x[q] *= 0.5 * butterfly_factor(side, 1, i + q * step);
    for (int q = 0; q < 4; ++q) {
        const double sum = q % 2 == 0 ? x[q] + x[q + 1] : x[q - 1] - x[q];
        y[q] = butterfly_factor(side, 0, i + q * step) * sum;
    }
    x[0] = y[0] + y[2];
    x[1] = y[1] + y[3];
    x[2] = y[0] - y[2];
    x[3] = y[1] - y[3];
}
"""
_TRANSFORM = """
const unsigned int step = size / 4, row = i / step, column = i % step;
double element[4][4];
for (int p = 0; p < 4; ++p)
    for (int q = 0; q < 4; ++q) {
        const unsigned int r = row + p * step, c = column + q * step;
        element[p][q] = r < n && c < n ? a[(long long)r * n + c] * rows[r] * columns[c] : r == c;
    }
for (int p = 0; p < 4; ++p)
    butterfly(element[p], 2, column, step);
for (int q = 0; q < 4; ++q) {
    double x[4] = {element[0][q], element[1][q], element[2][q], element[3][q]};
    butterfly(x, 1, row, step);
    for (int p = 0; p < 4; ++p)
        out[(row + p * step) * pitch + column + q * step] = x[p];
}
"""
_LEFT = """
const unsigned int step = size / 4, place = i % step;
const long long vector = i / step;
double x[4];
for (int q = 0; q < 4; ++q)
    x[q] = place + q * step < n ? v[vector * n + place + q * step] * scale[vector] : 0;
butterfly(x, 1, place, step);
for (int q = 0; q < 4; ++q)
    out[(place + q * step) * count + vector] = x[q];
"""
_RIGHT = """
const unsigned int step = size / 4, place = i % step;
const long long vector = i / step;
double x[4];
for (int q = 0; q < 4; ++q)
    x[q] = y[(place + q * step) * count + vector];
back(x, 2, place, step);
for (int q = 0; q < 4; ++q)
    if (place + q * step < n)
        out[vector * n + place + q * step] = x[q] / scale[vector];
"""
_LEFT_IN_ORDER = """
const unsigned int step = size / 4, source = order[i], place = source % step;
double y[4];
for (int q = 0; q < 4; ++q)
    y[q] = place + q * step < n ? v[place + q * step] : 0;
butterfly(y, 1, place, step);
const unsigned int quarter = source / step;
out[i] = quarter < 2 ? (quarter == 0 ? y[0] : y[1]) : (quarter == 2 ? y[2] : y[3]);
"""
_RIGHT_SCALED = """
const unsigned int step = size / 4;
double x[4];
for (int q = 0; q < 4; ++q)
    x[q] = y[i + q * step];
back(x, 2, i, step);
for (int q = 0; q < 4; ++q)
    if (i + q * step < n)
        out[i + q * step] = x[q] * scale[i + q * step];
"""


def transform(a: Array, rows: Array, columns: Array, out: Matrices) -> None:
    """Store U^T A V of a scaled matrix, padded with zeros, and with ones on the diagonal.

    Parameters
    ----------
    a : cupy.ndarray
        (n, n), real.
    rows, columns : cupy.ndarray
        (n,): what its rows and its columns are multiplied by.
    out : Matrices
        One matrix of at least n rows, a multiple of four, and at least as many columns.
    """
    import cupy

    size = out.m
    _kernel(
        "transform",
        "raw T a, raw T rows, raw T columns, int64 pitch, uint32 n, uint32 size",
        "raw S out",
        _TRANSFORM,
    )(
        cupy.ascontiguousarray(a),
        cupy.ascontiguousarray(rows),
        cupy.ascontiguousarray(columns),
        out.pitch,
        a.shape[0],
        size,
        out.array,
        size=(size // 4) ** 2,
    )


def left(v: Array, scale: Array, out: Array) -> None:
    """Store U^T times scaled vectors, padded with zeros.

    Parameters
    ----------
    v : cupy.ndarray
        (k, n): the vectors are rows.
    scale : cupy.ndarray
        (k,): what they are multiplied by.
    out : cupy.ndarray
        (size, k), contiguous: columns.
    """
    import cupy

    size, count = out.shape
    parameters = "raw T v, raw T scale, int64 count, uint32 n, uint32 size"
    _kernel("left", parameters, "raw S out", _LEFT)(
        cupy.ascontiguousarray(v), scale, count, v.shape[1], size, out, size=size // 4 * count
    )


def right(y: Array, scale: Array, out: Array) -> None:
    """Store V times vectors, divided by what they were scaled with.

    Parameters
    ----------
    y : cupy.ndarray
        (size, k), contiguous: columns.
    scale : cupy.ndarray
        (k,), of the type of `out`.
    out : cupy.ndarray
        (k, n), contiguous: rows.
    """
    size, count = y.shape
    parameters = "raw S y, raw T scale, int64 count, uint32 n, uint32 size"
    _kernel("right", parameters, "raw T out", _RIGHT)(
        y, scale, count, out.shape[1], size, out, size=size // 4 * count
    )


def left_in_order(v: Array, order: Array, out: Array) -> None:
    """Store the elements of U^T times a vector, padded with zeros, in another order.

    Parameters
    ----------
    v : cupy.ndarray
        (n,), whose largest element is near one.
    order : cupy.ndarray
        (size,), int64: which elements are stored.
    out : cupy.ndarray
        (size,).
    """
    parameters = "raw T v, raw int64 order, uint32 n, uint32 size"
    _kernel("left_in_order", parameters, "raw S out", _LEFT_IN_ORDER)(
        v, order, v.size, out.size, out, size=out.size
    )


def right_scaled(y: Array, scale: Array, out: Array) -> None:
    """Store V times a vector, its elements scaled.

    Parameters
    ----------
    y : cupy.ndarray
        (size,).
    scale : cupy.ndarray
        (n,), of the type of `out`: what the elements are multiplied by.
    out : cupy.ndarray
        (n,).
    """
    parameters = "raw S y, raw T scale, uint32 n, uint32 size"
    _kernel("right_scaled", parameters, "raw T out", _RIGHT_SCALED)(
        y, scale, out.size, y.size, out, size=y.size // 4
    )


@functools.cache
def _kernel(name: str, inputs: str, outputs: str, operation: str) -> Any:
    import cupy

    return cupy.ElementwiseKernel(
        inputs, outputs, operation, f"cupygemm_butterfly_{name}", preamble=_FUNCTIONS
    )
