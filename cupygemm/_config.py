"""How a kernel computes a product: its configuration, and the one statement of what it can do."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from cupygemm._arch import ARCHS, Arch
from cupygemm._problem import FLOAT8_NAMES, ITEMSIZE, DType, GemmProblem

if TYPE_CHECKING:
    from cupygemm._mainloops import Mainloop

WAVE_SIZE = 64
VECTOR_BYTES = 16
"""Bytes of a global load, of an LDS read and of a chunk of a row of LDS."""
DWORD_BYTES = 4
"""Bytes of the narrowest LDS write, and what rows of 8-bit elements are aligned to."""
BATCH_GRID_Y = 32768
"""Batch entries along y of the grid; the rest are along z."""
OFFSET_LIMIT = 1 << 31
"""Buffer offsets, in bytes from the tile's first element, are below this."""
_SUMMED_IN_F32: tuple[DType, ...] = ("bf16", "f16", "f32", "tf32", *FLOAT8_NAMES)
OUTPUTS: dict[DType, tuple[DType, ...]] = {
    **dict.fromkeys(_SUMMED_IN_F32, ("bf16", "f16", "f32", *FLOAT8_NAMES)),
    "f64": ("f32", "f64"),
    "c64": ("c64",),
    "c128": ("c64", "c128"),
    "i8": ("i8", "i32"),
}
"""By the type of both inputs, what the sums can be rounded to, of the types that the GPU has."""
EPILOGUE_OUTPUTS: dict[DType, tuple[DType, ...]] = {
    **dict.fromkeys(_SUMMED_IN_F32, ("bf16", "f16", "f32", *FLOAT8_NAMES, "i8", "u8", "i32")),
    "f64": ("f32", "f64"),
    "i8": ("bf16", "f16", "f32", "i8", "u8", "i32"),
}
"""The same after an epilogue."""


