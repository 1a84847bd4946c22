"""Check whether a configuration can compute a problem on an architecture.

The selector, the tuner, the tests and the error messages all use `check`, the only statement of
these limits in Python. The device code repeats them as ``static_assert``.
"""

from __future__ import annotations

from types import MappingProxyType

from cupygemm._backends.cdna import split
from cupygemm._backends.cdna.arch import SCALED_TYPES, Arch
from cupygemm._backends.cdna.config import BLOCK_SCALED_MMA_K, DWORD_BYTES, GemmConfig, grid
from cupygemm._backends.cdna.mainloops import MAINLOOPS
from cupygemm._backends.product_table import Outputs, ProductTable
from cupygemm._records.dtypes import FLOAT8_NAMES, ITEMSIZE, DType
from cupygemm._records.problem import GemmProblem

OFFSET_LIMIT = 1 << 31
"""The limit of buffer offsets, in bytes from the first element of a tile."""
_SUMMED_IN_F32: tuple[DType, ...] = ("bf16", "f16", "f32", "tf32", *FLOAT8_NAMES, "e2m1x2")
_FLOATS: tuple[DType, ...] = ("bf16", "f16", "f32", *FLOAT8_NAMES)
PRODUCTS: ProductTable = MappingProxyType(
    {
        **dict.fromkeys(
            _SUMMED_IN_F32, Outputs(plain=_FLOATS, fused=(*_FLOATS, "i8", "u8", "i32"))
        ),
        "f64": Outputs(plain=("f32", "f64"), fused=("f32", "f64")),
        "c64": Outputs(plain=("c64",)),
        "c128": Outputs(plain=("c64", "c128")),
        "i8": Outputs(plain=("i8", "i32"), fused=("bf16", "f16", "f32", "i8", "u8", "i32")),
        # Requests only: kernels multiply unsigned bytes as signed ones, since the product wraps.
        "u8": Outputs(plain=("u8",)),
    }
)
"""The types that the kernels multiply, on architectures that have them."""


def check(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    """Return why the kernel cannot compute the problem on the architecture, or None if it can."""
    return (
        _check_types(problem, arch)
        or _check_extents(config, problem)
        or _check_instruction(config, problem, arch)
        or _check_block_scales(config, problem, arch)
        or split.check(config, problem)
        or MAINLOOPS[config.mainloop].check(config, problem, arch)
        or _check_offsets(config, problem)
    )


def _check_types(problem: GemmProblem, arch: Arch) -> str | None:
    inputs = (problem.a_dtype, problem.b_dtype)
    if inputs[0] != inputs[1] and not set(inputs) <= set(FLOAT8_NAMES):
        return f"A is {inputs[0]} and B is {inputs[1]}: they must have one type"
    known = [dtype for dtype in PRODUCTS if dtype in arch.mfma_cycles]
    for dtype in inputs:
        if dtype not in known:
            return f"inputs of type {dtype} have no kernel on {arch.name}: {', '.join(known)} have"
    outputs = [
        dtype
        for dtype in PRODUCTS[problem.a_dtype].of(has_epilogue=problem.epilogue is not None)
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
        rows, columns = problem.m, problem.n
        return f"the tiles of {rows}x{columns} elements need more than a grid axis's 2**32 threads"
    if planes > 65535:
        return f"{problem.num_batches} matrices: a grid holds 2**31"
    return None


def _check_instruction(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    shapes = arch.mfma_cycles[problem.a_dtype]
    if config.mma not in shapes:
        known = ", ".join(map(str, shapes))
        text = f"{config.mma} instruction for {problem.a_dtype}"
        return f"{arch.name} has no {text}: it has {known}"
    return None


def _check_block_scales(config: GemmConfig, problem: GemmProblem, arch: Arch) -> str | None:
    if not problem.block_scaled:
        needs_scales = problem.a_dtype in SCALED_TYPES
        return f"{problem.a_dtype} operands have scales for blocks of k" if needs_scales else None
    if not MAINLOOPS[config.mainloop].TAKES_BLOCK_SCALES:
        return f"{config.mainloop} takes no scales for blocks of k"
    deep = BLOCK_SCALED_MMA_K // (2 if problem.a_dtype == "e2m1x2" else 1)
    if not arch.block_scales or config.mma_k != deep:
        return f"the {config.mma} instruction of {arch.name} takes no scales for blocks of k"
    if problem.batch or config.stream_k:
        what = "a batch" if problem.batch else "a persistent grid"
        return f"scales for blocks of k do not go with {what}"
    return None


def _check_offsets(config: GemmConfig, problem: GemmProblem) -> str | None:
    """Check that offsets within a tile fit; the tile itself is addressed with 64 bits."""
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
