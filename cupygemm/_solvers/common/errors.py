"""Errors found on the device: one transfer at the end of a call.

During a graph's capture, nothing can wait for the device, so nothing raises: the result is that of
the factorisation, with NaN or infinities where it failed.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cupygemm._request.arrays import Array

_checked: contextvars.ContextVar[bool] = contextvars.ContextVar("checked", default=True)


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Neither wait for the info of factorisations nor raise errors, like CuPy by default."""
    token = _checked.set(False)
    try:
        yield
    finally:
        _checked.reset(token)


def is_checked() -> bool:
    """Tell whether a call waits for the info of a factorisation and raises errors."""
    return _checked.get()


def is_capturing() -> bool:
    """Tell whether the current stream records a graph."""
    get_current_stream, is_recording = stream_queries()
    return is_recording(get_current_stream())


@functools.cache
def stream_queries() -> tuple[Callable[[], Any], Callable[[Any], bool]]:
    """Return functions for the current stream, and for whether a stream records a graph."""
    from cupy.cuda import get_current_stream
    from cupy.cuda.runtime import streamIsCapturing

    def is_recording(stream: Any) -> bool:
        # The legacy default stream cannot be captured. The query is an error if another stream is
        # being captured.
        return stream.ptr != 0 and bool(streamIsCapturing(stream.ptr))

    return get_current_stream, is_recording


def finite_flag(*arrays: Array) -> Array:
    """Return an int32 array of one element, which is -1 if a number is not finite, else 0."""
    import cupy

    flag = cupy.zeros(1, "int32")
    for array in arrays:
        if array.dtype.kind in "fc":
            _flag_of_not_finite()(array, flag)
    return flag


@functools.cache
def _flag_of_not_finite() -> Any:
    import cupy

    operation = "if (!isfinite(x)) flag[0] = -1"
    return cupy.ElementwiseKernel("T x", "raw int32 flag", operation, "cupygemm_flag_of_not_finite")


def fetch(info: Array, finite: Array | None = None) -> np.ndarray[Any, Any]:
    """Return the info of a factorisation on the host; this waits for the device.

    Zeros while a graph is recorded, and if calls are `unchecked`.

    Parameters
    ----------
    info : cupy.ndarray
        (batches,), int32.
    finite : cupy.ndarray, optional
        From `finite_flag`.

    Raises
    ------
    ValueError
        An operand has a NaN or an infinity.
    """
    import cupy

    if is_capturing() or not (_checked.get() or finite is not None):
        return np.zeros(info.size, "int32")
    values: np.ndarray[Any, Any]
    if finite is None:
        values = info.get()
    else:
        values = cupy.concatenate((finite, info)).get()
        raise_not_finite(values[0])
        values = values[1:]
    return values if _checked.get() else np.zeros_like(values)


def require_finite(finite: Array | None) -> None:
    """Raise ValueError if a flag from `finite_flag` is set; this waits for the device."""
    if finite is not None:
        fetch(finite[:0], finite)


def raise_not_finite(flag: float) -> None:
    """Raise ValueError if a flag from `finite_flag`, on the host, is not zero."""
    if flag != 0:
        raise ValueError("array must not contain infs or NaNs; check_finite=False allows them")


def raise_singular(function: str, info: np.ndarray[Any, Any] | None) -> None:
    """Raise LinAlgError if a matrix is singular; None means that none is."""
    if (failed := first_failed(info)) is not None:
        which, column = failed
        raise np.linalg.LinAlgError(
            f"{function}: Singular matrix{which}: it is exactly singular, as pivot "
            f"{column - 1} is zero"
        )


def raise_not_definite(function: str, info: np.ndarray[Any, Any] | None) -> None:
    """Raise LinAlgError if a matrix is not positive definite; None means that all are."""
    if (failed := first_failed(info)) is not None:
        which, column = failed
        raise np.linalg.LinAlgError(
            f"{function}: Matrix is not positive definite{which}: "
            f"the leading minor of order {column} is not"
        )


def first_failed(info: np.ndarray[Any, Any] | None) -> tuple[str, int] | None:
    """Return the number of the first failed matrix, as a clause, and its info; None without one.

    The clause is empty if there is one matrix.
    """
    if info is None or not info.any():
        return None
    failed = int(np.flatnonzero(info)[0])
    return f" (number {failed} of the stack)" if info.size > 1 else "", int(info[failed])
