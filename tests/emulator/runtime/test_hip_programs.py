"""Unmodified sources of other projects: kernels with host code and bindings, and faults."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest


def test_host_code_beside_a_kernel_is_parsed(cp: ModuleType) -> None:
    source = """
    #include <hip/hip_runtime.h>
    #include <iostream>
    #include <string>
    __global__ void fill(int* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = n; }
    #define CHECK(call) if (hipError_t e = (call)) throw std::runtime_error(hipGetErrorString(e))
    void run(int n) {
        int* x;
        hipEvent_t start;
        CHECK(hipMalloc(&x, n * sizeof(int)));
        CHECK(hipEventCreate(&start));
        fill<<<dim3(1), dim3(64), 0, nullptr>>>(x, n);
        hipLaunchKernelGGL(fill, dim3(1), dim3(64), 0, 0, x, n);
        CHECK(hipGetLastError());
        float *pinned;
        CHECK(hipHostAlloc(&pinned, 64));
        hipIpcMemHandle_t handle;
        CHECK(hipIpcGetMemHandle(&handle, x));
        hipGraph_t graph;
        hipGraphNode_t node = nullptr;
        hipGraphNodeType type;
        hipKernelNodeParams parameters;
        CHECK(hipGraphNodeGetType(node, &type));
        if (type == hipGraphNodeTypeKernel)
            CHECK(hipGraphKernelNodeGetParams(node, &parameters));
        std::cout << "done " << n << std::endl;
    }
    """
    module = cp.RawModule(code=source, name_expressions=["fill"])
    x = cp.zeros(64, "i4")
    module.get_function("fill")((1,), (64,), (x, np.int32(5)))
    assert int(x.sum()) == 25


def test_a_launch_may_name_a_kernel_with_commas(cp: ModuleType) -> None:
    """With HIP_TEMPLATE_KERNEL_LAUNCH, hipLaunchKernelGGL is a function, as in ROCm."""
    source = """
    #define HIP_TEMPLATE_KERNEL_LAUNCH
    #include <hip/hip_runtime.h>
    template <int M, int N, typename T> __global__ void fill(T* x) { x[threadIdx.x] = M * N; }
    void run(float* x) { hipLaunchKernelGGL(fill<2, 3>, dim3(1), dim3(64), 0, 0, x); }
    """
    module = cp.RawModule(code=source, name_expressions=["fill<2, 3, float>"])
    x = cp.zeros(64, "f4")
    module.get_function("fill<2, 3, float>")((1,), (64,), (x,))
    assert (x.get() == 6).all()


@pytest.mark.slow
def test_a_program_may_define_what_rocm_lacks(cp: ModuleType) -> None:
    """bitsandbytes defines conversions to pairs of bf16 by CUDA's names."""
    source = """
    #include <hip/hip_runtime.h>
    #include <hip/hip_bf16.h>
    #include <hip/hip_fp16.h>
    #ifdef OWN
    __device__ __hip_bfloat162 __floats2bfloat162_rn(float a, float b) {
        return __float22bfloat162_rn(float2{b, a});
    }
    #endif
    extern "C" __global__ void pair(const __half* x, __half* y, float* z, int* kinds) {
        __hip_bfloat162 p = __floats2bfloat162_rn(1.0f, 2.0f);
        z[0] = (float)p.x;
        z[1] = (float)p.y;
        __stcs(y + threadIdx.x, __ldcs(x + threadIdx.x));
        kinds[0] = __isnanf(z[0] / 0 - z[1] / 0) | __isinf(1.0 / (z[0] - z[0])) << 1;
        kinds[1] = __finitef(z[0]) | __signbit(-(double)z[0]) << 1;
    }
    """
    x, y = cp.arange(64, dtype="f2"), cp.zeros(64, "f2")
    for options, expected in (((), [1, 2]), (("-DOWN",), [2, 1])):
        z, kinds = cp.zeros(2, "f4"), cp.zeros(2, "i4")
        cp.RawKernel(source, "pair", options=options)((1,), (64,), (x, y, z, kinds))
        assert z.get().tolist() == expected
        assert kinds.get().tolist() == [3, 3]
        assert (y.get() == x.get()).all()


