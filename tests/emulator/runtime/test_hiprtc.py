"""Compiling through CuPy: sources, options, headers, name expressions, logs, the stand-in hipcc."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cupygemm._build.toolchain import CompileError
from cupygemm.emulator.runtime import compile as compiler
from cupygemm.emulator.runtime import hipcc
from cupygemm.emulator.runtime.compile import InvalidOption, compile_program

STORE = 'extern "C" __global__ void store(int* out) { out[threadIdx.x] = VALUE; }'


def stored(cp: ModuleType, module: Any, threads: int = 3) -> list[int]:
    out = cp.zeros(threads, np.int32)
    module.get_function("store")((1,), (threads,), (out,))
    values: list[int] = out.get().tolist()
    return values


def test_options_reach_the_compiler(cp: ModuleType) -> None:
    module = cp.RawModule(code=STORE, options=("-DVALUE=threadIdx.x * 2", "--std=c++20"))
    assert stored(cp, module) == [0, 2, 4]


def test_macros_of_a_program_do_not_reach_our_headers() -> None:
    names = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvw"  # x is threadIdx's
    options = [*(f"-D{name}=(5)" for name in names), "-UA", "-D_B", "-D", "A(b)=b + N", "-DONE"]
    source = f"#define VALUE A(2)\nstatic_assert(VALUE == 7 && B == 5 && _B + ONE == 2);\n{STORE}"
    assert compile_program(source, "a", target_name="gfx942", options=options).code


OWN_INTEGERS = "typedef unsigned long long  uint64_t;\nusing int64_t = long long int;\n"


def test_a_program_may_define_the_integers_that_rocm_7_does_not(cp: ModuleType) -> None:
    """ROCm 7's hiprtc has no uint64_t, so sources written for NVRTC bring one."""
    code = f"{OWN_INTEGERS}template <class T> __global__ void wide(T *out) {{ *out = T(1) << 40; }}"
    names = ["wide<uint64_t>", "wide<int64_t>"]
    module = cp.RawModule(code=code, options=("-std=c++17",), name_expressions=names)
    for name, dtype in zip(names, ("u8", "i8"), strict=True):
        out = cp.zeros(1, dtype)
        module.get_function(name)((1,), (1,), (out,))
        assert out.get().tolist() == [1 << 40]


@pytest.mark.slow
def test_integers_that_conflict_on_a_gpu_are_an_error(cp: ModuleType) -> None:
    source = f"#include <stdint.h>\n{OWN_INTEGERS}"
    with pytest.raises(CompileError, match="typedef redefinition with different types"):
        compile_program(source, "a", target_name="gfx942", options=["-std=c++17"])


def test_include_folders_are_searched_before_our_headers(cp: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "mine.h").write_text("#define VALUE 7\n")
    (tmp_path / "limits.h").write_text("#define LIMIT 1\n")
    code = f'#include "mine.h"\n#include <limits.h>\nstatic_assert(LIMIT == 1, "");\n{STORE}'
    assert stored(cp, cp.RawModule(code=code, options=(f"-I{tmp_path}",))) == [7, 7, 7]


def test_an_edited_header_is_compiled_anew(tmp_path: Path) -> None:
    header = tmp_path / "mine.h"
    codes = []
    for value in (1, 2, 1):
        header.write_text(f"#define VALUE {value}\n")
        source = f'#include "mine.h"\n{STORE}'
        compiled = compile_program(source, "a", target_name="gfx942", options=[f"-I{tmp_path}"])
        codes.append(compiled.code)
    assert codes[0] != codes[1]
    assert codes[0] == codes[2]


def test_the_same_program_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    source = STORE.replace("VALUE", "5")
    first = compile_program(source, "a", target_name="gfx942")

    def refuse(*_: Any) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiler._Program, "_compile", refuse)
    assert compile_program(source, "a", target_name="gfx942") == first


def test_given_headers_are_included() -> None:
    compile_program(
        f'#include "folder/given.h"\n{STORE}',
        "a",
        target_name="gfx942",
        headers={"folder/given.h": "#define VALUE 3"},
    )


