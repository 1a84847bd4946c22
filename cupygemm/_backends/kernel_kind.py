"""Kernels other than products, with a ``Config``: their names, sources and launches.

Each is compiled for one element type and one ``Config``, by the backend of the device
(`Backend.kernel`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from cupygemm._backends.config_source import config_lines
from cupygemm._backends.struct_kernel import Shape, StructKernel, pointed
from cupygemm._build.flatten import flatten

_SCALARS = {"f": "float", "d": "double", "F": "Complex<float>", "D": "Complex<double>"}
_NO_REALS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class KernelKind:
    """A kernel for any element type and ``Config``.

    Attributes
    ----------
    name : str
        The name of its file; the entry is ``cupygemm_`` and this name.
    arguments : str
        The format of its struct of arguments, as in `struct`; Q is an address. Arguments of 8 bytes
        come first, then pairs of 4-byte arguments.
    file : str
        The file in ``kernels``, with the name in braces.
    """

    name: str
    arguments: str
    file: str

    @property
    def entry(self) -> str:
        """Return the kernel's name in the compiled file."""
        return f"cupygemm_{self.name}"

    @cached_property
    def pack(self) -> Callable[..., bytes]:
        """Return the function that packs its arguments."""
        return struct.Struct(self.arguments).pack

    @cached_property
    def address_words(self) -> list[int]:
        """Return the indices of the 8-byte words of the packed arguments that are addresses."""
        return [i for i, kind in enumerate(self.arguments.lstrip("=")) if kind == "Q"]

    def source(
        self,
        char: str,
        constants: Mapping[str, int | bool],
        reals: Mapping[str, str] = _NO_REALS,
        before: str = "",
    ) -> str:
        """Return the translation unit.

        Parameters
        ----------
        char : str
            NumPy's character of the element type.
        constants : mapping of str to int or bool
            The constants of its ``Config``, by name.
        reals : mapping of str to str
            Its constants of the real type, as C++ expressions.
        before : str
            The text before the ``Config``.
        """
        real = _SCALARS[char.lower()]
        typed: dict[str, object] = {f"{real} {name}": value for name, value in reals.items()}
        for name, value in constants.items():
            typed[f"{'bool' if isinstance(value, bool) else 'int'} {name}"] = value
        lines = [
            "namespace cupygemm {",
            "",
            *config_lines({"Scalar": _SCALARS[char]}, typed),
            "",
            "} // namespace cupygemm",
            "",
        ]
        return flatten(self.file.format(self.name), {"config.hpp": before + "\n".join(lines)})


class Launch:
    """A kernel that is loaded on the current device.

    Parameters
    ----------
    function : StructKernel
        From `Backend.kernel`.
    kind : KernelKind
    threads : int
        The threads of a workgroup.
    """

    __slots__ = ("_pack", "function", "kind", "threads")

    def __init__(self, function: StructKernel, kind: KernelKind, threads: int) -> None:
        self.function = function
        self.kind = kind
        self.threads = threads
        self._pack = kind.pack

    def __call__(self, grid: tuple[int, int], *arguments: float) -> None:
        """Enqueue the launch on the current stream."""
        self.function(grid, self.threads, self._pack(*arguments))


class Call(NamedTuple):
    """A launch with its grid and its arguments."""

    launch: Launch
    grid: tuple[int, int]
    arguments: tuple[float, ...]

    def enqueue(self) -> None:
        """Enqueue the launch on the current stream."""
        self.launch(self.grid, *self.arguments)

    def enqueue_on(self, stream: int) -> None:
        """Enqueue the launch on the stream with this address."""
        address, _, _kept = pointed(self.launch.kind.pack(*self.arguments))
        self.launch.function.launch(self.shape, stream, address)

    @property
    def shape(self) -> Shape:
        """Return the shape of the launch."""
        return self.launch.function.shape(self.grid, self.launch.threads)
