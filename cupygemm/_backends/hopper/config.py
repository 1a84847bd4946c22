"""How a Hopper kernel computes a product: its configuration and the types that it multiplies."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from cupygemm._backends.product_table import Outputs, ProductTable
from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import GemmProblem

WARPGROUP = 128
"""Threads of a warpgroup."""
SLAB_BYTES = 128
"""Bytes of a row of a shared tile: the swizzle's width."""
SWIZZLE_LINES = 8
"""Rows of shared memory after which the swizzle repeats."""
BLOCK_ROWS = 64
"""Rows of a wgmma's A, and of a block of a shared tile."""
SHARED_BYTES = 227 << 10
"""The most shared memory of a block."""
FLOAT8: tuple[DType, ...] = ("e4m3fn", "e5m2")
"""Formats of 8-bit floats; those of the operands may differ."""
_FLOATS: tuple[DType, ...] = ("bf16", "f16", "f32", *FLOAT8)
_BYTES_FUSED: tuple[DType, ...] = ("i8", "u8", "i32")
PRODUCTS: ProductTable = MappingProxyType(
    {
        **dict.fromkeys(
            ("bf16", "f16", *FLOAT8), Outputs(plain=_FLOATS, fused=(*_FLOATS, *_BYTES_FUSED))
        ),
        "tf32": Outputs(plain=_FLOATS),
        "tf32x3": Outputs(plain=_FLOATS, fused=("f32",)),
        "i8": Outputs(plain=("i8", "i32"), fused=("bf16", "f16", "f32", *_BYTES_FUSED)),
        "f64": Outputs(plain=("f64", "f32"), fused=("f64", "f32")),
        # Requests only: kernels multiply unsigned bytes as signed ones, since the product wraps.
        "u8": Outputs(plain=("u8",)),
    }
)
"""The types that the kernels multiply."""
Raster = Literal["grouped", "hilbert"]
RASTERS: tuple[Raster, ...] = ("grouped", "hilbert")
"""The orders in which clusters take tiles."""
TMA_BYTES = 16
"""TMA requires addresses and pitches that are multiples of this."""
LINE_BYTES = 128
"""A line of the caches."""
SECTOR_BYTES = 32
"""The part of a line that L2 and the memory exchange."""
MAX_BOX = 256
"""The largest extent of a box along an axis."""
CAMP_BYTES = 4096
"""Rows that begin at multiples of this map to few slices of L2."""
MAX_CLUSTER = 8
"""The most blocks of a cluster."""
_SIDE_BY_SIDE = (18, 18, 16, 16, 16, 16, 16, 8, 2, 2, 2, 2)
"""The SMs of an H200 in groups that can share a cluster. The numbers of clusters of one to eight
blocks that follow equal the driver's occupancy: 132, 66, 39, 30, 22, 17, 15 and 15."""
_LEFT_OVER = 12  # of fewer SMs, without those that clusters of more than two blocks cannot use


def staged_row_bytes(dtype: DType) -> int:
    """Return the bytes of a row of staged results: 64 for 1-byte elements, or a swizzle's width."""
    return BLOCK_ROWS if ITEMSIZE[dtype] == 1 else SLAB_BYTES


_REACHED = 0.8643
"""The share of the nominal memory bandwidth that products reach: 2500 bytes/clock on an H200."""


@dataclass(frozen=True)
class HopperArch:
    """One Hopper GPU.

    Attributes
    ----------
    name : str
        The compiler's target, ``"sm_90a"``.
    part : str
        The GPU that the figures describe.
    num_sms : int
    clock_mhz : int
        The clock under load.
    hbm_bytes_per_clock : int
        The memory bandwidth of the GPU, for data that is not in L2.
    l2_bytes : int
        The size of L2, of both of its halves together.
    places_by_sm : bool
        Kernels may assign each SM the tile of its number, see `by_sm`; not if some SMs are left to
        other kernels.
    """

    name: str = "sm_90a"
    part: str = "H200"
    num_sms: int = 132
    clock_mhz: int = 1700
    hbm_bytes_per_clock: int = 2500
    l2_bytes: int = 60 << 20
    places_by_sm: bool = True

    @classmethod
    def of_device(cls, part: str, values: Mapping[str, Any]) -> HopperArch:
        """Return a GPU, given its name and the properties that CUDA reports."""
        arch = cls(part=part, num_sms=values["multiProcessorCount"])
        arch = replace(arch, l2_bytes=values.get("l2CacheSize") or arch.l2_bytes)
        kilohertz, bits = values.get("memoryClockRate", 0), values.get("memoryBusWidth", 0)
        if not kilohertz or not bits:
            return arch
        nominal = 2 * kilohertz * 1e3 * bits / 8  # bytes per second, two transfers per clock
        in_a_clock = round(_REACHED * nominal / (arch.clock_mhz * 1e6))
        return replace(arch, hbm_bytes_per_clock=in_a_clock)

    def num_clusters(self, size: int) -> int:
        """Return how many clusters of `size` blocks fit on the GPU."""
        return num_clusters(self.num_sms, size)


