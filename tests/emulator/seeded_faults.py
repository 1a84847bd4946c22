"""A fault for each check of the emulated device, as a program: ``seeded_faults.py CHECK``.

Each kernel has one mistake, which only its check finds, and stores 7 at the end if it continues.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cupygemm import emulator
from cupygemm.emulator.runtime.compile import compile_program
from tests.emulator.assembly import assembled

_START = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v2, 7
s_waitcnt lgkmcnt(0)
"""
_END = """
s_waitcnt vmcnt(0) lgkmcnt(0)
s_nop 15
global_store_dword v1, v2, s[4:5]
s_endpgm
"""
_MFMA = "v_mfma_f32_16x16x16_f16 v[8:11], v[20:21], v[22:23], {}\n"
_SWAP = "quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf"
_WORDS = 1024


@dataclass(frozen=True)
class Seed:
    """A kernel with one mistake.

    Attributes
    ----------
    body : str
        Instructions. Address of the buffer in s[4:5], 4 times the work-item in v1.
    threads : int
    lds : int
        Bytes.
    """

    body: str
    threads: int = 64
    lds: int = 0


SEEDS = {
    "bounds": Seed("v_or_b32 v8, 0x1000, v1\nglobal_load_dword v9, v8, s[4:5]"),
    "required_alignment": Seed("s_or_b32 s6, s4, 2\ns_mov_b32 s7, s5\ns_load_dword s8, s[6:7], 4"),
    "alignment": Seed("global_load_dword v9, v1, s[4:5] offset:2"),
    "uninitialised": Seed("v_and_b32 v8, 0xfc, v77\nglobal_load_dword v9, v8, s[4:5]"),
    "lane_addresses": Seed("ds_bpermute_b32 v8, v0, v2\ns_waitcnt lgkmcnt(0)"),
    "waits": Seed("global_load_dword v8, v1, s[4:5]\nv_add_u32 v9, v8, 1"),
    "lds_races": Seed(
        "v_mov_b32 v8, 0\nv_lshrrev_b32 v9, 6, v0\nds_write_b32 v8, v9", threads=128, lds=64
    ),
    "global_races": Seed(
        "v_mov_b32 v8, 0\nv_lshrrev_b32 v9, 6, v0\nglobal_store_dword v8, v9, s[4:5] offset:1024",
        threads=128,
    ),
    "lane_races": Seed("v_mov_b32 v8, 0\nglobal_store_dword v8, v0, s[4:5] offset:1024"),
    "inactive_lanes": Seed(
        "s_mov_b64 s[6:7], exec\nv_cmp_gt_u32 vcc, 32, v0\ns_and_b64 exec, exec, vcc\n"
        "v_xor_b32 v8, 0x80, v1\nds_bpermute_b32 v9, v8, v0\ns_waitcnt lgkmcnt(0)\n"
        "global_store_dword v1, v9, s[4:5] offset:1024\ns_mov_b64 exec, s[6:7]"
    ),
    "integer_divisions": Seed(
        "v_mov_b32 v8, 0\nv_rcp_iflag_f32 v9, v8\ns_nop 0\n"
        "global_store_dword v1, v9, s[4:5] offset:1024"
    ),
    "barriers": Seed(
        "s_barrier\nv_readfirstlane_b32 s6, v0\ns_cmp_eq_u32 s6, 0\n"
        "s_cbranch_scc1 1\ns_endpgm\ns_barrier",
        threads=128,
    ),
    "early_ends": Seed(
        "v_readfirstlane_b32 s6, v0\ns_cmp_eq_u32 s6, 0\ns_cbranch_scc0 .Lothers\n"
        "global_store_dword v1, v2, s[4:5]\ns_endpgm\n.Lothers:\nds_write_b32 v1, v0\n"
        "s_waitcnt lgkmcnt(0)\ns_barrier\nds_read_b32 v9, v1",
        threads=128,
        lds=512,
    ),
    "wait_states_mfma_result": Seed(_MFMA.format("0") + "v_add_f32 v12, v8, v8"),
    "wait_states_mfma_accumulator": Seed(
        _MFMA.format("0") + "v_mfma_f32_16x16x16_f16 v[12:15], v[20:21], v[22:23], v[10:13]"
    ),
    "wait_states_mfma_overwrite": Seed(_MFMA.format("v[12:15]") + "v_mov_b32 v12, 0"),
    "wait_states_mfma_overwrite_load": Seed(
        _MFMA.format("v[12:15]") + "ds_read_b32 v12, v1", lds=256
    ),
    "wait_states_mfma_operand": Seed("v_mov_b32 v20, 0\n" + _MFMA.format("0")),
    "wait_states_exec": Seed(f"v_cmpx_eq_u32 vcc, v0, v0\nv_mov_b32_dpp v9, v1 {_SWAP}"),
    "wait_states_dpp": Seed(f"v_mov_b32 v8, 1\nv_mov_b32_dpp v9, v8 {_SWAP}"),
    "wait_states_div_fmas": Seed(
        "v_cmp_eq_u32 vcc, v0, v0\ns_nop 1\nv_div_fmas_f32 v9, v1, v1, v1"
    ),
    "wait_states_lane_select": Seed(
        "v_readfirstlane_b32 s6, v0\ns_nop 1\nv_readlane_b32 s7, v1, s6"
    ),
    "wait_states_lane_data": Seed("v_mov_b32 v8, 9\nv_readfirstlane_b32 s6, v8"),
    "wait_states_transcendental": Seed("v_exp_f32 v8, v0\nv_add_f32 v9, v8, v8"),
    "wait_states_sgpr_constant": Seed("v_readfirstlane_b32 s6, v0\nv_mov_b32 v8, s6"),
    "wait_states_lane_mask": Seed("v_cmp_eq_u32 vcc, v0, v1\nv_cndmask_b32 v8, v0, v1, vcc"),
    "wait_states_sgpr_to_memory": Seed(
        "v_mov_b32 v8, s4\ns_mov_b32 s7, s5\ns_nop 4\nv_readfirstlane_b32 s6, v8\n"
        "global_load_dword v9, v1, s[6:7]"
    ),
    "wait_states_m0": Seed("s_mov_b32 m0, 0\nglobal_load_lds_dword v1, s[4:5]", lds=256),
    "wait_states_m0_buffer": Seed(
        "s_mov_b32 s8, s4\ns_mov_b32 s9, s5\ns_movk_i32 s10, 0x1000\ns_mov_b32 s11, 0x20000\n"
        "s_mov_b32 m0, 0\nbuffer_load_dword v1, s[8:11], 0 offen lds",
        lds=256,
    ),
    "wait_states_hwreg": Seed(
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 0\ns_getreg_b32 s6, hwreg(HW_REG_MODE, 0, 4)"
    ),
    "wait_states_vskip": Seed("s_setvskip -1, 0\nv_mov_b32 v8, 8\ns_setvskip 0, 0\ns_nop 1"),
    "wait_states_store_data": Seed(
        "v_lshlrev_b32 v12, 4, v0\nv_mov_b32 v8, 0\nv_mov_b32 v9, 0\nv_mov_b32 v10, 0\n"
        "v_mov_b32 v11, 0\nglobal_store_dwordx4 v12, v[8:11], s[4:5]\nv_mov_b32 v8, 1"
    ),
}

