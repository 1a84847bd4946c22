"""``tools/hip_library.py`` builds HIP programs whose host part runs, too."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from tests.conftest import ROOT

SOURCE = r"""
#include <hip/hip_ext.h>
#include <hip_bf16.h> // as projects do that have include/hip among their folders
#include <hip/library_types.h>

template <int factor> __global__ void scale(int *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] *= factor;
}

__constant__ int offsets[2];
__device__ int total;
__global__ void add(int *x) { atomicAdd(&total, x[threadIdx.x] + offsets[threadIdx.x % 2]); }

// Rows of 3 numbers in pitched memory and back, fills, a variable and a constant of the device.
extern "C" int through_the_api(int *rows, int *words, int *sum, int *registers, char *name) {
    int *device, *host, given[2] = {10, 20};
    size_t pitch, size;
    hipFuncAttributes attributes;
    hipError_t errors[] = {
        hipMallocPitch((void **)&device, &pitch, 12, 4),
        hipMemcpy2D(device, pitch, rows, 16, 12, 4, hipMemcpyHostToDevice),
        hipMemset2D((char *)device + 4, pitch, 0, 4, 4),
        hipMemcpy2DAsync(rows, 16, device, pitch, 12, 4, hipMemcpyDeviceToHost, nullptr),
        hipMemsetD32(device, 7, 2),
        hipMemsetD16((char *)device + 8, 9, 1),
        hipMemsetD8((char *)device + 10, 1, 2),
        hipMemcpyWithStream(words, device, 12, hipMemcpyDeviceToHost, nullptr),
        hipMallocHost((void **)&host, 8),
        hipMemcpyDtoH(host, device, 8),
        hipMemcpyToSymbol(HIP_SYMBOL(offsets), given, 8),
        hipGetSymbolSize(&size, HIP_SYMBOL(offsets)),
    };
    for (hipError_t error : errors)
        if (error)
            return error;
    add<<<1, 2>>>(host);
    if (hipMemcpyFromSymbol(sum, HIP_SYMBOL(total), 4) ||
        hipFuncGetAttributes(&attributes, (const void *)add) || hipDeviceGetName(name, 8, 0))
        return 3;
    *registers = attributes.numRegs;
    if (size != 8 || pitch < 12 || !hipMemcpyToSymbol(HIP_SYMBOL(offsets), given, 8, 4))
        return 4;
    return hipFreeHost(host) || hipFree(device) || hipDeviceReset() ||
           hipDeviceGetUuid(nullptr, 0) != hipErrorNotSupported;
}

// A graph of a fill, a copy and a kernel, in memory of a pool; then a volume.
extern "C" int through_a_graph(int *x) {
    hipMemPool_t pool;
    hipMemPoolProps props = {};
    props.allocType = hipMemAllocationTypePinned;
    props.location = {hipMemLocationTypeDevice, 0};
    int *device, n = 4;
    hipGraph_t graph;
    hipGraphExec_t executable;
    hipGraphNode_t filled, copied, scaled, out;
    if (hipMemPoolCreate(&pool, &props) || hipMallocFromPoolAsync(&device, 16, pool, nullptr) ||
        hipGraphCreate(&graph, 0))
        return 1;
    void *arguments[] = {&device, &n};
    hipMemsetParams fill = {device, 4, 1, 0, 5, 4};
    hipKernelNodeParams launch = {dim3(64), nullptr, (void *)scale<FACTOR>, dim3(1), arguments, 0};
    hipKernelNodeParams found;
    if (hipGraphAddMemsetNode(&filled, graph, nullptr, 0, &fill) ||
        hipGraphAddMemcpyNode1D(&copied, graph, &filled, 1, device + 1, x, 4, hipMemcpyDefault) ||
        hipGraphAddKernelNode(&scaled, graph, &copied, 1, &launch) ||
        hipGraphAddMemcpyNode1D(&out, graph, &scaled, 1, x, device, 16, hipMemcpyDeviceToHost) ||
        hipGraphKernelNodeGetParams(scaled, &found) || found.func != launch.func ||
        *(int *)found.kernelParams[1] != 4 || hipGraphKernelNodeSetParams(scaled, &found) ||
        hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0) ||
        hipGraphLaunch(executable, nullptr) || hipStreamSynchronize(nullptr))
        return 2;
    hipPitchedPtr volume;
    hipExtent extent = make_hipExtent(4, 2, 2);
    hipMemcpy3DParms copy = {};
    if (hipMalloc3D(&volume, extent) || hipMemset3D(volume, 1, extent))
        return 3;
    copy.srcPtr = volume;
    copy.srcPos = make_hipPos(0, 1, 1);
    copy.dstPtr = make_hipPitchedPtr(x + 4, 4, 4, 1);
    copy.extent = make_hipExtent(4, 1, 1);
    copy.kind = hipMemcpyDeviceToHost;
    return hipMemcpy3D(&copy) || hipFree(volume.ptr) || hipFreeAsync(device, nullptr) ||
           hipMemPoolDestroy(pool) || hipGraphExecDestroy(executable) || hipGraphDestroy(graph);
}

