"""Idioms of HIP source in other projects: headers, vectors, pairs and groups."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from cupygemm import emulator
from cupygemm._build.toolchain import CompileError
from cupygemm.emulator.runtime.compile import compile_program
from tests.emulator.elementwise import Array, elementwise, elementwise_each

RNG = np.random.default_rng(11)
BITS = RNG.integers(0, 2**32, 256, dtype=np.uint32)
REAL = (RNG.standard_normal(256) * 8).astype(np.float32)
BF16 = "#include <hip/hip_bf16.h>\n"


PARTS = [(0, 1), (3, 5), (31, 1), (28, 9), (7, 0), (0, 31)]  # offset and width of bits


@pytest.fixture(scope="module")
def extracted_and_inserted(cp: ModuleType) -> Array:
    codes = (
        f"out = __bit{call}, {offset}, {width})"
        for offset, width in PARTS
        for call in ("extract_u32(a", "insert_u32(a, 77")
    )
    found = elementwise_each(cp, list(codes), "uint32", BITS)
    return found.reshape(len(PARTS), 2, -1)


@pytest.mark.parametrize("part", range(len(PARTS)), ids=map(str, PARTS))
def test_bits_of_a_number(extracted_and_inserted: Array, part: int) -> None:
    offset, width = PARTS[part]
    mask = (1 << width) - 1
    extracted, inserted = extracted_and_inserted[part]
    np.testing.assert_array_equal(extracted, BITS >> offset & mask)
    expected = (BITS & ~np.uint32(mask << offset & 0xFFFFFFFF)) | np.uint32(
        (77 & mask) << offset & 0xFFFFFFFF
    )
    np.testing.assert_array_equal(inserted, expected)


CHANNELS = """
#include <hip/hip_runtime.h>
constexpr bool same(hipChannelFormatDesc a, hipChannelFormatDesc b) {
    return a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w && a.f == b.f;
}
constexpr auto whole = hipCreateChannelDesc(32, 32, 32, 32, hipChannelFormatKindFloat);
constexpr auto byte = hipCreateChannelDesc(8, 0, 0, 0, hipChannelFormatKindUnsigned);
constexpr auto pair = hipCreateChannelDesc(16, 16, 0, 0, hipChannelFormatKindSigned);
static_assert(same(hipCreateChannelDesc<float4>(), whole), "");
static_assert(same(hipCreateChannelDesc<unsigned char>(), byte), "");
static_assert(same(hipCreateChannelDesc<short2>(), pair), "");
extern "C" __global__ void k(float* x, hipTextureObject_t t) { x[0] = VALUE; }
"""


@pytest.mark.slow
def test_textures_do_not_compile_and_say_why() -> None:
    compile_program(CHANNELS.replace("VALUE", "1"), "a.hip", target_name="gfx942", rtc=False)
    surface = "(surf2Dwrite(1, hipSurfaceObject_t(), 0, 0), 1)"
    for access in ("tex2D<float>(t, 1.f, 2.f)", "tex1Dfetch<float>(t, 1)", surface):
        fetch = CHANNELS.replace("VALUE", access)
        with pytest.raises(CompileError) as caught:
            compile_program(fetch, "a.hip", target_name="gfx942", rtc=False)
        assert "is unavailable: CDNA GPUs have no image instructions" in caught.value.log


def test_lowest_bits_and_the_number_of_the_host(cp: ModuleType) -> None:
    """A number without set bits has no lowest one, and HIP's device -1 is the host."""
    code = """
    static_assert(hipCpuDeviceId == -1 && hipInvalidDeviceId == -2, "");
    unsigned high = __lastbit_u32_u64((unsigned long)a << 32);
    out = a == 0 ? __lastbit_u32_u32(a) == ~0u && high == ~0u : high - __lastbit_u32_u32(a)"""
    numbers = np.where(np.arange(256) % 8, BITS, 0).astype(np.uint32)
    includes = "#include <hip/hip_runtime.h>"
    found = elementwise(cp, code, "uint32", numbers, includes=includes)
    np.testing.assert_array_equal(found, np.where(numbers, 32, 1))


def test_the_bit_header(cp: ModuleType) -> None:
    code = """
    static_assert(std::bit_cast<unsigned>(1.0f) == 0x3f800000u, "");
    static_assert(std::endian::native == std::endian::little, "");
    static_assert(std::bit_ceil(33u) == 64 && std::bit_floor(33u) == 32, "");
    static_assert(std::rotl((unsigned char)0x81, 1) == 3, "");
    out = std::popcount(a) + 100 * std::countl_zero(a) + 10000 * std::countr_zero(a | 256u)"""
    expected = [
        x.bit_count() + 100 * (32 - x.bit_length()) + 10000 * ((x | 256) & -(x | 256)).bit_length()
        for x in BITS.tolist()
    ]
    found = elementwise(cp, code, "uint32", BITS, includes="#include <bit>\n")
    np.testing.assert_array_equal(found, np.array(expected) - 10000)


