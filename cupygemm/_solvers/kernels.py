"""The panel kernels: their texts, and launches that take addresses and sizes.

The kernels are in ``kernels/common/solvers``. Each is compiled for one element type and one shape
of its blocks, by the backend of the device.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm._backends.device import device
from cupygemm._build.flatten import flatten

SCALARS = {"f": "float", "d": "double", "F": "Complex<float>", "D": "Complex<double>"}
"""The element type of device code by NumPy's character."""
_SMALLEST = {"f": "0x1p-126f", "d": "0x1p-1022"}
_EPSILON = {"f": "0x1p-23f", "d": "0x1p-52"}
_NEGLIGIBLE = {"f": "0x1p-46f", "d": "0x1p-104"}
_TEAM = "common/solvers/team.hpp"


@dataclass(frozen=True)
class KernelKind:
    """A kernel of the solvers.

    Attributes
    ----------
    name : str
        The name of its file; the entry is ``cupygemm_`` and this name.
    arguments : str
        The format of its struct of arguments, as in `struct`.
    file : str
        The file in ``kernels``, with the name in braces.
    """

    name: str
    arguments: str
    file: str = "common/solvers/{}.hpp"

    @property
    def entry(self) -> str:
        """Return the kernel's name in the compiled file."""
        return f"cupygemm_{self.name}"


LU_PANEL = KernelKind("lu_panel", "=QqqQqQQQQiiiiii")
QR_PANEL = KernelKind("qr_panel", "=QqqQqqQqQqqQQiiii")
CHOLESKY_PANEL = KernelKind("cholesky_panel", "=QqqQqQiiii")
CHOLESKY_FINISH = KernelKind("cholesky_finish", "=QqqQqii")
TRIANGULAR_SOLVE = KernelKind("triangular_solve", "=QQqqqqqqii")
TRIANGULAR_VECTOR = KernelKind("triangular_vector", "=QQqqqqqqQiiii")
SWAP_ROWS = KernelKind("swap_rows", "=QqqQqQiiiiiiii")
SWAP_MOVES = KernelKind("swap_moves", "=QqQii")
SMALL_SYSTEM = KernelKind("small_system", "=QQQQiiii")
SMALL_LU = KernelKind("small_lu", "=QqqQqqQQQQiiii")
SMALL_CHOLESKY = KernelKind("small_cholesky", "=QqqQqqQii")
JACOBI = KernelKind("jacobi", "=QQqqqqQiiii")
REFLECT_SUMS = KernelKind("reflect_sums", "=QqqQqqQqiiii")
REFLECT_APPLY = KernelKind("reflect_apply", "=QqqQqqQqqQqiiiiii")
REFLECTOR = KernelKind("reflector", "=QqqQqqii")
PANEL_UPDATE = KernelKind("panel_update", "=QQQqqqqqqqiiii")
UPDATE_BLOCK = KernelKind("update_block", "=QQQqqqqqqqiiii", "hopper/{}.cu")
SOLVE_TILES = KernelKind("solve_tiles", "=QqqqQqqqQQiiii", "hopper/{}.cu")


class Launch:
    """A kernel that is loaded on the current device.

    Parameters
    ----------
    function : callable
        ``function(grid, threads, packed)``, from `Backend.kernel`.
    kind : KernelKind
    threads : int
        The threads of a workgroup.
    """

    __slots__ = ("_function", "_pack", "_threads")

    def __init__(self, function: Any, kind: KernelKind, threads: int) -> None:
        self._function = function
        self._threads = threads
        self._pack = struct.Struct(kind.arguments).pack

    def __call__(self, grid: tuple[int, int], *arguments: int) -> None:
        """Enqueue the launch on the current stream."""
        self._function(grid, self._threads, self._pack(*arguments))


def load(kind: KernelKind, dtype: np.dtype[Any], threads: int, **config: int | bool) -> Launch:
    """Return a kernel for an element type, loaded on the current device.

    Parameters
    ----------
    kind : KernelKind
    dtype : numpy.dtype
        The element type.
    threads : int
        The threads of a workgroup.
    **config
        The constants of the kernel's ``Config``. ``team`` is the number of workgroups that factor
        a panel together, and ``shared_bytes`` the dynamic shared memory of one.
    """
    index = _current_device()()
    key = (index, kind.name, dtype.char, threads, *config.values())
    launch = _loaded.get(key)
    if launch is None:
        launch = _loaded[key] = _load(index, kind, dtype.char, threads, config)
    return launch


@functools.cache
def _current_device() -> Callable[[], int]:
    from cupy.cuda.runtime import getDevice

    found: Callable[[], int] = getDevice
    return found


_loaded: dict[tuple[Any, ...], Launch] = {}
"""By device, name, type, threads and the values of the configuration, in one order for a kernel."""


def _load(
    index: int, kind: KernelKind, char: str, threads: int, config: Mapping[str, int | bool]
) -> Launch:
    backend = device(index).kernels
    constants = dict(sorted(config.items()))
    clusters = 1 < constants.get("team", 1) <= backend.max_cluster
    text = source(kind, char, {"threads": threads, **constants}, clusters=clusters)
    shared_bytes = constants.get("shared_bytes", 0)
    return Launch(backend.kernel(text, kind.entry, shared_bytes), kind, threads)


def source(
    kind: KernelKind, char: str, constants: Mapping[str, int | bool], *, clusters: bool = False
) -> str:
    """Return the translation unit of a kernel.

    Parameters
    ----------
    kind : KernelKind
    char : str
        NumPy's character of the element type.
    constants : mapping of str to int or bool
        What its ``Config`` holds, by name.
    clusters : bool
        Whether a team of workgroups is a thread-block cluster.
    """
    team = "hopper/team.cuh" if clusters else _TEAM
    attribute = f" __cluster_dims__({constants['team']}, 1, 1)" if clusters else ""
    real = char.lower()
    lines = [
        f'#include "{team}"',
        f"#define CUPYGEMM_TEAM_ATTRIBUTE{attribute}",
        "",
        "namespace cupygemm {",
        "",
        "struct Config {",
        f"    using Scalar = {SCALARS[char]};",
        f"    static constexpr {SCALARS[real]} smallest_invertible = {_SMALLEST[real]};",
        f"    static constexpr {SCALARS[real]} tolerance = {_EPSILON[real]};",
        f"    static constexpr {SCALARS[real]} negligible = {_NEGLIGIBLE[real]};",
        *(
            f"    static constexpr {'bool' if isinstance(value, bool) else 'int'} {name} = "
            f"{str(value).lower()};"
            for name, value in constants.items()
        ),
        "};",
        "",
        "} // namespace cupygemm",
        "",
    ]
    return flatten(kind.file.format(kind.name), {"config.hpp": "\n".join(lines)})
