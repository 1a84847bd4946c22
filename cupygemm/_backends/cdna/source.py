"""Generate the translation unit of a CDNA kernel: flattened device sources with their Config."""

from __future__ import annotations

from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.config import DWORD_BYTES, GemmConfig
from cupygemm._backends.cdna.mainloops import mainloop_of
from cupygemm._backends.cdna.split import adds_to_result
from cupygemm._backends.config_source import config_lines, epilogue_lines, major_of
from cupygemm._build.flatten import flatten
from cupygemm._records.problem import GemmProblem

ENTRY = "cupygemm_gemm"
"""The name of the kernel in the code object."""
ADD_ENTRY = "cupygemm_add_parts"
"""The name of the kernel that adds the parts of shared tiles, if any."""

_CONFIG = "config.hpp"


def generate(problem: GemmProblem, config: GemmConfig, arch: str) -> str:
    """Return the HIP C++ source of the kernel for a problem.

    The source depends only on the problem's types, majors and dword alignment, so problems of all
    extents share a kernel.

    Parameters
    ----------
    problem : GemmProblem
    config : GemmConfig
        A configuration that ``check`` accepts.
    arch : str
        The name of the architecture, which determines how workgroups are assigned to XCDs. The
        instruction set is the compiler's target.

    Returns
    -------
    str
        One translation unit without includes, with the entry ``cupygemm_gemm`` and, if workgroups
        share tiles, ``cupygemm_add_parts``.
    """
    path = "cdna/gemm.hip" if config.partition == "tiles" else "cdna/add_parts.hip"
    return flatten(path, {_CONFIG: config_text(problem, config, arch)})


def config_text(problem: GemmProblem, config: GemmConfig, arch: str) -> str:
    """Return ``config.hpp``: the mainloop's include and ``struct Config``."""
    num_xcds = ARCHS[arch].num_xcds if config.xcd_remap else 1
    mainloop = "".join(part.capitalize() for part in config.mainloop.split("_"))
    types: dict[str, str] = {
        "ElementA": problem.a_dtype,
        "ElementB": problem.b_dtype,
        "ElementC": problem.out_dtype,
    }
    if problem.epilogue is not None:
        types["Parts"] = "EpilogueParts"
    constants = {
        "Major a_major": major_of(problem.a_major),
        "Major b_major": major_of(problem.b_major),
        "bool a_dword_aligned": problem.a_align >= 4,
        "bool b_dword_aligned": problem.b_align >= 4,
        "bool c_dword_aligned": problem.c_align >= 4,
        "int tile_m": config.tile_m,
        "int tile_n": config.tile_n,
        "int tile_k": config.tile_k,
        "int row_parts": mainloop_of(config).ROW_BANDS,
        "int waves_m": config.waves_m,
        "int waves_n": config.waves_n,
        "int mma_m": config.mma_m,
        "int mma_n": config.mma_n,
        "int mma_k": config.mma_k,
        "int num_threads": config.num_threads,
        "int num_stages": config.num_stages,
        "int waves_per_simd": config.waves_per_simd,
        "u32 group_m": config.group_m,
        "u32 num_xcds": num_xcds,
        "Partition partition": f"Partition::{config.partition}",
        "bool atomic_parts": config.atomic,
        "bool adds_to_result": adds_to_result(config, problem),
        "bool has_epilogue": problem.epilogue is not None,
        "bool block_scaled": problem.block_scaled,
    }
    lines = [
        f"// Configuration of this kernel, written by cupygemm for {arch}.",
        f'#include "cdna/mainloop_{config.mainloop}.hpp"',
        "",
        "namespace cupygemm {",
        "",
        *epilogue_lines(problem.epilogue, lambda source: source.align >= DWORD_BYTES),
        *config_lines(types, constants),
        "",
        f"template <class C> using Mainloop = {mainloop}<C>;",
        "",
        "} // namespace cupygemm",
        "",
    ]
    return "\n".join(lines)
