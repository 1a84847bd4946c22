"""What a flag in LDS orders at the earliest value for which a loop would have ended."""

from __future__ import annotations

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.device import Memory
from cupygemm.emulator.errors import KernelFault
from cupygemm.emulator.runtime.compile import compile_program
from cupygemm.emulator.targets import TARGETS
from cupygemm.emulator.units.lds.polling import polls_of
from tests.emulator.assembly import load_kernel

MACROS = r"""
#define WORKGROUP __HIP_MEMORY_SCOPE_WORKGROUP
#define LOAD(p) __hip_atomic_load(p, __ATOMIC_ACQUIRE, WORKGROUP)
#define ADD(p, n) (void)__hip_atomic_fetch_add(p, n, __ATOMIC_RELEASE, WORKGROUP)
#define STORE(p, n) __hip_atomic_store(p, n, __ATOMIC_RELEASE, WORKGROUP)
"""
# Two waves fill tiles of a ring for two others.
RING = (
    MACROS
    + r"""
extern "C" __global__ void ring(const float* x, float* y, int tiles) {
    __shared__ float tile[3][128];
    __shared__ int full[3], empty[3];
    int wave = threadIdx.x / 64, lane = threadIdx.x % 64;
    if (threadIdx.x < 3)
        full[threadIdx.x] = empty[threadIdx.x] = 0;
    __syncthreads();
    float sum = 0;
    for (int t = 0; t < tiles; ++t) {
        int s = t % 3, round = t / 3;
        if (wave < 2) {
            while (LOAD(&empty[s]) < EMPTY) __builtin_amdgcn_s_sleep(1);
            tile[s][threadIdx.x] = x[t * 128 + threadIdx.x];
            if (lane == 0) ADD(&full[s], 1);
        } else {
            while (LOAD(&full[s]) < FULL) __builtin_amdgcn_s_sleep(1);
            sum += tile[s][255 - threadIdx.x];
            if (lane == 0) ADD(&empty[s], 1);
        }
    }
    if (wave > 1)
        y[threadIdx.x - 128] = sum;
}
"""
)
# The first wave appends tiles, and the second takes those that it finds.
QUEUE = (
    MACROS
    + r"""
extern "C" __global__ void queue(const float* x, float* y, int tiles) {
    __shared__ float tile[8][64];
    __shared__ int count;
    int lane = threadIdx.x % 64;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    if (threadIdx.x < 64) {
        for (int t = 0; t < tiles; ++t) {
            tile[t][lane] = x[t * 64 + lane];
            STORE(&count, t + 1);
        }
        return;
    }
    float sum = 0;
    for (int t = 0; t < tiles;) {
        int found;
        while ((found = LOAD(&count)) <= t) {}
        AGAIN
        for (; t < found; ++t) sum += tile[t][63 - lane];
    }
    y[lane] = sum;
}
"""
)
# The last of four waves adds up what the others count.
COUNTER = (
    MACROS
    + r"""
extern "C" __global__ void counter(const float* x, float* y) {
    __shared__ float tile[256];
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    tile[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x % 64 == 0) ADD(&count, 1);
    if (threadIdx.x < 64) {
        int waves = READ;
        if (waves == 4) y[threadIdx.x] = tile[threadIdx.x] + tile[255 - threadIdx.x];
        else y[threadIdx.x] = -1;
    }
}
"""
)


def launch(source: str, name: str, target: str, *arguments: object, block: int = 256) -> None:
    code = compile_program(source, "a.hip", target_name=target).code
    emulator.launch(code, 1, block, list(arguments), kernel=name)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("empty", "full", "race"),
    [
        ("round * 2", "(round + 1) * 2", ""),
        ("round * 2", "round * 2 + 1", "read after another wave's write"),
        ("round * 2 - 1", "(round + 1) * 2", "write after another wave's read"),
        ("(round - 1) * 2", "(round + 1) * 2", "after another wave's"),
    ],
)
def test_counts_of_a_ring(target: str, empty: str, full: str, race: str) -> None:
    """In turns, both waves have added when the flag is read, whatever it is compared with."""
    source = RING.replace("EMPTY", empty).replace("FULL", full)
    x, y = np.arange(9 * 128, dtype=np.float32), np.zeros(128, np.float32)
    if race:
        with pytest.raises(KernelFault, match=f"LDS race: .*{race}"):
            launch(source, "ring", target, x, y, np.int32(9))
        return
    launch(source, "ring", target, x, y, np.int32(9))
    np.testing.assert_array_equal(y, x.reshape(9, 128)[:, ::-1].sum(0))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("again", ["", "found = LOAD(&count);"])
