"""Kernels for Hopper as NVRTC compiles them, and what a clean compilation is. Needs no GPU."""

from __future__ import annotations

import json
from pathlib import Path

from cupygemm._backends.hopper.compilation.compile import OPTIONS, read_cubin
from cupygemm._backends.hopper.config import HopperConfig
from cupygemm._backends.hopper.cuda.nvrtc import find_nvrtc
from cupygemm._build.cache import get_or_build
from cupygemm._records.problem import Epilogue, Source
from tests.problems import problem_of

PROBLEM = problem_of(512, 512, 512)
EVERYTHING = Epilogue(
    alpha=True,
    scale_a=Source("f32", "row"),
    scale_b=Source("f32", "column"),
    c=Source("f32", "matrix"),
    bias=Source("f32", "column"),
    activation="silu",
    scale_out=Source("f32", "one"),
    clamp=True,
)
REPORT = "--ptxas-options=-v"
CLEAN = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"


def compiled(text: str, name: str = "cupygemm_gemm") -> tuple[int, int]:
    """Assert a clean compilation, and return the registers and the bytes of local memory.

    The log would say if wgmma were serialised, or if setmaxnreg were ignored.
    """
    registers, local, log = _report(text, name)
    assert CLEAN in log
    assert "Performance" not in log
    assert "warning" not in log
    return registers, local


def _report(text: str, name: str) -> tuple[int, int, str]:
    """Return registers, bytes of local memory and the log of a compilation, kept in the cache."""
    nvrtc = find_nvrtc()

    def build(output: Path) -> None:
        cubin, log = nvrtc.compile(text, (*OPTIONS, REPORT))
        registers, local, _ = read_cubin(cubin, name)
        output.write_text(json.dumps([registers, local, log]), encoding="utf-8")

    key = text, name, *OPTIONS, REPORT, nvrtc.version
    registers, local, log = json.loads(get_or_build("test-cubin", key, ".json", build).read_text())
    return registers, local, log


def assert_fits(text: str, config: HopperConfig) -> None:
    """Assert that a kernel compiles cleanly, spills nothing and leaves room for its threads."""
    registers, local = compiled(text)
    assert local == 0
    assert registers * config.num_threads <= 65536