def test_concepts_need_cpp20(cp: ModuleType) -> None:
    source = """
    #include <concepts>
    #include <memory>
    template <std::integral T> __device__ int kind(T) { return 1; }
    template <std::floating_point T> __device__ int kind(T) { return 2; }
    template <typename T> concept shape = requires { { T::rows } -> std::convertible_to<int>; };
    struct tile { static constexpr int rows = 4; };
    static_assert(shape<tile> && !shape<int> && std::same_as<int, int>);
    static_assert(std::default_initializable<tile> && std::derived_from<tile, tile>);
    extern "C" __global__ void k(int* x) { *std::addressof(*x) = 10 * kind(3u) + kind(2.0f); }
    """
    out = cp.zeros(1, "i4")
    cp.RawKernel(source, "k", options=("-std=c++20",))((1,), (1,), (out,))
    assert int(out[0]) == 12


def test_vectors_as_templates_and_as_data(cp: ModuleType) -> None:
    code = """
    HIP_vector_type<float, 4> v = make_float4(a, 2 * a, 3, 4);
    v.data *= 2.0f;
    float3 t{a, 1, 2};
    t.data[1] += 1;
    int4 wide(1.5f, 2, 3, 4u);
    float2 both(a);
    static_assert(sizeof(float3) == 12 && alignof(float4) == 16 && alignof(double4) == 16, "");
    static_assert(sizeof(v.data) == 16 && sizeof(HIP_vector_type<double, 2>) == 16, "");
    out = first(v) + v.y + t.y + wide.x + both.y + int2{1, 2}.y"""
    includes = """
    template <typename T, unsigned int n>
    __device__ T first(HIP_vector_type<T, n> v) { return v.x; }
    """
    found = elementwise(cp, code, "float32", REAL, includes=includes)
    np.testing.assert_allclose(found, 7 * REAL + 5, rtol=1e-6)


def test_infinity_needs_no_header(cp: ModuleType) -> None:
    code = "out = a > 0 ? INFINITY : -INFINITY"
    np.testing.assert_array_equal(
        elementwise(cp, code, "float32", REAL), np.where(REAL > 0, np.inf, -np.inf)
    )


OF_BFLOAT16: dict[str, Callable[[Array], Array]] = {
    "hexp(x)": np.exp,
    "h2exp(p).y": np.exp,
    "__habs2(p).x": np.abs,
    "__hmax2(p, q).x": lambda x: np.maximum(x, 1),
    "__hmin2(p, q).y": lambda x: np.minimum(x, 1),
    "__h2div(q, p).x": lambda x: 1 / x,
    "__hfma2(p, p, q).y": lambda x: x * x + 1,
    "h2rsqrt(__habs2(p)).x": lambda x: 1 / np.sqrt(np.abs(x)),
    "(p * q - p).x": lambda x: 0 * x,
}
BFLOAT16 = (REAL / 4).astype(ml_dtypes.bfloat16).astype(np.float32)


@pytest.fixture(scope="module")
def of_bfloat16(cp: ModuleType) -> dict[str, Array]:
    values = (
        "__hip_bfloat16 x(a); __hip_bfloat162 p = __bfloat162bfloat162(x); "
        "__hip_bfloat162 q = __float2bfloat162_rn(1.0f); "
    )
    codes = [f"{values}out = (float)({call})" for call in OF_BFLOAT16]
    found = elementwise_each(cp, codes, "float32", BFLOAT16, includes=BF16)
    return dict(zip(OF_BFLOAT16, found, strict=True))


