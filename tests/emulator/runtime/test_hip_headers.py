"""The HIP headers on the emulated device: integers, halves, lanes, atomics, vectors and C++."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.elementwise import Array, elementwise, elementwise_each

RNG = np.random.default_rng(3)
REAL = RNG.standard_normal(200)
BITS = RNG.integers(0, 2**32, 200, dtype=np.uint32)


INTEGERS = np.concatenate([BITS, np.array([0, 1, 2**31, 2**32 - 1], np.uint32)])
OF_INTEGERS: dict[str, Callable[[int], int]] = {
    "out = __popc(a) + __clz(a) * 100": lambda a: a.bit_count() + (32 - a.bit_length()) * 100,
    "out = __brev(a)": lambda a: int(f"{a:032b}"[::-1], 2),
    "out = __ffs(a)": lambda a: (a & -a).bit_length(),
    "out = __umulhi(a, 0x9e3779b9u)": lambda a: a * 0x9E3779B9 >> 32,
    "out = __funnelshift_l(a, ~a, 7)": lambda a: ((~a << 7) | a >> 25) & 0xFFFFFFFF,
    "out = __byte_perm(a, 0, 0x0123)": lambda a: int.from_bytes(a.to_bytes(4, "big"), "little"),
    "out = min(a, 1000u) + max(a, 2000000000u)": lambda a: _u32(min(a, 1000) + max(a, 2 * 10**9)),
    "out = max((int)a, (signed char)9) + min((short)a, (short)-1)": (
        lambda a: _u32(max(_signed(a, 32), 9) + min(_signed(a, 16), -1))
    ),
}


@pytest.fixture(scope="module")
def of_integers(cp: ModuleType) -> dict[str, Array]:
    found = elementwise_each(cp, list(OF_INTEGERS), "uint32", INTEGERS)
    return dict(zip(OF_INTEGERS, found, strict=True))


@pytest.mark.parametrize("code", OF_INTEGERS)
def test_integer_functions(of_integers: dict[str, Array], code: str) -> None:
    expected = [OF_INTEGERS[code](value) for value in INTEGERS.tolist()]
    assert of_integers[code].tolist() == expected


def _u32(value: int) -> int:
    return value & 0xFFFFFFFF


def _signed(value: int, bits: int) -> int:
    low = value & ((1 << bits) - 1)
    return low - (low >> (bits - 1) << bits)


def test_mathematical_constants(cp: ModuleType) -> None:
    names = "PI L2E LG2 LN2 SQRT_HALF PIO2".split()
    lines = "".join(
        f"y[{i}] = HIP_{name}_HI; y[{i} + 6] = HIP_{name}_LO;" for i, name in enumerate(names)
    )
    source = f"""#include <hip/hip_math_constants.h>
    extern "C" __global__ void k(double* y, float* z) {{
        {lines}
        z[0] = HIP_PI_F; z[1] = HIP_MIN_DENORM_F; z[2] = HIP_SQRT_2_OVER_PI_F; z[3] = HIP_NAN_F;
    }}"""
    y, z = cp.zeros(12), cp.zeros(4, "f4")
    cp.RawKernel(source, "k")((1,), (1,), (y, z))
    expected = [np.pi, 1 / np.log(2), np.log10(2), np.log(2), np.sqrt(0.5), np.pi / 2]
    np.testing.assert_array_equal(y.get()[:6], expected)
    low = [1.2246467991473532e-16, 2.0355273740931033e-17, -2.8037281277851704e-18]
    low += [2.3190468138462996e-17, -4.8336466567264567e-17, 6.1232339957367660e-17]
    np.testing.assert_array_equal(y.get()[6:], low)  # as in ROCm's header
    singles = np.array([np.pi, 2**-149, np.sqrt(2 / np.pi), np.nan], "f4")
    np.testing.assert_array_equal(z.get(), singles)


def test_half_arithmetic_is_rounded_once(cp: ModuleType) -> None:
    x = REAL.astype(np.float16)
    y = x[::-1].copy()
    code = "out = (a + b) * a - b / half(2.0f)"
    np.testing.assert_array_equal(
        elementwise(cp, code, "float16", x, y), (x + y) * x - y / np.float16(2)
    )
    code = "out = __hlt(a, b) ? __hfma(a, b, a) : __float2half(__half2float(a) * 3)"
    fused = (x.astype(np.float64) * y + x).astype(np.float16)
    np.testing.assert_array_equal(
        elementwise(cp, code, "float16", x, y),
        np.where(x < y, fused, (x.astype(np.float32) * 3).astype(np.float16)),
    )


def test_half_towards_zero(cp: ModuleType) -> None:
    x = (REAL * 100).astype(np.float32)
    found = elementwise(cp, "out = __float2half_rz(a)", "float16", x).astype(np.float64)
    assert (np.abs(found) <= np.abs(x)).all()
    assert (np.abs(found - x) < np.spacing(np.abs(x).astype(np.float16)).astype(float)).all()


def test_bfloat16_rounds_to_nearest_even(cp: ModuleType) -> None:
    x = np.concatenate([REAL, [1 + 2**-8, 1 + 3 * 2**-8, 3e38, np.inf]]).astype(np.float32)
    found = elementwise(
        cp,
        "__hip_bfloat16 h(a); out = __bfloat16_as_ushort(h * h + h)",
        "uint16",
        x,
        includes="#include <hip/hip_bf16.h>",
    )
    h = x.astype(ml_dtypes.bfloat16)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found.view(ml_dtypes.bfloat16), h * h + h)


LANES = np.random.default_rng(4).standard_normal(192)
OF_LANES: dict[str, Callable[[Array, Array], Array]] = {
    "out = __shfl(a, 5)": lambda a, i: a[i // 64 * 64 + 5],
    "out = __shfl(a, i + 3, 16)": lambda a, i: a[i // 16 * 16 + (i + 3) % 16],
    "out = __shfl_down(a, 2, 8)": lambda a, i: a[np.where(i % 8 < 6, i + 2, i)],
    "out = __shfl_up(a, 3)": lambda a, i: a[np.where(i % 64 >= 3, i - 3, i)],
    "out = __shfl_xor(a, 7)": lambda a, i: a[i ^ 7],
    "out = __shfl_xor_sync(~0ull, a, 1)": lambda a, i: a[i ^ 1],
    "out = __shfl_down_sync<unsigned long long, double>(~0ull, a, 2, 8)": (
        lambda a, i: a[np.where(i % 8 < 6, i + 2, i)]
    ),
    "out = __lane_id()": lambda _, i: i % 64,
    "out = __any(a > 2.8) + 2 * __all(a > -100)": lambda a, _: 2 + _wave_any(a > 2.8),
    "out = __popcll(__ballot(a > 0))": lambda a, _: _wave_sum(a > 0),
}


@pytest.fixture(scope="module")
def of_lanes(cp: ModuleType) -> dict[str, Array]:
    return dict(zip(OF_LANES, elementwise_each(cp, list(OF_LANES), "float64", LANES), strict=True))


@pytest.mark.parametrize("code", OF_LANES)
def test_lane_functions(of_lanes: dict[str, Array], code: str) -> None:
    np.testing.assert_array_equal(of_lanes[code], OF_LANES[code](LANES, np.arange(192)))


def test_a_mask_of_32_lanes_is_refused_as_in_hip(cp: ModuleType) -> None:
    source = 'extern "C" __global__ void f(int* y) { y[0] = __shfl_sync(0xffffffffu, y[1], 1); }'
    with pytest.raises(Exception, match="the mask must be a 64-bit integer"):
        cp.RawKernel(source, "f").compile()


def _wave_sum(mask: Array) -> Array:
    return mask.reshape(-1, 64).sum(1).repeat(64)


def _wave_any(mask: Array) -> Array:
    return mask.reshape(-1, 64).any(1).repeat(64)


ATOMICS = """
extern "C" __global__ void k(int* i, unsigned int* u, unsigned long long* l, float* f, double* d) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(i, t); atomicSub(i + 1, 1); atomicMax(i + 2, t); atomicMin(i + 3, -t);
    atomicAnd(u, ~(1u << t % 32)); atomicOr(u + 1, 1u << t % 32); atomicXor(u + 2, t);
    atomicInc(u + 3, 99); atomicDec(u + 4, 9);
    atomicAdd(l, 1ull << 33); atomicCAS(l + 1, 0ull, 77ull);
    atomicAdd(f, 0.5f); atomicMax(f + 1, (float)t);
    atomicAdd(d, 0.25); atomicMin(d + 1, (double)-t);
}"""


def test_atomics(cp: ModuleType) -> None:
    n = 256
    i, u = cp.zeros(4, np.int32), cp.asarray([2**32 - 1, 0, 0, 0, 0], np.uint32)
    long, f, d = cp.zeros(2, np.uint64), cp.zeros(2, np.float32), cp.zeros(2)
    cp.RawKernel(ATOMICS, "k")((4,), (64,), (i, u, long, f, d))
    assert i.get().tolist() == [n * (n - 1) // 2, -n, n - 1, 1 - n]
    assert u.get().tolist() == [0, 2**32 - 1, 0, n % 100, (10 - n % 10) % 10]
    assert long.get().tolist() == [n << 33, 77]
    assert f.get().tolist() == [n / 2, n - 1]
    assert d.get().tolist() == [n / 4, 1 - n]


def test_block_functions_and_launch_geometry(cp: ModuleType) -> None:
    code = """
    extern "C" __global__ void k(int* out) {
        extern __shared__ int s[];
        int t = threadIdx.x + blockDim.x * threadIdx.y;
        s[t] = t;
        __syncthreads();
        int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        int i = block * blockDim.x * blockDim.y + t;
        int threads = blockDim.x * blockDim.y;
        out[i] = s[threads - 1 - t] + 1000 * __syncthreads_count(t % 3 == 0)
            + 1000000 * (__syncthreads_or(t == 5) + __syncthreads_and(t < 64));
    }"""
    out = cp.zeros((2 * 3 * 2, 80), np.int32)
    cp.RawKernel(code, "k")((2, 3, 2), (16, 5), (out,), shared_mem=320)
    expected = np.arange(80)[::-1] + 1000 * 27 + 1000000
    np.testing.assert_array_equal(out.get(), np.broadcast_to(expected, (12, 80)))


def test_vector_types(cp: ModuleType) -> None:
    code = """
    static_assert(sizeof(float3) == 12 && alignof(float3) == 4, "");
    static_assert(sizeof(double4) == 32 && alignof(double4) == 16 && alignof(int2) == 8, "");
    extern "C" __global__ void k(float4* x) {
        float4 v = x[threadIdx.x], w = make_float4(1, 2, 3, 4);
        v = (v + w) * 2.0f;
        v -= w;
        x[threadIdx.x] = v == v ? v : -v;
    }"""
    x = REAL[:80].astype(np.float32)
    device_x = cp.asarray(x)
    cp.RawKernel(code, "k")((1,), (20,), (device_x,))
    w = np.tile(np.arange(1, 5, dtype=np.float32), 20)
    np.testing.assert_array_equal(device_x.get(), (x + w) * 2 - w)


@pytest.mark.slow
def test_standard_headers(cp: ModuleType) -> None:
    includes = "\n".join(
        f"#include <{name}>"
        for name in (
            "algorithm",
            "array",
            "cassert",
            "cfloat",
            "climits",
            "cmath",
            "complex",
            "cstddef",
            "cstdint",
            "cstdio",
            "cstdlib",
            "cstring",
            "initializer_list",
            "iterator",
            "limits",
            "new",
            "tuple",
            "type_traits",
            "utility",
            "assert.h",
            "float.h",
            "limits.h",
            "math.h",
            "stddef.h",
            "stdint.h",
            "stdio.h",
            "stdlib.h",
            "string.h",
            "hip/hip_complex.h",
            "hip/hip_bf16.h",
            "hip/hip_fp16.h",
            "hip/hip_math_constants.h",
            "hip/hip_runtime.h",
            "hip/hip_runtime_api.h",
            "hip/hip_vector_types.h",
            "hip/math_functions.h",
        )
    )
    code = """
    std::array<double, 3> table = {1, 2, 3};
    auto t = std::make_tuple(a, 2, std::complex<double>(0, 1));
    static_assert(std::is_same<std::tuple_element_t<1, decltype(t)>, int>::value, "");
    static_assert(std::numeric_limits<int>::max() == INT_MAX && INT64_MIN < 0, "");
    assert(std::get<1>(t) == 2);
    std::swap(table[0], table[2]);
    auto z = std::get<2>(t) * std::get<2>(t) + std::exp(std::complex<double>(0, 0));
    out = std::max(std::get<0>(t), 0.0) + table[0] + std::sqrt(4.0) + std::real(z)"""
    found = elementwise(cp, code, "float64", REAL, includes=includes)
    np.testing.assert_allclose(found, np.maximum(REAL, 0) + 5, rtol=1e-15)


def test_a_failed_assertion_stops_the_kernel(cp: ModuleType) -> None:
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="hipErrorLaunchFailure"):
        elementwise(cp, "assert(a < 2); out = a", "float64", REAL)
