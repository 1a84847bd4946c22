"""The launches of a Hopper product: the GEMM, and the sum of the parts of k.

The GEMM's parameter holds three tensor maps, so it depends on the addresses. Packed parameters are
cached by address and by the epilogue's arguments, so a repeated call with the same arrays does not
pack.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm._backends.hopper.choice.by_sm import SHARED_BYTES, marks
from cupygemm._backends.hopper.config import (
    SLAB_BYTES,
    SWIZZLE_LINES,
    HopperConfig,
    lines_of_share,
    num_clusters,
    staged_row_bytes,
)
from cupygemm._backends.hopper.cuda import tensormap
from cupygemm._backends.hopper.cuda.enqueue import MAX_PACKED, Enqueue, Parameters, offsets
from cupygemm._backends.hopper.operands.stack import TmaStack, Triple
from cupygemm._backends.struct_kernel import Pointed, pointed

_MAP = (np.void, tensormap.MAP_BYTES)
HOPPER_ARGS = np.dtype(
    [
        ("a", _MAP),
        ("b", _MAP),
        ("c", _MAP),
        ("c_address", np.uint64),
        ("ldc", np.int64),
        ("c_stride", np.int64, 3),
        ("extents", np.int32, 3),
        ("batch", np.int32, 3),
        ("a_moves", np.int32, 3),
        ("b_moves", np.int32, 3),
        ("num_splits", np.int32),
        ("stage_bytes", np.uint32),
        ("workspace", np.uint64),
        ("mark", np.uint64),
        ("shares", np.uint32, 2),
        ("padding", np.uint64),
    ]
)
"""The struct ``HopperArgs``; its extents are m, n, k."""
ADD_ARGS = np.dtype(
    [
        ("workspace", np.uint64),
        ("c", np.uint64),
        ("ldc", np.int64),
        ("c_stride", np.int64, 3),
        ("batch", np.int32, 3),
        ("m", np.uint32),
        ("n", np.uint32),
        ("pitch", np.uint32),
        ("num_splits", np.uint32),
    ],
    align=True,
)
MIRROR_ARGS = np.dtype(
    [("c", np.uint64), ("ldc", np.int64), ("n", np.uint32), ("padding", np.uint32)]
)
FINISH_ARGS = np.dtype(
    [
        ("sums", np.uint64),
        ("c", np.uint64),
        ("ldc", np.int64),
        ("n", np.uint32),
        ("pitch", np.uint32),
    ]
)
"""The struct ``FinishArgs``, without the epilogue's arguments."""
_PADDING = bytes(64)  # the struct with an epilogue ends at a multiple of its alignment
# Marks complete sums in a workspace; see fix_up.cuh.
_MARK = int.from_bytes(os.urandom(8), "little") >> 1 | 1
_MAX_GRID_Y = 65535
encoded = functools.lru_cache(4096)(TmaStack.encode)
"""Tensor maps by stack and address; an operand may be multiplied by many others."""
_TRIANGLE_EDGE, _TRIANGLE_THREADS = 64, 256
_ADD_THREADS = 128
_ADD_VECTORS = 32  # summed by a block


@dataclass(frozen=True, eq=False, kw_only=True)  # compared by identity: look-ups are faster
class Geometry:
    """The extents and strides of one GEMM kernel's operands and result, without their addresses.

    Attributes
    ----------
    a, b, c : TmaStack
        If k is split, `c` is the workspace.
    m, n, k : int
    batch : tuple of int
    a_major, b_major : str
    rank : int
        The number of axes of the operands' tensor maps.
    tma_store : bool
        The kernel stores C by TMA.
    """

    a: TmaStack
    b: TmaStack
    c: TmaStack
    m: int
    n: int
    k: int
    batch: Triple
    a_major: str
    b_major: str
    rank: int
    tma_store: bool


