"""HIP source that needs more than the small C++ library compiles with the full one, and runs."""

from __future__ import annotations

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm._build.toolchain import CompileError
from cupygemm.emulator.runtime import compile as compiler
from cupygemm.emulator.runtime import cxx_library
from cupygemm.emulator.runtime.compile import compile_program
from cupygemm.emulator.runtime.properties import DeviceProperties

# A typical program: a host part with containers and streams, launches of templates, and device code
# that uses the library's constexpr functions, complex numbers and wide vectors.
PROGRAM = r"""
#include <omp.h>
#include <hip/hip_runtime.h>
#include <iostream>
#include <numeric>
#include <tuple>

// As rocWMMA does for vectors that HIP does not have.
template <> struct HIP_vector_base<float, 8> {
    using Native_vec_ = float __attribute__((ext_vector_type(8)));
    union { Native_vec_ data; };
    HIP_vector_base() = default;
    __host__ __device__ explicit HIP_vector_base(float v) : data{v, v, v, v, v, v, v, v} {}
};

template <int n> __global__ void work(const float* in, float* out) {
    std::array<float, n> a{};
    for (int i = 0; i < n; i++) a[i] = std::max(in[i], 2.0f);
    auto [low, high] = std::minmax(a[0], a[n - 1]);
    const std::complex<float> z(low, high);
    HIP_vector_type<float, 8> wide(1.0f);
    wide = wide * 2.0f + wide;
    ++wide;
    alignas(float) char place[sizeof(float)];
    out[threadIdx.x] = (z * z).imag() + std::get<1>(std::make_tuple(1, a[1])) + wide.data[7]
        + __ocml_exp_f32(0.0f) + *new (place) float(3.0f);
    if (threadIdx.x == 0) printf("done\n");
}

__host__ __device__ void hello() { printf("hello\n"); }

int main() {
    std::vector<float> host(4);
    std::iota(host.begin(), host.end(), 1.0f);
    hipDeviceProp_t properties;
    #pragma omp parallel for
    for (int i = 0; i < omp_get_max_threads(); i++) std::cout << omp_get_wtime();
    float *in, *out;
    if (hipGetDeviceProperties(&properties, 0) != hipSuccess) std::cerr << "no device\n";
    if (hipMalloc(&in, 16) != hipSuccess || hipMalloc(&out, 16) != hipSuccess) return 1;
    work<4><<<1, min(4, properties.warpSize), 0, hipStreamDefault>>>(in, out);
    std::cout << hipGetErrorString(hipGetLastError()) << std::endl;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("rtc", [True, pytest.param(False, marks=pytest.mark.sweep)])
def test_a_whole_program_compiles_and_its_kernel_runs(
    rtc: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    code = compile_program(PROGRAM, "a.hip", target_name="gfx942", rtc=rtc).code
    given, result = np.array([1, 2, 3, 4], "f4"), np.zeros(4, "f4")
    emulator.launch(code, 1, 4, [given, result])
    # (2 + 4i)^2 has the imaginary part 16; then the second element, 2 * 1 + 1 + 1, exp(0) and 3.
    assert (result == 16 + 2 + 4 + 1 + 3).all()
    assert capsys.readouterr().out == "done\n"


def test_the_small_library_serves_where_it_suffices(monkeypatch: pytest.MonkeyPatch) -> None:
    source = '#include <type_traits>\nextern "C" __global__ void k(std::true_type) {}'
    monkeypatch.setattr(compiler.cxx_library, "full", lambda: None)
    assert compile_program(source, "a.hip", target_name="gfx942").code
    with pytest.raises(CompileError, match="'vector' file not found"):
        compile_program("#include <vector>\n" + source, "a.hip", target_name="gfx942")


@pytest.mark.slow
def test_errors_are_the_user_s() -> None:
    source = '#include <vector>\nextern "C" __global__ void k() { wrong(); }'
    with pytest.raises(CompileError) as caught:
        compile_program(source, "a.hip", target_name="gfx942")
    assert "a.hip:2:34: error: use of undeclared identifier 'wrong'" in caught.value.log
    assert caught.value.log.count("error:") == 1


def test_properties_have_the_layout_that_the_runtime_fills_in() -> None:
    places = [
        f"static_assert(offsetof(hipDeviceProp_t, {field[0]}) == "
        f"{getattr(DeviceProperties, field[0]).offset});"
        for field in DeviceProperties._fields_
    ]
    source = "\n".join(["#include <hip/hip_runtime.h>", *places])
    assert compile_program(source, "a.hip", target_name="gfx942").code


def test_the_full_library_is_there() -> None:
    assert cxx_library.full() is not None
