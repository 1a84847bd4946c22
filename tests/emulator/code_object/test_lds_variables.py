"""Elements of LDS are named only where the source is unambiguous, and then correctly."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cupygemm.emulator.code_object.lds_variables import private_array, variables

TYPES = """
#define TILE 16
constexpr int ROWS = TILE * 2 + 0x10u;
typedef _Float16 half8 __attribute__((ext_vector_type(8)));
using pair = float __attribute__((ext_vector_type(2)));
"""
# declarations, and whether their layout is known
KERNELS = (
    ("__shared__ float tile[TILE][TILE + 1]; __shared__ int ready[2], freed[2];", True),
    ("__shared__ half8 b[ROWS], a[ROWS]; __shared__ double d; __shared__ unsigned char c;", True),
    (
        "__shared__ float4 v[3]; volatile __shared__ unsigned long long w; __shared__ pair p[2];",
        True,
    ),
    ("__shared__ __attribute__((aligned(64))) short s[32]; __shared__ int i[16];", True),
    ("__shared__ float x[64]; __shared__ int later, n1, n10;", True),
    ("__shared__ char odd[17]; __shared__ float x[64], y[5];", True),  # a gap
    ("__shared__ char odd[17], c; __shared__ float x[9], y, z[2]; __shared__ short s, t[5];", True),
    ("__shared__ int count[8], start[9]; __shared__ double d[3]; __shared__ int i;", True),
    ("struct Own { int a, b; }; __shared__ Own own[4];", False),
    ("__shared__ float x[sizeof(int)];", False),
)


def kernel_of(declarations: str, kernel: str) -> tuple[str, list[str]]:
    """Return a kernel that stores the addresses of its variables, and their names."""
    names = [
        part.split("[")[0].split()[-1]
        for each in declarations.split(";")
        if "__shared__" in each
        for part in each.split(",")
    ]
    body = "".join(
        f"*(volatile char*)&{name} = 1; out[{i}] = (unsigned)(unsigned long long)"
        f"(__attribute__((address_space(3))) char*)&{name};\n"
        for i, name in enumerate(names)
    )
    head = f'extern "C" __global__ void {kernel}(unsigned* out) {{ // {{\n'
    return f"{head}{declarations}\n{body}}}\n", names


@pytest.fixture(scope="module")
def kernels(cp: ModuleType) -> Any:
    """The kernels k0, k1 and so on of `KERNELS`, compiled as one program."""
    texts = [kernel_of(row[0], f"k{i}")[0] for i, row in enumerate(KERNELS)]
    return cp.RawModule(code="".join([TYPES, *texts]))


@pytest.mark.parametrize("number", range(len(KERNELS)))
def test_offsets_are_the_compilers(cp: ModuleType, kernels: Any, number: int) -> None:
    (declarations, known), kernel = KERNELS[number], f"k{number}"
    text, names = kernel_of(declarations, kernel)
    function, out = kernels.get_function(kernel), cp.zeros(8, "u4")
    function((1,), (1,), (out,))
    found = variables(TYPES + text, kernel, function.shared_size_bytes)
    expected = dict(zip(names, out.get().tolist(), strict=False)) if known else {}
    assert {v.name: v.offset for v in found} == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("__global__ void k() { __shared__ int x[4]; }", "other"),
        ("void k() { __shared__ int x[4]; } void k(int) { __shared__ int x[4]; }", "k"),
        ("__global__ void k() { __shared__ int x[4]; { __shared__ int x[4]; } }", "k"),
        ("__global__ void k() { extern __shared__ int x[]; }", "k"),
        ("__global__ void k() { __shared__ int x[8]; }", "k"),
        ("", "k"),
    ],
)
def test_what_is_not_certain(text: str, name: str) -> None:
    assert variables(text, name, 16) == []


def test_a_mangled_kernel() -> None:
    (found,) = variables("__global__ void sum(int* x) { __shared__ int x[4]; }", "_Z3sumPi", 16)
    assert (found.name, found.offset, found.extents) == ("x", 0, (4,))


def test_a_report_names_the_element(cp: ModuleType, device: Any) -> None:
    if not device.emulated:
        pytest.skip("only the emulated device reports faults")
    source = """
    extern "C" __global__ void turn(short* x) {
        __shared__ short other[8], tile[2][64];
        other[threadIdx.x % 8] = 0;
        tile[threadIdx.x / 64][threadIdx.x % 64] = x[threadIdx.x];
        x[threadIdx.x] = tile[1 - threadIdx.x / 64][threadIdx.x % 64] + other[threadIdx.x % 8];
    }"""
    with pytest.raises(RuntimeError, match="LDS race") as raised:
        cp.RawKernel(source, "turn")((1,), (128,), (cp.zeros(128, "i2"),))
    last = str(raised.value).splitlines()[-1]
    assert last == "  tile[1][0] lies there: short tile[2][64] in LDS"


PRIVATE = (  # declarations, and whether the array is known
    ("float part[TILE / 4][5];", True),
    ("int part[20] = {}; for (int j = 0; j < 20; j++) part[j] = in[j];", True),
    ("half8 part[4]; __shared__ int other[3]; other[in[0] & 1] = 1;", True),
    ("float part[20]; int other[9]; other[in[0]] = 1; out[1] = other[in[1]];", False),
    ("struct Own { float a, b; }; Own part[9];", False),
    ("int part[20]; const int* other[2] = {in, in + 1}; out[1] = *other[in[0]];", False),
    ("int part[20]; if (in[0]) return; else out[2];", True),
)


def private_kernel(number: int) -> str:
    """Return a kernel of `PRIVATE` that stores the address of its array."""
    return (
        f'extern "C" __global__ void k{number}(const int* in, unsigned* out) {{\n'
        f"{PRIVATE[number][0]}\n*(volatile char*)&part[in[0]] = 1;\n"
        "auto at = (__attribute__((address_space(5))) char*)&part;\n"
        "out[0] = (unsigned)(unsigned long long)at;\n}\n"
    )


@pytest.fixture(scope="module")
def private_kernels(cp: ModuleType) -> Any:
    return cp.RawModule(code="".join([TYPES, *map(private_kernel, range(len(PRIVATE)))]))


@pytest.mark.parametrize("number", range(len(PRIVATE)))
def test_a_private_array_begins_private_memory(
    cp: ModuleType, private_kernels: Any, number: int
) -> None:
    kernel, known = f"k{number}", PRIVATE[number][1]
    function, out = private_kernels.get_function(kernel), cp.full(8, 99, "u4")
    function((1,), (1,), (cp.zeros(32, "i4"), out))
    text = TYPES + private_kernel(number)
    found = private_array(text, kernel, function.local_size_bytes)
    assert (found is not None) == known
    if found is not None:
        assert found.name == "part"
        assert found.offset == int(out[0])


def test_a_report_names_the_element_of_a_private_array(cp: ModuleType) -> None:
    text = """extern "C" __global__ void other(int* out) {
        int mine[9] = {}; mine[out[1]] = 1; out[0] = mine[out[2]];
    }
    extern "C" __global__ void k(const int* in, float* out) {
        float part[20][16];  // larger than what markers follow
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) part[i][j] = in[i];
        out[threadIdx.x] = part[in[4]][in[5]];
    }"""
    function = cp.RawModule(code=text).get_function("k")
    report = r"part\[2\]\[4\] lies there: float part\[20\]\[16\] in private memory"
    with pytest.raises(Exception, match=report):
        function((1,), (64,), (cp.array([0, 1, 2, 3, 2, 4], "i4"), cp.empty(64, "f4")))


def test_a_variable_that_only_assembly_reads_is_said_to_be_removed(cp: ModuleType) -> None:
    source = """
    extern "C" __global__ void f(float* y) {
        __shared__ float tile[64];
        tile[threadIdx.x] = threadIdx.x;
        __syncthreads();
        float x;
        unsigned place = OFFSET + threadIdx.x * 4;
        asm volatile("ds_read_b32 %0, %1\\n s_waitcnt lgkmcnt(0)"
                     : "=v"(x) : "v"(place) : "memory");
        y[threadIdx.x] = x;
    }
    """
    y = cp.zeros(64, "f4")
    with pytest.raises(cp.cuda.driver.CUDADriverError) as caught:
        cp.RawKernel(source.replace("OFFSET", "0"), "f")((1,), (64,), (y,))
    assert "removed 256 bytes of the kernel's __shared__ variables" in str(caught.value)
    offset = "(unsigned)(size_t)tile"
    cp.RawKernel(source.replace("OFFSET", offset), "f")((1,), (64,), (y,))
    np.testing.assert_array_equal(y.get(), np.arange(64))
    with pytest.raises(cp.cuda.driver.CUDADriverError) as caught:
        cp.RawKernel(source.replace("OFFSET", f"4 + {offset}"), "f")((1,), (64,), (y,))
    assert "removed" not in str(caught.value)
