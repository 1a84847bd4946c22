"""The panel kernels: their sources, and launches that take addresses and sizes.

The kernels are in ``kernels/common/solvers``. Each is compiled for one element type and one shape
of its blocks, by the backend of the device.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from cupygemm._backends.device import current_device, device
from cupygemm._backends.kernel_kind import KernelKind, Launch
from cupygemm._backends.solver_kernels import GRAM_SUMS, ROWS_PRODUCT, TEAM_OF_CLUSTER

_SMALLEST = {"f": "0x1p-126f", "d": "0x1p-1022"}
_EPSILON = {"f": "0x1p-23f", "d": "0x1p-52"}
_NEGLIGIBLE = {"f": "0x1p-46f", "d": "0x1p-104"}
_TEAM = "common/solvers/team.hpp"
_MOST_PANEL_REGISTERS = 248
"""Per thread of an LU panel in a cluster. 256 threads leave some of an SM's (lu/held_units.py)."""

_kind = functools.partial(KernelKind, file="common/solvers/{}.hpp")
LU_PANEL = _kind("lu_panel", "=QqqQqQQQQQQiiiiii")
QR_PANEL = _kind("qr_panel", "=QqqQqqQqQqqQQQiiii")
QR_TOP = _kind("qr_top", "=QqQqQqQqQqQ")
CHOLESKY_PANEL = _kind("cholesky_panel", "=QqqQqQiiii")
CHOLESKY_FINISH = _kind("cholesky_finish", "=QqqQqii")
TRIANGULAR_SOLVE = _kind("triangular_solve", "=QQqqqqqqii")
TRIANGULAR_VECTOR = _kind("triangular_vector", "=QQqqqqqqQiiii")
AUGMENT = _kind("augment", "=QqqQqqQqqqiiiiii")
SWAP_ROWS = _kind("swap_rows", "=QqqQqQiiiiiiii")
SWAP_MOVES = _kind("swap_moves", "=QqQii")
SMALL_SYSTEM = _kind("small_system", "=QQQQiiii")
SMALL_LU = _kind("small_lu", "=QqqQqqQQQQiiii")
SMALL_INVERSE = _kind("small_inverse", "=QQQii")
DETERMINANT = _kind("determinant", "=QqqQQQii")
SMALL_CHOLESKY = _kind("small_cholesky", "=QqqQqqQiiii")
JACOBI = _kind("jacobi", "=QQqqqqQiiii")
REFLECT_SUMS = _kind("reflect_sums", "=QqqQqqQqQiiii")
REFLECT_APPLY = _kind("reflect_apply", "=QqqQqqQqqQqQiiiiii")
REFLECTOR = _kind("reflector", "=QqqQqqQQii")
WINDOWED_TILE = _kind("windowed_tile", "=QqQQqQQii")
NEXT_WINDOW = _kind("next_window", "=QqQQqQQii")
ROW_PRODUCTS = _kind("row_products", "=QQQQQqii")
ROW_NORMS = _kind("row_norms", "=QQQQQqii")
ERROR_PARTS = _kind("error_parts", "=QQQQQQii")
KRYLOV_STEP = _kind("krylov_step", "=QQQQQQQqiiii")
KRYLOV_END = _kind("krylov_end", "=QQQqiiii")
PANEL_UPDATE = _kind("panel_update", "=QQQqqqqqqqiiii")


def load(
    kind: KernelKind,
    dtype: np.dtype[Any],
    threads: int,
    *,
    clusters: int | bool = True,
    **config: int | bool,
) -> Launch:
    """Return a kernel for an element type, loaded on the current device.

    Parameters
    ----------
    kind : KernelKind
    dtype : numpy.dtype
        The element type.
    threads : int
        The threads of a workgroup.
    clusters : bool
        Whether a team is a cluster, if the device supports clusters of this size.
    **config
        The constants of the kernel's ``Config``. ``team`` is the number of workgroups that factor
        a panel together, and ``shared_bytes`` the dynamic shared memory of one.
    """
    index = current_device()
    key = (index, kind.name, dtype.char, threads, clusters, *config.values())
    launch = _loaded.get(key)
    if launch is None:
        launch = _loaded[key] = _load(
            index, kind, dtype.char, threads, config, clusters=bool(clusters)
        )
    return launch


_loaded: dict[tuple[Any, ...], Launch] = {}
"""By device, name, type, threads, clusters and configuration, in a fixed order for each kernel."""


def _load(
    index: int,
    kind: KernelKind,
    char: str,
    threads: int,
    config: Mapping[str, int | bool],
    *,
    clusters: bool,
) -> Launch:
    backend = device(index).kernels
    constants = dict(sorted(config.items()))
    clusters = clusters and 1 < constants.get("team", 1) <= backend.max_cluster
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
        The constants of its ``Config``, by name.
    clusters : bool
        Whether a team of workgroups is a thread-block cluster.
    """
    team = TEAM_OF_CLUSTER if clusters else _TEAM
    products = {LU_PANEL: ROWS_PRODUCT, QR_PANEL: GRAM_SUMS}
    product = f'#include "{products[kind]}"\n' if clusters and kind in products else ""
    kernel = "CUPYGEMM_KERNEL(threads)"
    if clusters and kind == LU_PANEL:
        kernel = f"CUPYGEMM_KERNEL_OF_REGISTERS({_MOST_PANEL_REGISTERS})"
    attribute = f" __cluster_dims__({constants['team']}, 1, 1)" if clusters else ""
    real = char.lower()
    reals = {
        "smallest_invertible": _SMALLEST[real],
        "tolerance": _EPSILON[real],
        "negligible": _NEGLIGIBLE[real],
    }
    defined = f"#define CUPYGEMM_TEAM_KERNEL(threads) {kernel}{attribute}"
    before = f'#include "{team}"\n{product}{defined}\n\n'
    return kind.source(char, constants, reals, before)
