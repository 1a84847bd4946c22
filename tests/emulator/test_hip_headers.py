"""The HIP headers on the emulated device: math, halves, lanes, atomics, vectors, C++ headers."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import special

Array = np.ndarray[Any, Any]
LONG = np.longdouble

# Reference in long double or SciPy's, range of the arguments, error allowed in ulp of a double.
FUNCTIONS: dict[str, tuple[Callable[[Array], Array], tuple[float, float], float]] = {
    "exp": (np.exp, (-700, 700), 1),
    "exp2": (np.exp2, (-1000, 1000), 1),
    "exp10": (lambda x: np.power(LONG(10), x), (-300, 300), 1),
    "expm1": (np.expm1, (-2, 2), 2),
    "log": (np.log, (1e-3, 3), 1),
    "log2": (np.log2, (1e-3, 3), 1),
    "log10": (np.log10, (1e-3, 3), 1),
    "log1p": (np.log1p, (-0.9, 3), 1),
    "cbrt": (np.cbrt, (-100, 100), 1),
    "sin": (np.sin, (-1e5, 1e5), 1),
    "cos": (np.cos, (-1e5, 1e5), 1),
    "tan": (np.tan, (-10, 10), 3),
    "asin": (np.arcsin, (-1, 1), 3),
    "acos": (np.arccos, (-1, 1), 3),
    "atan": (np.arctan, (-5, 5), 2),
    "sinh": (np.sinh, (-50, 50), 3),
    "cosh": (np.cosh, (-50, 50), 3),
    "tanh": (np.tanh, (-3, 3), 3),
    "asinh": (np.arcsinh, (-50, 50), 3),
    "acosh": (np.arccosh, (1, 50), 3),
    "atanh": (np.arctanh, (-1, 1), 3),
    "erf": (np.vectorize(math.erf), (-5, 5), 5),
    "erfc": (np.vectorize(math.erfc), (-5, 9), 5),
    "erfinv": (special.erfinv, (-1, 1), 12),
    "erfcx": (special.erfcx, (-3, 60), 8),
    "normcdf": (special.ndtr, (-1, 8), 8),
    "lgamma": (special.gammaln, (2.5, 100), 5),
    "tgamma": (special.gamma, (0.5, 30), 20),
    "j0": (special.j0, (0.1, 2), 20),
    "y1": (special.y1, (0.1, 2), 20),
    "cyl_bessel_i0": (special.i0, (-40, 40), 30),
    "rsqrt": (lambda x: 1 / np.sqrt(x), (1e-3, 100), 2),
}

CASES = "\n".join(
    f"        case {number}: return {name}(x);" for number, name in enumerate(FUNCTIONS)
)
MATH = f"""
template <typename T>
__device__ T value(int which, T x) {{
    switch (which) {{
{CASES}
    }}
    return x;
}}
template <typename T>
__global__ void evaluate(int which, const T* x, T* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = value(which, x[i]);
}}
"""


@pytest.fixture(scope="module")
def evaluate(cp: ModuleType) -> Callable[[str, Array], Array]:
    names = {"float64": "evaluate<double>", "float32": "evaluate<float>"}
    module = cp.RawModule(code=MATH, name_expressions=list(names.values()))

    def run(name: str, x: Array) -> Array:
        which, device_x = list(FUNCTIONS).index(name), cp.asarray(x)
        y = cp.empty_like(device_x)
        kernel = module.get_function(names[x.dtype.name])
        kernel((-(-x.size // 256),), (256,), (np.int32(which), device_x, y, np.int32(x.size)))
        result: Array = y.get()
        return result

    return run


@pytest.mark.parametrize("name", FUNCTIONS)
def test_double_precision(evaluate: Callable[[str, Array], Array], name: str) -> None:
    reference, (low, high), allowed = FUNCTIONS[name]
    x = np.random.default_rng(1).uniform(low, high, 500)
    wide = isinstance(reference, np.ufunc) and reference.types[0].startswith(("e", "g", "?"))
    exact = reference(x.astype(LONG)) if wide or "lambda" in str(reference) else reference(x)
    errors = np.abs(evaluate(name, x) - exact) / np.spacing(np.abs(exact).astype(float))
    assert errors.max() <= allowed, f"{errors.max():.2f} ulp at {x[np.argmax(errors)]!r}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_single_precision(evaluate: Callable[[str, Array], Array], name: str) -> None:
    reference, (low, high), _ = FUNCTIONS[name]
    low, high = max(low, -30), min(high, 30)
    x = np.random.default_rng(2).uniform(low, high, 200).astype(np.float32)
    exact = reference(x.astype(float))
    errors = np.abs(evaluate(name, x) - exact) / np.spacing(np.abs(exact).astype(np.float32))
    assert errors.max() <= 4, f"{errors.max():.2f} ulp at {x[np.argmax(errors)]!r}"


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_huge_angles_are_reduced_exactly(
    evaluate: Callable[[str, Array], Array], name: str
) -> None:
    x = np.array([1e10, 2.0**60, 1e22, 1e300, -1e15])
    expected = np.array([getattr(math, name)(value) for value in x.tolist()])
    np.testing.assert_allclose(evaluate(name, x), expected, rtol=1e-15)


def test_the_double_nearest_to_a_multiple_of_half_pi(
    evaluate: Callable[[str, Array], Array],
) -> None:
    # Muller, Elementary Functions, 3rd edition, section 11.3: the worst case of the reduction.
    x = np.array([6381956970095103 * 2.0**797])
    np.testing.assert_allclose(evaluate("cos", x), -4.68716592425462761112e-19, rtol=4e-16)


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e308, 5e-324])


@pytest.mark.parametrize(
    "name", ["exp", "expm1", "log", "log2", "log1p", "sin", "tanh", "atan", "cbrt", "erf", "asinh"]
)
def test_special_values(evaluate: Callable[[str, Array], Array], name: str) -> None:
    reference = FUNCTIONS[name][0]
    with np.errstate(all="ignore"):
        expected = reference(SPECIAL)
    found = evaluate(name, SPECIAL)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    defined = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[defined], np.signbit(expected)[defined])


def elementwise(
    cp: ModuleType, code: str, dtype: str, *arrays: Array, includes: str = "", n: int | None = None
) -> Array:
    """Run ``code``, which sets `out` from `a`, `b` and so on, in one thread for each element."""
    parameters = "".join(
        f", const {_C_NAMES[array.dtype.name]}* {name}_"
        for name, array in zip("abc", arrays)  # noqa: B905
    )
    values = "".join(f"auto {name} = {name}_[i]; " for name, _ in zip("abc", arrays))  # noqa: B905
    size = n or arrays[0].size
    source = (
        f'{includes}\nextern "C" __global__ void k({_C_NAMES[dtype]}* out_{parameters}) {{'
        f"int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= {size}) return; {values}"
        f"{_C_NAMES[dtype]} out; {code}; out_[i] = out; }}"
    )
    out = cp.empty(size, dtype)
    # HIP contracts a * b + c by default, also across conversions to a narrower type and back.
    kernel = cp.RawKernel(source, "k", options=("--fmad=false",))
    kernel((-(-size // 64),), (64,), (out, *map(cp.asarray, arrays)))
    result: Array = out.get()
    return result


_C_NAMES = {
    "float64": "double",
    "float32": "float",
    "float16": "half",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "uint16": "unsigned short",
}
RNG = np.random.default_rng(3)
REAL = RNG.standard_normal(200)
BITS = RNG.integers(0, 2**32, 200, dtype=np.uint32)


def test_pow(cp: ModuleType) -> None:
    x, y = np.exp(RNG.uniform(-8, 8, 300)), RNG.uniform(-30, 30, 300)
    exact = np.power(x.astype(LONG), y.astype(LONG))
    errors = np.abs(elementwise(cp, "out = pow(a, b)", "float64", x, y) - exact)
    assert (errors / np.spacing(exact.astype(float))).max() <= 1


def test_pow_of_special_values(cp: ModuleType) -> None:
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 0.5, -0.5, 3, -3])
    x, y = (part.ravel().copy() for part in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    found = elementwise(cp, "out = pow(a, b)", "float64", x, y)
    np.testing.assert_allclose(found, expected, rtol=2.3e-16)
    defined = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[defined], np.signbit(expected)[defined])


@pytest.mark.parametrize(
    ("code", "reference"),
    [
        ("out = atan2(a, b)", np.arctan2),
        ("out = hypot(a, b)", np.hypot),
        ("out = fmod(a, b)", np.fmod),
        ("out = copysign(a, b)", np.copysign),
        ("out = nextafter(a, b)", np.nextafter),
        ("out = fmax(a, b)", np.fmax),
        ("out = remainder(a, b)", lambda x, y: [math.remainder(*pair) for pair in zip(x, y)]),  # noqa: B905
        ("out = fma(a, b, 0.1)", lambda x, y: (x.astype(LONG) * y + LONG(0.1)).astype(float)),
        ("int e; out = frexp(a, &e) + e", lambda x, _: sum(np.frexp(x))),
        ("out = ldexp(a, 5) + floor(b)", lambda x, y: np.ldexp(x, 5) + np.floor(y)),
        ("out = round(a * 10) + rint(b * 10)", lambda x, y: _round(x * 10) + np.rint(y * 10)),
    ],
)
def test_functions_of_two_doubles(cp: ModuleType, code: str, reference: Callable[..., Any]) -> None:
    x, y = REAL * 10, REAL[::-1].copy()
    found = elementwise(cp, code, "float64", x, y)
    np.testing.assert_allclose(found, reference(x, y), rtol=4e-16)


def _round(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


@pytest.mark.parametrize(
    ("code", "reference"),
    [
        ("out = __popc(a) + __clz(a) * 100", lambda a: a.bit_count() + (32 - a.bit_length()) * 100),
        ("out = __brev(a)", lambda a: int(f"{a:032b}"[::-1], 2)),
        ("out = __ffs(a)", lambda a: (a & -a).bit_length()),
        ("out = __umulhi(a, 0x9e3779b9u)", lambda a: a * 0x9E3779B9 >> 32),
        ("out = __funnelshift_l(a, ~a, 7)", lambda a: ((~a << 7) | a >> 25) & 0xFFFFFFFF),
        (
            "out = __byte_perm(a, 0, 0x0123)",
            lambda a: int.from_bytes(a.to_bytes(4, "big"), "little"),
        ),
        (
            "out = min(a, 1000u) + max(a, 2000000000u)",
            lambda a: _u32(min(a, 1000) + max(a, 2 * 10**9)),
        ),
    ],
)
def test_integer_functions(cp: ModuleType, code: str, reference: Callable[[int], int]) -> None:
    bits = np.concatenate([BITS, np.array([0, 1, 2**31, 2**32 - 1], np.uint32)])
    expected = [reference(value) for value in bits.tolist()]
    assert elementwise(cp, code, "uint32", bits).tolist() == expected


def _u32(value: int) -> int:
    return value & 0xFFFFFFFF


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


@pytest.mark.parametrize(
    ("code", "reference"),
    [
        ("out = __shfl(a, 5)", lambda a, i: a[i // 64 * 64 + 5]),
        ("out = __shfl(a, i + 3, 16)", lambda a, i: a[i // 16 * 16 + (i + 3) % 16]),
        ("out = __shfl_down(a, 2, 8)", lambda a, i: a[np.where(i % 8 < 6, i + 2, i)]),
        ("out = __shfl_up(a, 3)", lambda a, i: a[np.where(i % 64 >= 3, i - 3, i)]),
        ("out = __shfl_xor(a, 7)", lambda a, i: a[i ^ 7]),
        ("out = __shfl_xor_sync(~0ull, a, 1)", lambda a, i: a[i ^ 1]),
        ("out = __lane_id()", lambda _, i: i % 64),
        ("out = __any(a > 2.8) + 2 * __all(a > -100)", lambda a, _: 2 + _wave_any(a > 2.8)),
        ("out = __popcll(__ballot(a > 0))", lambda a, _: _wave_sum(a > 0)),
    ],
)
def test_lane_functions(
    cp: ModuleType, code: str, reference: Callable[[Array, Array], Array]
) -> None:
    a = RNG.standard_normal(192)
    expected = reference(a, np.arange(192))
    np.testing.assert_array_equal(elementwise(cp, code, "float64", a), expected)


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


def test_standard_headers(cp: ModuleType) -> None:
    includes = "\n".join(
        f"#include <{name}>"
        for name in (
            "algorithm", "array", "cassert", "cfloat", "climits", "cmath", "complex", "cstddef",
            "cstdint", "cstdio", "cstdlib", "cstring", "initializer_list", "iterator", "limits",
            "new", "tuple", "type_traits", "utility", "assert.h", "float.h", "limits.h", "math.h",
            "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h", "hip/hip_complex.h",
            "hip/hip_bf16.h", "hip/hip_fp16.h", "hip/hip_math_constants.h", "hip/hip_runtime.h",
            "hip/hip_runtime_api.h", "hip/hip_vector_types.h", "hip/math_functions.h",
        )
    )  # fmt: skip
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
        elementwise(cp, "assert(a < 2); out = a", "float64", REAL, includes="#include <cassert>")


def test_printf_is_refused_by_the_compiler(cp: ModuleType) -> None:
    with pytest.raises(cp.cuda.compiler.CompileException, match="no device-side printf"):
        elementwise(cp, 'printf("%f", a); out = a', "float64", REAL)
