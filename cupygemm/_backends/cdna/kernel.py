"""A compiled GEMM kernel, the placement it was compiled for, and its launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cupygemm._backends.cdna.compile import CompiledKernel
from cupygemm._backends.cdna.config import GemmConfig
from cupygemm._backends.cdna.launch import GemmLaunch, PartedLaunch
from cupygemm._backends.cdna.source import ADD_ENTRY
from cupygemm._backends.struct_kernel import StructKernel
from cupygemm._request.placement import Placement


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel, the placement that it was compiled for, and its configuration."""

    placement: Placement
    config: GemmConfig
    compiled: CompiledKernel


def load(kernel: Kernel) -> tuple[GemmLaunch, ...]:
    """Return the launches of a product, with their kernel loaded on the current device."""
    from cupy import RawModule

    module = RawModule(path=str(kernel.compiled.path))
    gemm = module.get_function(kernel.compiled.name)
    config, layout = kernel.config, kernel.placement.layout
    if config.partition == "tiles":
        return tuple(GemmLaunch(gemm, layout, offsets, config) for offsets in layout.launches)
    add = module.get_function(ADD_ENTRY)
    return tuple(
        PartedLaunch(gemm, add, layout=layout, offsets=offsets, config=config)
        for offsets in layout.launches
    )


def load_entry(compiled: CompiledKernel) -> Any:
    """Return a compiled kernel, loaded on the current device."""
    from cupy import RawModule

    return StructKernel(RawModule(path=str(compiled.path)).get_function(compiled.name))