class GemmLaunch:
    """The launch of a GEMM kernel; calling it with three addresses enqueues it.

    Parameters
    ----------
    kernel : cupy.RawKernel
    geometry : Geometry
    config : HopperConfig
    units, num_sms, by_sm
        As for `launch_grid`.
    """

    __slots__ = ("_config", "_enqueue", "_geometry", "_packed")

    def __init__(
        self,
        kernel: Any,
        geometry: Geometry,
        config: HopperConfig,
        *,
        units: int,
        num_sms: int,
        by_sm: bool = False,
    ) -> None:
        self._geometry = geometry
        self._config = config
        shared = config.shared_bytes(geometry.a.itemsize, geometry.b_major)
        shared += SHARED_BYTES if by_sm else 0
        grid = launch_grid(config, units, num_sms, by_sm=by_sm)
        self._enqueue = Enqueue(kernel, grid, config.num_threads, shared)
        self._packed: dict[tuple[int, int, int, int, bytes], Pointed] = {}

    def __call__(self, a: int, b: int, c: int, epilogue: bytes = b"", workspace: int = 0) -> None:
        """Enqueue the launch.

        `epilogue` holds packed arguments that follow the struct. If the kernel splits tiles,
        `workspace` is the address of `stream_bytes` bytes; if it assigns tiles by SM, of its marks.
        """
        key = (a, b, c, workspace, epilogue)
        packed = self._packed.get(key) or self._pack(*key)
        self._enqueue(packed)

    def _pack(self, a: int, b: int, c: int, workspace: int, epilogue: bytes) -> Pointed:
        """Pack a parameter and cache it."""
        addresses = a, b, c, workspace
        if epilogue:
            plain = self._packed.get((*addresses, b"")) or self._pack(*addresses, b"")
            packed = pointed(plain[1] + epilogue + _PADDING)
        else:
            arguments = pack(self._geometry, self._config, *addresses)
            maps = narrow_maps(self._geometry, self._config, b, c)
            packed = pointed(arguments.tobytes() + maps)
        if len(self._packed) >= MAX_PACKED:
            self._packed.clear()
        self._packed[*addresses, epilogue] = packed
        return packed


def pack(
    geometry: Geometry, config: HopperConfig, a: int, b: int, c: int, workspace: int = 0
) -> Any:
    """Return the kernel's arguments for the addresses of the operands and the result."""
    g = geometry
    arguments = _constants(g, config).copy()
    lines_a, lines_b = arguments["shares"][0].tolist()
    arguments["a"] = np.void(encoded(g.a, a, lines_a, g.rank))
    arguments["b"] = np.void(encoded(g.b, b, lines_b, g.rank))
    if g.tma_store:
        arguments["c"] = np.void(_map_of_c(g, config, c))
    arguments["c_address"] = c
    arguments["workspace"], arguments["mark"] = workspace, _MARK
    return arguments


@functools.lru_cache(1024)
def _constants(geometry: Geometry, config: HopperConfig) -> Any:
    """Return the kernel's arguments without addresses and tensor maps."""
    g = geometry
    arguments = np.zeros(1, HOPPER_ARGS)
    rows_a, lines_a = _loaded(g.m, config.tile_m, g.a_major, config.cluster_n, g.a.itemsize)
    rows_b, lines_b = _loaded(g.n, config.tile_n, g.b_major, config.cluster_m, g.b.itemsize)
    arguments["stage_bytes"] = (rows_a + rows_b) * config.tile_k * g.a.itemsize
    arguments["shares"] = lines_a, lines_b
    arguments["ldc"] = g.c.pitch
    arguments["c_stride"] = g.c.strides
    arguments["extents"] = g.m, g.n, g.k
    arguments["batch"] = g.batch
    arguments["a_moves"] = [int(n > 1) for n in g.a.batch]
    arguments["b_moves"] = [int(n > 1) for n in g.b.batch]
    arguments["num_splits"] = config.split_k
    return arguments


def narrow_maps(geometry: Geometry, config: HopperConfig, b: int, c: int) -> bytes:
    """Return ``MapArgs``, the tensor maps of narrower last boxes, or nothing without such boxes."""
    g = geometry
    of_b, of_c = config.narrow_b(g.b.itemsize, g.b_major), config.narrow_c(g.c.dtype)
    if not of_b and not of_c:
        return b""
    maps = [bytes(tensormap.MAP_BYTES)] * 2
    if of_b:
        _, lines = _constants(g, config)["shares"][0].tolist()
        maps[0] = encoded(g.b, b, lines, g.rank, columns=of_b)
    if of_c and g.tma_store:
        maps[1] = _map_of_c(g, config, c, of_c)
    return b"".join(maps)


def _map_of_c(geometry: Geometry, config: HopperConfig, address: int, columns: int = 0) -> bytes:
    """Return the tensor map of the result or the workspace; a box may have fewer `columns`."""
    c, rank = geometry.c, 3 if config.split_k > 1 else geometry.rank
    row_bytes = staged_row_bytes(c.dtype)
    return encoded(c, address, config.stored_rows, rank, row_bytes, columns=columns)