def test_a_source_with_python_bindings_compiles_as_it_is(cp: ModuleType) -> None:
    code = """
    #include <hip/hip_runtime.h>
    #include <pybind11/pybind11.h>
    struct globals { float* y; float by; dim3 grid() { return dim3(1); } };
    __global__ void fill(const globals g) { g.y[threadIdx.x] = g.by; }
    void dispatch(globals g) { fill<<<g.grid(), 64>>>(g); }
    template <typename T> T from(pybind11::object o) {
        if (!pybind11::hasattr(o, "data_ptr")) throw std::runtime_error("a tensor is expected");
        if (o.attr("__class__").attr("__name__").cast<std::string>() != "Tensor")
            return o.cast<T>();
        auto shape = o.attr("shape").cast<pybind11::tuple>();
        std::array<int, 2> extents = {1, 1};
        for (size_t i = 0; i < shape.size(); ++i) extents[i] = pybind11::cast<int>(shape[i]);
        return {(float*)o.attr("data_ptr")().cast<unsigned long>(), 1.0f * extents[0]};
    }
    PYBIND11_MODULE(fills, m) {
        m.doc() = "fills";
        m.def("fill", [](pybind11::object o) { dispatch(from<globals>(o)); }, pybind11::arg("o"));
    }
    """
    kernel = cp.RawModule(
        code=code, options=("-std=c++20",), name_expressions=("fill",)
    ).get_function("fill")
    y = cp.zeros(64, np.float32)
    layout = np.dtype([("y", "u8"), ("by", "f4")], align=True)
    kernel((1,), (64,), (np.array((y.data.ptr, 3), layout),))
    assert (y.get() == 3).all()


def test_a_grid_that_waits_for_itself_is_named(cp: ModuleType) -> None:
    source = """
    #include <hip/hip_cooperative_groups.h>
    extern "C" __global__ void wait() { cooperative_groups::this_grid().sync(); }
    """
    kind = "grid_group::sync outside a cooperative launch"
    with pytest.raises(cp.cuda.driver.CUDADriverError, match=kind):
        cp.RawKernel(source, "wait")((1,), (1,), ())


def test_a_failed_assert_is_named_with_its_condition(cp: ModuleType) -> None:
    source = """
    extern "C" __global__ void check(const int* x) { assert(x[threadIdx.x] != 3); }
    """
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="failed assert\n") as caught:
        cp.RawKernel(source, "check")((1,), (64,), (cp.arange(64, dtype="i4"),))
    assert "assert(x[threadIdx.x] != 3)" in str(caught.value)
    assert "lane 3\n" in str(caught.value)


def test_reads_that_a_write_may_race_with_are_listed(cp: ModuleType) -> None:
    """Waves 0 and 1 read; the record of the place names only the last reader."""
    source = """
    extern "C" __global__ void sum(const float* x, float* y) {
        __shared__ float s[128];
        int t = threadIdx.x;
        s[t] = x[t];
        for (int d = 64; d; d >>= 1) {
            __syncthreads();
            if (t < d) s[t] += s[t + d];
        }
        if (t == 127) y[0] = s[0];
    }
    """
    x, y = cp.ones(128, "f4"), cp.zeros(1, "f4")
    with pytest.raises(cp.cuda.driver.CUDADriverError) as caught:
        cp.RawKernel(source, "sum")((1,), (128,), (x, y))
    report = str(caught.value)
    assert "write after another wave's read" in report
    _, _, other = report.partition("which wave 1 read at\n")
    assert "ds_read_b32" in other.splitlines()[0]
    assert "y[0] = s[0]" in other.splitlines()[1]


@pytest.mark.parametrize("statement", ["y[i] = tile[i + 1]", "y[i] = own[i]", "y[i] = 1 << i"])
def test_checks_of_the_compiler_trap_at_their_line(cp: ModuleType, statement: str) -> None:
    """The driver drops -fsanitize= for AMD GPUs; without it, the next array is read."""
    source = f"""
    extern "C" __global__ void f(const int* x, int* y) {{
        __shared__ int tile[64], next[64];
        int own[8], i = x[threadIdx.x];
        for (int k = 0; k < 8; k++) own[k] = k;
        tile[i] = next[i] = i;
        __syncthreads();
        {statement} + next[i];
    }}
    """
    x, y = cp.arange(64, dtype="i4"), cp.empty(64, "i4")
    options = ("-fsanitize=address,bounds,shift",)
    kernel = cp.RawKernel(source, "f", options=options)
    with pytest.raises(cp.cuda.driver.CUDADriverError, match=r"(?s)trap.*fsanitize") as caught:
        kernel((1,), (64,), (x, y))
    assert statement in str(caught.value)


