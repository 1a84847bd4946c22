"""Variables that HIP source uses before it writes them are reported when the code is loaded."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.diagnostics import findings, source_findings
from cupygemm.emulator.errors import EmulatorError, KernelWarning
from cupygemm.emulator.runtime.compile import compile_program

# At -O3, the code of the first kernel stores the arbitrary contents of the sum's register.
SUM = """
typedef float float4_ __attribute__((ext_vector_type(4)));
typedef _Float16 half4_ __attribute__((ext_vector_type(4)));
extern "C" __global__ void product(const half4_* a, const half4_* b, float4_* c, int n) {
    float4_ sum START;
    for (int i = 0; i < n; i++)
        sum = __builtin_amdgcn_mfma_f32_16x16x16f16(a[i], b[i], sum, 0, 0, 0);
    c[threadIdx.x] = sum;
}
"""


def launch(start: str) -> None:
    code = compile_program(SUM.replace("START", start), "a.hip", target_name="gfx942").code
    a, b, c = np.zeros((64, 4), "f2"), np.zeros((64, 4), "f2"), np.zeros((64, 4), "f4")
    with emulator.checks(uninitialised="off"):
        emulator.launch(code, 1, 64, [a, b, c, 1])


def test_a_sum_that_nothing_initialises_is_named_with_its_line() -> None:
    with pytest.warns(KernelWarning) as caught, findings.observing() as seen:
        launch("")
    assert [str(each) for each in seen.warnings] == [
        (
            "HIP source uses variables that nothing has written\n"
            "  a.hip:7:65: variable 'sum' may be uninitialized when used here\n"
            "  the optimiser takes any value for them, so that the code may hide it: "
            "initialise them\n"
            "  check: uninitialised_source"
        )
    ]
    assert len(caught) == 1


def test_an_initialised_sum_is_not() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launch("= {0}")


def test_the_check_can_be_an_error_or_off() -> None:
    with emulator.checks(uninitialised_source="error"), pytest.raises(EmulatorError, match="'sum'"):
        launch("")
    with warnings.catch_warnings(), emulator.checks(uninitialised_source="off"):
        warnings.simplefilter("error")
        launch("")


def test_what_is_kept_of_a_log() -> None:
    log = (
        "a \"b\".hip:1:2: warning: variable 'x' is uninitialized when used here [-Wuninitialized]\n"
        "a.hip:3:4: warning: unused variable 'y' [-Wunused-variable]\n"
    )
    kept = source_findings.comments("", log)
    assert len(kept) == 1
    assert r"a \"b\".hip:1:2: variable 'x' is uninit" in kept[0]
    assert source_findings.comments("#include <cupy/complex.cuh>\n", log) == []


INTEGER_PRODUCT = """\
#define THR_N 8
#define BLK_M 128

#define fetch(arr, col, m, n, bound) arr[min(n*col + m, bound)]

