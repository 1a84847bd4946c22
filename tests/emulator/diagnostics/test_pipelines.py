"""Hand-written pipelines, pipelines.hip: correct ones run without reports, faults are named."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cupygemm._build.cache import get_or_build
from cupygemm._build.toolchain import find_toolchain
from cupygemm.emulator.errors import KernelFault
from tests.hip.harness import Program

SOURCE = Path(__file__).with_name("pipelines.hip")
TARGETS = ("gfx942", "gfx950")
ORDERS: tuple[Any, ...] = (
    "lockstep",
    "abreast",
    "forward",
    "reverse",
    ("random", 1),
    ("random", 2),
)
# kernel, what the report's kind contains (it may depend on the order of the waves), and its details
FAULTS = (
    ("ping_pong_no_wait", "read before wait", "no s_waitcnt lgkmcnt covers"),
    ("ping_pong_no_barrier", "LDS", ""),
    ("ping_pong_unpaired_barrier", "divergent barrier", "waves [0, 1, 2, 3] of the workgroup wait"),
    ("ping_pong_early_write", "LDS race", "then an s_barrier, must come between the two"),
    ("ping_pong_small_lds", "out-of-bounds LDS write", "the workgroup's LDS has 16384 bytes"),
    ("direct_to_lds_no_wait", "LDS race: read after another wave's write", "load_lds_dword"),
    ("direct_to_lds_no_barrier", "LDS", ""),
    ("direct_to_lds_small_lds", "out-of-bounds LDS write", "768 bytes: 4 bytes past its end"),
    ("ring_no_wait", "LDS", ""),
    ("ring_early_signal", "LDS", ""),
    ("mailbox_no_wait", "LDS race: read after another wave's write", "an s_waitcnt in wave 0"),
    ("mailbox_early_signal", "LDS", ""),
)


@functools.cache
def program(target: str) -> Program:
    toolchain = find_toolchain()
    options = ("-O3", "-Wall", "-Wextra", "-Werror")
    prelude = SOURCE.parents[2] / "hip" / "prelude.hpp"
    path = get_or_build(
        "test-pipelines",
        [SOURCE.read_text(), prelude.read_text(), target, *options, toolchain.version],
        ".hsaco",
        lambda output: toolchain.compile_hip(SOURCE, output, target=target, options=options),
    )
    return Program(path, target)


def run(target: str, kernel: str, order: Any) -> tuple[np.ndarray, np.ndarray]:
    """Run a kernel; return the computed and the expected results."""
    rng = np.random.default_rng(3)
    launch = program(target)
    if kernel.startswith("ping_pong"):
        a, b = (rng.integers(-3, 4, (64, 128)).astype(np.float16) for _ in range(2))
        c = np.zeros((64, 64), np.float32)
        launch(kernel, (1, 1, 1), (512, 1, 1), a, b, c, np.int32(128), order=order)
        return c, a.astype(np.float64) @ b.astype(np.float64).T
    x = rng.integers(0, 1 << 32, (2, 256), np.uint32)
    out = np.zeros_like(x)
    if kernel.startswith("ring"):
        launch(kernel, (1, 1, 1), (256, 1, 1), x, out, np.int32(4), order=order)
        return out.reshape(4, 128), x.reshape(4, 128)[:, ::-1] + np.uint32(1)
    if kernel.startswith("mailbox"):
        launch(kernel, (1, 1, 1), (128, 1, 1), x, out, np.int32(8), order=order)
        return out.reshape(8, 64), x.reshape(8, 64)[:, ::-1] + np.uint32(1)
    if kernel == "lock":
        launch(kernel, (1, 1, 1), (256, 1, 1), x, out, np.int32(3), order=order)
        return out[0], 4 * x[0, :3].sum(dtype=np.uint32)
    launch(kernel, (2, 1, 1), (256, 1, 1), x, out, order=order)
    return out, x[:, ::-1]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", ["ping_pong_none", "direct_to_lds_none"])
def test_right(target: str, kernel: str, order: Any) -> None:
    result, expected = run(target, kernel, order)
    assert (result == expected).all()


@pytest.mark.parametrize("kernel", ["ring_none", "mailbox_none", "lock"])
def test_flags_in_lds_order_what_their_loops_wait_for(kernel: str) -> None:
    for order in ORDERS:
        result, expected = run("gfx942", kernel, order)
        assert (result == expected).all()


@pytest.mark.parametrize(("kernel", "kind", "detail"), FAULTS, ids=[f[0] for f in FAULTS])
def test_wrong(kernel: str, kind: str, detail: str) -> None:
    for order in ORDERS:
        with pytest.raises(KernelFault) as caught:
            run("gfx942", kernel, order)
        fault = caught.value
        assert kind in fault.kind
        assert detail in fault.detail
        assert fault.kernel == kernel
        assert fault.workgroup == (0, 0, 0)
        assert fault.wave >= 0
        assert (fault.address is not None) == ("LDS" in kind)


def test_a_flag_that_one_of_two_waves_has_set() -> None:
    """Whether the other one is late depends on the order of the waves."""
    found = {}
    for order in ORDERS:
        try:
            run("gfx942", "ring_few_signals", order)
        except KernelFault as fault:
            found[fault.kind.partition(":")[0]] = fault.detail
    assert "sets a flag in LDS after it, for which a loop of this wave waits" in found["LDS race"]


def test_transposing_reads_of_a_direct_to_lds_load() -> None:
    """Gfx950: 16 bytes a lane straight to LDS, ds_read_b64_tr_b16, and an MFMA in asm."""
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((16, 32), (32, 16)))
    c = np.zeros((16, 16), np.float32)
    program("gfx950")("transposed_none", (1, 1, 1), (64, 1, 1), a, b, c)
    assert (c == a.astype(np.float64) @ b.astype(np.float64)).all()
    with pytest.raises(KernelFault) as caught:
        program("gfx950")("transposed_no_wait", (1, 1, 1), (64, 1, 1), a, b, c)
    assert caught.value.kind == "LDS read before wait"
    assert caught.value.instruction.startswith("ds_read_b64_tr_b16")
    assert "buffer_load_dwordx4" in caught.value.detail