__managed__ int factor = 5, managed_sum;
__global__ void sum_up(int n) {
    if (threadIdx.x < n)
        atomicAdd(&managed_sum, factor * (int)threadIdx.x);
}
extern "C" int managed() {
    factor -= 2;
    sum_up<<<1, 64>>>(10);
    return hipDeviceSynchronize() ? -1 : managed_sum;
}

extern "C" int prints(int n) { return printf("%d numbers, %.1f each\n", n, 2.5); }
extern "C" float rounded(float x) { return (float)(__bf16)x; }

extern "C" int scaled(int *x, int n) {
    int *copy;
    if (hipMalloc(&copy, n * sizeof(int)) || hipMemcpy(copy, x, n * 4, hipMemcpyDeviceToDevice))
        return 1;
    hipEvent_t start, stop;
    if (hipEventCreate(&start) || hipEventCreate(&stop))
        return 1;
    hipExtLaunchKernelGGL(scale<FACTOR>, (n + 63) / 64, 64, 0, nullptr, start, stop, 0, copy, n);
    if (hipEventQuery(stop) || HIP_R_16BF != 14)
        return 3;
    hipCtx_t context, current;
    size_t bytes = 0;
    if (hipCtxCreate(&context, 0, 0) || hipCtxGetCurrent(&current) || current != context ||
        hipPointerGetAttribute(&bytes, HIP_POINTER_ATTRIBUTE_RANGE_SIZE, copy) ||
        bytes != n * 4 || hipCtxDestroy(context))
        return 4;
    if (hipMemcpy(x, copy, n * 4, hipMemcpyDeviceToDevice) || hipFree(copy))
        return 2;
    return hipDeviceSynchronize();
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="libraries are for x86-64")
@pytest.mark.sweep  # it runs a compiler of the host
def test_a_library_launches_its_kernels(cp: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "scale.hip").write_text(SOURCE)
    target = cp.cuda.runtime.getDeviceProperties(0)["gcnArchName"].decode().partition(":")[0]
    command = [sys.executable, ROOT / "tools" / "hip_library.py", tmp_path / "scale.hip"]
    command += ["-o", tmp_path / "scale.so", "--target", target, "--option=-DFACTOR=3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    library = ctypes.CDLL(str(tmp_path / "scale.so"))
    x = cp.arange(100, dtype="i4")
    assert library.scaled(ctypes.c_void_p(x.data.ptr), 100) == 0
    np.testing.assert_array_equal(x.get(), 3 * np.arange(100))

    assert library.managed() == 3 * 45
    assert library.prints(100) == len("100 numbers, 2.5 each\n")
    library.rounded.argtypes, library.rounded.restype = (ctypes.c_float,), ctypes.c_float
    floats = np.array([1 + 2.0**-8, 1 + 2.0**-8 + 2.0**-20, -3e38, np.inf], "f4")
    expected = floats.astype(ml_dtypes.bfloat16).astype("f4").tolist()
    assert [library.rounded(each) for each in floats.tolist()] == expected

    rows, words = np.arange(16, dtype="i4").reshape(4, 4), np.zeros(3, "i4")
    total, registers, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(8)
    pointers = (ctypes.c_void_p(each.ctypes.data) for each in (rows, words))
    places = (*pointers, ctypes.byref(total), ctypes.byref(registers), name)
    assert library.through_the_api(*places) == 0
    expected = np.arange(16).reshape(4, 4)
    expected[:, 1] = 0
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(words, [7, 7, 0x01010009])
    assert (total.value, registers.value > 0, name.value[:3]) == (44, True, b"AMD")

    numbers = np.array([7, 0, 0, 0, 0], "i4")
    assert library.through_a_graph(ctypes.c_void_p(numbers.ctypes.data)) == 0
    np.testing.assert_array_equal(numbers, [15, 21, 15, 15, 0x01010101])
