"""Products of many numbers that overflow or underflow only if the result does.

A determinant is the product of the pivots. A partial product may overflow or underflow even if the
whole product does not. Each partial product is therefore stored as a number between 1/2 and 1 and a
power of two, which is exact.
"""

from __future__ import annotations

import functools
from typing import Any

from cupygemm._request.arrays import Array

_PREAMBLE = """
template <typename R> __device__ R larger_part(R x) { return fabs(x); }
template <typename R> __device__ R larger_part(complex<R> x) {
    return fmax(fabs(x.real()), fabs(x.imag()));
}
template <typename R> __device__ R times_power(R x, int exponent) { return ldexp(x, exponent); }
template <typename R> __device__ complex<R> times_power(complex<R> x, int exponent) {
    return complex<R>(ldexp(x.real(), exponent), ldexp(x.imag(), exponent));
}
template <typename T> struct Scaled {
    T value;
    int exponent;
    __device__ Scaled(T x = T(1), int given = 0) : value(x), exponent(given) {
        const auto size = larger_part(x);
        if (size > 0 && size <= 1.7976931348623157e308) { // zero, infinities and NaN stay
            int found;
            frexp(size, &found);
            value = times_power(x, -found);
            exponent += found;
        }
    }
};
template <typename T> __device__ Scaled<T> operator*(const Scaled<T> &a, const Scaled<T> &b) {
    return Scaled<T>(a.value * b.value, a.exponent + b.exponent);
}
"""


def scaled_product(factors: Array, *, axis: int) -> Array:
    """Return the products along an axis, as ``factors.prod(axis=axis)``."""
    return _kernel()(factors, axis=axis)


@functools.cache
def _kernel() -> Any:
    import cupy

    return cupy.ReductionKernel(
        "T x",
        "T y",
        "Scaled<T>(x)",
        "a * b",
        "y = times_power(a.value, a.exponent)",
        "T(1)",
        "cupygemm_scaled_product",
        reduce_type="Scaled<T>",
        preamble=_PREAMBLE,
    )