@pytest.mark.parametrize("call", OF_BFLOAT16)
def test_bfloat16_functions(of_bfloat16: dict[str, Array], call: str) -> None:
    expected = OF_BFLOAT16[call](BFLOAT16.astype(np.float64)).astype(np.float32)
    expected = expected.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_allclose(of_bfloat16[call], expected, rtol=2**-7)


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("e4m3", ml_dtypes.float8_e4m3fn),
        ("e5m2", ml_dtypes.float8_e5m2),
        ("e4m3_fnuz", ml_dtypes.float8_e4m3fnuz),
        ("e5m2_fnuz", ml_dtypes.float8_e5m2fnuz),
    ],
)
def test_eight_bit_floats(cp: ModuleType, name: str, dtype: type) -> None:
    """All codes are decoded as ml_dtypes decodes them, and numbers rounded as it rounds them."""
    includes = "#include <hip/hip_fp8.h>\n"
    codes = np.arange(256, dtype=np.uint32)
    code = f"__hip_fp8_{name} x; x.__x = a; out = (float)x"
    decoded = codes.astype(np.uint8).view(dtype).astype(np.float32)
    found = elementwise(cp, code, "float32", codes, includes=includes)
    np.testing.assert_array_equal(found, decoded)
    finite = decoded[np.isfinite(decoded)]
    ordered = np.unique(finite)
    halfway = ((ordered[1:].astype(np.float64) + ordered[:-1]) / 2).astype(np.float32)
    scale = np.abs(ordered).max()
    numbers = np.concatenate([finite, halfway, REAL / 64, REAL * scale / 64]).astype(np.float32)
    numbers = numbers[np.abs(numbers) <= scale]
    code = f"out = __hip_fp8_{name}(a).__x"
    found = elementwise(cp, code, "uint32", numbers, includes=includes).astype(np.uint8)
    np.testing.assert_array_equal(
        found.view(dtype).astype(np.float32), numbers.astype(dtype).astype(np.float32)
    )
    huge = np.array([1e9, -1e9, np.inf, np.nan], np.float32)
    found = elementwise(cp, code, "uint32", huge, includes=includes).astype(np.uint8)
    values = found.view(dtype).astype(np.float32)
    np.testing.assert_array_equal(values, [scale, -scale, scale, np.nan])
    code = f"__hip_fp8x4_{name} x(make_float4(a, 1, -2, 0.5f)); float4 v = x; out = v.y + v.z + v.w"
    assert set(elementwise(cp, code, "float32", REAL, includes=includes)) == {-0.5}


def test_cooperative_groups(cp: ModuleType) -> None:
    source = """
    #include <hip/hip_cooperative_groups.h>
    namespace cg = cooperative_groups;
    extern "C" __global__ void sums(const int* x, int* y) {
        cg::thread_block block = cg::this_thread_block();
        auto tile = cg::tiled_partition<16>(block);
        int sum = x[cg::this_grid().thread_rank()];
        for (int delta = tile.size() / 2; delta > 0; delta /= 2) sum += tile.shfl_down(sum, delta);
        int odd = 0;
        if (threadIdx.x % 2) {
            auto active = cg::coalesced_threads();
            odd = 1000 * active.size() + active.shfl((int)threadIdx.x, 1);
        }
        block.sync();
        int third = tile.ballot(tile.thread_rank() == 3);
        y[cg::this_grid().thread_rank()] =
            tile.thread_rank() == 0 ? sum + 100 * third : odd;
    }
    """
    x = cp.arange(256, dtype="i4")
    y = cp.zeros_like(x)
    cp.RawKernel(source, "sums")((2,), (128,), (x, y))
    found = y.get().reshape(16, 16)
    np.testing.assert_array_equal(found[:, 0], np.arange(256).reshape(16, 16).sum(1) + 800)
    assert (found[:4, 1::2] == 32003).all()
    assert (found[4:8, 1::2] == 32003 + 64).all()
    assert (found[:, 2::2] == 0).all()


def test_any_cooperative_group_as_an_argument(cp: ModuleType) -> None:
    """A function that takes a `thread_group` sums over a block and over tiles of a wave."""
    source = """
    #include <hip/hip_cooperative_groups.h>
    using namespace cooperative_groups;
    __device__ int sum(thread_group group, int* work, int value) {
        for (unsigned int i = group.size() / 2; i > 0; i /= 2) {
            work[group.thread_rank()] = value;
            group.sync();
            if (group.thread_rank() < i) value += work[group.thread_rank() + i];
            group.sync();
        }
        return value;
    }
    extern "C" __global__ void sums(const int* x, int* y) {
        __shared__ int work[128];
        thread_block block = this_thread_block();
        int all = sum(block, work, x[threadIdx.x]);
        thread_block_tile<16> tile = tiled_partition<16>(block);
        int part = sum(tile, &work[threadIdx.x - tile.thread_rank()], x[threadIdx.x]);
        if (tile.thread_rank() == 0) y[tile.meta_group_rank()] = part;
        if (threadIdx.x == 0) y[8] = all;
    }
    """
    x = cp.arange(128, dtype="i4")
    y = cp.zeros(9, dtype="i4")
    cp.RawKernel(source, "sums")((1,), (128,), (x, y))
    parts = np.arange(128).reshape(8, 16).sum(1)
    np.testing.assert_array_equal(y.get(), [*parts, parts.sum()])


