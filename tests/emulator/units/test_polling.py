"""Which reads of LDS wait for a flag: those of loops that do nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator import run
from cupygemm.emulator.device import Memory
from cupygemm.emulator.errors import KernelFault
from cupygemm.emulator.runtime.compile import compile_program
from cupygemm.emulator.targets import TARGETS
from cupygemm.emulator.units.lds.polling import polls_of
from tests.emulator.assembly import load_kernel

WAITS = """
    s_waitcnt lgkmcnt(0)
    v_cmp_gt_i32 vcc, s6, v1
    s_cbranch_vccnz again
"""
SPIN = "again:\ns_sleep 1\nds_read_b32 v1, v2 offset:8" + WAITS
FLAGS = {
    "a loop": (SPIN, 1),
    "the address is set in the loop": (
        "again:\nv_mov_b32 v1, 16\nds_read_b32 v1, v1" + WAITS,
        1,
    ),
    "a first test before the loop": (
        "ds_read_b32 v3, v2 offset:8\ns_waitcnt lgkmcnt(0)\nv_cmp_gt_i32 vcc, s6, v3\n"
        "s_cbranch_vccz over\n" + SPIN + "over:",
        2,
    ),
    "a first test whose address the compiler adds up": (
        "ds_read_b32 v3, v4 offset:24\ns_waitcnt lgkmcnt(0)\nv_cmp_gt_i32 vcc, s6, v3\n"
        "s_cbranch_vccz over\n" + SPIN + "over:",
        1,  # without source lines, nothing shows that it is the same flag
    ),
    "a scalar comparison, and a jump back": (
        """
        again:
        ds_read_b32 v1, v2
        s_waitcnt lgkmcnt(0)
        v_readfirstlane_b32 s7, v1
        s_cmp_lg_u32 s7, 0
        s_cbranch_scc1 over
        s_sleep 1
        s_branch again
        over:
        """,
        1,
    ),
    "lanes leave one by one": (
        """
        s_mov_b64 s[8:9], 0
        again:
        ds_read_b32 v1, v2
        s_waitcnt lgkmcnt(0)
        v_cmp_ne_u32 vcc, 0, v1
        s_or_b64 s[8:9], vcc, s[8:9]
        s_andn2_b64 exec, exec, s[8:9]
        s_cbranch_execnz again
        """,
        1,
    ),
    "FLAT reads, by a generic pointer": (
        "again:\ns_sleep 1\nflat_load_dword v1, v[2:3]\ns_waitcnt vmcnt(0)" + WAITS,
        1,
    ),
    "a lock by a generic pointer": (
        "again:\nflat_atomic_cmpswap v1, v[2:3], v[4:5] sc0\ns_waitcnt vmcnt(0)" + WAITS,
        1,
    ),
    "a lock": ("again:\nds_cmpst_rtn_b32 v1, v2, v3, v4" + WAITS, 1),
}
DATA = {
    "FLAT reads that move on": (
        "again:\nv_add_u32 v2, 4, v2\nflat_load_dword v1, v[2:3]\ns_waitcnt vmcnt(0)" + WAITS
    ),
    "a sum over LDS": """
        again:
        ds_read_b32 v1, v2
        s_waitcnt lgkmcnt(0)
        v_add_u32 v5, v5, v1
        s_sub_u32 s7, s7, 1
        s_cmp_lg_u32 s7, 0
        s_cbranch_scc1 again
        """,
    "a search": "again:\nv_add_u32 v2, 4, v2\nds_read_b32 v1, v2" + WAITS,
    "the next address is loaded": "again:\nds_read_b32 v1, v1" + WAITS,
    "it stores, too": "again:\nds_read_b32 v1, v2\nds_write_b32 v3, v4" + WAITS,
    "it waits at a barrier": "again:\nds_read_b32 v1, v2\ns_barrier" + WAITS,
    "a branch back to another path": "s_cbranch_scc0 later\nagain:\ns_branch over\nlater:\n"
    "ds_read_b32 v1, v2" + WAITS + "over:",
    "no loop": "ds_read_b32 v1, v2" + WAITS + "again:",
    "other data before a loop": "ds_read_b32 v3, v2 offset:8\n" + SPIN,
}


def found(body: str) -> list[str]:
    """Return the instructions of a body that wait for flags."""
    kernel = load_kernel(body + "\ns_endpgm", Memory(), arguments=[8], lds=64)
    code = kernel.code_object
    return [hex(code.locate(pc)[1]) for pc in polls_of(kernel)]


@pytest.mark.parametrize("name", FLAGS)
def test_waiting_loops(name: str) -> None:
    body, count = FLAGS[name]
    assert len(found(body)) == count


@pytest.mark.parametrize("name", DATA)
def test_what_does_not_wait(name: str) -> None:
    assert len(found(DATA[name])) == (SPIN in DATA[name])


CLEAR = """
    v_mov_b32 v1, 0
    v_mov_b32 v2, 0
    ds_write2_b32 v2, v1, v1 offset1:1
    s_waitcnt lgkmcnt(0)
    s_barrier
