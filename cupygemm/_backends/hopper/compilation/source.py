"""Generate the translation unit of a Hopper kernel: its sources, Config and instruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from cupygemm._backends.config_source import config_lines, epilogue_lines, major_of
from cupygemm._backends.hopper.config import HopperConfig, a_in_registers
from cupygemm._backends.hopper.small_config import SmallConfig
from cupygemm._build.flatten import flatten
from cupygemm._records.dtypes import ITEMSIZE, DType
from cupygemm._records.problem import GemmProblem, Source

RowGrouping = Literal["shared", "masked"]
_PTX_TYPES = {
    "bf16": "bf16",
    "f16": "f16",
    "tf32": "tf32",
    "tf32x3": "tf32",
    "i8": "s8",
    "e4m3fn": "e4m3",
    "e5m2": "e5m2",
}


class BlockScales(NamedTuple):
    """How a kernel reads the scales of blocks of k.

    Attributes
    ----------
    by_column : bool
        Each column of B has its own scale; otherwise 64 columns or more share one.
    each_step : bool
        Each step of the kernel has its own scale; otherwise several steps may share one.
    """

    by_column: bool
    each_step: bool


def generate(
    problem: GemmProblem,
    config: HopperConfig,
    *,
    tma_store: bool,
    group_capacity: int = 0,
    lower_triangle: bool = False,
    block_scales: BlockScales | None = None,
    row_groups: RowGrouping | None = None,
    sums_only: bool = False,
    by_sm: bool = False,
) -> str:
    """Return the CUDA C++ source of the kernel for a problem.

    The source depends on the problem's types, majors and number of batch axes, and with an epilogue
    on whether n is even. Problems of all other extents share a kernel.

    Parameters
    ----------
    problem : GemmProblem
        The product that the kernel computes; TMA must be able to read its operands.
    config : HopperConfig
        A configuration that ``check`` accepts.
    tma_store : bool
        TMA can write C.
    group_capacity : int
        The number of products that the parameter has room for, or 0 for a kernel of one product.
    lower_triangle : bool
        Only tiles with elements on or below the diagonal are computed.
    block_scales : BlockScales, optional
        How the scales of blocks of k are read, if present.
    row_groups : {"shared", "masked"}, optional
        The numbers of rows of groups are in device memory: either groups are consecutive rows of
        one matrix, or each consists of the first rows of its own matrix.
    sums_only : bool
        C is a workspace for the sums, in fp32, and another kernel applies the epilogue.
    by_sm : bool
        Each block computes the tile with the number of its SM.

    Returns
    -------
    str
        One translation unit without includes, with the entry ``cupygemm_gemm``.
    """
    # With split_k, the kernel that adds the parts applies the epilogue.
    sums_only = sums_only or config.split_k > 1
    fused = problem.epilogue is not None and not sums_only
    rank = 3 if len(problem.batch) < 2 else 5
    out = parts_dtype(problem) if sums_only else problem.out_dtype
    types = {
        "ElementA": "tf32" if problem.a_dtype == "tf32x3" else problem.a_dtype,
        "ElementC": out,
        "Accumulator": _accumulator(problem),
    }
    constants = _constants(config) | {
        "Major a_major": major_of(problem.a_major),
        "Major b_major": major_of(problem.b_major),
        "int operand_rank": rank,
        "int result_rank": 3 if sums_only else rank,
        "bool tma_store": tma_store or sums_only,
        "bool has_narrow_boxes": has_narrow_boxes(config, problem, out),
        "bool has_epilogue": fused,
        "u32 group_capacity": group_capacity,
        "bool lower_triangle": lower_triangle,
        "bool block_scaled": block_scales is not None,
        "bool scale_per_column": block_scales is not None and block_scales.by_column,
        "bool scales_each_step": block_scales is not None and block_scales.each_step,
        "bool row_groups": row_groups is not None,
        "bool groups_share_rows": row_groups == "shared",
        "bool by_sm": by_sm,
    }
    lines = epilogue_lines(problem.epilogue if fused else None, _takes_runs(problem, 2))
    return flatten(
        "hopper/gemm.cu",
        {
            "config.cuh": _struct(types | _epilogue_type(fused), constants, lines),
            "hopper/wgmma_instruction.cuh": (
                "" if config.mma_sync else wgmma_text(config.tile_n, problem)
            ),
        },
    )


def pad_text() -> str:
    """Return the source of the padding copy, with the entry ``cupygemm_pad_copy``."""
    return flatten("hopper/pad_copy.cu", {})


def transpose_text() -> str:
    """Return the source of the transposing copy, with the entry ``cupygemm_transpose_copy``."""
    return flatten("hopper/transpose_copy.cu", {})


def split_text(*, transposes: bool, num_terms: int, low_term: int) -> str:
    """Return the source of the copy of fp32 operands, with the entry ``cupygemm_split_copy``.

    Parameters
    ----------
    transposes : bool
        The copy is transposed.
    num_terms : {1, 3}
        3 for tf32 terms.
    low_term : int
        Which of three terms holds the low bits.
    """
    constants = {
        "bool transposes": transposes,
        "u32 num_parts": num_terms,
        "u32 low_part": low_term,
    }
    return flatten("hopper/split_copy.cu", {"config.cuh": _struct({}, constants)})


def mirror_text(itemsize: int, *, vectors: bool) -> str:
    """Return the source of the copy of one triangle, with the entry ``cupygemm_mirror``.

    With `vectors`, each thread moves 16 bytes of a row at a time, which the alignment must allow.
    """
    config = _struct({"Element": f"u{8 * itemsize}"}, {"bool vectors": vectors})
    return flatten("hopper/mirror.cu", {"config.cuh": config})


def finish_text(problem: GemmProblem, *, vectors: bool) -> str:
    """Return the source of the end of a triangle, with the entry ``cupygemm_finish_triangle``.

    With `vectors`, a store writes four elements of C, which its alignment must allow.
    """
    return flatten(
        "hopper/finish_triangle.cu", {"config.cuh": _sums_config(problem, vectors=vectors)}
    )


def add_text(problem: GemmProblem, *, vectors: bool) -> str:
    """Return the source of the sum of parts of k, with the entry ``cupygemm_add_parts``.

    With `vectors`, a store writes four elements of C, which its alignment must allow.
    """
    return flatten("hopper/add_parts.cu", {"config.cuh": _sums_config(problem, vectors=vectors)})


def _sums_config(problem: GemmProblem, *, vectors: bool) -> str:
    """Return ``config.cuh`` of a kernel that rounds and stores sums."""
    fused = problem.epilogue is not None
    accumulator = "double" if problem.a_dtype == "f64" else "float"
    return _struct(
        {"ElementC": problem.out_dtype, "Accumulator": accumulator} | _epilogue_type(fused),
        {"bool c_vectors": vectors, "bool has_epilogue": fused},
        epilogue_lines(problem.epilogue, _takes_runs(problem, 4)),
    )


def _constants(config: HopperConfig) -> dict[str, object]:
    """Return a configuration as constants of the kernel."""
    return {
        "u32 tile_m": config.tile_m,
        "u32 tile_n": config.tile_n,
        "u32 tile_k": config.tile_k,
        "u32 num_consumers": config.num_consumers,
        "u32 num_stages": config.num_stages,
        "u32 epilogue_buffers": config.epilogue_buffers,
        "u32 cluster_m": config.cluster_m,
        "u32 cluster_n": config.cluster_n,
        "u32 cluster_k": config.cluster_k,
        "u32 group_m": config.group_m,
        "bool hilbert_order": config.raster == "hilbert",
        "bool split_k": config.split_k > 1,
        "bool stream_k": config.stream_k > 0,
        "bool promote": config.promote,
        "bool mma_sync": config.mma_sync,
        "bool transposed_c": config.transposed_c,
        "bool ping_pong": config.ping_pong,
    }


def small_text(problem: GemmProblem, config: SmallConfig) -> str:
    """Return the source of the kernel for small matrices, with the entry ``cupygemm_small_gemm``.

    It depends on the problem's types, majors and alignment, on whether there are several batch
    axes, and on whether each matrix is exactly a tile.
    """
    p, fused = problem, problem.epilogue is not None
    size, out_size = ITEMSIZE[p.a_dtype], ITEMSIZE[p.out_dtype]
    run = 8 if out_size == 2 else 2  # adjacent results that a lane stores
    is_direct = not fused and out_size > 1 and p.n % run == 0
    is_direct = is_direct and p.c_align >= min(16, run * out_size)
    types = {
        "Element": p.a_dtype,
        "ElementC": p.out_dtype,
        "Accumulator": _accumulator(p),
    }
    whole = (p.m, p.n, p.k % config.tile_k) == (config.tile_m, config.tile_n, 0)
    constants = {
        "Major a_major": major_of(p.a_major),
        "Major b_major": major_of(p.b_major),
        "u32 tile_m": config.tile_m,
        "u32 tile_n": config.tile_n,
        "u32 tile_k": config.tile_k,
        "u32 warps_m": config.warps_m,
        "u32 warps_n": config.warps_n,
        "u32 num_teams": config.num_teams,
        "u32 num_stages": config.num_stages,
        "u32 a_vector_bytes": max(size, p.a_align),
        "u32 b_vector_bytes": max(size, p.b_align),
        "bool whole": whole,
        "bool several_axes": len(p.batch) > 1,
        "bool c_vectors": p.c_align >= min(16, 4 * out_size),
        "bool c_direct": is_direct,
        "bool has_epilogue": fused,
    }
    lines = epilogue_lines(p.epilogue, _takes_runs(p, 4))
    return flatten(
        "hopper/small_gemm.cu",
        {"config.cuh": _struct(types | _epilogue_type(fused), constants, lines)},
    )


def wgmma_text(tile_n: int, problem: GemmProblem) -> str:
    """Return the wrapper of the one wgmma instruction of a kernel: 64 x `tile_n`.

    It names each of the ``tile_n / 2`` accumulators of a thread. The operands are in shared memory,
    except for a 32-bit A that is not k-major, which is in four registers.
    """
    count = tile_n // 2
    accumulator = _accumulator(problem)
    mma_k = 32 // ITEMSIZE[problem.a_dtype]
    types = f"{_PTX_TYPES[problem.a_dtype]}.{_PTX_TYPES[problem.b_dtype]}"
    shape = f"m64n{tile_n}k{mma_k}.{'s32' if accumulator == 'i32' else 'f32'}.{types}"
    registers = ", ".join(f"%{i}" for i in range(count))
    transposed = ", ".join(str(int(major != "k")) for major in (problem.a_major, problem.b_major))
    modifiers = "" if accumulator == "i32" else ", 1, 1"  # integers have no scales
    if ITEMSIZE[problem.a_dtype] == 2:  # no other types may be contiguous along m and n
        modifiers += f", {transposed}"
    a_registers = a_in_registers(problem)
    a_type = "const u32 (&a)[4]" if a_registers else "u64 a"
    inputs = [f'"r"(a[{i}])' for i in range(4)] if a_registers else ['"l"(a)']
    operands = [f"%{count + i}" for i in range(len(inputs))]
    a = f"{{{', '.join(operands)}}}" if a_registers else operands[0]
    b = count + len(inputs)
    constraint = "f" if accumulator == "float" else "r"
    outputs = ", ".join(f'"+{constraint}"(d[{i}])' for i in range(count))
    return f"""\
