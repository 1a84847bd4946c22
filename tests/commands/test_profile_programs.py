"""``python -m cupygemm profile`` of HIP source and of programs, and the comparison of two."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cupygemm._commands import cli as _cli

SOURCE = """
#include "shape.h"
extern "C" __global__ void tiles(const uint4* a, uint4* out, int row_vectors) {
    __shared__ uint4 tile[ROWS][4];
    for (int step = 0; step < 4; ++step) {
        for (int i = threadIdx.x; i < 4 * ROWS; i += 256)
            tile[i / 4][i % 4] = a[(i / 4) * row_vectors + 4 * step + i % 4];
        __syncthreads();
        out[blockIdx.x * 256 + threadIdx.x] = tile[threadIdx.x][step];
        __syncthreads();
    }
}
"""
LAUNCH = ("--grid", "2", "--block", "256")
ALIKE, PADDED = (f"u32[{256 * 4 * row}] u32[2048] i32:{row}" for row in (1024, 1032))


@pytest.fixture
def invoke() -> Callable[..., Any]:
    return lambda *arguments: CliRunner().invoke(_cli.app, ["profile", *map(str, arguments)])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "shape.h").write_text("#ifndef ROWS\n#define ROWS 256\n#endif\n")
    path = tmp_path / "tiles.hip"
    path.write_text(SOURCE)
    return path


def test_source_with_its_headers_and_options(invoke: Callable[..., Any], source: Path) -> None:
    result = invoke(source, *LAUNCH, "--args", ALIKE, "--json", "--target", "gfx950")
    assert result.exit_code == 0, result.output
    (kernel,) = json.loads(result.output)["kernels"]
    assert (kernel["kernel"], kernel["target"]) == ("tiles", "gfx950")
    assert kernel["lds_bytes"] == 256 * 64
    assert str(source) in {line["file"] for line in kernel["source_lines"]}
    assert kernel["verdict"]["causes"]
    result = invoke(source, *LAUNCH, "--args", ALIKE, "--options", "-DROWS=512", "--json")
    assert result.exit_code == 1, "the second half of the tile is out of bounds"
    assert "tiles.hip:7" in result.output


@pytest.mark.slow
def test_source_that_does_not_compile(invoke: Callable[..., Any], source: Path) -> None:
    result = invoke(source, *LAUNCH, "--options", "-DROWS=rows")
    assert result.exit_code == 2
    assert "does not compile" in result.output
    assert "undeclared identifier" in result.output


def test_two_launches_side_by_side(invoke: Callable[..., Any], source: Path) -> None:
    words = (source, source, *LAUNCH, "--args", ALIKE, "--args", PADDED)
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    first, *rest = result.output.splitlines()
    assert first.startswith("b is 1.")
    assert "times as fast as a (modelled)" in first
    assert "vL1D hit 0.0 % → 50.0 %; conflict misses 1,024 → 0" in result.output
    assert any(line.split() == ["conflict", "misses", "1,024", "0"] for line in rest)
    found = json.loads(invoke(*words, "--json").output)
    cycles = [difference["cycles"] for difference in found["differences"]]
    assert found["differences"][0]["name"] == "wait: vmcnt"
    assert cycles == sorted(cycles, key=abs, reverse=True)
    times = [kernel["modelled"]["cycles"] for kernel in found["kernels"]]
    assert sum(cycles) == pytest.approx(times[1] - times[0], rel=0.1)
    assert invoke(*words, "--listing").exit_code == 2


def test_each_kernel_of_a_comparison_has_its_launch(
    invoke: Callable[..., Any], source: Path
) -> None:
    words = ("--grid", "1", "--grid", "2", "--lds", "0", "--lds", "1024", "--block", "256")
    result = invoke(source, source, *words, "--args", ALIKE, "--json")
    found = json.loads(result.output)["kernels"]
    assert [kernel["grid"] for kernel in found] == [[1, 1, 1], [2, 1, 1]]
    assert [kernel["block"] for kernel in found] == [[256, 1, 1]] * 2
    assert found[1]["lds_bytes"] - found[0]["lds_bytes"] == 1024


def test_a_kernel_beside_itself(invoke: Callable[..., Any], source: Path) -> None:
    result = invoke(source, source, *LAUNCH, "--args", ALIKE)
    assert "a and b take the same modelled time" in result.output
    assert "wait: vmcnt" not in result.output


PROGRAM = """
import sys
import helper
import cupy as cp
x = cp.arange(int(sys.argv[1]), dtype="float32")
kernel = cp.RawKernel(helper.SOURCE, "scale")
kernel((4,), (64,), (x, len(sys.argv)))
print("sum", float(x.get().sum()))
"""
SCALE = (
    'extern "C" __global__ void scale(float* x, int n) { x[64 * blockIdx.x + threadIdx.x] *= n; }'
)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text(f"SOURCE = {SCALE!r}\n")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_a_program(
    invoke: Callable[..., Any], program: Path, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not device.emulated:
        pytest.skip("programs are profiled on the emulated device")
    result = invoke(program, "--args", "256 more")
    assert result.exit_code == 0, result.output
    assert f"sum {3.0 * sum(range(256))}" in result.output
    assert f"scale on emulated {device.target}: grid 4x1x1, block 64x1x1" in result.output
    assert "Verdict (modelled): " in result.output
    result = invoke(program, "--args", "200")
    assert result.exit_code == 1
    assert "out-of-bounds global read" in result.output
    caught = program.with_name("caught.py")
    body = textwrap.indent(program.read_text(encoding="utf-8"), "    ")
    caught.write_text(f"try:\n{body}except Exception:\n    pass\n")
    result = invoke(caught, "--args", "200")
    assert result.exit_code == 1
    assert "out-of-bounds global read" in result.output
    result = invoke(program, "--args", "words")
    assert result.exit_code == 2
    assert "raised ValueError: invalid literal for int()" in result.output
    program.write_text("import cupy, os; print(os.environ['CUPYGEMM_EMULATE'])", encoding="utf-8")
    monkeypatch.delenv("CUPYGEMM_EMULATE", raising=False)
    result = invoke(program, "--target", device.target)
    assert "launches no kernel" in result.output
    assert device.target in result.output  # for processes that the program starts
    assert "CUPYGEMM_EMULATE" not in os.environ
