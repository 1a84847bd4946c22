"""Idioms of CUDA source for warps of 32 threads are reported where 64 lanes make them wrong."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.errors import EmulatorError, KernelWarning
from cupygemm.emulator.raw_kernels.warp_idioms import idioms
from cupygemm.emulator.runtime.compile import compile_program

HALF_A_SUM = """
extern "C" __global__ void sum(const float* x, float* y) {
    float v = x[threadIdx.x];
    // The loop adds 32 lanes.
    for (int d = 16; d > 0; d >>= 1)
        v += __shfl_down(v, d);
    if (threadIdx.x == 0)
        y[0] = v;
}
"""
GROUPS = """
extern "C" __global__ void sum(const float* x, float* y) {
    float v = x[threadIdx.x];
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor(v, d);
    y[threadIdx.x] = FIRST;
    if (threadIdx.x % 32 == 0) y[threadIdx.x / 32] = v;
}
"""
SCAN = """
extern "C" __global__ void scan(const float* x, float* y) {
    __shared__ float total[2];
    int lane = threadIdx.x % 64;
    float v = x[threadIdx.x];
    for (int d = 1; d < END; d *= 2) {
        float below = __shfl_up(v, d);
        if (lane >= d) v += below;
    }
    if (lane == LAST) total[threadIdx.x / 64] = v;
    __syncthreads();
    y[threadIdx.x] = v + (threadIdx.x < 64 ? 0 : total[0]);
}
"""
RANK = """
extern "C" __global__ void rank(const float* x, float* y) {
    int lane = threadIdx.x % 64;
    unsigned long long set = __ballot(x[threadIdx.x] > 1);
    y[threadIdx.x] = __popcll(set & ((1ONE << lane) - 1));
}
"""
GROUP_RANK = """
extern "C" __global__ void rank(const float* x, float* y) {
    int lane = threadIdx.x & 31;
    unsigned set = (unsigned)(BALLOT);
    y[threadIdx.x] = __popc(set & ((1u << lane) - 1));
}
"""
LOCKSTEP = """
extern "C" __global__ void sum(const float* x, float* y) {
    __shared__ QUALIFIER float s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    if (t < 64) {
        s[t] += s[t + 64]; BETWEEN
        s[t] += s[t + 32]; BETWEEN
        s[t] += s[t + 16]; BETWEEN
        s[t] += s[t + 8]; BETWEEN
        s[t] += s[t + 4]; BETWEEN
        s[t] += s[t + 2]; BETWEEN
        s[t] += s[t + 1];
    }
    if (t == 0) y[0] = s[0];
}
"""


def found(source: str) -> list[int]:
    return [line for line, _ in idioms(source)]


def launched(source: str, threads: int) -> tuple[np.ndarray, list[str]]:
    """Return a kernel's results for 1, 2, ..., and the warnings of its launch."""
    code = compile_program(source, "a.hip", target_name="gfx942").code
    x, y = np.arange(1, threads + 1, dtype="f4"), np.zeros(threads, "f4")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", KernelWarning)
        emulator.launch(code, 1, threads, [x, y])
    return y, [str(each.message) for each in caught]


def test_a_sum_of_half_a_wave_is_named_with_its_line() -> None:
    y, told = launched(HALF_A_SUM, 64)
    assert y[0] != np.arange(1, 65).sum()
    (text,) = told
    assert text == (
        "1 finding in a call:\n"
        "HIP source has idioms of warps of 32 threads, and a wave has 64 lanes\n"
        "  a.hip:5: a reduction that begins at 16 combines 32 lanes: begin at warpSize / 2, or "
        "pass 32 as the width of __shfl\n"
        "  check: warp_idioms"
    )


def test_a_block_of_a_warp_is_right_and_not_reported() -> None:
    y, told = launched(HALF_A_SUM, 32)
    assert y[0] == np.arange(1, 33).sum()
    assert not told