def test_a_wave_may_use_the_value_that_it_finds(target: str, again: str) -> None:
    x, y = np.arange(512, dtype=np.float32), np.zeros(64, np.float32)
    launch(QUEUE.replace("AGAIN", again), "queue", target, x, y, np.int32(8), block=128)
    np.testing.assert_array_equal(y, x.reshape(8, 64)[:, ::-1].sum(0))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("read", ["LOAD(&count)", "count"])
def test_an_atomic_load_outside_a_loop(target: str, read: str) -> None:
    x, y = np.arange(256, dtype=np.float32), np.zeros(64, np.float32)
    source = COUNTER.replace("READ", read)
    if read == "count":
        with pytest.raises(KernelFault, match="LDS race: read after another wave's write"):
            launch(source, "counter", target, x, y)
        return
    launch(source, "counter", target, x, y)
    assert set(y) <= {-1.0, 255.0}


HEAD = "again:\nds_read_b32 v1, v2\ns_waitcnt lgkmcnt(0)\n"
KNOWN = {
    "less than a register": ("v_cmp_gt_i32 vcc, s6, v1\ns_cbranch_vccnz again", 1 | 16 | 32, 6),
    "not less": ("v_cmp_le_u32 vcc, s6, v1\ns_cbranch_vccz again", 6 | 8 | 32, 6),
    "not a constant": ("v_cmp_ne_u32 vcc, -3, v1\ns_cbranch_vccnz again", 5 | 8 | 16, 2**32 - 3),
    "a literal": ("v_cmp_lt_i32 vcc, 0x1234, v1\ns_cbranch_vccz again", 4, 0x1234),
    "by a scalar copy": (
        "v_readfirstlane_b32 s7, v1\ns_cmp_ge_i32 s7, s6\ns_cbranch_scc0 again",
        6 | 32,
        6,
    ),
    "only active lanes": (
        "v_cmp_gt_i32 vcc, s6, v1\ns_and_b64 vcc, exec, vcc\ns_cbranch_vccnz again",
        1 | 16 | 32,
        6,
    ),
}
UNKNOWN = {
    "used after the loop": "v_cmp_gt_i32 vcc, s6, v1\ns_cbranch_vccnz again\nv_mov_b32 v3, v1",
    "overwritten in part": "v_cmp_gt_i32 vcc, s6, v1\ns_cbranch_vccnz again\n"
    "s_and_b64 exec, exec, vcc\nv_mov_b32 v1, 0\ns_mov_b64 exec, -1\nv_mov_b32 v3, v1",
    "used twice": "v_add_u32 v4, v4, v1\nv_cmp_gt_i32 vcc, s6, v1\ns_cbranch_vccnz again",
    "the operand changes": "s_add_u32 s6, s6, 1\nv_cmp_gt_i32 vcc, s6, v1\ns_cbranch_vccnz again",
    "another register decides": "v_cmp_gt_i32 s[8:9], s6, v1\ns_or_b64 vcc, s[8:9], vcc\n"
    "s_cbranch_vccnz again",
    "two branches": "v_cmp_gt_i32 vcc, s6, v1\ns_cbranch_scc1 over\ns_cbranch_vccnz again\nover:",
}


def conditions(body: str) -> list[int]:
    kernel = load_kernel(HEAD + body + "\ns_endpgm", Memory(), arguments=[8], lds=64)
    return list(polls_of(kernel).values())


@pytest.mark.parametrize("name", KNOWN)
def test_known_conditions(name: str) -> None:
    body, bits, operand = KNOWN[name]
    assert conditions(body) == [bits | operand << 32]


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_uses_of_the_value(name: str) -> None:
    assert conditions(UNKNOWN[name]) == [0]


def test_what_an_atomic_returns_may_order_more() -> None:
    body, _, _ = KNOWN["less than a register"]
    assert conditions(body + "\nds_add_rtn_u32 v4, v2, v3\ns_waitcnt lgkmcnt(0)") == [0]
