"""Elements of local arrays and structures that HIP source reads but does not write."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.runtime.compile import compile_program
from cupygemm.emulator.runtime.unwritten import has_markers, may_be_unwritten, with_markers

SOURCE = r"""
#define KERNEL extern "C" __global__ void
#define T threadIdx.x
typedef float float4_ __attribute__((ext_vector_type(4)));
typedef _Float16 half4_ __attribute__((ext_vector_type(4)));
typedef _Float16 half8_ __attribute__((ext_vector_type(8)));
struct Pair { double value; short index; };
template<int N> struct Fragment { float v[N]; };
template<int N> __device__ void clear(Fragment<N>& f, int n) {
    for (int i = 0; i < n; i++)
        f.v[i] = 0;
}

// -- faults: what is declared, and what uses it --
KERNEL clears_seven(const float* x, float* y, int n) {
    float sums[8];  // declared
    for (int i = 0; i < 7; i++)
        sums[i] = 0;
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 8; i++)
            sums[i] += x[T + k] * i;
    for (int i = 0; i < 8; i++)
        y[64 * i + T] = sums[i];  // used
}
KERNEL clears_three_tiles(const float* x, float* y, int n) {
    float4_ tiles[2][2];  // declared
    half4_ a = {(_Float16)x[T], 0, 0, 0};
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2 - i; j++)
            tiles[i][j] = float4_{0, 0, 0, 0};
    for (int i = 0; i < 4; i++)
        tiles[i / 2][i % 2] =
            __builtin_amdgcn_mfma_f32_16x16x16f16(a, a, tiles[i / 2][i % 2], 0, 0, 0);
    for (int i = 0; i < 4; i++)
        y[64 * i + T] = tiles[i / 2][i % 2][0];  // used
}
KERNEL adds_pairs(const float* x, float* y, int n) {
    float sums[4];  // declared
    for (int j = 0; j < 3; j++)
        sums[j] = 0;
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 4; j++)
            sums[j] += x[T + i] * j;
    y[T] = sums[0] + sums[1] + sums[2] + sums[3];  // used
}
KERNEL reads_any_element(const float* x, float* y, int n) {
    float held[8];  // declared
    for (int i = 0; i < 7; i++)
        held[i] = x[i];
    y[T] = held[(int)x[T] % 8];  // used
}
KERNEL sets_half_a_structure(const float* x, float* y, int n) {
    Pair best;  // declared
    best.value = x[T];
    y[T] = best.value + best.index;  // used
}
KERNEL sets_the_first_structure(const float* x, float* y, int n) {
    Pair first = {x[T], 1};
    Fragment<4> second;  // declared
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 4; i++)
            second.v[i] += x[T + k];
    y[T] = first.value + first.index + second.v[0];  // used
}
KERNEL sets_seven_of_a_vector(const float* x, float* y, int n) {
    half8_ v;  // declared
    for (int i = 0; i < 7; i++)
        v[i] = (_Float16)x[T + i];
    float sum = 0;
    for (int i = 0; i < 8; i++)
        sum += (float)v[i];
    y[T] = sum;  // used
}
KERNEL clears_part_of_a_fragment(const float* x, float* y, int n) {
    Fragment<4> f;  // declared
    clear(f, 3);
    for (int i = 0; i < 4; i++)
        y[64 * i + T] = f.v[i] + x[T];  // used
}
KERNEL fills_fewer_than_it_reads(const float* x, float* y, int n) {
    float held[8];  // declared
    for (int i = 0; i < n - 1; i++)
        held[i] = x[i];
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += held[i];
    y[T] = sum;  // used
}
KERNEL branches_on_it(const float* x, float* y, int n) {
    int found[2];  // declared
    found[0] = (int)x[T];
    if (found[T & 1] > 3)  // used
        y[T] = 1;
}
KERNEL pads_with_an_unset_number(const float* x, float* y, int n) {
    __shared__ float s[64];
    float v;  // declared
    if (T < 60)
        v = x[T];
    for (int j = 32; j; j /= 2) {
        s[T] = v;
        __syncthreads();
        v = fmaxf(v, s[T ^ j]);
        __syncthreads();
    }
    if (T < 60)
        y[T] = v;  // used
}
KERNEL sets_a_number_for_some(const float* x, float* y, int n) {
    int place;  // declared
    for (int i = 0; i < n; i++)
        if (x[T + i] > 60)
            place = i;
    y[T] = 2.0f * place;  // used
}

