"""How a Hopper kernel computes a product: its configuration, and what it can do."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

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
"""Shared memory of a block, at most."""
FLOAT8: tuple[DType, ...] = ("e4m3fn", "e5m2")
"""Formats of 8-bit floats; those of the operands may differ."""
_FLOATS: tuple[DType, ...] = ("bf16", "f16", "f32", *FLOAT8)
_BYTES_FUSED: tuple[DType, ...] = ("i8", "u8", "i32")
PRODUCTS: ProductTable = MappingProxyType(
    {
        **dict.fromkeys(
            ("bf16", "f16", *FLOAT8), Outputs(plain=_FLOATS, fused=(*_FLOATS, *_BYTES_FUSED))
        ),
        **dict.fromkeys(("tf32", "tf32x3"), Outputs(plain=_FLOATS)),
        "i8": Outputs(plain=("i8", "i32"), fused=("bf16", "f16", "f32", *_BYTES_FUSED)),
        "f64": Outputs(plain=("f64", "f32"), fused=("f64", "f32")),
        # Requests only: kernels multiply unsigned bytes as signed ones, since the product wraps.
        "u8": Outputs(plain=("u8",)),
    }
)
"""The one statement of the types that the kernels multiply."""
Raster = Literal["grouped", "hilbert"]
RASTERS: tuple[Raster, ...] = ("grouped", "hilbert")
"""Orders in which clusters take tiles."""
TMA_BYTES = 16
"""TMA takes addresses and pitches that are multiples of it."""
LINE_BYTES = 128
"""A line of the caches."""
MAX_BOX = 256
"""Extent of a box along an axis, at most."""
CAMP_BYTES = 4096
"""Rows that begin at multiples of it lie in few slices of L2."""
MAX_CLUSTER = 8
"""Blocks of a cluster, at most."""
_BESIDE_OTHERS = 128  # accumulators of a thread that also has an epilogue, cuts tiles, or the like
_LEFT_OVER = 12  # SMs that large clusters cannot use


def staged_row_bytes(dtype: DType) -> int:
    """Return the bytes of a row of staged results: 64 single ones, or a swizzle's width."""
    return BLOCK_ROWS if ITEMSIZE[dtype] == 1 else SLAB_BYTES


@dataclass(frozen=True)
class HopperArch:
    """One Hopper part.

    Attributes
    ----------
    name : str
        The compiler's target, ``"sm_90a"``.
    part : str
        The product that the figures describe.
    num_sms : int
    clock_mhz : int
        Under load.
    hbm_bytes_per_clock : int
        Memory bandwidth of the GPU, for what L2 does not hold.
    """

    name: str = "sm_90a"
    part: str = "H200"
    num_sms: int = 132
    clock_mhz: int = 1700
    hbm_bytes_per_clock: int = 2500

    def num_clusters(self, size: int) -> int:
        """Return how many clusters of so many blocks fit the GPU at once."""
        return num_clusters(self.num_sms, size)


