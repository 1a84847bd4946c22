"""The operands of solvers: matrices on a device, of supported types, and NumPy's errors."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cupygemm._request.arrays import Array, as_array

F32, F64 = np.dtype("float32"), np.dtype("float64")
FACTORED = "fdFD"
"""The types that kernels factor, as NumPy's characters."""


def require_matrices(function: str, name: str, a: Array) -> None:
    """Raise LinAlgError unless an array is a matrix or a stack of matrices."""
    if a.ndim < 2:
        raise np.linalg.LinAlgError(
            f"{function}: {name} has shape {a.shape}; it must be a matrix or a stack of matrices"
        )


def require_square(function: str, name: str, a: Array) -> None:
    """Raise LinAlgError unless an array is a square matrix or a stack of square matrices."""
    require_matrices(function, name, a)
    if a.shape[-1] != a.shape[-2]:
        raise np.linalg.LinAlgError(
            f"{function}: {name} has shape {a.shape}; the last two extents must be equal"
        )


def factored_dtype(function: str, *arrays: Array, narrow: bool = False) -> np.dtype[Any]:
    """Return the type in which arrays are factored: float32, float64 or their complex types.

    Parameters
    ----------
    function : str
    *arrays : cupy.ndarray
    narrow : bool
        Whether float16 and integers of at most 16 bits are converted to float32, as by SciPy.
        NumPy rejects float16 and converts such integers to float64.

    Raises
    ------
    TypeError
        NumPy's function does not support the type.
    """
    return _factored_dtype(function, *[array.dtype for array in arrays], narrow=narrow)


@functools.lru_cache(maxsize=1024)
def _factored_dtype(function: str, *dtypes: np.dtype[Any], narrow: bool) -> np.dtype[Any]:
    single, is_complex = True, False
    for dtype in dtypes:
        if dtype.char in FACTORED or (narrow and dtype.char == "e"):
            single = single and dtype.char in "feF"
            is_complex = is_complex or dtype.kind == "c"
        elif dtype.kind in "biu":
            single = single and narrow and dtype.itemsize <= 2
        else:
            raise TypeError(f"{function} takes no {dtype}: convert the array to float32 or float64")
    return np.dtype(("F" if single else "D") if is_complex else ("f" if single else "d"))


def square_matrices(function: str, a: Any, *, narrow: bool = False) -> tuple[Array, np.dtype[Any]]:
    """Return the argument ``a``, square matrices on a device, and the type to factor it in.

    Parameters and errors are those of `require_square` and `factored_dtype`.
    """
    a = as_array(function, "a", a)
    shape = a.shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        require_square(function, "a", a)
    return a, _factored_dtype(function, a.dtype, narrow=narrow)


def real_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of the parts of a type's numbers."""
    return F32 if dtype.char in "fF" else F64
