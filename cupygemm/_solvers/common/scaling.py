"""Exact scaling by powers of two, so that sums of squares neither overflow nor underflow."""

from __future__ import annotations

import functools
from typing import Any

from cupygemm._request.arrays import Array

# The exponents of the numbers, and of the powers of two, are biased by `bias`.
_INVERSE_POWER = """
template <typename Word>
__device__ Word inverse_word(Word word, int fraction_bits, int bias)
{
    const Word exponent = word >> fraction_bits, inverse = 2 * bias - exponent;
    const bool is_ordinary = word > 0 && exponent <= 2 * bias;
    return (is_ordinary ? (inverse > 1 ? inverse : 1) : Word(bias)) << fraction_bits;
}
__device__ double inverse_power(double x)
{
    return __longlong_as_double(inverse_word(__double_as_longlong(x), 52, 1023));
}
__device__ float inverse_power(float x)
{
    return __int_as_float(inverse_word(__float_as_int(x), 23, 127));
}
"""


def power_of_two_scale(a: Array) -> Array:
    """Return, for each matrix of a stack, the power of two that brings its largest part near one.

    Parameters
    ----------
    a : cupy.ndarray
        (batches, m, n).

    Returns
    -------
    cupy.ndarray
        (batches, 1, 1), real. One for zero matrices, and for matrices with NaN or infinities.
    """
    # By rows first: the reduction of one matrix to one number is slow on some devices.
    scale: Array = _inverse_power_of_largest()(largest_parts(a, 2), axis=1)
    return scale[:, None, None]


def inverse_powers_of_two(x: Array) -> Array:
    """Return powers of two that bring numbers near one; one for zeros, NaN and infinities."""
    scale: Array = _inverse_powers()(x)
    return scale


def largest_parts(a: Array, axis: int, factor: Array | None = None) -> Array:
    """Return the largest absolute values of parts of numbers along an axis, in one pass.

    Parameters
    ----------
    a : cupy.ndarray
    axis : int
    factor : cupy.ndarray, optional
        A factor for the parts, of their type; it broadcasts to the shape of `a`.
    """
    is_complex = a.dtype.kind == "c"
    part = "max(abs(entry.real()), abs(entry.imag()))" if is_complex else "abs(entry)"
    found = _reduced(a, axis)
    if factor is None:
        return _reduction("largest", part, "max(a, b)")(a, found, axis=axis)
    scaled = f"{part} * factor"
    return _reduction("largest_scaled", scaled, "max(a, b)", "R factor")(
        a, factor, found, axis=axis
    )


def scaled_row_sums(a: Array, rows: Array | None = None, columns: Array | None = None) -> Array:
    """Return the sums of magnitudes of each row of ``rows * a * columns``, in one pass.

    Parameters
    ----------
    a : cupy.ndarray
        (batches, m, n).
    rows, columns : cupy.ndarray, optional
        (batches, m, 1) and (batches, 1, n), positive.
    """
    found = _reduced(a, 2)
    if rows is None:
        return _reduction("row_sums", "abs(entry)", "a + b")(a, found, axis=2)
    kernel = _reduction(
        "scaled_row_sums", "abs(entry) * rows * columns", "a + b", "R rows", "R columns"
    )
    return kernel(a, rows, columns, found, axis=2)


def scale_into(out: Array, a: Array, rows: Array, columns: Array) -> None:
    """Store ``rows * a * columns`` in another array, in its type, in one pass."""
    _scale_into()(a, rows, columns, out)


def scaled_upper(a: Array, scale: Array) -> Array:
    """Return the upper triangles of matrices divided by their scale, with zeros below, in one pass.

    Parameters
    ----------
    a : cupy.ndarray
        (batches, m, n).
    scale : cupy.ndarray
        (batches, 1, 1), powers of two.
    """
    m, n = a.shape[-2:]
    upper: Array = _scaled_upper()(a, 1 / scale, m, n)
    return upper


def _reduced(a: Array, axis: int) -> Array:
    """Return a real array for the result of a reduction along an axis."""
    import cupy

    shape = a.shape[:axis] + a.shape[axis + 1 :]
    return cupy.empty(shape, a.real.dtype)


@functools.cache
def _reduction(name: str, value: str, reduce: str, *more: str) -> Any:
    import cupy

    # CuPy may replace the names of inputs in the text, so none may be part of another word.
    inputs = ", ".join(("T entry", *more))
    return cupy.ReductionKernel(inputs, "R y", value, reduce, "y = a", "0", f"cupygemm_{name}")


@functools.cache
def _inverse_powers() -> Any:
    import cupy

    name, operation = "cupygemm_inverse_powers", "y = inverse_power(x)"
    return cupy.ElementwiseKernel("T x", "T y", operation, name, preamble=_INVERSE_POWER)


@functools.cache
def _inverse_power_of_largest() -> Any:
    import cupy

    return cupy.ReductionKernel(
        "T x",
        "T y",
        "x",
        "max(a, b)",
        "y = inverse_power(a)",
        "0",
        "cupygemm_inverse_power_of_largest",
        preamble=_INVERSE_POWER,
    )


@functools.cache
def _scaled_upper() -> Any:
    import cupy

    operation = "y = i / columns % rows <= i % columns ? T(a * factor) : T(0)"
    return cupy.ElementwiseKernel(
        "T a, R factor, int64 rows, int64 columns", "T y", operation, "cupygemm_scaled_upper"
    )


@functools.cache
def _scale_into() -> Any:
    import cupy

    operation = "y = a * rows * columns"
    return cupy.ElementwiseKernel("T a, R rows, R columns", "S y", operation, "cupygemm_scale")
