"""The launch of a compiled kernel: its argument and its grid.

A kernel's only argument is one struct, passed by value. `GEMM_ARGS` is the struct ``GemmArgs`` of
``kernels/common`` as a NumPy dtype. Only the three addresses differ from call to call, so the rest
is packed once, and a call prepends 24 bytes.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from cupygemm._backends.cdna.config import GemmConfig, grid
from cupygemm._backends.cdna.split import ADD_THREADS, add_grid, stream_tiles, workspace_bytes
from cupygemm._backends.epilogue_args import EPILOGUE_ARGS
from cupygemm._records.dtypes import ITEMSIZE
from cupygemm._records.problem import GemmProblem
from cupygemm._request.batch import Offsets
from cupygemm._request.layout import Layout

GEMM_ARGS = np.dtype(
    [
        ("a", np.uint64),
        ("b", np.uint64),
        ("c", np.uint64),
        ("m", np.int32),
        ("n", np.int32),
        ("k", np.int32),
        ("batch0", np.int32),
        ("batch1", np.int32),
        ("batch2", np.int32),
        ("lda", np.int64),
        ("ldb", np.int64),
        ("ldc", np.int64),
        ("a_stride", np.int64, 3),
        ("b_stride", np.int64, 3),
        ("c_stride", np.int64, 3),
    ],
    align=True,
)
"""The struct ``GemmArgs``.

The batch extents are outermost first; absent ones are 1. Pitches and strides are in elements. A
pitch is the stride of the matrix axis whose elements are not adjacent.
"""

PART_ARGS = np.dtype(
    [("num_parts", np.uint32), ("stream_tiles", np.uint32), ("workspace", np.uint64)], align=True
)
"""The struct ``PartArgs``, which follows `GEMM_ARGS` if workgroups share tiles."""

BLOCK_SCALE_ARGS = np.dtype([("a", np.uint64), ("b", np.uint64)], align=True)
"""The struct ``BlockScaleArgs``, which follows the others if blocks of k have scales."""

_ADDRESSES = struct.Struct("=QQQ")
_ADDRESS = struct.Struct("=Q")
# CuPy passes an array of size one by value. For a structured array it inspects the fields at each
# launch, which takes 10 us; an opaque array takes 1 us.


def _opaque(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype((np.void, sum(dtype.itemsize for dtype in dtypes)))


def _parameter(problem: GemmProblem, *more: np.dtype[Any]) -> np.dtype[Any]:
    """Return the parameter of a kernel."""
    epilogue = () if problem.epilogue is None else (EPILOGUE_ARGS,)
    scales = (BLOCK_SCALE_ARGS,) if problem.block_scaled else ()
    return _opaque(GEMM_ARGS, *epilogue, *scales, *more)


def pack_arguments(layout: Layout, offsets: Offsets) -> Any:
    """Return the struct of one launch as an array of `GEMM_ARGS`, size one.

    The addresses are byte offsets from the operands' first elements.
    """
    problem = layout.problem
    batch0, batch1, batch2 = (1,) * (3 - len(problem.batch)) + problem.batch
    arguments = np.zeros(1, GEMM_ARGS)
    values: dict[str, Any] = {
        "a": offsets.a * ITEMSIZE[problem.a_dtype] % 2**64,
        "b": offsets.b * ITEMSIZE[problem.b_dtype] % 2**64,
        "c": offsets.c * ITEMSIZE[problem.out_dtype] % 2**64,
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "batch0": batch0,
        "batch1": batch1,
        "batch2": batch2,
        "lda": layout.lda,
        "ldb": layout.ldb,
        "ldc": layout.ldc,
        "a_stride": layout.a_stride,
        "b_stride": layout.b_stride,
        "c_stride": layout.c_stride,
    }
    for name, value in values.items():
        arguments[name] = value
    return arguments


def pack_parts(config: GemmConfig, problem: GemmProblem) -> Any:
    """Return the arguments of a launch whose workgroups share tiles, as `PART_ARGS`.

    The address of the workspace, its last field, is zero.
    """
    arguments = np.zeros(1, PART_ARGS)
    arguments["num_parts"] = config.stream_k or config.split_k
    arguments["stream_tiles"] = stream_tiles(config, problem)
    return arguments


class GemmLaunch:
    """One prepared launch; calling it with the three addresses enqueues it on the current stream.

    Parameters
    ----------
    kernel : callable
        ``kernel(grid, block, args)``, as `cupy.RawKernel`.
    layout : Layout
    offsets : Offsets
    config : GemmConfig
    """

    __slots__ = ("_block", "_constants", "_kernel", "_offsets", "_parameter", "grid")

    def __init__(self, kernel: Any, layout: Layout, offsets: Offsets, config: GemmConfig) -> None:
        packed = pack_arguments(layout, offsets).tobytes()
        self._kernel = kernel
        self._offsets = _ADDRESSES.unpack_from(packed) if any(packed[: _ADDRESSES.size]) else None
        self._constants: bytes = packed[_ADDRESSES.size :]
        self._block = (config.num_threads, 1, 1)
        self._parameter = _parameter(layout.problem)
        self.grid = grid(config, layout.problem)

    def __call__(self, a: int, b: int, c: int, epilogue: bytes = b"") -> None:
        """Enqueue the launch; `epilogue` holds the epilogue's packed arguments."""
        packed = np.frombuffer(self._pack(a, b, c) + epilogue, self._parameter)
        self._kernel(self.grid, self._block, (packed,))

    def _pack(self, a: int, b: int, c: int) -> bytes:
        """Return the struct without the arguments of a workspace."""
        if self._offsets is not None:
            a, b, c = (
                (address + offset) % 2**64
                for address, offset in zip((a, b, c), self._offsets, strict=True)
            )
        packed: bytes = _ADDRESSES.pack(a, b, c) + self._constants
        return packed


