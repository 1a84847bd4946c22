"""The kernels of ``kernels/common/modular``: their sources, and launches that take addresses."""

from __future__ import annotations

import functools

import numpy as np

from cupygemm._backends.kernel_kind import KernelKind, Launch
from cupygemm._backends.protocol import Backend

THREADS = 256

_kind = functools.partial(KernelKind, file="common/modular/{}.hpp")
SCALES = _kind("scales", "=QqqqQdii")
RESIDUES = _kind("residues", "=QqqqQQiiii")
RECONSTRUCT = _kind("reconstruct", "=QQQQQqqqqqqqqdd35diiii")


def source(kind: KernelKind, char: str, **config: int | bool) -> str:
    """Return the translation unit of a kernel.

    Parameters
    ----------
    kind : KernelKind
    char : str
        NumPy's character of the element type.
    **config
        The other constants of its ``Config``.
    """
    return kind.source(char, {"threads": THREADS, **config})


class Kernels:
    """The kernels of one element type and number of moduli, loaded on the current device.

    Parameters
    ----------
    backend : Backend
        The backend that compiles them.
    dtype : numpy.dtype
        float32 or float64.
    moduli : int
    """

    def __init__(self, backend: Backend, dtype: np.dtype[np.floating], moduli: int) -> None:
        self._backend, self._char, self.moduli = backend, dtype.char, moduli
        self._loaded: dict[tuple[str, int], Launch] = {}

    def scales(self, *, along_k: bool) -> Launch:
        """Return the kernel that finds exponents; `along_k` if elements are adjacent along k."""
        return self._load(SCALES, along_k, along_k=along_k)

    def residues(self, *, along_k: bool) -> Launch:
        """Return the kernel that stores residues."""
        return self._load(RESIDUES, along_k, along_k=along_k, moduli=self.moduli)

    def reconstruct(self, across: int) -> Launch:
        """Return the kernel that reconstructs numbers from residues, `across` threads per row."""
        return self._load(RECONSTRUCT, across, across=across, moduli=self.moduli)

    def _load(self, kind: KernelKind, key: int, **config: int | bool) -> Launch:
        found = self._loaded.get((kind.name, key))
        if found is None:
            text = source(kind, self._char, **config)
            found = Launch(self._backend.kernel(text, kind.entry), kind, THREADS)
            self._loaded[kind.name, key] = found
        return found
