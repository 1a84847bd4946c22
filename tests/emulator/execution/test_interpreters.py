"""The native loop against the reference path: results, counts, and reports of faults.

Each case runs on both paths. `run_both` compares the statistics of the launch, or the text of the
fault, and the caller compares the results.
"""

from __future__ import annotations

import ctypes
import random
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cupygemm.emulator.device import Memory
from cupygemm.emulator.errors import KernelFault
from cupygemm.emulator.execution import native_loop
from cupygemm.emulator.native import library
from cupygemm.emulator.run import last_launch, launch
from cupygemm.emulator.targets import TARGETS
from tests.emulator.assembly import load_kernel
from tests.emulator.definedness import test_undefined_registers
from tests.emulator.hazards import test_scoreboard

WORDS = 16384


def execute(body: str, *, waves: int = 4, groups: int = 3, lds: int = 1024, **options: Any) -> Any:
    """Run a kernel on two buffers; return their contents, or the text of its fault."""
    memory = Memory()
    kernel = load_kernel(body + "\ns_endpgm", memory, arguments=[8, 8], lds=lds)
    buffers = [memory.malloc(4 * WORDS) for _ in range(2)]
    for address in buffers:
        memory.view(address, 4 * WORDS).view(np.uint32)[:] = np.arange(WORDS) * 2654435761
    arguments = struct.pack("<QQ", *buffers)
    try:
        stats = launch(
            kernel,
            (groups, 1, 1),
            (64 * waves, 1, 1),
            0,
            arguments,
            memory,
            TARGETS["gfx942"],
            **options,
        )
    except KernelFault as fault:
        return re.sub(r"0x[0-9a-f]{9,}", "ADDRESS", str(fault)), fault.lanes, fault.pc > 0
    result = [memory.view(address, 4 * WORDS).tobytes() for address in buffers]
    return result, stats.executions, stats.mnemonics, stats.instructions


def run_both(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Any]) -> Any:
    """Return the result of `run`, after a check that both paths agree."""
    monkeypatch.setenv(native_loop.VARIABLE, "reference")
    reference = run()
    monkeypatch.setenv(native_loop.VARIABLE, "native")
    native = run()
    assert native == reference
    return native


@pytest.fixture
def native_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the native loop's events."""
    events: list[int] = []
    inner = native_loop.NativeLoop.run

    def run(loop: native_loop.NativeLoop) -> int:
        events.append(inner(loop))
        return events[-1]

    monkeypatch.setattr(native_loop.NativeLoop, "run", run)
    return events


# -- faults and correct kernels of other tests -----------------------------------------------------

BODIES = {
    **{f"too early: {name}": case[0] for name, case in test_scoreboard.TOO_EARLY.items()},
    **{f"correct: {name}": body for name, body in test_scoreboard.CORRECT.items()},
    **{f"undefined: {name}": case for name, case in test_undefined_registers.UNUSED.items()},
    **{f"used: {name}": case for name, case in test_undefined_registers.USED.items()},
}


@pytest.mark.parametrize("name", BODIES)
def test_hazards_are_reported_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = BODIES[name]
    text = body if isinstance(body, str) else body[0]

    def run() -> Any:
        result = execute(text, waves=2, groups=2)
        # The lanes in an undefined mask are arbitrary.
        return re.sub(r"lanes? [\d, -]+", "", result[0]) if len(result) == 3 else result

    run_both(monkeypatch, run)