def test_pairs_of_numbers_are_added_in_place(cp: ModuleType) -> None:
    source = """
    #include <hip/hip_bf16.h>
    extern "C" __global__ void add(half2* a, __hip_bfloat162* b) {
        *a += *a * *a;
        *a = __lowhigh2highlow(-*a);
        if (__hbeq2(*a, *a)) *a = __lows2half2(__hadd2_sat(*a, -*a), *a);
        *b += *b;
    }
    """
    a, b = cp.array([2, 3], "f2"), cp.array([0x3F80, 0x4000], "u2")  # of bf16: 1 and 2
    cp.RawKernel(source, "add")((1,), (1,), (a, b))
    np.testing.assert_array_equal(a.get(), [0, -12])
    np.testing.assert_array_equal(b.get(), [0x4000, 0x4080])


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
def test_pairs_of_numbers_are_added_atomically(target: str) -> None:
    """By an instruction if the target has it, otherwise by a loop, in device memory and LDS."""
    source = """
    #include <hip/hip_bf16.h>
    extern "C" __global__ void add(half2* a, __hip_bfloat162* b) {
        __shared__ half2 sum;
        if (threadIdx.x == 0) sum = half2(half(0), half(0));
        __syncthreads();
        unsafeAtomicAdd(&sum, half2(half(1), half(0.25f)));
        unsafeAtomicAdd(a, half2(half(1), half(2)));
        unsafeAtomicAdd(b, __hip_bfloat162(__hip_bfloat16(1), __hip_bfloat16(-0.5f)));
        __syncthreads();
        if (threadIdx.x == 0) a[1] = sum;
    }
    """
    code = compile_program(source, "a.hip", target_name=target).code
    a, b = np.zeros(4, np.float16), np.zeros(2, ml_dtypes.bfloat16)
    emulator.launch(code, 1, 128, [a, b.view(np.uint16)])
    np.testing.assert_array_equal(a, [128, 256, 128, 32])
    np.testing.assert_array_equal(b.astype("f4"), [128, -64])


@pytest.mark.parametrize("name", ["half", "__hip_bfloat16"])
def test_small_floats_are_counted_up_and_down(cp: ModuleType, name: str) -> None:
    code = f"{name} x = a; float sum = (float)x++ + 10 * (float)++x; sum += 100 * (float)x--;"
    found = elementwise(cp, f"{code} out = sum + 1000 * (float)--x", "float32", REAL, includes=BF16)
    rounded = REAL.astype(np.float16 if name == "half" else ml_dtypes.bfloat16)
    one = rounded.dtype.type(1)
    up = (rounded + one) + one
    down = (up - one) - one
    steps = (step.astype(np.float32) for step in (rounded, up, up, down))
    first, second, third, fourth = steps
    np.testing.assert_allclose(found, first + 10 * second + 100 * third + 1000 * fourth, rtol=1e-6)


def test_the_older_bfloat16_shows_its_bits(cp: ModuleType) -> None:
    source = """
    #include <hip/hip_bfloat16.h>
    #include <hip/hip_bf16.h>
    extern "C" __global__ void f(const float* x, unsigned short* y, float* z) {
        int t = threadIdx.x;
        hip_bfloat16 a(x[t]), b = hip_bfloat16::round_to_bfloat16(x[t], hip_bfloat16::truncate), c;
        y[t] = a.data;
        y[t + 64] = b.data;
        c.data = y[t];
        a += b * c - a / hip_bfloat16(2.0f);
        ++a;
        z[t] = a > b ? a + 1.0f : -float(a--);
    }
    """
    bf16 = ml_dtypes.bfloat16
    x = REAL[:64]
    y, z = cp.zeros(128, "u2"), cp.zeros(64, "f4")
    cp.RawKernel(source, "f", options=("--fmad=false",))((1,), (64,), (cp.asarray(x), y, z))
    a, b = x.astype(bf16), (x.view(np.uint32) >> 16).astype(np.uint16).view(bf16)
    np.testing.assert_array_equal(y.get().view(bf16).reshape(2, 64), [a, b])
    total = a + (b * a - a / bf16(2)) + bf16(1)
    of_floats = total.astype(np.float32)
    np.testing.assert_array_equal(z.get(), np.where(total > b, of_floats + 1, -of_floats))


@pytest.mark.parametrize("options", [(), ("-O0",)], ids=["optimised", "unoptimised"])
def test_pure_and_deleted_virtual_functions(cp: ModuleType, options: tuple[str, ...]) -> None:
    code = """
    struct Shape {
        __device__ virtual float area() const = 0;
        __device__ virtual int corners() = delete;
        __device__ virtual ~Shape() {}
    };
    struct Square : Shape {
        float side;
        __device__ explicit Square(float side) : side(side) {}
        __device__ float area() const override { return side * side; }
        __device__ int corners() = delete;
    };
    extern "C" __global__ void areas(float* x) {
        Square square(x[threadIdx.x]);
        const Shape& shape = square;
        x[threadIdx.x] = shape.area();
    }"""
    x = cp.arange(64, dtype="float32")
    cp.RawModule(code=code, options=options).get_function("areas")((1,), (64,), (x,))
    np.testing.assert_array_equal(x.get(), np.arange(64) ** 2)
