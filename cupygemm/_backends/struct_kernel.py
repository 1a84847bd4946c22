"""Kernels that are no products: launched by CuPy, with one struct as their argument."""

from __future__ import annotations

from typing import Any

import numpy as np


class StructKernel:
    """A kernel whose only argument is a struct, launched by CuPy.

    Parameters
    ----------
    kernel : cupy.RawKernel
    """

    __slots__ = ("_kernel",)

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __call__(self, grid: tuple[int, int], threads: int, packed: bytes) -> None:
        """Enqueue a launch on the current stream."""
        argument = np.frombuffer(packed, np.dtype((np.void, len(packed))))
        self._kernel((*grid, 1), (threads, 1, 1), (argument,))