@dataclass(frozen=True)
class GemmConfig:
    """Compile-time configuration of a CDNA GEMM kernel.

    Attributes
    ----------
    mainloop : str
        Name of the mainloop: its device code is ``kernels/cdna/mainloop_<name>.hpp``, and what it
        asks of a configuration is stated in ``cupygemm._mainloops.<name>``.
    tile_m, tile_n, tile_k : int
        Workgroup tile, elements.
    waves_m, waves_n : int
        Waves of the workgroup along each axis of the tile.
    mma_m, mma_n, mma_k : int
        The MFMA instruction.
    num_stages : int
        Tiles that LDS holds. With two, the next tile is written while the last is still read, which
        saves one of the two barriers of a step; with one, LDS may have room for another workgroup.
    waves_per_simd : int
        Waves that must fit on a SIMD: the compiler limits a lane's registers to 512 over this.
    group_m : int
        Tile rows that the grouped raster walks before it moves on by a tile column.
    xcd_remap : bool
        Deal workgroups so that neighbouring tiles share an XCD's L2.
    split_k : int
        Parts of k that different workgroups sum; a second kernel adds them, in their order.
    stream_k : int
        Workgroups of a persistent grid; 0 for one workgroup for each tile or part of it. Tiles that
        do not fill the grid evenly are cut along k wherever it makes the workgroups' shares equal;
        a second kernel adds the pieces, in their order.
    atomic : bool
        Parts of `split_k` are added by atomic instructions, in the order in which they come.
    """

    mainloop: str
    tile_m: int
    tile_n: int
    tile_k: int
    waves_m: int
    waves_n: int
    mma_m: int
    mma_n: int
    mma_k: int
    num_stages: int = 1
    waves_per_simd: int = 2
    group_m: int = 8
    xcd_remap: bool = True
    split_k: int = 1
    stream_k: int = 0
    atomic: bool = False

    @property
    def partition(self) -> Literal["tiles", "split_k", "stream_k"]:
        """Return how the products are dealt to workgroups."""
        if self.stream_k:
            return "stream_k"
        return "split_k" if self.split_k > 1 else "tiles"

    @property
    def num_threads(self) -> int:
        """Return the work-items of a workgroup."""
        return WAVE_SIZE * self.waves_m * self.waves_n

    @property
    def name(self) -> str:
        """Return a short name: tile, waves and instruction."""
        tile = f"{self.tile_m}x{self.tile_n}x{self.tile_k}"
        mma = f"{self.mma_m}x{self.mma_n}x{self.mma_k}"
        text = f"{self.mainloop}_{tile}_w{self.waves_m}x{self.waves_n}_s{self.num_stages}_mma{mma}"
        if self.partition == "tiles":
            return text
        text += f"_{self.partition}{self.stream_k or self.split_k}"
        return text + ("_atomic" if self.atomic else "")

    @property
    def summary(self) -> str:
        """Return mainloop, tile, waves, instruction and parts of k, for people."""
        text = (
            f"{self.mainloop}: tile {self.tile_m}x{self.tile_n}x{self.tile_k}, "
            f"waves {self.waves_m}x{self.waves_n}, MFMA {self.mma_m}x{self.mma_n}x{self.mma_k}"
        )
        if self.stream_k:
            return f"{text}, stream-k over {self.stream_k} workgroups"
        if self.split_k > 1:
            return f"{text}, k in {self.split_k} parts" + (", added atomically" * self.atomic)
        return text

    def lds_bytes(self, itemsize: int) -> int:
        """Return the LDS of a workgroup for operands of `itemsize` bytes."""
        return mainloop_of(self).lds_bytes(self, itemsize)

    def num_tiles(self, problem: GemmProblem) -> tuple[int, int]:
        """Return the tiles of one matrix of C along m and along n."""
        return -(-problem.m // self.tile_m), -(-problem.n // self.tile_n)

    def num_steps(self, problem: GemmProblem) -> int:
        """Return the steps of k, each `tile_k` deep, the last perhaps less."""
        return -(-problem.k // self.tile_k)


def grid(config: GemmConfig, problem: GemmProblem) -> tuple[int, int, int]:
    """Return the workgroups of a launch: tiles and parts along x, the batch along y and then z.

    A grid's y and z end at 65535, so the batch index is ``y + BATCH_GRID_Y * z``; workgroups past
    the end of the batch return at once. A persistent grid has one axis.
    """
    if config.stream_k:
        return config.stream_k, 1, 1
    tiles_m, tiles_n = config.num_tiles(problem)
    return tiles_m * tiles_n * config.split_k, *batch_grid(problem)


def batch_grid(problem: GemmProblem) -> tuple[int, int]:
    """Return y and z of a grid that has the batch along them."""
    batch = problem.num_batches
    return min(batch, BATCH_GRID_Y), -(-batch // BATCH_GRID_Y)


def check(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    """Return why the kernel cannot compute the problem on the architecture, or None if it can."""
    from cupygemm import _parts as parts  # which builds on this module

    return (
        _check_types(problem, arch)
        or _check_extents(config, problem)
        or _check_instruction(config, problem, arch)
        or parts.check(config, problem)
        or mainloop_of(config).check(config, problem, arch)
        or _check_offsets(config, problem)
    )


def _check_types(problem: GemmProblem, arch: Arch) -> str | None:
    inputs = (problem.a_dtype, problem.b_dtype)
    if inputs[0] != inputs[1] and not set(inputs) <= set(FLOAT8_NAMES):
        return f"A is {inputs[0]} and B is {inputs[1]}: they must have one type"
    known = [dtype for dtype in OUTPUTS if dtype in arch.mfma_cycles]
    for dtype in inputs:
        if dtype not in known:
            return f"inputs of type {dtype} have no kernel on {arch.name}: {', '.join(known)} have"
    outputs = [
        dtype
        for dtype in (OUTPUTS if problem.epilogue is None else EPILOGUE_OUTPUTS)[problem.a_dtype]
        if dtype not in FLOAT8_NAMES or dtype in arch.mfma_cycles
    ]
    if problem.out_dtype not in outputs:
        return (
            f"{problem.a_dtype} inputs and an output of type {problem.out_dtype} have no kernel: "
            f"the output can be {' or '.join(outputs)}"
        )
    for name in ("a", "b", "c"):
        dtype = problem.out_dtype if name == "c" else problem.a_dtype
        align = getattr(problem, f"{name}_align")
        if align < ITEMSIZE[dtype]:
            size = ITEMSIZE[dtype]
            return f"{name} is aligned to {align} bytes, less than its {dtype} elements of {size}"
        if name != "c" and ITEMSIZE[dtype] == 1 and align < DWORD_BYTES:
            return f"{name} is aligned to {align} bytes: rows of {dtype} start at {DWORD_BYTES}"
    return None


def _check_extents(config: GemmConfig, problem: GemmProblem) -> str | None:
    for name in ("m", "n", "k"):
        extent = getattr(problem, name)
        if not 1 <= extent < 1 << 31:
            return f"{name} = {extent} is outside 1 to 2**31 - 1"
    if len(problem.batch) > 3:
        return f"{len(problem.batch)} batch axes: at most 3"
    tiles_x, _, planes = grid(config, problem)
    if tiles_x * config.num_threads >= 1 << 32:
        return f"{tiles_x} tiles of {config.num_threads} threads: a grid axis ends at 2**32 threads"
    if planes > 65535:
        return f"{problem.num_batches} matrices: a grid holds 2**31"
    return None


def _check_instruction(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    shape = (config.mma_m, config.mma_n, config.mma_k)
    shapes = arch.mfma_cycles[problem.a_dtype]
    if shape not in shapes:
        known = ", ".join("x".join(map(str, s)) for s in shapes)
        text = f"{'x'.join(map(str, shape))} instruction for {problem.a_dtype}"
        return f"{arch.name} has no {text}: it has {known}"
    return None


def _check_offsets(config: GemmConfig, problem: GemmProblem) -> str | None:
    """Check that offsets within a tile fit; the tile itself is reached by 64-bit arithmetic."""
    m, n, k = problem.m, problem.n, problem.k
    along_k = min(config.tile_k, k)
    along_m, along_n = min(config.tile_m, m), min(config.tile_n, n)
    a_extents = (m, along_m) if problem.a_major == "k" else (k, along_k)
    b_extents = (n, along_n) if problem.b_major == "k" else (k, along_k)
    for name, span, (extent, in_tile) in (
        ("A", problem.a_span, a_extents),
        ("B", problem.b_span, b_extents),
        ("C", problem.c_span, (m, along_m)),
    ):
        pitch = span / max(extent - 1, 1)  # an upper bound, in bytes
        if extent > 1 and pitch * in_tile >= OFFSET_LIMIT:
            return f"{in_tile} rows of {name}, {pitch:.0f} bytes apart, span more than 2 GiB"
    return None


def mainloop_of(config: GemmConfig) -> Mainloop:
    """Return what is known of a configuration's mainloop."""
    from cupygemm._mainloops import MAINLOOPS  # whose modules build on this one

    return MAINLOOPS[config.mainloop]


def resident_workgroups(config: GemmConfig, arch: Arch, itemsize: int) -> int:
    """Return the workgroups that fit on a CU at once, by LDS and by registers."""
    waves = config.num_threads // WAVE_SIZE
    by_lds = arch.lds_bytes // config.lds_bytes(itemsize)
    by_registers = config.waves_per_simd * arch.simds_per_cu // waves
    return max(1, min(by_lds, by_registers))


def raster_group(config: GemmConfig, arch: Arch, itemsize: int) -> int:
    """Return the `group_m` with which an XCD's workgroups share most of what they read.

    Those that run together on an XCD have neighbouring tiles, a group high and as wide as it takes.
    Their rows of A and columns of B are fewest bytes where that block is as high as wide, in
    elements. A power of two: neighbours differ little.
    """
    together = arch.num_cus / arch.num_xcds * resident_workgroups(config, arch, itemsize)
    return 1 << max(0, round(math.log2(together * config.tile_n / config.tile_m) / 2))


@functools.cache
def configs_for(dtype: DType, arch: str) -> tuple[GemmConfig, ...]:
    """Return the configurations that `cupygemm._select` chooses from, for inputs of a type."""
    from cupygemm._mainloops import MAINLOOPS

    return tuple(
        replace(config, group_m=raster_group(config, ARCHS[arch], ITEMSIZE[dtype]))
        for mainloop in MAINLOOPS.values()
        for config in mainloop.configs(dtype, arch)
    )