def num_clusters(num_sms: int, size: int) -> int:
    """Return how many clusters of `size` blocks fit on a GPU, with one block on each SM.

    A cluster runs within one group of SMs (GPC). The groups differ in size, so larger clusters
    leave some SMs unused.
    """
    fewer = num_sms < sum(_SIDE_BY_SIDE)  # but not which groups
    left_over = _LEFT_OVER if fewer and size > 2 else 0
    on_h200 = sum(group // size for group in _SIDE_BY_SIDE)
    return max(1, min(on_h200, (num_sms - left_over) // size))


@dataclass(frozen=True, kw_only=True)
class HopperConfig:
    """Compile-time configuration of a Hopper GEMM kernel, and the parts of k of its launch.

    Attributes
    ----------
    tile_m, tile_n, tile_k : int
        The tile of a block, in elements.
    num_consumers : int
        The number of warpgroups that multiply; each computes its rows of the tile.
    num_stages : int
        The number of steps of k that the ring holds.
    epilogue_buffers : int
        The number of 8 KiB blocks in which each consumer stages its results.
    cluster_m, cluster_n : int
        The blocks of a cluster along each axis; with `cluster_k`, their product is at most 8.
    group_m : int
        The rows of clusters that the grouped raster walks before it advances by a column.
    split_k : int
        The number of parts of k that different blocks sum. A second kernel adds them in their
        order.
    cluster_k : int
        The number of parts of k that the blocks of a cluster sum. They exchange their sums through
        shared memory, and each stores a share of the tile's columns.
    stream_k : int
        The number of clusters of a persistent grid that splits tiles along k so that all clusters
        have the same number of steps; 0 leaves tiles whole.
    promote : bool
        The tensor cores sum over 256 bytes of k only, and these sums are added in fp32 outside
        them.
    mma_sync : bool
        The operands are loaded to registers and multiplied by mma.sync instead of wgmma, which does
        not support fp64.
    raster : {"grouped", "hilbert"}
        The order in which clusters take tiles; see ``common/raster.hpp``.
    transposed_c : bool
        The kernel computes the transpose of C, from B and A, and stores C: tile_m counts columns of
        C, and tile_n rows.
    ping_pong : bool
        Two consumers take turns at whole tiles: one multiplies while the other stores.
    scaled : bool
        The ring also holds the scales of each step.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    num_consumers: int
    num_stages: int
    epilogue_buffers: int = 2
    cluster_m: int = 1
    cluster_n: int = 1
    group_m: int = 8
    split_k: int = 1
    cluster_k: int = 1
    stream_k: int = 0
    promote: bool = False
    mma_sync: bool = False
    raster: Raster = "grouped"
    transposed_c: bool = False
    ping_pong: bool = False
    scaled: bool = False

    @functools.cached_property
    def cluster_size(self) -> int:
        """Return the blocks of a cluster."""
        return self.cluster_m * self.cluster_n * self.cluster_k

    @property
    def span_m(self) -> int:
        """Return the rows of C of a cluster's tiles."""
        return self.tile_m * self.cluster_m

    @property
    def span_n(self) -> int:
        """Return the columns of C of a cluster's tiles."""
        return self.tile_n * self.cluster_n

    def changed(self, **fields: Any) -> HopperConfig:
        """Return the configuration with other values of fields, but with the same cluster.

        `dataclasses.replace` takes ten times as long, and the selector asks for hundreds.
        """
        found = object.__new__(HopperConfig)
        vars(found).update(vars(self), **fields)
        return found

    @property
    def num_threads(self) -> int:
        """Return the threads of a block: the producer's warpgroup and the consumers'."""
        return WARPGROUP * (self.num_consumers + 1)

    @property
    def num_sharing(self) -> int:
        """Return the number of consumers that share a tile."""
        return 1 if self.ping_pong else self.num_consumers

    @property
    def accumulators(self) -> int:
        """Return the registers of a consumer's thread that hold sums."""
        sums = self.tile_m * self.tile_n // (self.num_sharing * WARPGROUP)
        return 2 * sums if self.mma_sync else sums  # of fp64

    @property
    def name(self) -> str:
        """Return a short name: tile, consumers, stages, cluster, raster, parts of k."""
        text = f"{self.tile_m}x{self.tile_n}x{self.tile_k}_c{self.num_consumers}_s{self.num_stages}"
        text += f"_e{self.epilogue_buffers}_{self.cluster_m}x{self.cluster_n}"
        text += f"x{self.cluster_k}_" if self.cluster_k > 1 else "_"
        text += f"g{self.group_m}" if self.raster == "grouped" else self.raster
        text += "_p" if self.promote else ""
        text += "_t" if self.transposed_c else ""
        text += "_pp" if self.ping_pong else ""
        text += f"_stream{self.stream_k}" if self.stream_k else ""
        return text + (f"_k{self.split_k}" if self.split_k > 1 else "")

    @property
    def brief(self) -> str:
        """Return the short name."""
        return self.name

    @property
    def summary(self) -> str:
        """Return a readable description: tile, warpgroups, ring, cluster, raster, parts of k."""
        text = (
            f"warp_specialized: tile {self.tile_m}x{self.tile_n}x{self.tile_k}, 1 producer and "
            f"{self.num_consumers} consumer warpgroups, {self.num_stages} stages, clusters of "
            f"{self.cluster_m}x{self.cluster_n}"
            + (f"x{self.cluster_k}, " if self.cluster_k > 1 else ", ")
            + ("mma.sync m16n8k8" if self.mma_sync else f"wgmma m64n{self.tile_n}")
        )
        if self.promote:
            text += ", sums promoted to fp32"
        if self.ping_pong:
            text += ", consumers in turns"
        if self.raster == "hilbert":
            text += ", tiles in Hilbert's order"
        if self.transposed_c:
            text += ", of the transpose of C"
        if self.stream_k:
            text += f", stream-k over {self.stream_k} clusters"
        return text + (f", k in {self.split_k} parts" if self.split_k > 1 else "")

    def shared_bytes(self, itemsize: int, b_major: str) -> int:
        """Return the shared memory of a block: ring and staging buffers."""
        passed = 16 if self.scaled else 0  # see passed_at of tile.cuh
        return self.num_stages * self.stage_bytes(itemsize, b_major) + self.staging_bytes + passed

    @property
    def staging_bytes(self) -> int:
        """Return the shared memory of the consumers' staging buffers."""
        return self.num_consumers * self.epilogue_buffers * BLOCK_ROWS * SLAB_BYTES

    def stage_bytes(self, itemsize: int, b_major: str) -> int:
        """Return the shared memory of a stage of the ring, with its barriers and scales."""
        columns = self.tile_n
        if b_major != "k":  # in blocks; the last one may be narrower, but takes the same space
            columns += -columns % (SLAB_BYTES // itemsize)
        scales = 4 * (self.tile_m + self.tile_n) if self.scaled else 0
        return (self.tile_m + columns) * self.tile_k * itemsize + 16 + scales

    def narrow_b(self, itemsize: int, b_major: str) -> int:
        """Return the columns of the last box of B if it is narrower than the others, or 0."""
        return 0 if b_major == "k" else self.tile_n % (SLAB_BYTES // itemsize)

    def narrow_c(self, out: DType) -> int:
        """Return the columns of the last box of C if it is narrower than the others, or 0."""
        columns = staged_row_bytes(out) // ITEMSIZE[out]
        return 0 if self.transposed_c else self.kept_n % columns

    @property
    def kept_n(self) -> int:
        """Return the columns of a tile that a block stores."""
        return self.tile_n // self.cluster_k

    @property
    def stored_rows(self) -> int:
        """Return the rows of C that one TMA store writes."""
        if not self.transposed_c:
            return BLOCK_ROWS
        return max(rows for rows in range(8, BLOCK_ROWS + 1, 8) if self.kept_n % rows == 0)

    def num_tiles(self, problem: GemmProblem) -> tuple[int, int]:
        """Return the number of clusters' tiles of one matrix along the kernel's m and n."""
        return (
            -(-problem.m // (self.tile_m * self.cluster_m)),
            -(-problem.n // (self.tile_n * self.cluster_n)),
        )

    def num_units(self, problem: GemmProblem) -> int:
        """Return the units of work for clusters: tiles times batch times parts of k."""
        tiles_m, tiles_n = self.num_tiles(problem)
        return tiles_m * tiles_n * problem.num_batches * self.split_k


def lines_of_share(tile: int, major: str, shares: int, depth: int) -> float:
    """Return the rows of shared memory that each block of a cluster loads of a box of a slab.

    The blocks divide the slab's indices of m or n. If the slab is not k-major and has too few
    boxes, they divide the k of each box; see ``load`` of the mainloop. The result is not a whole
    number if equal shares are impossible.

    Parameters
    ----------
    tile : int
        The slab's extent along m or n.
    major : str
        ``"k"`` if the rows of shared memory are indices of m or n.
    shares : int
        The number of blocks that load the slab together.
    depth : int
        The elements of a row of shared memory, and the k of a slab.

    Returns
    -------
    float
    """
    if major == "k":
        return tile / shares
    by_k = tile / shares % depth != 0
    return depth / (shares if by_k else 1)


def a_in_registers(problem: GemmProblem) -> bool:
    """Whether the kernel loads A to registers because wgmma cannot read it in shared memory."""
    return ITEMSIZE[problem.a_dtype] == 4 and problem.a_major != "k"


def step_group(config: HopperConfig, problem: GemmProblem) -> int:
    """Return how many steps of k the kernel computes together; see ``step_group`` of tile.cuh."""
    narrow = config.tile_k * ITEMSIZE[problem.a_dtype] == SLAB_BYTES
    return 2 if a_in_registers(problem) or (config.promote and narrow) else 1