@pytest.mark.parametrize(
    "change",
    [
        ("16", "32"),
        ("16", "warpSize / 2"),
        ("d)", "d, 32)"),
        ("threadIdx.x == 0", "threadIdx.x % 32 == 0"),
        ("threadIdx.x == 0", "threadIdx.x < 32"),
        ("__shfl_down(v, d)", "y[d]"),
        ("// The loop", "#ifdef __HIP_PLATFORM_AMD__\n#endif\n//"),
    ],
)
def test_a_reduction_that_is_right_or_may_be_is_not_reported(change: tuple[str, str]) -> None:
    assert found(HALF_A_SUM) == [5]
    assert found(HALF_A_SUM.replace("//", "").replace("The loop adds 32 lanes.", "")) == [5]
    assert not found(HALF_A_SUM.replace(*change))


def test_a_lane_of_a_group_of_32_is_not_that_of_the_wave() -> None:
    wrong, told = launched(GROUPS.replace("FIRST", "__shfl(v, 0)"), 64)
    right, silent = launched(GROUPS.replace("FIRST", "__shfl(v, 0, 32)"), 64)
    assert "a.hip:5: lanes 32 to 63 read lane 0 of the wave, not of their group" in told[0]
    assert not silent
    assert (wrong[33], right[33]) == (np.arange(1, 33).sum(), np.arange(33, 65).sum())
    assert not found(GROUPS.replace("FIRST", "__shfl(v, threadIdx.x % 32 / 4)"))


def test_a_mask_of_the_lanes_below_has_64_bits() -> None:
    wrong, told = launched(RANK.replace("ONE", "u"), 64)
    right, silent = launched(RANK.replace("ONE", "ull"), 64)
    assert "a.hip:5: a mask of the lanes below one, of 32 bits" in told[0]
    assert not silent
    np.testing.assert_array_equal(right, np.maximum(np.arange(64) - 1, 0))
    assert (wrong != right).any()


BIT = """
extern "C" __global__ void k(const float* x, float* y) {
    int lane = threadIdx.x % 64;
    unsigned long long set = __ballot(x[threadIdx.x] > 1);
    y[threadIdx.x] = USE;
}
"""


@pytest.mark.parametrize(
    "use",
    ["(set & (1u << lane)) != 0", "(set & 1 << (lane ^ 1)) != 0", "((1 << lane) & set) > 0"],
)
def test_a_bit_of_a_ballot_has_64_bits(use: str) -> None:
    ((line, what),) = idioms(BIT.replace("USE", use))
    assert line == 5
    assert what.startswith("a bit of 32, where set has one for each of 64 lanes: write 1ull")


@pytest.mark.parametrize(
    "use",
    [
        "(set & (1ull << lane)) != 0",
        "(set >> lane) & 1",
        "(set & (1u << 5)) != 0",
        "lane < 32 && (set & (1u << lane))",
        "x[lane & (1 << 3)]",
    ],
)
def test_other_bits_are_no_finding(use: str) -> None:
    assert not list(idioms(BIT.replace("USE", use)))


def test_a_ballot_of_a_group_of_32_is_shifted_down() -> None:
    plain = GROUP_RANK.replace("(BALLOT)", "__ballot(x[threadIdx.x] > 40)")
    wrong, told = launched(plain, 64)
    shifted = "__ballot(x[threadIdx.x] > 40) >> (threadIdx.x & 32)"
    right, silent = launched(GROUP_RANK.replace("BALLOT", shifted), 64)
    assert "a.hip:4: set has lanes 0 to 31 of the wave, in its upper half, too" in told[0]
    assert not silent
    assert (wrong[63], right[63]) == (0, right[32:].max())
    assert right[63] > 0
    assert not found(plain.replace("int lane", "if (threadIdx.x < 32) return; int lane"))
    assert not found(plain.replace("threadIdx.x & 31", "threadIdx.x & 63"))


def test_steps_in_lds_need_volatile_or_a_barrier() -> None:
    plain = LOCKSTEP.replace("QUALIFIER", "").replace("BETWEEN", "")
    marked = LOCKSTEP.replace("QUALIFIER", "volatile").replace("BETWEEN", "")
    apart = LOCKSTEP.replace("QUALIFIER", "").replace("BETWEEN", "__syncthreads();")
    wrong, told = launched(plain, 128)
    right, silent = launched(marked, 128)
    assert "a.hip:8: the compiler may read s[t + 32] before another lane has added to it" in told[0]
    assert not silent
    assert right[0] == np.arange(1, 129).sum() != wrong[0]
    assert not found(apart)