template<typename T>
__device__ void _tensordot_core_int_kernel_impl(
        int M, int N, int K,
"""


def test_cupys_product_of_integers_is_one_of_its_own_programs() -> None:
    """It is written out, for thirteen types, and takes seconds to compile."""
    assert source_findings.is_generated(INTEGER_PRODUCT)
    assert not source_findings.is_generated(INTEGER_PRODUCT.replace("_tensordot_core", "my"))
    assert not source_findings.is_generated(f"// calls it\n{INTEGER_PRODUCT}")


DOUBTFUL = """
extern "C" __global__ void k(const int* x, int* y, int n) {
    int bit, sum, last;
    if (n != 10) { if (n != 21) bit = n * 3; }
    if (n != 10 && n != 21) y[0] = x[0] >> bit;
    for (int i = 0; i < 4; i++) last = x[i];
    y[1] = last;
    for (int i = 0; i < n; i++)
        sum =
            x[i] +
            sum;
    y[2] = n > 0 ? sum : 0;
}
"""


def test_conditions_that_exclude_each_other_are_no_finding() -> None:
    """Of three doubtful warnings, the accumulator's is kept, whose statement has three lines."""
    compiled = compile_program(DOUBTFUL, "a.hip", target_name="gfx942")
    assert "'bit' may be" in compiled.log
    assert "'last' may be" in compiled.log
    kept = source_findings.comments(DOUBTFUL, compiled.log)
    assert len(kept) == 1
    assert "a.hip:11:13: variable 'sum' may be" in kept[0]


@pytest.mark.parametrize(
    ("statement", "kept"),
    [
        ("acc += x;", 1),
        ("acc.x *= x;", 1),
        ("acc++;", 1),
        ('asm("v_add %0, %1" : "+v"(acc) : "v"(x));', 1),
        ("if (acc == x) y = 1;", 0),
        ("y[acc] = x;", 0),
    ],
)
def test_what_computes_a_variable_anew(statement: str, kept: int) -> None:
    column = statement.index("acc") + 1
    log = (
        f"a.hip:1:{column}: warning: variable 'acc' may be uninitialized when used here "
        "[-Wconditional-uninitialized]\n"
    )
    assert len(source_findings.comments(statement, log)) == kept


@pytest.mark.parametrize(
    ("statement", "kept"),
    [
        ("y = __shfl(acc, lead);", 0),
        ("y = __shfl_down_sync(__activemask(), acc, 1);", 0),
        ("y = group.shfl(acc, 1);", 1),
        ("y = __builtin_amdgcn_readfirstlane(acc);", 0),
        ("y = __shfl(x, acc);", 1),
        ("y = __shfl_sync(acc, x, 0);", 1),
        ("y = shfl(acc);", 1),
    ],
)
def test_what_lanes_pass_to_a_shuffle_may_be_unset(statement: str, kept: int) -> None:
    log = (
        "a.hip:1:1: warning: variable 'acc' is used uninitialized whenever 'if' condition is false "
        "[-Wsometimes-uninitialized]\n"
        f"a.hip:1:{statement.index('acc') + 1}: note: uninitialized use occurs here\n"
    )
    assert len(source_findings.comments(statement, log)) == kept


# Its last element starts with the arbitrary contents of a register.
ARRAY = """
extern "C" __global__ void sums(const float* a, float* c, int n) {
    float sum[4];
    for (int i = 0; i < 3; i++) sum[i] = 0;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < 4; i++) sum[i] += a[k] * (i + 1);
    for (int i = 0; i < 4; i++) c[i * 64 + threadIdx.x] = sum[i];
}
"""


def test_the_pattern_option_shows_elements_that_nothing_initialises() -> None:
    """As docs/howto/debug_without_a_gpu.rst says: the compiler does not name them."""
    option = "-ftrivial-auto-var-init=pattern"
    compiled = compile_program(ARRAY, "a.hip", target_name="gfx942", options=[option])
    assert source_findings.comments(ARRAY, compiled.log) == []
    sums = np.zeros((4, 64), "f4")
    emulator.launch(compiled.code, 1, 64, [np.ones(3, "f4"), sums, 3])
    np.testing.assert_array_equal(sums[:, 0], [3, 6, 9, np.nan])


MASK = """
extern "C" __global__ void count(const int* x, int* y) {
    int t = threadIdx.x;
    MASK
    long long n = 3;
    int narrower = n;  // is no mask
    y[t] += narrower;
}
"""


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("unsigned m = __ballot(x[t]); y[t] = __popc(m);", "a.hip:4:18: __ballot"),
        ("y[t] = __popc(__ballot(x[t]));", "a.hip:4:19: __ballot"),
        ("unsigned m = __activemask(); y[t] = m;", "a.hip:4:18: __activemask"),
        ("unsigned m = (unsigned)__ballot(x[t]); y[t] = __popc(m);", None),
        ("unsigned long long m = __ballot(x[t]); y[t] = __popcll(m);", None),
    ],
)
def test_half_a_mask_of_a_wave_is_named(text: str, place: str | None) -> None:
    options = ("-Werror",)
    source = MASK.replace("MASK", text)
    compiled = compile_program(source, "a.hip", target_name="gfx942", options=options)
    assert "warning" not in compiled.log
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        emulator.launch(compiled.code, 1, 64, [np.ones(64, "i4"), np.zeros(64, "i4")])
    assert [place in str(each.message) for each in caught] == [True] * (place is not None)
    if place:
        assert "HIP source keeps 32 bits of a mask of 64 lanes" in str(caught[0].message)
        assert "check: wave_masks" in str(caught[0].message)