// -- right --
KERNEL fills_what_it_reads(const float* x, float* y, int n) {
    float held[8];
    for (int i = 0; i < n; i++)
        held[i] = x[i];
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += held[i];
    y[T] = sum;
}
KERNEL knows_what_the_compiler_does_not(const float* x, float* y, int n) {
    float held[4];
    if (n > 2)
        for (int i = 0; i < 4; i++)
            held[i] = x[T + i];
    float sum = 0;
    if (n * n > 4)
        for (int i = 0; i < 4; i++)
            sum += held[i];
    y[T] = sum;
}
KERNEL computes_what_nothing_uses(const float* x, float* y, int n) {
    float held[4];
    for (int i = 0; i < 3; i++)
        held[i] = x[T + i];
    for (int i = 0; i < 4; i++) {
        float twice = 2 * held[i];
        if (i < n - 2)
            y[64 * i + T] = twice;
    }
}
KERNEL leaves_the_other_lanes(const float* x, float* y, int n) {
    float held[2];
    if (T & 1)
        for (int i = 0; i < 2; i++)
            held[i] = x[T + i];
    if (T & 1)
        y[T] = held[0] + held[1];
}
KERNEL sets_a_number_where_it_uses_it(const float* x, float* y, int n) {
    float v;
    if (T < n)
        v = x[T];
    float other = __shfl_down(v, 1);
    if (T < n)
        y[T] = T + 1 < n ? v + other : v;
}
KERNEL sets_a_number_in_the_first_iteration(const float* x, float* y, int n) {
    float best;
    for (int i = 0; i < n; i++)
        if (i == 0 || x[T + i] > best)
            best = x[T + i];
    if (n > 0)
        y[T] = best;
}
KERNEL takes_the_first_number(const float* x, float* y, int n) {
    float best;
    for (int i = 0; i < n; i++)
        best = i ? fmaxf(best, x[T + i]) : x[T];
    if (n > 0)
        y[T] = best;
}
KERNEL fills_a_structure(const float* x, float* y, int n) {
    Pair best;
    best.value = x[T];
    best.index = 3;
    y[T] = best.value + best.index;
}
"""
LINES = SOURCE.splitlines()
NAMES = [line.split()[1].partition("(")[0] for line in LINES if line.startswith("KERNEL ")]
FAULTS = NAMES[: NAMES.index("fills_what_it_reads")]
KIND = "uninitialised variable"


@functools.cache
def compiled(target: str = "gfx942", *options: str) -> bytes:
    return compile_program(SOURCE, "a.hip", target_name=target, options=options).code


def launch(name: str, n: int = 5, *options: str) -> np.ndarray:
    x, y = np.arange(128, dtype="f4"), np.zeros(512, "f4")
    emulator.launch(compiled("gfx942", *options), 1, 64, [x, y, n], kernel=name)
    return y


def line_of(name: str, mark: str) -> int:
    start = next(i for i, line in enumerate(LINES) if f"KERNEL {name}(" in line)
    return next(i + 1 for i in range(start, len(LINES)) if f"// {mark}" in LINES[i])


@pytest.mark.parametrize("interpreter", ["native", "reference"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_report_names_the_declaration_and_the_use(
    name: str, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUPYGEMM_INTERPRETER", interpreter)
    with (
        emulator.checks(uninitialised="error"),
        pytest.raises(emulator.KernelFault) as caught,
    ):
        launch(name)
    fault = caught.value
    assert (fault.kind, fault.check) == (KIND, "uninitialised")
    assert fault.source == ("a.hip", line_of(name, "used"))
    assert f"a.hip:{line_of(name, 'declared')}: " in fault.detail
    assert "row_mask" not in fault.report()


@pytest.mark.parametrize("interpreter", ["native", "reference"])
@pytest.mark.parametrize("name", NAMES[len(FAULTS) :])
def test_a_program_that_writes_what_it_uses_is_right(
    name: str, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUPYGEMM_INTERPRETER", interpreter)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = launch(name)
    assert y.any()


def test_a_value_that_is_computed_is_an_error_and_a_copy_is_a_warning() -> None:
    with pytest.raises(emulator.KernelFault, match=KIND):
        launch("clears_seven")
    with pytest.warns(emulator.KernelWarning, match=KIND):
        launch("reads_any_element")
    with warnings.catch_warnings(), emulator.checks(uninitialised="off"):
        warnings.simplefilter("error")
        launch("clears_seven")


def test_code_in_which_the_optimiser_removes_all_markers_has_none() -> None:
    right = SOURCE.partition("// -- faults")[0] + SOURCE[SOURCE.index("KERNEL fills_a_structure") :]
    assert "Pair best;" in right
    code = compile_program(right, "a.hip", target_name="gfx942").code
    assert has_markers(compiled())
    assert not has_markers(code)


def test_without_optimisation_private_memory_is_followed_instead() -> None:
    assert not has_markers(compiled("gfx942", "-O0"))
    with pytest.raises(emulator.KernelFault, match="uninitialised private memory"):
        launch("sets_half_a_structure", 5, "-O0")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("float a[4];", True),
        ("Pair p;", True),
        ("Fragment<4> f, g;", True),
        ("float v[2][2]; return v;", True),
        ("int i = 3; x[i] = 4; return i; y = z;", False),
        ("float a[2] = {1, 2}; using T = int; break;", False),
        ("__shared__ float s[256]; extern __shared__ int t[];", False),
        ("int i; unsigned long long n, m; float x;", False),
        ("void f(float* y) { float a[4]; y[0] = a[1]; }", True),
    ],
)
def test_programs_without_such_declarations_are_compiled_once(source: str, expected: bool) -> None:
    assert may_be_unwritten(source) is expected


def test_elements_of_nested_types_get_markers_of_their_own_width() -> None:
    ir = """\
%struct.A = type { i8, [2 x %"class.B"], <3 x half> }
%"class.B" = type <{ double, ptr addrspace(3), i128 }>
define void @k() {
  %a = alloca %struct.A, align 8, addrspace(5)
  %i = alloca i32, align 4, addrspace(5)
  call void @llvm.lifetime.start.p5(ptr addrspace(5) %i) #6, !dbg !25
  call void @llvm.lifetime.start.p5(ptr addrspace(5) %a) #6, !dbg !26
}
"""
    marked = with_markers(ir)
    assert marked is not None
    stores = [line.split()[1:3] for line in marked.splitlines() if line.startswith("  store ")]
    kinds = [kind for kind, _ in stores]
    assert kinds == ["i8", *["double", "ptr", "i128"] * 2, "<3"]
    assert "inttoptr i32" in marked
    assert "to i48, !dbg !26" in marked
    assert with_markers(ir.replace("%struct.A, align 8", "i64, align 8")) is None