_SOURCE = """
extern "C" __global__ void k(int* x, int n) {
    int sum;
    for (int i = 0; i < n; i++) sum += i;
    x[threadIdx.x] = n > 9 ? sum : 7;
}
"""


def code_object(name: str) -> Path:
    """Return the path of the assembled kernel of a seed."""
    return assembled(_START + SEEDS[name].body + _END, arguments=[8], lds=SEEDS[name].lds)


_HALF_A_MASK = """
extern "C" __global__ void k(int* x, int n) {
    unsigned mask = __ballot(n);
    x[threadIdx.x] = mask ? 7 : 0;
}
"""


def _source(text: str) -> int:
    x = np.zeros(64, np.uint32)
    emulator.launch(_compiled(text), 1, 64, [x, 1])
    return int(x[0])


@functools.cache
def _compiled(text: str) -> bytes:
    return compile_program(text, "a.hip", target_name="gfx942").code


_CONDITION = """
extern "C" __global__ void k(int* x) {
    if (threadIdx.x < 32) __syncthreads();
    x[threadIdx.x] = 7;
}
"""


def _barrier() -> int:
    x = np.zeros(64, np.uint32)
    emulator.launch(compile_program(_CONDITION, "b.hip", target_name="gfx942").code, 1, 64, [x])
    return int(x[0])


def _streams() -> int:
    import cupy as cp

    first, second = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    x = cp.zeros(64, np.uint32)
    cp.cuda.Device().synchronize()
    with first:
        y = x + 7
    with second:
        z = y + 0
    cp.cuda.Device().synchronize()
    return int(z[0])


def _pinned() -> int:
    import cupy as cp

    stream = cp.cuda.Stream(non_blocking=True)
    buffer = np.frombuffer(cp.cuda.alloc_pinned_memory(256), np.uint32, 64)
    buffer[:] = 7
    x = cp.zeros(64, np.uint32) + np.uint32(0)
    cp.cuda.Device().synchronize()
    x.set(buffer, stream=stream)
    buffer[:] = 8
    stream.synchronize()
    return int(x[0])


_ADDS = """
extern "C" __global__ void k(unsigned* x, float a) {
    x[threadIdx.x] = 7 + (int)(a / 1000);
}
"""