def test_the_log_of_an_error_names_the_line_and_no_scratch_folder(cp: ModuleType) -> None:
    with pytest.raises(cp.cuda.compiler.CompileException) as caught:
        cp.RawModule(code=STORE).get_function("store")
    message = str(caught.value)
    assert ":1:65: error: use of undeclared identifier 'VALUE'" in message
    assert "cupygemm-hiprtc-" not in message


def test_warnings_are_in_the_log(cp: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    code = f"#warning look here\n{STORE}"
    log = compile_program(code, "a.hip", target_name="gfx942", options=["-DVALUE=1"]).log
    assert "a.hip:1:2: warning: look here" in log


NAMES = """
template <typename T, int n>
__global__ void fill(T* out) { out[threadIdx.x] = T(n); }
namespace inner {
__global__ void fill(float* out) { out[threadIdx.x] = 0.5f; }
__device__ int table[4] = {1, 2, 3, 4};
}
"""


def test_name_expressions_become_symbols(cp: ModuleType) -> None:
    names = ["fill<int, 3>", "fill<double, 4>", "inner::fill"]
    module = cp.RawModule(code=NAMES, name_expressions=names)
    for name, dtype, expected in zip(names, ("i4", "f8", "f4"), (3, 4, 0.5), strict=True):
        out = cp.zeros(5, dtype)
        module.get_function(name)((1,), (5,), (out,))
        assert out.get().tolist() == [expected] * 5


def test_a_variable_can_be_a_name_expression() -> None:
    compiled = compile_program(
        NAMES, "a", target_name="gfx942", expressions=["&inner::table", "fill<char, 1>"]
    )
    assert compiled.lowered == {
        "&inner::table": "_ZN5inner5tableE",
        "fill<char, 1>": "_Z4fillIcLi1EEvPT_",
    }


def test_a_wrong_name_expression_is_a_compile_error(cp: ModuleType) -> None:
    with pytest.raises(cp.cuda.compiler.CompileException, match="undeclared identifier 'nothing'"):
        cp.RawModule(code=NAMES, name_expressions=["nothing<int>"]).get_function("nothing<int>")


@pytest.mark.parametrize(
    "option", ["--gpu-architecture=gfx90a", "--offload-arch=gfx1100", "-arch=sm_90"]
)
def test_another_processor_is_refused(option: str) -> None:
    processor = option.partition("=")[2]
    with pytest.raises(InvalidOption, match=f"{processor}, and the emulated device is gfx942"):
        compile_program(STORE, "a", target_name="gfx942", options=[option])


@pytest.mark.slow
@pytest.mark.parametrize(
    "option",
    [
        "--gpu-architecture=gfx942",
        "--offload-arch=gfx942:sramecc+:xnack-",
        "--use_fast_math",
        "--fmad=false",
        "-lineinfo",
        "--define-macro=OTHER=1",
        "-O1",
    ],
)
def test_options_of_hiprtc_and_nvrtc_are_followed(option: str) -> None:
    compile_program(STORE, "a", target_name="gfx942", options=["-DVALUE=1", option])


def test_modules_hold_globals(cp: ModuleType) -> None:
    module = cp.RawModule(
        code="""
        __device__ int counter[2];
        __constant__ float factor;
        extern "C" __global__ void count() { atomicAdd(&counter[1], 1); }
        extern "C" __global__ void scale(float* out) { *out = factor * 2; }
        """
    )
    counter = cp.ndarray((2,), np.int32, module.get_global("counter"))
    counter[...] = 0
    module.get_function("count")((3,), (64,), ())
    assert counter.get().tolist() == [0, 192]
    cp.ndarray((1,), np.float32, module.get_global("factor"))[...] = 1.5
    out = cp.zeros(1, np.float32)
    module.get_function("scale")((1,), (1,), (out,))
    assert float(out[0]) == 3
    with pytest.raises(cp.cuda.driver.CUDADriverError, match=r"no variable missing .*counter"):
        module.get_global("missing")


def test_a_missing_kernel_lists_those_there_are(cp: ModuleType) -> None:
    module = cp.RawModule(code=STORE, options=("-DVALUE=1",))
    with pytest.raises(cp.cuda.driver.CUDADriverError, match=r"no kernel other .*it has store"):
        module.get_function("other")


def test_attributes_of_a_kernel(cp: ModuleType) -> None:
    code = """
    extern "C" __global__ __launch_bounds__(128) void k(float* x) {
        __shared__ float s[96];
        s[threadIdx.x % 96] = x[threadIdx.x];
        __syncthreads();
        x[threadIdx.x] = s[(threadIdx.x + 1) % 96];
    }"""
    kernel = cp.RawKernel(code, "k")
    assert kernel.max_threads_per_block == 128
    assert kernel.shared_size_bytes == 384
    assert kernel.local_size_bytes == 0
    assert 0 < kernel.num_regs < 64
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="256 threads in a block"):
        kernel((1,), (256,), (cp.zeros(256, "f4"),))


