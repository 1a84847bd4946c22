"""Calls of the stand-in libraries as C code makes them, and operands for them."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

import numpy as np

NULL = ctypes.c_void_p()
LETTERS = {"S": "f4", "D": "f8", "C": "c8", "Z": "c16"}


def pointer(value: Any) -> ctypes.c_void_p:
    """Return the address of a CuPy array, a NumPy array or a number."""
    if hasattr(value, "data") and hasattr(value.data, "ptr"):
        return ctypes.c_void_p(value.data.ptr)
    return ctypes.c_void_p(value.ctypes.data if isinstance(value, np.ndarray) else value)


class Library:
    """A loaded library. Arrays are passed by their addresses, integers as int, `Size` as size_t."""

    def __init__(self, soname: str) -> None:
        self._loaded = ctypes.CDLL(soname)
        self._kept: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._loaded, name)

        def call(*arguments: Any) -> int:
            passed = [
                each if isinstance(each, int | ctypes._SimpleCData) else pointer(each)
                for each in arguments
            ]
            return int(function(*passed))

        return call

    def handle(self, create: str) -> ctypes.c_void_p:
        """Make a handle."""
        handle = ctypes.c_void_p()
        assert getattr(self._loaded, create)(ctypes.byref(handle)) == 0
        return handle


def operand(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Return normally distributed values, complex ones of a complex type."""
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def padded(cp: ModuleType, matrix: np.ndarray[Any, Any], ld: int) -> Any:
    """Return a matrix in device memory, column-major with a leading dimension, NaN in between."""
    columns = np.full((matrix.shape[1], ld), np.nan, matrix.dtype)
    columns[:, : matrix.shape[0]] = matrix.T
    return cp.asarray(columns)


def unpadded(array: Any, rows: int) -> np.ndarray[Any, Any]:
    """Return the matrix of `padded`, and check that nothing was written in between."""
    columns: np.ndarray[Any, Any] = array.get()
    assert np.isnan(columns[:, rows:]).all(), "the gap between columns was written"
    return columns[:, :rows].T


def pointers(cp: ModuleType, arrays: list[Any]) -> Any:
    """Return the addresses of arrays, in device memory."""
    return cp.asarray(np.array([array.data.ptr for array in arrays], np.uint64))
