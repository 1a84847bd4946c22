"""`SmallConfig`: how the kernel for batches of small matrices computes a product.

A team of a few warps computes a product, or a tile of it. Blocks have several teams, and threads
copy slabs to shared memory in their memory order, so any order, alignment and extent is supported.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from cupygemm._backends.hopper.config import SHARED_BYTES, HopperArch
from cupygemm._backends.product_table import Outputs, ProductTable
from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import GemmProblem

_FLOATS: tuple[DType, ...] = ("bf16", "f16", "f32", "e4m3fn", "e5m2")
_BYTES: tuple[DType, ...] = ("i8", "u8", "i32")
SMALL_PRODUCTS: ProductTable = MappingProxyType(
    {
        **dict.fromkeys(("bf16", "f16", "f32"), Outputs(plain=_FLOATS, fused=(*_FLOATS, *_BYTES))),
        "f64": Outputs(plain=("f64", "f32"), fused=("f64", "f32")),
    }
)
"""The types that the kernel multiplies."""
MAX_UNITS = 1 << 31
MAX_BLOCKS, MAX_THREADS, SM_BYTES = 32, 2048, 228 << 10
"""The blocks, threads and bytes of shared memory of an SM."""
BLOCK_OVERHEAD = 1 << 10
"""The shared memory of each block that the system uses."""
MAX_TEAMS = 15
"""The named barriers of a block, without the barrier of all its threads."""


@dataclass(frozen=True, kw_only=True)
class SmallConfig:
    """Compile-time configuration of the kernel for small products.

    Attributes
    ----------
    tile_m, tile_n, tile_k : int
        The tile of a team, in elements.
    warps_m, warps_n : int
        The warps of a team along each axis.
    num_teams : int
        The teams of a block.
    num_stages : int
        The slabs of k that a team's ring holds.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    warps_m: int
    warps_n: int
    num_teams: int
    num_stages: int

    @property
    def num_threads(self) -> int:
        """Return the threads of a block."""
        return 32 * self.warps_m * self.warps_n * self.num_teams

    @property
    def brief(self) -> str:
        """Return a short name: tile, warps, teams, stages."""
        return (
            f"small_{self.tile_m}x{self.tile_n}x{self.tile_k}_w{self.warps_m}x{self.warps_n}"
            f"_t{self.num_teams}_s{self.num_stages}"
        )

    @property
    def summary(self) -> str:
        """Return a readable description."""
        return (
            f"teams of warps: tile {self.tile_m}x{self.tile_n}x{self.tile_k}, "
            f"{self.num_teams} teams of {self.warps_m}x{self.warps_n} warps in a block, "
            f"{self.num_stages} stages"
        )

    def shared_bytes(self, problem: GemmProblem) -> int:
        """Return the shared memory of a block: a ring for each team."""
        return self.num_teams * self.num_stages * self.stage_bytes(problem)

    def stage_bytes(self, problem: GemmProblem) -> int:
        """Return the bytes of a slab of A and one of B, with the padding of their rows."""
        size = ITEMSIZE[problem.a_dtype]
        padding = 32 if size == 8 else 16
        total = 0
        for along_k, extent in (
            (problem.a_major == "k", self.tile_m),
            (problem.b_major == "k", self.tile_n),
        ):
            rows, columns = (extent, self.tile_k) if along_k else (self.tile_k, extent)
            total += rows * (columns * size + padding)
        return total

    def num_units(self, problem: GemmProblem) -> int:
        """Return the tiles of all products."""
        tiles = -(-problem.m // self.tile_m) * -(-problem.n // self.tile_n)
        return tiles * problem.num_batches


def blocks_on(config: SmallConfig, problem: GemmProblem, arch: HopperArch) -> int:
    """Return how many blocks fit on the GPU, by their threads and shared memory."""
    shared = config.shared_bytes(problem) + BLOCK_OVERHEAD
    of_sm = min(MAX_BLOCKS, MAX_THREADS // config.num_threads, SM_BYTES // shared)
    return arch.num_sms * max(1, of_sm)


def check_small(config: SmallConfig, problem: GemmProblem) -> str | None:
    """Return why the kernel cannot compute the problem, or None if it can."""
    a, b = problem.a_dtype, problem.b_dtype
    if a != b or a not in SMALL_PRODUCTS:
        return f"operands of {a} and {b} have no kernel for small matrices"
    if problem.out_dtype not in SMALL_PRODUCTS[a].of(has_epilogue=problem.epilogue is not None):
        return f"{a} operands and an output of {problem.out_dtype} have no kernel"
    if config.num_units(problem) >= MAX_UNITS:
        return f"{config.num_units(problem)} units of work: a team counts below 2**31"
    if config.num_teams > MAX_TEAMS and config.warps_m * config.warps_n > 1:
        return f"{config.num_teams} teams of several warps, and {MAX_TEAMS} barriers"
    size = ITEMSIZE[a]
    objection = _check_shape(config, problem, size)
    if objection is not None:
        return objection
    lines = 8 * (config.tile_n + 4 * config.warps_n) * config.warps_m * max(size, 4)
    if lines > config.stage_bytes(problem):
        return f"a stage of {config.stage_bytes(problem)} bytes does not hold {lines} of sums"
    if config.shared_bytes(problem) > SHARED_BYTES:
        return f"{config.shared_bytes(problem)} bytes of shared memory exceed {SHARED_BYTES}"
    return None


def _check_shape(config: SmallConfig, problem: GemmProblem, size: int) -> str | None:
    """Return why a tile cannot be divided among warps and lanes, or None if it can."""
    warp_m, warp_n = config.tile_m / config.warps_m, config.tile_n / config.warps_n
    if warp_m % 16 or warp_n % 16:
        return f"warps of {warp_m:g}x{warp_n:g} sums: they have whole blocks of 16 x 16"
    pairs = 2 * (32 if size == 8 else 16)
    for along_k, tile in (
        (problem.a_major == "k", config.tile_m),
        (problem.b_major == "k", config.tile_n),
    ):
        row = (config.tile_k if along_k else tile) * size
        if row % pairs:
            return f"rows of {row} bytes in shared memory are no multiple of {pairs}"
    if problem.a_dtype == "f32":
        lanes_n = min(warp_n // 4, 8)
        rows, columns = warp_m * lanes_n / 32, warp_n / lanes_n
        if problem.a_major != "k" and rows % min(rows, 4):
            return f"a lane has {rows:g} rows, no whole vectors of them"
        if columns % (1 if problem.b_major == "k" else 4):
            return f"a lane has {columns:g} columns, no whole vectors of them"
        if rows % (lanes_n / 4):
            return f"a lane has {rows:g} rows, and passes on {lanes_n / 4:g} at a time"
    return None
