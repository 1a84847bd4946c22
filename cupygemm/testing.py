"""Operands, error bounds and assertions for tests of matrix products.

Two kinds of tests find the errors of a GEMM kernel. Small integers have exact partial sums, so
their product must be bitwise exact in any order of summation: these tests find indexing errors.
Products of random numbers must be within the bound for summation in float32 and one rounding of the
result: these tests find arithmetic errors.

The functions take NumPy arrays, and CuPy arrays, which are copied to the host.
"""

from __future__ import annotations

import math
from typing import Any, Unpack, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cupygemm._numerics import reference_product as complex_reference
from cupygemm._numerics.device_arrays import on_host, unwritten
from cupygemm._numerics.epilogue_reference import reference_epilogue
from cupygemm._numerics.error_bounds import (
    ACCUMULATOR_BITS,
    finfo,
    gamma,
    gamma_bound,
    half_ulp,
    of_rounding,
    overflows,
    saturated,
)
from cupygemm._numerics.mismatch import report
from cupygemm._numerics.other_product import name_other_product
from cupygemm._numerics.residues import of_products_by_residues
from cupygemm._records.formats import moduli_of, parse_precision
from cupygemm._records.shapes import product_shape
from cupygemm._request.epilogue import EpilogueOptions

__all__ = [
    "assert_gemm_close",
    "assert_gemm_exact",
    "errors_and_bounds",
    "gamma",
    "gamma_bound",
    "half_ulp",
    "integer_operands",
    "random_operands",
    "reference_matmul",
]

TF32_CUT = 2.0**-10  # relative, of a float32 whose fraction is truncated to 10 bits
Shape = tuple[int, ...]
Array = NDArray[Any]


def random_operands(
    x1_shape: Shape, x2_shape: Shape, dtype: DTypeLike, *, seed: int = 0
) -> tuple[Array, Array]:
    """Return two arrays of normally distributed numbers.

    Parameters
    ----------
    x1_shape, x2_shape : tuple of int
    dtype : dtype
        The type of both operands, to which the numbers are converted.
    seed : int
        The same seed gives the same numbers.

    Returns
    -------
    x1, x2 : numpy.ndarray
    """
    generator = np.random.default_rng(seed)
    x1, x2 = (
        complex_reference.draw(lambda s: generator.standard_normal(s, np.float32), shape, dtype)
        for shape in (x1_shape, x2_shape)
    )
    return x1.astype(dtype), x2.astype(dtype)


