"""The kernels of ``kernels/common/modular``: their texts, and launches that take addresses."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cupygemm._backends.protocol import Backend
from cupygemm._build.flatten import flatten

SCALARS = {"f": "float", "d": "double"}
"""The element type of device code by NumPy's character."""
THREADS = 256
Enqueue = Callable[..., None]


@dataclass(frozen=True)
class KernelKind:
    """A kernel of products by residues.

    Attributes
    ----------
    name : str
        The name of its file; the entry is ``cupygemm_`` and this name.
    arguments : str
        The format of its struct of arguments, as in `struct`.
    """

    name: str
    arguments: str

    @property
    def entry(self) -> str:
        """Return the kernel's name in the compiled file."""
        return f"cupygemm_{self.name}"


SCALES = KernelKind("scales", "=QqqqQdii")
RESIDUES = KernelKind("residues", "=QqqqQQiiii")
RECONSTRUCT = KernelKind("reconstruct", "=QQQQQqqqqqqqqdd35diiii")


def source(kind: KernelKind, char: str, **config: int | bool) -> str:
    """Return the translation unit of a kernel.

    Parameters
    ----------
    kind : KernelKind
    char : str
        NumPy's character of the element type.
    **config
        What its ``Config`` holds besides.
    """
    lines = [
        "namespace cupygemm {",
        "",
        "struct Config {",
        f"    using Scalar = {SCALARS[char]};",
        *(
            f"    static constexpr {'bool' if isinstance(value, bool) else 'int'} {name} = "
            f"{str(value).lower()};"
            for name, value in {"threads": THREADS, **config}.items()
        ),
        "};",
        "",
        "} // namespace cupygemm",
        "",
    ]
    return flatten(f"common/modular/{kind.name}.hpp", {"config.hpp": "\n".join(lines)})


class Kernels:
    """The kernels of one element type and number of moduli, loaded on the current device.

    Parameters
    ----------
    backend : Backend
        What compiles them.
    dtype : numpy.dtype
        float32 or float64.
    moduli : int
    """

    def __init__(self, backend: Backend, dtype: np.dtype[np.floating], moduli: int) -> None:
        self._backend, self._char, self.moduli = backend, dtype.char, moduli
        self._loaded: dict[tuple[str, int], Enqueue] = {}

    def scales(self, *, along_k: bool) -> Enqueue:
        """Return the kernel that finds exponents; `along_k` if elements are adjacent along k."""
        return self._load(SCALES, along_k, along_k=along_k)

    def residues(self, *, along_k: bool) -> Enqueue:
        """Return the kernel that stores residues."""
        return self._load(RESIDUES, along_k, along_k=along_k, moduli=self.moduli)

    def reconstruct(self, across: int) -> Enqueue:
        """Return the kernel that puts residues together, `across` threads in a row."""
        return self._load(RECONSTRUCT, across, across=across, moduli=self.moduli)

    def _load(self, kind: KernelKind, key: int, **config: int | bool) -> Enqueue:
        found = self._loaded.get((kind.name, key))
        if found is None:
            text = source(kind, self._char, **config)
            found = _enqueue(self._backend.kernel(text, kind.entry), kind)
            self._loaded[kind.name, key] = found
        return found


def _enqueue(function: Callable[..., None], kind: KernelKind) -> Enqueue:
    pack = struct.Struct(kind.arguments).pack

    def enqueue(grid: tuple[int, int], *arguments: float) -> None:
        function(grid, THREADS, pack(*arguments))

    return enqueue