"""
# Wave 0 writes a word, then sets the flag for which wave 1 waits before it reads the word.
HAND_OVER = (
    CLEAR
    + """
    v_cmp_gt_u32 vcc, 64, v0
    s_cbranch_vccz again
    v_mov_b32 v1, 7
    ds_write_b32 v2, v1 offset:4
    ds_write_b32 v2, v1
    s_endpgm
    again:
    ds_read_b32 v1, v2
    s_waitcnt lgkmcnt(0)
    v_cmp_eq_u32 vcc, 0, v1
    s_cbranch_vccnz again
    ds_read_b32 v3, v2 offset:4
    s_waitcnt lgkmcnt(0)
    s_endpgm
"""
)
# Waves 1 to 3 read a word, and {signals} sets a flag. Wave 0 waits for the flag before it writes
# the word.
READERS = (
    CLEAR
    + """
    v_mov_b32 v1, 1
    v_cmp_gt_u32 vcc, 64, v0
    s_cbranch_vccnz again
    ds_read_b32 v3, v2 offset:4
    s_waitcnt lgkmcnt(0)
    {signals}
    ds_add_u32 v2, v1
    s_endpgm
    again:
    ds_read_b32 v3, v2
    s_waitcnt lgkmcnt(0)
    s_movk_i32 s7, {enough}
    v_cmp_gt_u32 vcc, s7, v3
    s_cbranch_vccnz again
    ds_write_b32 v2, v1 offset:4
    s_endpgm
"""
)
ONLY_WAVE_3 = """
    v_cmp_lt_u32 vcc, 191, v0
    s_and_b64 exec, exec, vcc
"""


def test_the_next_kernel_has_flags_of_its_own() -> None:
    """Launches of one shape share their arrays, but their waiting loops are at other places."""
    memory = Memory()
    for before in ("", "s_nop 0\n" * 5):
        kernel = load_kernel(before + HAND_OVER, memory, lds=64)
        run.launch(kernel, (1, 1, 1), (128, 1, 1), 0, b"", memory, TARGETS["gfx942"])


def test_every_reader_is_compared_with_the_flag() -> None:
    """Wave 3, which reads last, has set the flag; waves 1 and 2 have not."""
    memory = Memory()

    def launch(signals: str, enough: int) -> None:
        body = READERS.format(signals=signals, enough=enough)
        kernel = load_kernel(body, memory, lds=64)
        run.launch(kernel, (1, 1, 1), (256, 1, 1), 0, b"", memory, TARGETS["gfx942"])

    launch("", 3 * 64)
    with pytest.raises(KernelFault) as caught:
        launch(ONLY_WAVE_3, 64)
    assert caught.value.kind == "LDS race: write after another wave's read"
    assert "which wave 1 read at" in caught.value.detail


RING = """
extern "C" __global__ void ring(const float* x, float* y, int steps) {
    __shared__ float tile[2][64];
    __shared__ int full[2], empty[2];
    int wave = threadIdx.x / 64, lane = threadIdx.x % 64;
    if (threadIdx.x < 2)
        full[threadIdx.x] = 0, empty[threadIdx.x] = 1;
    __syncthreads();
    float sum = 0;
    for (int s = 0; s < steps; s++) {
        int b = s & 1;
        if (wave == 0) {
            float v = x[s * 64 + lane];
            while (!__hip_atomic_load(&empty[b], __ATOMIC_ACQUIRE, WORKGROUP))
                __builtin_amdgcn_s_sleep(1);
            if (lane == 0)
                __hip_atomic_store(&empty[b], 0, __ATOMIC_RELAXED, WORKGROUP);
            tile[b][lane] = v;
            if (lane == 0)
                __hip_atomic_store(&full[b], 1, __ATOMIC_RELEASE, WORKGROUP);
        } else {
            while (!__hip_atomic_load(&full[b], __ATOMIC_ACQUIRE, WORKGROUP))
                __builtin_amdgcn_s_sleep(1);
            sum += tile[b][63 - lane];
            if (lane == 0) {
                __hip_atomic_store(&full[b], 0, __ATOMIC_RELAXED, WORKGROUP);
                __hip_atomic_store(&empty[b], 1, ORDER, WORKGROUP);
            }
        }
    }
    if (wave)
        y[lane] = sum;
}
""".replace("WORKGROUP", "__HIP_MEMORY_SCOPE_WORKGROUP")


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_ring_of_tiles_with_flags_in_arrays(target: str) -> None:
    """The first test of a flag and the loop use different offsets to its address."""
    source = RING.replace("ORDER", "__ATOMIC_RELEASE")
    code = compile_program(source, "a.hip", target_name=target).code
    x, y = np.arange(384, dtype=np.float32), np.zeros(64, np.float32)
    emulator.launch(code, 1, 128, [x, y, np.int32(6)])
    np.testing.assert_array_equal(y, x.reshape(6, 64)[:, ::-1].sum(0))