class PartedLaunch(GemmLaunch):
    """The two launches of a product whose tiles are shared.

    The first kernel writes parts of sums to a workspace, and the second adds them. If parts are
    added to C itself, there is no workspace; the second kernel then runs first and stores zeros.

    Parameters
    ----------
    kernel, add_kernel : callable
        The GEMM, and the sum of the parts.
    layout : Layout
    offsets : Offsets
    config : GemmConfig
    """

    __slots__ = ("_add_grid", "_add_kernel", "_alloc", "_num_bytes", "_parts", "_zeroed")

    def __init__(
        self, kernel: Any, add_kernel: Any, layout: Layout, offsets: Offsets, config: GemmConfig
    ) -> None:
        from cupy.cuda import alloc

        super().__init__(kernel, layout, offsets, config)
        self._parameter = _parameter(layout.problem, PART_ARGS)
        self._parts: bytes = pack_parts(config, layout.problem).tobytes()[: -_ADDRESS.size]
        self._add_kernel = add_kernel
        self._add_grid = add_grid(config, layout.problem)
        self._num_bytes = workspace_bytes(config, layout.problem)
        self._zeroed = config.atomic
        self._alloc = alloc

    def __call__(self, a: int, b: int, c: int, epilogue: bytes = b"") -> None:
        """Enqueue the launches."""
        packed = self._pack(a, b, c) + epilogue + self._parts
        if not self._num_bytes:
            arguments = (np.frombuffer(packed + _ADDRESS.pack(0), self._parameter),)
            self._add_kernel(self._add_grid, (ADD_THREADS, 1, 1), arguments)
            self._kernel(self.grid, self._block, arguments)
            return
        # The pool reuses freed memory only for later work in the same stream.
        workspace = self._alloc(self._num_bytes)
        if self._zeroed:
            workspace.memset_async(0, self._num_bytes)
        arguments = (np.frombuffer(packed + _ADDRESS.pack(workspace.ptr), self._parameter),)
        self._kernel(self.grid, self._block, arguments)
        self._add_kernel(self._add_grid, (ADD_THREADS, 1, 1), arguments)