START = "s_load_dwordx4 s[4:7], s[0:1], 0x0\nv_lshlrev_b32 v1, 2, v0\ns_waitcnt lgkmcnt(0)\n"
FAULTS = {
    "out of bounds": "v_add_u32 v1, 0x100000, v1\nglobal_load_dword v2, v1, s[4:5]",
    "in one wave": "v_cmp_lt_u32 vcc, 100, v0\ns_cbranch_vccz .Lend\n"
    "v_add_u32 v1, 0x100000, v1\nglobal_store_dword v1, v0, s[6:7]",
    "race in LDS": "ds_write_b32 v1, v0\nv_xor_b32 v2, 0x100, v1\ns_waitcnt lgkmcnt(0)\n"
    "ds_read_b32 v3, v2",
    "race in LDS of one byte": "ds_write_b8 v0, v0\nv_xor_b32 v2, 64, v0\ns_waitcnt lgkmcnt(0)\n"
    "ds_read_u8 v3, v2",
    "out of LDS": "v_lshlrev_b32 v2, 4, v0\nds_write_b32 v2, v0",
    "race in global memory": "global_store_dword v1, v0, s[6:7]\nv_xor_b32 v2, 0x100, v1\n"
    "global_load_dword v3, v2, s[6:7]",
    "divergent barrier": "s_barrier\nv_cmp_lt_u32 vcc, 63, v0\ns_cbranch_vccz .Lend\ns_barrier",
    "wild jump": "s_mov_b64 s[8:9], 0\ns_setpc_b64 s[8:9]",
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_reported_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_both(monkeypatch, lambda: execute(START + FAULTS[name]))
    assert len(result) == 3, "the kernel has no fault"


# -- control flow ----------------------------------------------------------------------------------

LOOP = (
    START + "v_readfirstlane_b32 s8, v0\ns_lshr_b32 s8, s8, 6\ns_add_u32 s8, s8, s2\n"
    "v_mov_b32 v2, 0\n.Lagain:\nv_add_u32 v2, s8, v2\ns_barrier\n"
    "s_sub_u32 s8, s8, 1\ns_cbranch_scc0 .Lagain\n"
    "s_lshl_b32 s9, s2, 10\nv_add_u32 v1, s9, v1\nglobal_store_dword v1, v2, s[6:7]"
)
DIVERGENT = (
    START + "v_readfirstlane_b32 s8, v0\ns_lshr_b32 s8, s8, 6\nv_mov_b32 v2, 0\n"
    ".Lagain:\nv_add_u32 v2, s8, v2\ns_bitcmp1_b32 s8, 0\ns_cbranch_scc0 .Leven\n"
    "v_xor_b32 v2, 0x55, v2\n.Leven:\ns_sub_u32 s8, s8, 1\ns_cbranch_scc0 .Lagain\n"
    "s_barrier\nds_write_b32 v1, v2\ns_waitcnt lgkmcnt(0)\ns_barrier\n"
    "v_xor_b32 v3, 0x100, v1\nds_read_b32 v2, v3\ns_waitcnt lgkmcnt(0)\n"
    "v_and_b32 v4, 3, v0\nv_lshlrev_b32 v4, 2, v4\nglobal_atomic_add v4, v2, s[4:5]\n"
    "s_lshl_b32 s9, s2, 10\nv_add_u32 v1, s9, v1\nglobal_store_dword v1, v2, s[6:7]"
)
ORDERS = ("lockstep", "forward", "reverse", ("random", 7))


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("checks", [True, False], ids=["checked", "unchecked"])
def test_divergent_waves(order: Any, checks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    run_both(monkeypatch, lambda: execute(DIVERGENT, groups=4, order=order, checks=checks))


def test_waves_that_leave_a_loop_with_barriers(monkeypatch: pytest.MonkeyPatch) -> None:
    run_both(monkeypatch, lambda: execute(LOOP))


# -- random sequences ------------------------------------------------------------------------------

VECTOR = (
    "v_add_u32 {d}, {a}, {b}",
    "v_mul_lo_u32 {d}, {a}, {b}",
    "v_add_f32 {d}, {a}, {b}",
    "v_fma_f32 {d}, {a}, {b}, {d}",
    "v_mul_f32 {d}, {a}, {b}",
    "v_xor_b32 {d}, {a}, {b}",
    "v_cmp_gt_i32 vcc, {a}, {b}",
    "v_cmp_lt_f32 vcc, {a}, {b}",
    "v_cndmask_b32 {d}, {a}, {b}, vcc",
    "v_lshlrev_b32 {d}, 3, {a}",
    "v_cvt_f32_i32 {d}, {a}",
    "v_cvt_f16_f32 {d}, {a}",
    "v_readfirstlane_b32 s20, {a}",
    "v_mov_b32_dpp {d}, {a} row_shr:1 row_mask:0xf bank_mask:0xf",
    "v_max_f32 {d}, {a}, {b}",
    "v_mul_hi_u32 {d}, {a}, {b}",
    "v_pk_add_f16 {d}, {a}, {b}",
    "v_mfma_f32_4x4x1_16b_f32 a[0:3], {a}, {b}, a[0:3]\ns_nop 7\nv_accvgpr_read_b32 {d}, a1",
    "s_and_saveexec_b64 s[30:31], vcc\nv_not_b32 {d}, {a}\ns_mov_b64 exec, s[30:31]",
    "s_add_u32 s20, s20, s21",
    "s_xor_b32 s21, s20, 0x1234567",
    "v_add_u32 {d}, s20, {a}",
    "s_cmp_lt_u32 s20, s21\ns_cbranch_scc1 .L{n}\nv_sub_u32 {d}, {a}, {b}\n.L{n}:",
    "ds_write_b32 v1, {a}\ns_waitcnt lgkmcnt(0)\nds_read_b32 {d}, v1\ns_waitcnt lgkmcnt(0)",
    "v_and_b32 {d}, -4, {a}\nds_bpermute_b32 {d}, {d}, {b}\ns_waitcnt lgkmcnt(0)",
    "global_load_dword {d}, v1, s[4:5]\ns_waitcnt vmcnt(0)",
    "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), {mode}",
)


def random_body(seed: int) -> str:
    """Return a kernel of random instructions; lanes start with random and exceptional values."""
    chosen = random.Random(seed)
    lines = [START, "s_mov_b32 s20, 0x7f800000", "s_mov_b32 s21, 0x80000001", "s_mov_b64 vcc, 5"]
    lines += [f"v_accvgpr_write_b32 a{i}, 0" for i in range(4)]
    values = "1.0 0x7fc00001 0x00000007 0xff800000 0x3f8ccccd -1 0 4"
    for register, value in zip(range(2, 10), values.split(), strict=True):
        lines.append(f"v_mov_b32 v{register}, {value}")
    lines += ["v_mul_lo_u32 v2, v0, v6", "v_cvt_f32_u32 v3, v0"]
    for n in range(60):
        d, a, b = (f"v{chosen.randrange(2, 10)}" for _ in range(3))
        line = chosen.choice(VECTOR).replace("\n", "\ns_nop 7\n")
        lines.append(line.format(d=d, a=a, b=b, n=n, mode=chosen.randrange(4)) + "\ns_nop 7")
    lines.append("s_lshl_b32 s9, s2, 10\nv_add_u32 v1, s9, v1")
    lines += [f"v_xor_b32 v2, v2, v{register}" for register in range(3, 10)]
    lines.append("global_store_dword v1, v2, s[6:7]")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(12))
def test_random_sequences(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_both(monkeypatch, lambda: execute(random_body(seed)))
    assert len(result) == 4, f"a random kernel must not fail: {result}"


# The first wave has normal numbers, and a lane of each other one has a subnormal number.
SUBNORMAL = (
    START + "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), {mode}\n"
    "v_mov_b32 v2, 0x00c00001\nv_mov_b32 v3, 0x80000007\n"
    "v_cmp_lt_u32 s[8:9], 63, v0\nv_and_b32 v4, 63, v0\nv_cmp_eq_u32 vcc, 5, v4\n"
    "s_and_b64 vcc, vcc, s[8:9]\nv_cndmask_b32 v2, v2, v3, vcc\n"
    "v_mov_b32 v5, 0.5\nv_mov_b32 v6, 0x7f000000\n"
    "v_mul_f32 v7, v2, v6\nv_mul_f32 v8, v2, v5\nv_mul_f32 v9, v2, v5 clamp\n"
    "v_add_f32 v10, v2, v2\nv_mul_f32 v2, v2, v5\nv_mul_f32 v6, v8, v6\n"
    "s_lshl_b32 s9, s2, 10\nv_add_u32 v1, s9, v1\n"
    + "\n".join(f"v_mul_u32_u24 v2, 31, v2\nv_xor_b32 v2, v2, v{i}" for i in range(6, 11))
    + "\nglobal_store_dword v1, v2, s[6:7]"
)


@pytest.mark.parametrize("mode", range(4))
def test_subnormals_in_some_waves(mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_both(monkeypatch, lambda: execute(SUBNORMAL.format(mode=mode)))
    assert len(result) == 4, f"the kernel must not fail: {result}"


# -- CuPy's kernels --------------------------------------------------------------------------------

PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "elementwise": lambda cp, x: x * 2 + 1,
    "sum": lambda cp, x: x.sum(),
    "cumsum": lambda cp, x: cp.cumsum(x),
    "sort": lambda cp, x: cp.sort(x),
    "argmax": lambda cp, x: x.argmax(),
    "exp": lambda cp, x: cp.exp(x / 100),
    "matmul": lambda cp, x: x[:1024].reshape(32, 32) @ x[1024:2048].reshape(32, 32),
    "integers": lambda cp, x: (x * 1000).astype(cp.int64) % 7,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_cupy(name: str, cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = cp.asarray(np.random.default_rng(0).standard_normal(3000, np.float32))

    def run() -> Any:
        result = cp.asnumpy(PROGRAMS[name](cp, x))
        stats = last_launch()
        assert stats is not None
        return result.tobytes(), stats.executions, stats.mnemonics, stats.num_waves

    run_both(monkeypatch, run)


# -- the loop itself -------------------------------------------------------------------------------


def test_a_uniform_kernel_stays_in_c(native_steps: list[int]) -> None:
    body = START + "global_load_dword v2, v1, s[4:5]\ns_waitcnt vmcnt(0)\nv_add_u32 v2, v2, v0\n"
    execute(body + "global_store_dword v1, v2, s[6:7]", groups=1)
    steps = [event for event in native_steps if event == native_loop.STEP]
    assert not steps, "Python executed instructions that have a native form"


@pytest.mark.parametrize("body", [DIVERGENT, LOOP], ids=["divergent", "loop"])
def test_the_number_of_cores_changes_nothing(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for cores in (1, 2, 5):
        monkeypatch.setattr(native_loop, "usable_cores", lambda cores=cores: cores)
        results.append(execute(body, waves=4, groups=64 if body is DIVERGENT else 3))
    library().set_threads(ctypes.c_int64(1))
    assert results[0] == results[1] == results[2]


def test_a_wrong_interpreter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native_loop.VARIABLE, "fast")
    with pytest.raises(ValueError, match="must be 'native' or 'reference'"):
        native_loop.native_execution()