_HALF_A_SUM = """
extern "C" __global__ void k(int* x, int n) {
    int sum = n;
    for (int d = 16; d; d >>= 1) sum += __shfl_down(sum, d);
    x[threadIdx.x] = 7 + sum / 1000;
}
"""


_OTHER_LANES = """
extern "C" __global__ void k(int* x, int n) {
    x[threadIdx.x] = 7 + __shfl_xor_sync(0xffffffffull, n - n, 1);
}
"""


_NEXT_ARRAY = """
extern "C" __global__ void k(unsigned* x) {
    __shared__ unsigned a[64];
    __shared__ unsigned b[64];
    a[threadIdx.x] = b[threadIdx.x] = 7;
    __syncthreads();
    x[threadIdx.x] = b[threadIdx.x] & a[threadIdx.x * 2];
}
"""


def _argument() -> int:
    import cupy as cp

    x = cp.zeros(64, np.uint32)
    cp.RawKernel(_ADDS, "k")((1,), (64,), (x, 2))  # the bits of an int, which is a tiny float
    return int(x[0])


_RESTRICTED = """
extern "C" __global__ void k(const unsigned* __restrict__ x, unsigned* __restrict__ y) {
    y[threadIdx.x] = x[threadIdx.x] + 7;
    y[threadIdx.x] += x[threadIdx.x];
}
"""


def _shared_arguments() -> int:
    import cupy as cp

    x = cp.zeros(64, np.uint32)
    cp.RawKernel(_RESTRICTED, "k")((1,), (64,), (x, x))
    return int(x[0])


_CONSTANT = """
__constant__ unsigned added[4];
extern "C" __global__ void k(unsigned* x) { x[threadIdx.x] = 7 + added[threadIdx.x % 4]; }
"""


_OLD_LINE = """
extern "C" __global__ void k(unsigned* x, unsigned* turn) {
    if (blockIdx.x == 0) {
        while (__hip_atomic_load(turn, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0) {}
        x[threadIdx.x] = 7;
        __hip_atomic_fetch_add(turn, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
        return;
    }
    unsigned before = x[threadIdx.x];
    __hip_atomic_fetch_add(turn, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    while (__hip_atomic_load(turn, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) < 128) {}
    asm volatile("" ::: "memory");
    x[64 + threadIdx.x] = before + x[threadIdx.x];
}
"""
_PLAIN_FLAG = """
extern "C" __global__ void k(unsigned* x, unsigned* flag) {
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *flag = 1;
    if (blockIdx.x == 1)
        while (!*(volatile unsigned*)flag) {}
    x[blockIdx.x * 64 + threadIdx.x] = 7;
}
"""


_PLAIN_POLLING = """
extern "C" __global__ void k(unsigned* x, unsigned* flag) {
    while (*flag != 0) {}
    x[blockIdx.x * 64 + threadIdx.x] = 7;
}
"""


_FLAGS = {"write_backs": _PLAIN_FLAG, "invalidations": _OLD_LINE, "polling": _PLAIN_POLLING}


def _flag(source: str) -> int:
    x = np.zeros(128, np.uint32)
    emulator.launch(_compiled(source), 2, 64, [x, np.zeros(1, np.uint32)])
    return int(x[64])


def _constant() -> int:
    import cupy as cp

    x = cp.zeros(64, np.uint32)
    cp.RawModule(code=_CONSTANT).get_function("k")((1,), (64,), (x,))
    return int(x[0])


def _view() -> int:
    import cupy as cp

    x = cp.zeros((8, 8), np.uint32)
    cp.RawKernel(_ADDS, "k")((1,), (64,), (x.T, np.float32(2)))
    return int(x[0, 0])


def run(name: str) -> int:
    """Run the fault of a check, and return the value that the kernel stores: 7 if it continues."""
    if name == "uninitialised_source":
        return _source(_SOURCE)
    if name == "wave_masks":
        return _source(_HALF_A_MASK)
    if name == "stream_races":
        return _streams()
    if name == "pending_copies":
        return _pinned()
    if name == "partial_barriers":
        return _barrier()
    if name == "shared_arrays":
        x = np.zeros(64, np.uint32)
        emulator.launch(_compiled(_NEXT_ARRAY), 1, 64, [x])
        return int(x[0])
    if name == "warp_idioms":
        return _source(_HALF_A_SUM)
    if name == "sync_masks":
        return _source(_OTHER_LANES)
    if name == "argument_types":
        return _argument()
    if name == "restricted_arguments":
        return _shared_arguments()
    if name in _FLAGS:
        return _flag(_FLAGS[name])
    if name == "constant_variables":
        return _constant()
    if name == "argument_views":
        return _view()
    x = np.arange(_WORDS, dtype=np.uint32)
    emulator.launch(code_object(name), 1, SEEDS[name].threads, [x])
    return int(x[0])


if __name__ == "__main__":
    if run(sys.argv[1]) != 7:
        raise SystemExit("the kernel did not run on")