def stream_bytes(config: HopperConfig) -> int:
    """Return the bytes of the workspace of a kernel that splits tiles: marks and fp32 sums."""
    blocks = config.stream_k * config.cluster_size
    marks = -(-8 * blocks * config.num_consumers // 128) * 128
    return marks + 4 * blocks * config.tile_m * config.tile_n


def _loaded(extent: int, tile: int, major: str, shares: int, itemsize: int) -> tuple[int, int]:
    """Return the rows or columns of an operand that a stage loads, and the rows of each box.

    A k-major matrix with fewer rows than the tile is loaded by smaller boxes, because TMA spends
    time on absent rows too, and more if it multicasts them. The rest of the tile keeps old values,
    which only affect rows of C that do not exist.
    """
    box = int(lines_of_share(tile, major, shares, SLAB_BYTES // itemsize))
    if major != "k":
        return tile, box
    box = min(box, -(-extent // (SWIZZLE_LINES * shares)) * SWIZZLE_LINES)
    return box * shares, box


def launch_grid(config: HopperConfig, units: int, num_sms: int, *, by_sm: bool = False) -> Triple:
    """Return the grid of a launch: clusters that fill the GPU once, or one for each unit.

    Blocks that exchange sums end after one unit. If tiles are assigned by SM, each SM has a block.
    """
    if by_sm:
        return num_sms, 1, 1
    size = config.cluster_size
    if config.cluster_k > 1:
        return units * size, 1, 1
    if config.stream_k:
        return config.stream_k * size, 1, 1
    return min(units, num_clusters(num_sms, size)) * size, 1, 1


class MarkedLaunch:
    """The launch of a GEMM kernel that assigns each SM the tile of its number.

    Parameters
    ----------
    early : GemmLaunch
        The launch of the kernel with marks.
    unmarked : callable
        The launch for streams without marks; see `by_sm.marks`.
    """

    __slots__ = ("_early", "_stream", "_unmarked")

    def __init__(self, early: GemmLaunch, unmarked: Callable[..., None]) -> None:
        from cupy.cuda import get_current_stream

        self._early, self._unmarked = early, unmarked
        self._stream = get_current_stream

    def __call__(self, a: int, b: int, c: int, epilogue: bytes = b"") -> None:
        """Enqueue the launch; `epilogue` holds packed arguments that follow the struct."""
        address = marks(self._stream().ptr)
        if address:
            self._early(a, b, c, epilogue, address)
        else:
            self._unmarked(a, b, c, epilogue)


class AddLaunch:
    """The sum of the parts of k in a workspace."""

    __slots__ = ("_enqueue", "_parameters", "num_bytes")

    def __init__(self, kernel: Any, geometry: Geometry, result: TmaStack, num_splits: int) -> None:
        workspace = geometry.c
        self.num_bytes = workspace.num_bytes
        arguments = np.zeros(1, ADD_ARGS)
        arguments["ldc"] = result.pitch
        arguments["c_stride"] = result.strides
        arguments["batch"] = geometry.batch
        arguments["m"], arguments["n"] = result.rows, result.adjacent
        arguments["pitch"] = workspace.pitch
        arguments["num_splits"] = num_splits
        self._parameters = Parameters(arguments, *offsets(ADD_ARGS, "workspace", "c"))
        batches = geometry.batch[0] * geometry.batch[1] * geometry.batch[2]
        blocks = -(-result.rows * (workspace.pitch // 4) // _ADD_VECTORS)
        self._enqueue = Enqueue(kernel, (blocks, min(batches, _MAX_GRID_Y), 1), _ADD_THREADS)

    def __call__(self, workspace: int, c: int, epilogue: bytes = b"") -> None:
        """Enqueue the sum; `epilogue` holds its packed arguments, if present."""
        self._enqueue(self._parameters[workspace, c, epilogue])


class MirrorLaunch:
    """The copy of the lower triangle of a square result to the upper one."""

    __slots__ = ("_enqueue", "_parameters")

    def __init__(self, kernel: Any, result: TmaStack) -> None:
        arguments = np.zeros(1, MIRROR_ARGS)
        arguments["ldc"], arguments["n"] = result.pitch, result.rows
        self._parameters = Parameters(arguments, *offsets(MIRROR_ARGS, "c"))
        tiles = -(-result.rows // _TRIANGLE_EDGE)
        self._enqueue = Enqueue(kernel, (tiles, tiles, 1), _TRIANGLE_THREADS)

    def __call__(self, c: int) -> None:
        """Enqueue the copy."""
        self._enqueue(self._parameters[(c,)])


class FinishLaunch:
    """The end of a symmetric product: both triangles of C from the lower triangle of its sums."""

    __slots__ = ("_enqueue", "_parameters", "num_bytes")

    def __init__(self, kernel: Any, geometry: Geometry, result: TmaStack) -> None:
        self.num_bytes = geometry.c.num_bytes
        arguments = np.zeros(1, FINISH_ARGS)
        arguments["ldc"], arguments["n"] = result.pitch, result.rows
        arguments["pitch"] = geometry.c.pitch
        self._parameters = Parameters(arguments, *offsets(FINISH_ARGS, "sums", "c"))
        tiles = -(-result.rows // _TRIANGLE_EDGE)
        self._enqueue = Enqueue(kernel, (tiles, tiles, 1), _TRIANGLE_THREADS)

    def __call__(self, sums: int, c: int, epilogue: bytes) -> None:
        """Enqueue the launch; `epilogue` holds the packed arguments of the epilogue."""
        self._enqueue(self._parameters[sums, c, epilogue])