def test_modules_from_files(cp: ModuleType, tmp_path: Path) -> None:
    good, other = tmp_path / "good.hsaco", tmp_path / "other.hsaco"
    target = cp.cuda.runtime.getDeviceProperties(0)["gcnArchName"].decode().split(":")[0]
    wrong = "gfx90a" if target != "gfx90a" else "gfx942"
    for path, name in ((good, target), (other, wrong)):
        path.write_bytes(compile_program(STORE.replace("VALUE", "9"), "a", target_name=name).code)
    assert stored(cp, cp.RawModule(path=str(good))) == [9, 9, 9]
    error = cp.cuda.driver.CUDADriverError
    with pytest.raises(error, match=f"the code object is for {wrong}, and the device is {target}"):
        cp.RawModule(path=str(other)).get_function("store")
    with pytest.raises(error, match=r"cannot read .*none\.hsaco: No such file"):
        cp.RawModule(path=str(tmp_path / "none.hsaco")).get_function("store")
    other = tmp_path / "text.hsaco"
    other.write_bytes(b"not a code object, not at all")
    with pytest.raises(error, match="hipErrorInvalidImage: not an ELF file"):
        cp.RawModule(path=str(other)).get_function("store")


@pytest.mark.slow
def test_the_stand_in_hipcc_compiles(cp: ModuleType) -> None:
    module = cp.RawModule(code=STORE, backend="nvcc", options=("-DVALUE=6",))
    assert stored(cp, module) == [6, 6, 6]
    with pytest.raises(cp.cuda.compiler.CompileException, match="undeclared identifier 'VALUE'"):
        cp.RawModule(code=STORE, backend="nvcc").get_function("store")


def test_a_source_in_another_encoding_keeps_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUPYGEMM_HIPCC_TARGET", "gfx942")
    source, output = tmp_path / "latin.hip", tmp_path / "latin.hsaco"
    for letter in (b"\xf6", b"\xe4"):  # the text with its includes differs only by this byte
        text = b'// gr\xf6\xdfe\n__constant__ char name[] = "[%s]";\n' % letter
        source.write_bytes(b'extern "C" ' + text)
        assert hipcc.main(["--genco", str(source), "-o", str(output)]) == 0
        assert b"[%s]" % letter in output.read_bytes()


def test_environments_have_a_hipcc_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another environment's hipcc, which names its own headers, does not replace this one."""
    mine = hipcc.publish("gfx942")
    monkeypatch.setattr(hipcc, "HEADERS", Path("/another/environment"))
    assert hipcc.publish("gfx942") != mine
    assert "/another/environment" not in (mine / "bin" / "hipcc").read_text()


def test_the_stand_in_hipcc_compiles_while_it_tells_folders(cp: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "store.hip").write_text(STORE)
    built = subprocess.run(
        ["hipcc", "-v", "--genco", "-DVALUE=8", "store.hip", "-o", "store.hsaco"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "search starts here:" in built.stderr
    assert stored(cp, cp.RawModule(path=str(tmp_path / "store.hsaco"))) == [8, 8, 8]