def integer_operands(
    x1_shape: Shape, x2_shape: Shape, dtype: DTypeLike, *, seed: int = 0
) -> tuple[Array, Array]:
    """Return two arrays of small integers whose product is exact in float32, in any order.

    Parameters
    ----------
    x1_shape, x2_shape : tuple of int
        The last axis of the first is k.
    dtype : dtype
        The type of both operands.
    seed : int
        The same seed gives the same numbers.

    Returns
    -------
    x1, x2 : numpy.ndarray
        Their sums of products are exact in float32 and, if possible, in `dtype`.

    Raises
    ------
    ValueError
        k is so large that even sums of ones are not exact.

    Examples
    --------
    >>> from cupygemm import testing
    >>> x1, x2 = testing.integer_operands((30, 20), (20, 50), "float16")
    >>> float(abs(x1).max())
    8.0
    """
    k = x1_shape[-1]
    if k > 2**ACCUMULATOR_BITS:
        raise ValueError(f"k = {k} is too large: sums of {k} ones are not exact in float32")
    dtype = np.dtype(dtype)
    room = 2**ACCUMULATOR_BITS // (2 if dtype.kind == "c" else 1)
    if dtype.kind == "b":
        room = 1
    elif dtype.kind not in "iuc":
        room = min(room, int(float(finfo(dtype).max)))
    largest = max(1, min(8, math.isqrt(room // max(k, 1))))
    generator = np.random.default_rng(seed)
    smallest = 0 if dtype.kind in "bu" else -largest
    x1, x2 = (
        complex_reference.draw(
            lambda s: generator.integers(smallest, largest, s, endpoint=True), shape, dtype
        )
        for shape in (x1_shape, x2_shape)
    )
    return x1.astype(dtype), x2.astype(dtype)


def reference_matmul(x1: Any, x2: Any, **epilogue: Unpack[EpilogueOptions]) -> Array:
    """Return the product in float64, in which products of 16-bit and 8-bit numbers are exact.

    Parameters
    ----------
    x1, x2 : array
        NumPy or CuPy arrays.
    **epilogue
        Options of `cupygemm.matmul` from ``alpha`` to ``clamp``, applied to the result. Arrays may
        be NumPy's or CuPy's.

    Returns
    -------
    numpy.ndarray
        The product in float64, or in the platform's long double for operands of 64 bits. For
        complex operands, it is complex with parts of these types.

    Raises
    ------
    ValueError, TypeError
        An option is unknown or wrong; in the same cases as `cupygemm.matmul`.

    Examples
    --------
    >>> import numpy as np
    >>> from cupygemm import testing
    >>> testing.reference_matmul(np.ones((2, 3), "float16"), np.ones((3, 2), "float16"), alpha=2)
    array([[6., 6.],
           [6., 6.]])
    """
    x1, x2 = on_host(x1), on_host(x2)
    wide = np.longdouble if complex_reference.bits_of_sums(x1, x2) == 53 else np.float64
    with np.errstate(invalid="ignore"):
        sums = complex_reference.product(x1, x2, wide)
        if not epilogue:
            return sums
        return _with_epilogue(sums, np.zeros_like(sums), x1, x2, epilogue)[0]


def errors_and_bounds(
    actual: Any,
    x1: Any,
    x2: Any,
    *,
    precision: str = "ieee",
    **epilogue: Unpack[EpilogueOptions],
) -> tuple[Array, Array]:
    """Return the error of each element of a product, and the bound for it.

    Parameters
    ----------
    actual : array
        The product, in NumPy or CuPy: of a floating or complex type, or of any type after an
        epilogue.
    x1, x2 : array
        The operands. Products of 8-bit and 16-bit numbers and of float32 are assumed to be summed
        in float32, of float64 in float64, and of integers exactly.
    precision : {"ieee", "tf32", "xf32", "tf32x3", "int8x6", ..., "int8x16"}
        As for `cupygemm.matmul`. In tf32, each operand has a relative error of up to `TF32_CUT`.
        Products by int8 residues have a bound relative to the norms of rows and columns.
    **epilogue
        As for `reference_matmul`.

    Returns
    -------
    errors, bounds : numpy.ndarray
        Absolute errors and bounds, not finite where the product is not; see `gamma_bound`. For an
        8-bit float, the reference is clipped to the range of its type.

    Raises
    ------
    AssertionError
        The shapes of the product and of the reference differ.

    Examples
    --------
    >>> from cupygemm import testing
    >>> x1, x2 = testing.random_operands((30, 20), (20, 50), "float32")
    >>> errors, bounds = testing.errors_and_bounds(x1 @ x2, x1, x2)
    >>> bool((errors <= bounds).all())
    True
    """
    actual, x1, x2 = on_host(actual), on_host(x1), on_host(x2)
    reference = reference_matmul(x1, x2)
    _assert_shape(actual, reference)
    bits = complex_reference.bits_of_sums(x1, x2)
    with np.errstate(invalid="ignore", over="ignore"):
        if x1.dtype.kind in "iu" and x2.dtype.kind in "iu":
            of_sums = np.abs(reference) * 2.0**-bits  # exact, then rounded to float32
        else:
            magnitude = reference_matmul(np.abs(x1), np.abs(x2))
            cut = (1 + TF32_CUT) ** 2 - 1 if parse_precision(precision) == "tf32" else 0.0
            terms = x1.shape[-1] * (2 if reference.dtype.kind == "c" else 1)
            of_sums = (cut + gamma(terms, bits) * (1 + cut)) * magnitude
            moduli = moduli_of(parse_precision(precision))
            if moduli and reference.dtype.kind == "f":
                of_sums = of_products_by_residues(x1, x2, moduli)
        if epilogue:
            narrow = actual.dtype.itemsize <= 2
            reference, of_sums = _with_epilogue(reference, of_sums, x1, x2, epilogue, narrow=narrow)
        reference = saturated(reference, actual.dtype)
        bound = of_sums + of_rounding(np.abs(reference) + of_sums, actual.dtype)
        bound *= math.sqrt(2) if reference.dtype.kind == "c" else 1  # both parts may have errors
        return np.abs(actual.astype(reference.dtype) - reference), bound


def assert_gemm_close(
    actual: Any,
    x1: Any,
    x2: Any,
    *,
    precision: str = "ieee",
    **epilogue: Unpack[EpilogueOptions],
) -> None:
    """Raise AssertionError unless `actual` is the product within `gamma_bound`.

    Parameters
    ----------
    actual : array
        The product to test, in NumPy or CuPy: of a floating or complex type, or of any type after
        an epilogue.
    x1, x2 : array
        The operands. Products of 8-bit and 16-bit numbers and of float32 are assumed to be summed
        in float32, of float64 in float64, and of integers exactly.
    precision : {"ieee", "tf32", "xf32", "tf32x3", "int8x6", ..., "int8x16"}
        As for `cupygemm.matmul`. In tf32, each operand has a relative error of up to `TF32_CUT`.
        Products by int8 residues have a bound relative to the norms of rows and columns.
    **epilogue
        As for `reference_matmul`: the epilogue of the product. The bound accounts for it.

    Raises
    ------
    AssertionError
        With the number of wrong elements, the worst of them, and a map of blocks. The message names
        likely causes: tiles that belong elsewhere in the product, a part of k that is missing or
        added twice, operands read in the wrong memory order or with a wrong leading dimension,
        permuted rows, and similar; and, on the emulated device, elements that were never written.
        NaN and infinities must be where the reference has them; a result too large for its type
        must be infinite, or the largest number of an 8-bit float.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> from cupygemm import testing
    >>> x1, x2 = map(cp.asarray, testing.random_operands((30, 20), (20, 50), "float16"))
    >>> testing.assert_gemm_close(cupygemm.matmul(x1, x2), x1, x2)
    """
    result, actual = actual, on_host(actual)
    reference = saturated(reference_matmul(x1, x2, **epilogue), actual.dtype)
    error, bound = errors_and_bounds(actual, x1, x2, precision=precision, **epilogue)
    close = np.isfinite(reference) & (error <= bound)
    close |= np.isnan(actual) & np.isnan(reference)
    if actual.dtype.kind == "c":
        close = np.where(
            np.isfinite(reference), close, complex_reference.same_places(actual, reference)
        )
    elif actual.dtype.kind not in "iu":
        close |= np.isinf(actual) & (
            overflows(np.abs(reference) + np.where(np.isnan(bound), 0, bound), actual.dtype)
            & (np.signbit(actual) == np.signbit(reference))
        )
    if not close.all():
        lines = [report(actual, reference, ~close, error, bound, unwritten(result))]
        lines += _causes(actual, reference, ~close, bound, x1, x2, epilogue)
        raise AssertionError("\n".join(lines))


def assert_gemm_exact(actual: Any, x1: Any, x2: Any, **epilogue: Unpack[EpilogueOptions]) -> None:
    """Raise AssertionError unless `actual` is the exact product, rounded once.

    Parameters
    ----------
    actual : array
        The product to test, in NumPy or CuPy.
    x1, x2 : array
        Operands with exact sums, such as those of `integer_operands`.
    **epilogue
        As for `reference_matmul`. Every step must be exact in float32.

    Raises
    ------
    AssertionError
        With the number of wrong elements, the worst of them, and a map of blocks. The message names
        likely causes, as for `assert_gemm_close`.

    Examples
    --------
    >>> import cupygemm, cupy as cp
    >>> from cupygemm import testing
    >>> x1, x2 = map(cp.asarray, testing.integer_operands((30, 20), (20, 50), "float32"))
    >>> testing.assert_gemm_exact(cupygemm.matmul(x1, x2, alpha=2), x1, x2, alpha=2)
    """
    result, actual = actual, on_host(actual)
    reference = reference_matmul(x1, x2, **epilogue)
    if epilogue or actual.dtype.kind not in "iu":  # without an epilogue, integers wrap
        reference = saturated(reference, actual.dtype)
    _assert_shape(actual, reference)
    with np.errstate(over="ignore"):
        if epilogue and actual.dtype.kind in "iu":
            reference = np.rint(reference)
        wrong = np.asarray(actual != reference.astype(actual.dtype))
    if wrong.any():
        with np.errstate(invalid="ignore"):
            error = np.abs(actual.astype(np.result_type(np.float64, reference)) - reference)
            rounded = reference.astype(actual.dtype)
        exact = np.zeros(error.shape)
        lines = [report(actual, rounded, wrong, error, exact, unwritten(result))]
        lines += _causes(actual, reference, wrong, exact, x1, x2, epilogue)
        raise AssertionError("\n".join(lines))


def _with_epilogue(
    sums: Array,
    errors: Array,
    x1: Array,
    x2: Array,
    epilogue: EpilogueOptions,
    *,
    narrow: bool = False,
) -> tuple[Array, Array]:
    """Return the product after the epilogue, and the error bound of float arithmetic for it.

    A `narrow` result keeps at most 16 bits.
    """
    given: dict[str, Any] = dict(epilogue)
    for name in given.keys() - EpilogueOptions.__optional_keys__:
        known = ", ".join(EpilogueOptions.__annotations__)
        raise TypeError(f"{name!r} is not an option of an epilogue; the options are {known}")
    for name in ("scale_a", "scale_b", "c", "bias", "scale_out"):
        if given.get(name) is not None:
            given[name] = on_host(given[name])
    options = cast(EpilogueOptions, given)
    bits = complex_reference.bits_of_sums(x1, x2)
    shape = product_shape(x1.shape, x2.shape)
    return reference_epilogue(sums, errors, shape, options, bits=bits, narrow=narrow)


def _causes(
    actual: Array,
    reference: Array,
    wrong: Array,
    bound: Array,
    x1: Any,
    x2: Any,
    epilogue: EpilogueOptions,
) -> list[str]:
    """Return a line that names another product or epilogue for which the elements are correct."""
    x1, x2 = on_host(x1), on_host(x2)
    if not epilogue:
        return name_other_product(actual, reference, wrong, bound, x1, x2)
    for name in epilogue:
        rest = {other: value for other, value in epilogue.items() if other != name}
        errors, bounds = errors_and_bounds(actual, x1, x2, **cast(EpilogueOptions, rest))
        if np.all(errors[wrong] <= bounds[wrong]):
            return [f"  the wrong elements are right for an epilogue without {name}="]
    return []


def _assert_shape(actual: Array, reference: Array) -> None:
    if actual.shape != reference.shape:
        raise AssertionError(f"the result has shape {actual.shape}, not {reference.shape}")