@pytest.mark.parametrize(
    ("end", "last", "line", "what"),
    [
        ("32", "63", 6, "a scan that ends before 32 combines 32 lanes"),
        ("64", "31", 10, "lane 31 is in the middle of a wave, whose last lane is 63"),
    ],
)
def test_a_scan_in_a_wave_goes_to_its_last_lane(end: str, last: str, line: int, what: str) -> None:
    wrong, told = launched(SCAN.replace("END", end).replace("LAST", last), 128)
    right, silent = launched(SCAN.replace("END", "64").replace("LAST", "63"), 128)
    assert f"a.hip:{line}: {what}" in told[0]
    assert not silent
    assert right[127] == np.arange(1, 129).sum() != wrong[127]


def test_one_of_two_reductions_may_be_wrong() -> None:
    full = HALF_A_SUM.replace("(int d = 16;", "(int d = 32;")
    assert found(full + HALF_A_SUM) == [14]
    assert not found(full)
    assert found(f"{HALF_A_SUM}// packed\nunsigned long long high = 1ull << 32;") == [5]


def test_the_scope_of_an_atomic_says_nothing_of_the_size_of_a_wave() -> None:
    assert found(HALF_A_SUM + "// the end\nint scope = __HIP_MEMORY_SCOPE_AGENT;") == [5]
    assert not found(HALF_A_SUM + "#ifdef __HIP_PLATFORM_AMD__\n#endif")


def test_the_check_can_be_an_error_or_off() -> None:
    with emulator.checks(warp_idioms="error"), pytest.raises(EmulatorError, match="begins at 16"):
        launched(HALF_A_SUM, 64)
    with emulator.checks(warp_idioms="off"):
        assert not launched(HALF_A_SUM, 64)[1]


def test_a_launch_is_reported_once() -> None:
    from cupygemm.emulator.code_object import load
    from cupygemm.emulator.device import Device
    from cupygemm.emulator.raw_kernels import warp_idioms
    from cupygemm.emulator.targets import TARGETS

    device = Device(TARGETS["gfx942"])
    code = load(compile_program(HALF_A_SUM, "a.hip", target_name="gfx942").code, device.memory)
    with pytest.warns(KernelWarning, match="begins at 16"):
        warp_idioms.report(code, 64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warp_idioms.report(code, 64)


FIRST_LANE = """
extern "C" __global__ void rows(const float* x, float* y) {
    int group = threadIdx.x DIVIDED;
    int row = __builtin_amdgcn_readfirstlane(ARGUMENT);
    y[threadIdx.x] = x[row * 64 + threadIdx.x % 64] + group;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("divided", "argument", "lanes"),
    [
        ("/ 32", "group", 32),
        (">> 5", "group", 32),
        (">> 4", "group", 16),
        ("/ 64", "threadIdx.x / 32", 32),
        ("/ 64", "(threadIdx.x % 64) >> 4", 16),
        ("/ 64", "(threadIdx.x & 63) / 8u", 8),
    ],
)
def test_groups_of_lanes_that_are_taken_for_waves(divided: str, argument: str, lanes: int) -> None:
    source = FIRST_LANE.replace("DIVIDED", divided).replace("ARGUMENT", argument)
    ((line, what),) = idioms(source)
    assert line == 4
    assert f"a group of {lanes} lanes" in what
    arrays = [np.zeros(2048, np.float32)] * 2
    for target in ("gfx90a", "gfx942", "gfx950"):
        code = compile_program(source, "rows.hip", target_name=target).code
        with pytest.warns(KernelWarning, match="rows.hip:4: the number of a group"):
            emulator.launch(code, 1, 128, arrays)


@pytest.mark.parametrize(
    ("divided", "argument"),
    [
        ("/ 64", "group"),
        (">> 6", "group"),
        ("/ 32", "threadIdx.x / 64"),
        ("/ 32", "threadIdx.x"),
        ("/ 32", "group / 2"),
        ("/ 32; group = 0", "group"),
        ("/ 32", "group) + __builtin_amdgcn_readlane(group, 32"),
        ("/ 32", "(int)x[0]"),
    ],
)
def test_waves_and_first_lanes_are_no_finding(divided: str, argument: str) -> None:
    source = FIRST_LANE.replace("DIVIDED", divided).replace("ARGUMENT", argument)
    assert not list(idioms(source))
