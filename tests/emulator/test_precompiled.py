"""Headers that are precompiled make programs compile sooner, and change nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cupygemm._build.toolchain import CompileError, Toolchain, find_toolchain
from cupygemm.emulator.runtime import compile as compiler
from cupygemm.emulator.runtime import cxx_library, precompiled

TARGET = "gfx942"
PROGRAM = """#include <cupy/complex.cuh>
#include <cupy/carray.cuh>

extern "C" __global__ void twice(CArray<complex<float>, 1, true, true> x) {
    x[threadIdx.x] *= 2.0f;
}
"""


class Compilation:
    """A program in a folder, compiled to assembly; keeps the options of each try."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        import cupy

        self.file = folder / "program.hip"
        self.assembly = folder / "kernel.s"
        self.tries: list[list[str]] = []
        self.options = [f"-I{Path(cupy.__file__).parent}/_core/include", "-cuid=0"]
        compile_to_assembly = Toolchain.compile_to_assembly

        def record(toolchain: Toolchain, *args: Any, options: list[str], **kwargs: Any) -> str:
            self.tries.append(options)
            return compile_to_assembly(toolchain, *args, options=options, **kwargs)

        patch.setattr(Toolchain, "compile_to_assembly", record)

    def __call__(self, program: str, *options: str) -> str:
        self.tries.clear()
        self.file.write_text(program)
        toolchain = find_toolchain()
        given = compiler._Program(toolchain, self.file, TARGET, [*self.options, *options], (), True)
        arguments = compiler._arguments(given, cxx_library.SMALL)
        precompiled.compile_to_assembly(
            toolchain,
            self.file,
            self.assembly,
            target_name=TARGET,
            arguments=arguments,
            preprocessed=toolchain.preprocess(self.file, target=TARGET, options=arguments),
            version=compiler.headers_digest(),
        )
        return self.assembly.read_text()

    @property
    def precompiled(self) -> list[bool]:
        """Tell of each try whether it used precompiled headers."""
        return ["-include-pch" in options for options in self.tries]


@pytest.fixture
def compilation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compilation:
    return Compilation(tmp_path, monkeypatch)


@pytest.mark.parametrize("options", [(), ("-ffast-math", "-std=c++20")], ids=str)
def test_the_code_is_the_same(
    compilation: Compilation, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    sooner = compilation(PROGRAM, *options)
    assert compilation.precompiled == [True]
    monkeypatch.setattr(precompiled, "_precompile", lambda *_: None)
    assert compilation(PROGRAM, *options) == sooner
    assert compilation.precompiled == [False]


@pytest.mark.parametrize("option", ["-DN=1", "-gline-tables-only"])
def test_a_program_of_its_own_kind_is_compiled_in_full(
    compilation: Compilation, option: str
) -> None:
    compilation(PROGRAM, option)
    assert compilation.precompiled == [False]


def test_headers_of_the_same_name_are_not_mixed_up(compilation: Compilation) -> None:
    mine = compilation.file.parent / "include" / "cupy" / "complex.cuh"
    mine.parent.mkdir(parents=True)
    mine.write_text("__device__ int mine;\n")
    assert "mine" in compilation("#include <cupy/complex.cuh>\n__device__ int* p = &mine;\n")
    assert compilation.precompiled == [False]


def test_damaged_headers_are_not_used(
    compilation: Compilation, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = compilation.file.with_name("damaged.pch")
    damaged.write_bytes(b"CPCH")
    monkeypatch.setattr(precompiled, "_precompile", lambda *_: precompiled._Headers(damaged, ""))
    assert "twice" in compilation(PROGRAM)
    assert compilation.precompiled == [True, False]


def test_the_diagnostics_are_those_of_the_full_program(compilation: Compilation) -> None:
    with pytest.raises(CompileError, match=r"program\.hip:3:1: error") as caught:
        compilation("#include <cupy/complex.cuh>\n\nwrong;\n")
    assert "pch" not in str(caught.value)
