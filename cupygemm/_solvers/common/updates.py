"""Updates by products that are too small for `cupygemm.matmul`."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupygemm._backends.kernel_kind import Call, Launch
from cupygemm._backends.solver_kernels import PANEL_PRODUCT, UPDATE_BLOCK
from cupygemm._solvers.common.blocks import has_tile_kernels
from cupygemm._solvers.common.kernels import PANEL_UPDATE, load
from cupygemm._solvers.common.matrices import Layout, Matrices

_TILE, _THREADS = 64, 256
_DEPTH, _PAD, _VECTOR_BYTES = 32, 4, 16
_DEPTHS_OF_BLOCK = (16, _DEPTH)
BLOCK_ELEMENTS = _TILE * (_DEPTH + _PAD) + _DEPTH * (_TILE + _PAD)
"""The elements of a workgroup's operands in shared memory, for the largest depth.

Workgroups of smaller depths allocate the same, so that none fits on the SM of a panel that must be
alone.
"""
_STAGES_OF_PRODUCT = (2, 4)
"""The slabs of both operands that products of float32 hold in shared memory, if k is one or more.

Code that copies slabs ahead takes time to fetch, even if there are none to copy.
"""
Position = tuple[int, int]
Place = tuple[int, int, int]
"""The address of a block, and the elements from a row and from a matrix to the next."""


def panel_update(
    a: Matrices | Layout,
    *,
    left: Position,
    right: Position,
    target: Position,
    extents: tuple[int, int, int],
    hermitian: bool = False,
) -> Call:
    """Return the launch that subtracts a product of blocks from another block of the matrices.

    Parameters
    ----------
    a : Matrices or Layout
    left, right, target : tuple of int
        The first row and column of each block.
    extents : tuple of int
        m, n and k of the product.
    hermitian : bool
        Whether the right factor is the conjugate transpose of its block, and only tiles with
        elements on or below the diagonal are needed.
    """
    m, n, k = extents
    places = a.address(*left), a.address(*right), a.address(*target)
    aligned = not any(address % _VECTOR_BYTES for address in places[:2])
    if aligned and not hermitian and k <= _DEPTH and has_tile_kernels(a.dtype):
        pairs = _has_pairs(places[2], a.pitch, a.stride, a.dtype)
        if a.dtype.char == "d":
            launch = _load_block(a, k, pairs=pairs)
        else:
            launch = _load_product(k, replaces=False, pairs=pairs)
    else:
        launch = _load(a.dtype, hermitian=hermitian)
    arguments = (
        *places,
        a.pitch,
        1,
        a.pitch,
        a.pitch,
        a.stride,
        a.stride,
        a.stride,
        m,
        n,
        k,
        int(hermitian),
    )
    return Call(launch, (-(-m // _TILE) * -(-n // _TILE), a.batches), arguments)


def block_product(
    dtype: np.dtype[Any],
    left: Place,
    right: Place,
    target: Place,
    extents: tuple[int, int, int],
    *,
    batches: int = 1,
    subtract: bool = False,
    exact: bool = True,
) -> Call:
    """Return the launch that stores a product of blocks of different matrices.

    Parameters
    ----------
    dtype : numpy.dtype
        The element type.
    left, right, target : tuple of int
        The places of the blocks; the target shares no element with the others.
    extents : tuple of int
        m, n and k of the product.
    batches : int
        The products.
    subtract : bool
        Whether to subtract the product from the target instead.
    exact : bool
        Whether to multiply in the type. If false, tf32 terms may be multiplied, and the addresses
        and strides of the factors must be multiples of 16 bytes.
    """
    m, n, k = extents
    if not exact and dtype.char == "f" and has_tile_kernels(dtype):
        launch = _load_product(k, replaces=not subtract, pairs=_has_pairs(*target, dtype))
    else:
        launch = _load(dtype, hermitian=False, replaces=not subtract)
    arguments = (
        left[0],
        right[0],
        target[0],
        left[1],
        1,
        right[1],
        target[1],
        left[2],
        right[2],
        target[2],
        m,
        n,
        k,
        0,
    )
    return Call(launch, (-(-m // _TILE) * -(-n // _TILE), batches), arguments)


def _has_pairs(address: int, row: int, matrix: int, dtype: np.dtype[Any]) -> bool:
    """Tell whether one load can read two elements of a row of a block, from each even column."""
    return address % (2 * dtype.itemsize) == 0 and row % 2 == 0 and matrix % 2 == 0


def _load_block(a: Matrices | Layout, k: int, *, pairs: bool) -> Launch:
    """Return the kernel that multiplies `k` columns of float64 by mma.sync."""
    depth = min(depth for depth in _DEPTHS_OF_BLOCK if k <= depth)
    shared_bytes = BLOCK_ELEMENTS * a.dtype.itemsize
    return load(UPDATE_BLOCK, a.dtype, 128, depth=depth, pairs=pairs, shared_bytes=shared_bytes)


def product_bytes(stages: int) -> int:
    """Return the bytes of some slabs of both operands of a product of float32."""
    return 4 * stages * (_TILE * (_DEPTH + 4) + _DEPTH * (_TILE + 8))


def _load_product(k: int, *, replaces: bool, pairs: bool) -> Launch:
    """Return the kernel that multiplies `k` columns of tf32 terms by mma.sync."""
    stages = _STAGES_OF_PRODUCT[k > _DEPTH]
    return load(
        PANEL_PRODUCT,
        np.dtype("f"),
        128,
        depth=_DEPTH,
        stages=stages,
        replaces=replaces,
        pairs=pairs,
        shared_bytes=product_bytes(stages),
    )


def _load(dtype: np.dtype[Any], *, hermitian: bool, replaces: bool = False) -> Launch:
    return load(
        PANEL_UPDATE,
        dtype,
        _THREADS,
        depth=16 if dtype.itemsize < 16 else 8,
        conjugate_transpose=hermitian,
        replaces=replaces,
    )