def num_clusters(num_sms: int, size: int) -> int:
    """Return how many clusters of so many blocks, each of an SM, fit a GPU at once.

    A cluster lies within one of the groups (GPCs) of SMs, whose sizes differ, so larger ones leave
    some over: 12 of the 132 of an H200 (by the driver's occupancy of clusters of 4 and of 8).
    """
    left_over = 0 if size <= 2 else _LEFT_OVER
    return max(1, (num_sms - left_over) // size)


@dataclass(frozen=True)
class HopperConfig:
    """Compile-time configuration of a Hopper GEMM kernel, and the parts of k of its launch.

    Attributes
    ----------
    tile_m, tile_n, tile_k : int
        Tile of a block, elements.
    num_consumers : int
        Warpgroups that multiply, each its rows of the tile.
    num_stages : int
        Steps of k that the ring holds.
    epilogue_buffers : int
        Blocks of 8 KiB in which each consumer stages its results.
    cluster_m, cluster_n : int
        Blocks of a cluster along each axis; their product is at most 8.
    group_m : int
        Rows of clusters that the grouped raster walks before it moves on by a column.
    split_k : int
        Parts of k that different blocks sum; a second kernel adds them, in their order.
    stream_k : int
        Clusters of a persistent grid that cut tiles along k so that all have the same number of
        steps; 0 leaves tiles whole.
    promote : bool
        The tensor cores sum 256 bytes of k only; these sums are added in fp32 outside them.
    mma_sync : bool
        The operands come to registers and are multiplied by mma.sync, which alone takes fp64: not
        by wgmma.
    raster : {"grouped", "hilbert"}
        The order in which clusters take tiles; see ``common/raster.hpp``.
    c_turned : bool
        The kernel computes the transpose of C, from B and A, and stores C: tile_m counts columns of
        C, and tile_n rows.
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
    stream_k: int = 0
    promote: bool = False
    mma_sync: bool = False
    raster: Raster = "grouped"
    c_turned: bool = False

    @functools.cached_property
    def cluster_size(self) -> int:
        """Return the blocks of a cluster."""
        return self.cluster_m * self.cluster_n

    @property
    def num_threads(self) -> int:
        """Return the threads of a block: the producer's warpgroup and the consumers'."""
        return WARPGROUP * (self.num_consumers + 1)

    @property
    def accumulators(self) -> int:
        """Return the registers of a consumer's thread that hold sums."""
        sums = self.tile_m * self.tile_n // (self.num_consumers * WARPGROUP)
        return 2 * sums if self.mma_sync else sums  # of fp64

    @property
    def name(self) -> str:
        """Return a short name: tile, consumers, stages, cluster, raster, parts of k."""
        text = f"{self.tile_m}x{self.tile_n}x{self.tile_k}_c{self.num_consumers}_s{self.num_stages}"
        text += f"_e{self.epilogue_buffers}_{self.cluster_m}x{self.cluster_n}_"
        text += f"g{self.group_m}" if self.raster == "grouped" else self.raster
        text += "_p" if self.promote else ""
        text += "_t" if self.c_turned else ""
        text += f"_stream{self.stream_k}" if self.stream_k else ""
        return text + (f"_k{self.split_k}" if self.split_k > 1 else "")

    @property
    def brief(self) -> str:
        """Return the short name."""
        return self.name

    @property
    def summary(self) -> str:
        """Return tile, warpgroups, ring, cluster, raster and parts of k, for people."""
        text = (
            f"warp_specialized: tile {self.tile_m}x{self.tile_n}x{self.tile_k}, 1 producer and "
            f"{self.num_consumers} consumer warpgroups, {self.num_stages} stages, clusters of "
            f"{self.cluster_m}x{self.cluster_n}, "
            + ("mma.sync m16n8k8" if self.mma_sync else f"wgmma m64n{self.tile_n}")
        )
        if self.promote:
            text += ", sums promoted to fp32"
        if self.raster == "hilbert":
            text += ", tiles in Hilbert's order"
        if self.c_turned:
            text += ", of the transpose of C"
        if self.stream_k:
            text += f", stream-k over {self.stream_k} clusters"
        return text + (f", k in {self.split_k} parts" if self.split_k > 1 else "")

    def shared_bytes(self, itemsize: int, b_major: str) -> int:
        """Return the shared memory of a block: ring, staging buffers, barriers."""
        columns = self.tile_n
        if b_major != "k":  # in blocks, of which the last may be narrower than its place
            columns += -columns % (SLAB_BYTES // itemsize)
        ring = self.num_stages * (self.tile_m + columns) * self.tile_k * itemsize
        staging = self.num_consumers * self.epilogue_buffers * BLOCK_ROWS * SLAB_BYTES
        return ring + staging + 16 * self.num_stages

    def narrow_b(self, itemsize: int, b_major: str) -> int:
        """Return the columns of the last box of B where they are fewer than others', or 0."""
        return 0 if b_major == "k" else self.tile_n % (SLAB_BYTES // itemsize)

    def narrow_c(self, out: DType) -> int:
        """Return the columns of the last box of C where they are fewer than others', or 0."""
        return 0 if self.c_turned else self.tile_n % (staged_row_bytes(out) // ITEMSIZE[out])

    @property
    def stored_rows(self) -> int:
        """Return the rows of C that a TMA store takes."""
        if not self.c_turned:
            return BLOCK_ROWS
        return max(rows for rows in range(8, BLOCK_ROWS + 1, 8) if self.tile_n % rows == 0)

    def num_tiles(self, problem: GemmProblem) -> tuple[int, int]:
        """Return the clusters' tiles of one matrix along the kernel's m and along its n."""
        return (
            -(-problem.m // (self.tile_m * self.cluster_m)),
            -(-problem.n // (self.tile_n * self.cluster_n)),
        )

    def num_units(self, problem: GemmProblem) -> int:
        """Return the units of work that clusters take: tiles, times batch, times parts of k."""
        tiles_m, tiles_n = self.num_tiles(problem)
        return tiles_m * tiles_n * problem.num_batches * self.split_k


def lines_of_share(tile: int, major: str, shares: int, depth: int) -> float:
    """Return the rows of shared memory of each box of a slab that blocks of a cluster share.

    They share its indices, or, of one whose rows are k and has too few boxes, each box's k; see
    ``load`` of the mainloop. No whole number is returned where equal shares are none.

    Parameters
    ----------
    tile : int
        Its indices of m or of n.
    major : str
        ``"k"`` where they are the rows in shared memory.
    shares : int
    depth : int
        Elements of a row of shared memory, and k of a slab.

    Returns
    -------
    float
    """
    if major == "k":
        return tile / shares
    by_k = tile / shares % depth != 0
    return depth / (shares if by_k else 1)


def a_in_registers(problem: GemmProblem) -> bool:
    """Whether the kernel brings A to registers, since wgmma could not read it in shared memory."""
    return ITEMSIZE[problem.a_dtype] == 4 and problem.a_major != "k"


def step_group(config: HopperConfig, problem: GemmProblem) -> int:
    """Return how many steps of k the kernel takes together; see ``step_group`` of tile.cuh."""
    narrow = config.tile_k * ITEMSIZE[problem.a_dtype] == SLAB_BYTES
    return 2 if a_in_registers(problem) or (config.promote and narrow) else 1


def check(config: HopperConfig, problem: GemmProblem, arch: HopperArch) -> str | None:
    """Return why the kernel cannot compute the problem, or None if it can.

    Operands that TMA cannot read, and a C that it cannot write, are no objection: they are copied,
    or stored without it.
    """
    return _check_problem(config, problem) or _check_shape(config, problem)


def _check_problem(config: HopperConfig, problem: GemmProblem) -> str | None:
    a, b = problem.a_dtype, problem.b_dtype
    if (a != b and not {a, b} <= set(FLOAT8)) or a not in PRODUCTS:
        return f"operands of {a} and {b} have no kernel"
    if config.mma_sync != (a == "f64"):
        return f"{'mma.sync' if config.mma_sync else 'wgmma'} does not multiply {a} here"
    if problem.out_dtype not in PRODUCTS[a].of(has_epilogue=problem.epilogue is not None):
        return f"{problem.a_dtype} operands and an output of {problem.out_dtype} have no kernel"
    if config.c_turned:
        objection = _check_turned(config, problem)
        if objection is not None:
            return objection
    if problem.a_dtype == "i8" and config.split_k > 1:
        return "parts of k are summed in fp32, and the operands are integers"
    for name in ("m", "n", "k"):
        extent = getattr(problem, name)
        if not 1 <= extent < 1 << 31:
            return f"{name} = {extent} is outside 1 to 2**31 - 1"
    if config.num_units(problem) * config.cluster_size >= 1 << 31:
        return f"{config.num_units(problem)} units of work: a scheduler counts below 2**31"
    groups = -(-problem.k // (config.tile_k * step_group(config, problem)))
    if config.stream_k:
        objection = _check_cuts(config, problem, groups)
        if objection is not None:
            return objection
    if config.split_k > groups:
        return f"split_k = {config.split_k} exceeds the {groups} steps of k, or pairs of them"
    return None


def _check_turned(config: HopperConfig, problem: GemmProblem) -> str | None:
    if problem.epilogue is not None:
        return "the transpose of C is computed without an epilogue"
    stored = 4 if config.split_k > 1 else ITEMSIZE[problem.out_dtype]
    if stored != (4 if a_in_registers(problem) else 2):
        where = "registers" if a_in_registers(problem) else "shared memory"
        return f"from an A in {where}, blocks of {8 * stored} bits are not turned"
    return None


def _check_cuts(config: HopperConfig, problem: GemmProblem, groups: int) -> str | None:
    if config.mma_sync:
        return "stream_k adds sums of 32 bits, and those of fp64 have 64"
    busy = (
        config.promote
        or config.cluster_size > 1
        or a_in_registers(problem)
        or problem.epilogue is not None
    )
    three = config.num_consumers == 3 and config.accumulators >= 64
    narrow = config.narrow_b(ITEMSIZE[problem.b_dtype], problem.b_major) > 0
    large = config.accumulators > (104 if narrow else _BESIDE_OTHERS) or config.tile_n == 256
    if three or large or (config.tile_m == 256 and busy):
        tile = f"{config.tile_m}x{config.tile_n}"
        return f"a tile of {tile} leaves no registers to add what others have summed"
    units = config.num_units(problem)
    if config.split_k > 1:
        cuts = f"split_k = {config.split_k} and stream_k = {config.stream_k}"
        return f"{cuts}: tiles are cut one way"
    if units % config.stream_k == 0:
        return f"{units} tiles fill the {config.stream_k} clusters evenly: none are cut"
    if 2 * config.stream_k * groups >= 1 << 32 or units * groups < config.stream_k:
        return f"{units} tiles of {groups} steps cannot be cut over {config.stream_k} clusters"
    return None


def _check_shape(config: HopperConfig, problem: GemmProblem) -> str | None:
    itemsize = ITEMSIZE[problem.a_dtype]
    slab_k = SLAB_BYTES // itemsize
    if config.tile_k % slab_k:
        return f"tile_k = {config.tile_k} is not a multiple of {slab_k} ({SLAB_BYTES} bytes)"
    if config.num_consumers not in (1, 2, 3):
        return f"{config.num_consumers} consumers: registers suffice for 1 to 3"
    if config.tile_m % (BLOCK_ROWS * config.num_consumers):
        return f"tile_m = {config.tile_m} does not give each consumer whole blocks of {BLOCK_ROWS}"
    if config.raster not in RASTERS:
        return f"raster = {config.raster!r} is none of {', '.join(RASTERS)}"
    # Rows of C, where it is turned, are staged by any multiple of 8, and columns by 16.
    unit_n = 8 if config.c_turned else BLOCK_ROWS if config.mma_sync else 16
    if config.tile_n % unit_n or not 0 < config.tile_n <= 256:
        return f"tile_n = {config.tile_n} is not a multiple of {unit_n} up to 256"
    if config.cluster_size > MAX_CLUSTER:
        return f"a cluster of {config.cluster_m} x {config.cluster_n} blocks: at most {MAX_CLUSTER}"
    for tile, major, shares in (
        (config.tile_m, problem.a_major, config.cluster_n),
        (config.tile_n, problem.b_major, config.cluster_m),
    ):
        lines = lines_of_share(tile, major, shares, slab_k)
        if lines % 1:
            return f"a cluster's {shares} blocks do not load {tile} rows in equal shares"
        if lines > MAX_BOX:
            return f"boxes of {lines:.0f} rows: TMA loads at most {MAX_BOX}"
    registers = check_registers(config) or _check_other_registers(config, problem)
    if registers is not None:
        return registers
    shared = config.shared_bytes(itemsize, problem.b_major)
    if shared > SHARED_BYTES:
        return f"the ring and the staging take {shared} bytes; a block has {SHARED_BYTES}"
    return None


def check_registers(config: HopperConfig) -> str | None:
    """Return why the sums of a tile do not fit the registers, or None if they do."""
    accumulators = config.accumulators + (config.tile_n // 2 if config.promote else 0)
    room = 192 if config.promote else 128 if config.mma_sync else 160
    if accumulators > (room if config.num_consumers < 3 else 96):
        return f"{accumulators} accumulators a thread leave no registers"
    return None


def _check_other_registers(config: HopperConfig, problem: GemmProblem) -> str | None:
    fused = problem.epilogue is not None and config.split_k == 1
    if config.accumulators > _BESIDE_OTHERS and (a_in_registers(problem) or fused):
        return f"{config.accumulators} accumulators a thread leave no registers for anything else"
    if config.num_consumers < 3 or config.mma_sync:
        return None
    if a_in_registers(problem) or fused:
        return (
            "a thread of three consumers has 152 registers, too few for an A of 32 bits or for an "
            "epilogue"
        )
    return None
