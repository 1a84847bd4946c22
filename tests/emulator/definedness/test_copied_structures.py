"""Copies of structures: padding, which nothing writes, is copied from LDS and private memory."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

STRUCTURES = r"""
struct Padded {
    char kind; // 7 bytes of padding follow, and 6 at the end
    double value;
    short count;
};

__device__ Padded padded(int i) {
    Padded p;
    p.kind = i;
    p.value = 1.5 * i;
    p.count = 2 * i;
    return p;
}

extern "C" __global__ void local(Padded* out, int n) {
    Padded p[4];
    for (int k = 0; k < 4; k++) p[k] = padded(threadIdx.x + k);
    out[threadIdx.x] = p[n];
}

extern "C" __global__ void shared(Padded* out, int n) {
    __shared__ Padded p[64];
    p[threadIdx.x].kind = threadIdx.x;
    p[threadIdx.x].value = 1.5 * threadIdx.x;
    p[threadIdx.x].count = 2 * threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = p[(threadIdx.x + n) % 64];
}

extern "C" __global__ void pads(const unsigned char* in, int* out, int byte) {
    out[threadIdx.x] = in[sizeof(Padded) * threadIdx.x + byte] + 1;
}

struct alignas(16) Four {
    float x, y, z, w;
};

extern "C" __global__ void missing(Four* out, int n, int whole) {
    __shared__ Four p[64];
    if (threadIdx.x < n || !whole) {
        p[threadIdx.x].x = 1;
        p[threadIdx.x].y = 2;
        p[threadIdx.x].z = 3;
        if (threadIdx.x < n) p[threadIdx.x].w = 4;
    }
    __syncthreads();
    Four q = p[63 - threadIdx.x];
    if (!whole) q.w *= 2;
    out[threadIdx.x] = q;
}
"""
SIZE = 24  # of Padded


def compiled(cp: ModuleType, name: str, *options: str) -> Any:
    return cp.RawModule(code=STRUCTURES, options=options).get_function(name)


@pytest.mark.parametrize("options", [(), ("-O0",)], ids=["optimised", "unoptimised"])
@pytest.mark.parametrize("memory", ["local", "shared"])
def test_padding_is_copied(cp: ModuleType, memory: str, options: tuple[str, ...]) -> None:
    """The target is as undefined as the source, so that computing with it is a fault."""
    out, sums = cp.empty(64 * SIZE, "uint8"), cp.zeros(64, "int32")
    compiled(cp, memory, *options)((1,), (64,), (out, cp.int32(2)))
    compiled(cp, "pads")((1,), (64,), (out, sums, cp.int32(16)))
    expected = [2 * (i + 2 if memory == "local" else (i + 2) % 64) % 256 + 1 for i in range(64)]
    assert sums.get().tolist() == expected
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="uninitialised memory"):
        compiled(cp, "pads")((1,), (64,), (out, sums, cp.int32(20)))


@pytest.mark.parametrize("whole", [True, False], ids=["a whole element", "a result"])
def test_what_is_no_padding_is_a_fault(cp: ModuleType, whole: bool) -> None:
    out = cp.empty(64 * 16, "uint8")
    missing = compiled(cp, "missing")
    missing((1,), (64,), (out, cp.int32(64), cp.int32(whole)))
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="uninitialised LDS") as error:
        missing((1,), (64,), (out, cp.int32(60), cp.int32(whole)))
    assert "lanes 0-3\n" in str(error.value)
