"""Precompiled headers make programs compile faster, and change nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cupygemm._build.toolchain import CompileError, Toolchain, find_toolchain
from cupygemm.emulator.runtime import compile as compiler
from cupygemm.emulator.runtime import cxx_library, precompiled, unwritten

TARGET = "gfx942"
PROGRAM = """#include <cupy/complex.cuh>
#include <cupy/carray.cuh>

extern "C" __global__ void twice(CArray<complex<float>, 1, true, true> x) {
    x[threadIdx.x] *= 2.0f;
}
"""


class Compilation:
    """A program in a folder, compiled to an object file; records the options of each attempt."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        import cupy

        folder.mkdir()
        self.file = folder / "program.hip"
        self.object_file = folder / "kernel.o"
        self.tries: list[list[str]] = []
        self.options = (f"-I{Path(cupy.__file__).parent}/_core/include", "-cuid=0")
        compile_to_object = Toolchain.compile_to_object

        def record(toolchain: Toolchain, *args: Any, options: list[str], **kwargs: Any) -> str:
            self.tries.append(options)
            return compile_to_object(toolchain, *args, options=options, **kwargs)

        patch.setattr(Toolchain, "compile_to_object", record)

    def __call__(self, program: str, *options: str) -> bytes:
        self.tries.clear()
        self.file.write_text(program)
        given = self.program(*options)
        arguments = compiler._arguments(given, cxx_library.SMALL)
        precompiled.compile_to_object(
            given.toolchain,
            self.file,
            self.object_file,
            target_name=TARGET,
            arguments=arguments,
            headers=given._headers(cxx_library.SMALL, arguments),
        )
        return self.object_file.read_bytes()

    def program(self, *options: str) -> compiler._Program:
        options = (*self.options, *options)
        return compiler._Program(find_toolchain(), self.file, TARGET, options, (), True)

    @property
    def precompiled(self) -> list[bool]:
        """Whether each attempt used precompiled headers."""
        return ["-include-pch" in options for options in self.tries]


@pytest.fixture
def compilation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compilation:
    return Compilation(tmp_path / "program", monkeypatch)


@pytest.mark.slow
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
    assert b"mine" in compilation("#include <cupy/complex.cuh>\n__device__ int* p = &mine;\n")
    assert compilation.precompiled == [False]


def test_damaged_headers_are_not_used(
    compilation: Compilation, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = compilation.file.with_name("damaged.pch")
    damaged.write_bytes(b"CPCH")
    monkeypatch.setattr(precompiled, "_precompile", lambda *_: (damaged, ""))
    assert b"twice" in compilation(PROGRAM)
    assert compilation.precompiled == [True, False]


UNWRITTEN = """
extern "C" __global__ void k(const float* x, float* y, int n) {
    float sums[4];
    for (int i = 0; i < n; i++) sums[i] = x[i];
    for (int i = 0; i < 4; i++) y[i] = sums[i];
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [False, True])
def test_programs_with_markers_take_precompiled_headers_too(
    compilation: Compilation, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    tries: list[bool] = []
    compile_to_ir = Toolchain.compile_to_ir

    def record(toolchain: Toolchain, *args: Any, options: list[str], **kwargs: Any) -> None:
        tries.append("-include-pch" in options)
        compile_to_ir(toolchain, *args, options=options, **kwargs)

    monkeypatch.setattr(Toolchain, "compile_to_ir", record)
    compilation.file.write_text(UNWRITTEN)
    given = compilation.program()
    arguments = compiler._arguments(given, cxx_library.SMALL)
    if damaged:
        file = compilation.file.with_name("damaged.pch")
        file.write_bytes(b"CPCH")
        monkeypatch.setattr(precompiled, "_precompile", lambda *_: (file, ""))
    headers = given._headers(cxx_library.SMALL, arguments)
    codes = []
    for ways in (precompiled.ways(headers, arguments), precompiled.ways(None, arguments)):
        assert unwritten.compile_marked(
            given.toolchain,
            compilation.file,
            compilation.object_file,
            plain=compilation.object_file,
            target_name=TARGET,
            ways=ways,
        )
        codes.append(compilation.object_file.read_bytes())
    assert tries == ([True, False, False] if damaged else [True, False])
    assert codes[0] == codes[1]


def test_the_diagnostics_are_those_of_the_full_program(compilation: Compilation) -> None:
    with pytest.raises(CompileError, match=r"program\.hip:3:1: error") as caught:
        compilation("#include <cupy/complex.cuh>\n\nwrong;\n")
    assert "pch" not in str(caught.value)


def test_a_folder_with_headers_of_the_same_name(compilation: Compilation, tmp_path: Path) -> None:
    mine = tmp_path / "mine" / "cupy" / "carray.cuh"
    mine.parent.mkdir(parents=True)
    mine.write_text("__device__ int mine;\n")
    compilation.options = (f"-I{tmp_path / 'mine'}", *compilation.options)
    assert b"mine" in compilation("#include <cupy/carray.cuh>\n__device__ int* p = &mine;\n")
    assert compilation.precompiled == [False]


@pytest.mark.parametrize(
    ("rest", "expanded"),
    [
        ("__device__ int x;\n", False),
        ("# include <type_traits>\n", True),
        ("#inc\\\nlude <type_traits>\n", True),
        ("__device__ const char* t = __TIME__;\n", True),
    ],
)
def test_a_program_that_includes_more_is_expanded_for_its_key(
    compilation: Compilation, rest: str, expanded: bool
) -> None:
    compilation.file.write_text(f"#include <cupy/complex.cuh>\n{rest}")
    given = compilation.program()
    headers = given._headers(cxx_library.SMALL, compiler._arguments(given, cxx_library.SMALL))
    assert headers is not None
    assert (precompiled.key_text(headers, "a.hip") is None) == expanded


def test_the_key_holds_macros_of_the_headers(compilation: Compilation, tmp_path: Path) -> None:
    """A macro that the headers define but do not use changes programs that use it."""
    header = tmp_path / "mine" / "cupy" / "mine.cuh"
    header.parent.mkdir(parents=True)
    compilation.options = (f"-I{tmp_path / 'mine'}",)
    compilation.file.write_text("#include <cupy/mine.cuh>\n__device__ int x = VALUE;\n")
    texts = set()
    for value in range(2):
        header.write_text(f"#define VALUE {value}\n")
        precompiled._precompile.cache_clear()
        given = compilation.program()
        headers = given._headers(cxx_library.SMALL, compiler._arguments(given, cxx_library.SMALL))
        assert headers is not None
        texts.add(precompiled.key_text(headers, "a.hip"))
    assert len(texts) == 2