def test_a_report_names_the_call_of_a_function_that_is_not_inlined(cp: ModuleType) -> None:
    """A failed assertion, with its lanes, and a read in a function, by its second call."""
    source = """
    #include <cassert>
    __device__ __attribute__((noinline)) int element(const int* x, int i) { return x[i]; }
    extern "C" __global__ void f(const int* x, int* y, int n) {
        if (threadIdx.x > 67)
            assert(n < 100);
        y[threadIdx.x] = element(x, threadIdx.x) +
                         element(x, n);
    }
    """
    x, y = cp.arange(128, dtype="i4"), cp.empty(128, "i4")
    kernel = cp.RawKernel(source, "f")
    with pytest.raises(cp.cuda.driver.CUDADriverError) as caught:
        kernel((1,), (128,), (x, y, np.int32(100)))
    report = str(caught.value)
    assert "wave 1, lanes 4-63" in report
    assert "in function __assert_fail" in report
    assert "called at kernel.cu:6: assert(n < 100);" in report
    kernel((1,), (128,), (x, y, np.int32(99)))
    with pytest.raises(cp.cuda.driver.CUDADriverError) as caught:
        kernel((1,), (64,), (x, y, np.int32(1 << 28)))
    assert "called at kernel.cu:8: element(x, n);" in str(caught.value)


@pytest.mark.slow
def test_objects_are_made_and_deleted_on_the_device(cp: ModuleType) -> None:
    """Lists, arrays and objects with virtual functions; then blocks until the heap is full."""
    source = """
    struct Operation {
        __device__ virtual int of(int x) const = 0;
        __device__ virtual ~Operation() {}
    };
    struct Multiplied : Operation {
        int by;
        __device__ Multiplied(int by) : by(by) {}
        __device__ int of(int x) const override { return x * by; }
    };
    struct Node { int value; Node* next; };
    extern "C" __global__ void f(int* y, int rounds) {
        int i = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
        for (int round = 0; round < rounds; round++) {
            Node* first = nullptr;
            for (int j = 0; j < 3; j++) first = new Node{i + j, first};
            int* several = new int[i % 5 + 1];
            several[i % 5] = i;
            Operation* operation = new Multiplied(3);
            sum += operation->of(several[i % 5]);
            delete operation;
            delete[] several;
            while (first != nullptr) {
                sum += first->value;
                Node* next = first->next;
                delete first;
                first = next;
            }
        }
        void* large = malloc(4000);
        free(large);
        y[i] = large != nullptr && malloc(9 << 20) == nullptr ? sum : -1;
    }
    """
    y = cp.zeros(256, "i4")
    cp.RawKernel(source, "f")((4,), (64,), (y, np.int32(2)))
    np.testing.assert_array_equal(y.get(), 2 * (6 * np.arange(256) + 3))
    keeps = """
    extern "C" __global__ void f(int* y, int size) {
        while (int* block = (int*)malloc(size)) {
            *block = 7;
            y[0]++;
        }
    }
    """
    y = cp.zeros(1, "i4")
    cp.RawKernel(keeps, "f")((1,), (1,), (y, np.int32((1 << 20) - 16)))
    assert int(y[0]) == 7  # of 1 MiB, as the first 16 bytes of the heap are none


def test_managed_variables_of_a_module(cp: ModuleType) -> None:
    source = """
    __managed__ int factor = 5, calls;
    extern "C" __global__ void f(int* y) {
        y[threadIdx.x] = factor * threadIdx.x;
        if (threadIdx.x == 0) calls++;
    }
    """
    module = cp.RawModule(code=source)
    y = cp.zeros(64, "i4")
    module.get_function("f")((1,), (64,), (y,))
    np.testing.assert_array_equal(y.get(), 5 * np.arange(64))
    cp.ndarray(1, "i4", module.get_global("factor"))[:] = 7
    module.get_function("f")((1,), (64,), (y,))
    np.testing.assert_array_equal(y.get(), 7 * np.arange(64))
    assert int(cp.ndarray(1, "i4", module.get_global("calls"))[0]) == 2
