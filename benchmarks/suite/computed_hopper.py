"""Computed: the resources of the kernels for Hopper, read from the cubins that NVRTC makes.

As in `kernels`, a type's kernel is the one with the largest tile, for x1 in C and x2 in F order,
which wgmma reads for every type.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import Any

from suite.kernels import _SIZES, _problem

TYPES = ("bf16", "f16", "e4m3fn", "i8", "tf32", "f64")
ENTRY = "cupygemm_gemm"
_EXTENT = 4096


@dataclass(frozen=True, kw_only=True)
class HopperFigures:
    """The figures of one kernel."""

    registers: int
    local: int
    shared: int
    code_size: int


def hopper_figures(dtype: str) -> HopperFigures:
    """Return the figures of a type's kernel.

    Raises
    ------
    ImportError
        The commit's Hopper kernels are elsewhere, or this Python has no NVRTC.
    """
    check, compiler, configurations, source = (
        importlib.import_module(f"cupygemm._backends.hopper.{name}")
        for name in (
            "choice.check",
            "compilation.compile",
            "choice.configurations",
            "compilation.source",
        )
    )
    arch = importlib.import_module("cupygemm._backends.hopper.config").HopperArch()
    problem = _problem(_EXTENT, _EXTENT, _EXTENT, dtype, ("k", "k"))
    chosen = [
        config
        for config in configurations.configs_for(dtype)
        if config.split_k == 1 and check.check(config, problem, arch) is None
    ]
    config: Any = max(chosen, key=lambda each: (each.tile_m * each.tile_n, each.tile_k))
    text = source.generate(problem, config, tma_store=True)
    size = _SIZES.get(problem.a_dtype, 1)
    found = compiler.compile_cubin(text, ENTRY).resources()
    return HopperFigures(
        registers=found.registers,
        local=found.local_bytes,
        shared=config.shared_bytes(size, problem.b_major),
        code_size=found.code_bytes,
    )


class ComputedHopper:
    """Resources of the Hopper kernel of each type."""

    version = "1"
    params = TYPES
    param_names = ("type",)

    def setup_cache(self) -> dict[str, HopperFigures]:
        found = {}
        for dtype in TYPES:
            try:
                found[dtype] = hopper_figures(dtype)
            except Exception as error:  # noqa: BLE001  # early commits lack some
                first = str(error).partition("\n")[0]
                sys.stderr.write(f"sm_90a {dtype}: {type(error).__name__}: {first}\n")
        return found

    def track_registers(self, cache: dict[str, HopperFigures], dtype: str) -> float:
        return cache[dtype].registers if dtype in cache else float("nan")

    def track_spills(self, cache: dict[str, HopperFigures], dtype: str) -> float:
        return cache[dtype].local if dtype in cache else float("nan")

    def track_shared_memory(self, cache: dict[str, HopperFigures], dtype: str) -> float:
        return cache[dtype].shared if dtype in cache else float("nan")

    def track_code_size(self, cache: dict[str, HopperFigures], dtype: str) -> float:
        return cache[dtype].code_size if dtype in cache else float("nan")

    track_registers.unit = "registers of a thread"
    track_registers.pretty_name = "Computed: registers on Hopper"
    track_spills.unit = "bytes of a thread"
    track_spills.pretty_name = "Computed: stack of spilled registers on Hopper"
    track_shared_memory.unit = "bytes"
    track_shared_memory.pretty_name = "Computed: shared memory of a block on Hopper"
    track_code_size.unit = "bytes"
    track_code_size.pretty_name = "Computed: size of the machine code on Hopper"