// d = a b, or d += a b: asynchronously, see wgmma_wait.
namespace cupygemm {{

CUPYGEMM_INLINE void wgmma_mma_async({accumulator} (&d)[{count}], {a_type}, u64 b,
                                     bool accumulate) {{
    asm volatile("{{\\n"
                 ".reg .pred add;\\n"
                 "setp.ne.b32 add, %{b + 1}, 0;\\n"
                 "wgmma.mma_async.sync.aligned.{shape} "
                 "{{{registers}}}, "
                 "{a}, %{b}, add{modifiers};\\n"
                 "}}"
                 : {outputs}
                 : {", ".join(inputs)}, "l"(b), "r"(static_cast<u32>(accumulate)));
}}

}} // namespace cupygemm
"""


def _takes_runs(problem: GemmProblem, count: int) -> Callable[[Source], bool]:
    """Return a function that tells whether one load reads `count` elements of a source."""
    return lambda s: s.align >= count * ITEMSIZE[s.dtype] and problem.n % count == 0


def _epilogue_type(fused: bool) -> dict[str, str]:
    return {"Parts": "EpilogueParts"} if fused else {}


def _struct(
    types: Mapping[str, str], constants: Mapping[str, object], before: Sequence[str] = ()
) -> str:
    lines = [
        "// Configuration of this kernel, written by cupygemm.",
        '#include "common/epilogue.hpp"',
        '#include "common/layout.hpp"',
        "",
        "namespace cupygemm {",
        "",
        *before,
        *config_lines(types, constants),
        "",
        "} // namespace cupygemm",
        "",
    ]
    return "\n".join(lines)


def has_narrow_boxes(config: HopperConfig, problem: GemmProblem, stored: DType) -> bool:
    """Whether the last box of columns of a tile of B or of C is narrower than the others."""
    of_b = config.narrow_b(ITEMSIZE[problem.b_dtype], problem.b_major)
    return of_b > 0 or config.narrow_c(stored) > 0


def parts_dtype(problem: GemmProblem) -> DType:
    """Return the type of the sums of parts of k in a workspace."""
    return "f64" if problem.a_dtype == "f64" else "f32"


def _accumulator(problem: GemmProblem) -> str:
    return {"i8": "i32", "f64": "double"}.get(problem.a_dtype, "float")
