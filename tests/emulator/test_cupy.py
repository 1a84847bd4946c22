"""CuPy's own kernels on the emulated device, against NumPy; its memory pool; faults in CuPy."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator import KernelFault

RNG = np.random.default_rng(7)
REAL = RNG.standard_normal((5, 70))
WHOLE = RNG.integers(-50, 50, (5, 70)).astype(np.int32)

Function = Callable[[ModuleType, Any], Any]


def agree(cp: ModuleType, function: Function, array: np.ndarray[Any, Any]) -> None:
    """Check a function of CuPy's against NumPy's of the same name."""
    found, expected = function(cp, cp.asarray(array)).get(), np.asarray(function(np, array))
    assert found.dtype == expected.dtype
    eps = np.finfo(expected.dtype).eps if expected.dtype.kind in "fc" else 0
    np.testing.assert_allclose(found, expected, rtol=50 * eps, atol=50 * eps)


@pytest.mark.slow
@pytest.mark.covering
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8"])
@pytest.mark.parametrize(
    "function",
    [
        lambda xp, a: a + a[::-1] * 2 - 1,
        lambda xp, a: xp.where(a.real > 0, a, -a / 3),
        lambda xp, a: xp.exp(a),
        lambda xp, a: abs(a),
    ],
    ids=["arithmetic", "where", "exp", "abs"],
)
def test_elementwise(cp: ModuleType, function: Function, dtype: str) -> None:
    agree(cp, function, (REAL + 1j * REAL[::-1] if dtype == "c8" else REAL).astype(dtype))


@pytest.mark.parametrize("to", ["?", "i1", "u1", "i4", "i8", "f2", "f4", "f8", "c8"])
def test_astype(cp: ModuleType, to: str) -> None:
    agree(cp, lambda _, a: a.astype(to), WHOLE)


@pytest.mark.covering(pairs=True)
@pytest.mark.parametrize("dtype", ["i4", "f4", "f8"])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("name", ["sum", "max", "argmax", "any", "mean"])
def test_reductions(cp: ModuleType, name: str, axis: int | None, dtype: str) -> None:
    array = (WHOLE if dtype == "i4" else REAL).astype(dtype)
    agree(cp, lambda xp, a: getattr(xp, name)(a, axis=axis), array)


@pytest.mark.parametrize("name", ["max", "argmin"])
def test_reductions_that_leave_half_words_unwritten(cp: ModuleType, name: str) -> None:
    agree(cp, lambda xp, a: getattr(xp, name)(a), REAL.astype("f2"))


def test_a_reduction_over_many_blocks(cp: ModuleType) -> None:
    agree(cp, lambda _, a: abs(a).max(), RNG.standard_normal(100_000))


@pytest.mark.parametrize(
    "function",
    [
        lambda xp, a: xp.arange(3, 1000, 7),
        lambda xp, a: xp.cumsum(a),
        lambda xp, a: a[a > 0],
        lambda xp, a: a[xp.asarray([0, 3, 3]), 5:9],
        lambda xp, a: xp.concatenate([a, a.T.copy().T], axis=1),
        lambda xp, a: xp.eye(7, k=1) * 3,
        lambda xp, a: xp.bincount(abs(a).ravel()),
    ],
    ids=["arange", "cumsum", "mask", "index", "concatenate", "eye", "bincount"],
)
def test_array_functions(cp: ModuleType, function: Function) -> None:
    agree(cp, function, WHOLE)


def test_kernels_inside_cupys_own_libraries(cp: ModuleType) -> None:
    agree(cp, lambda xp, a: xp.sort(a), RNG.integers(0, 99, 300))


def test_user_kernels(cp: ModuleType) -> None:
    x = cp.asarray(REAL, np.float32)
    add = cp.ElementwiseKernel("T x, raw T y", "T z", "z = x + y[i % 3]", "add")
    np.testing.assert_array_equal(
        add(x, x.ravel()).get().ravel(),
        x.get().ravel() + np.resize(x.get().ravel()[:3], x.size),
    )
    norm = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
    np.testing.assert_allclose(float(norm(x)), np.linalg.norm(x.get()), rtol=1e-6)


def test_the_profiler_measures(cp: ModuleType) -> None:
    from cupyx.profiler import benchmark

    x = cp.zeros(10)
    result = benchmark(lambda: x + 1, n_repeat=2, n_warmup=1)
    assert result.gpu_times.shape == (1, 2)
    assert (result.gpu_times > 0).all()


# -- memory --


def test_fresh_arrays_hold_the_poison_even_when_reused(cp: ModuleType) -> None:
    for _ in range(2):
        array = cp.empty(1000, np.uint8)
        assert set(array.get().tolist()) == {0xA5}
        array.fill(1)
        del array


def test_neighbours_in_the_pool_do_not_touch(cp: ModuleType) -> None:
    arrays = [cp.empty(512, np.uint8) for _ in range(8)]
    starts = sorted(array.data.ptr for array in arrays)
    assert min(np.diff(starts)) >= 512 + 64


def test_the_pool_counts_and_frees(cp: ModuleType) -> None:
    pool = cp.get_default_memory_pool()
    before = pool.used_bytes()
    array = cp.zeros(100_000, np.uint8)
    used = pool.used_bytes() - before
    assert 100_000 <= used <= 101_000
    del array
    assert pool.used_bytes() == before
    pool.free_all_blocks()
    pool.set_limit(size=1 << 20)
    try:
        with pytest.raises(cp.cuda.memory.OutOfMemoryError):
            cp.empty(1 << 21, np.uint8)
    finally:
        pool.set_limit(size=0)


def test_the_pool_is_chosen_again_as_allocator(cp: ModuleType) -> None:
    before, pool = cp.cuda.get_allocator(), cp.get_default_memory_pool()
    assert isinstance(pool, cp.cuda.MemoryPool)
    cp.zeros(1, np.int32)
    other = cp.cuda.MemoryPool()
    try:
        cp.cuda.set_allocator(other.malloc)
        x = cp.arange(3)
        cp.cuda.set_allocator(pool.malloc)
        y = cp.array([1, 2, 3], np.float32)  # at the former place of an array of one element
        assert (x + y).tolist() == [1, 3, 5]
        with pytest.raises(cp.cuda.driver.CUDADriverError, match="out-of-bounds global"):
            launch(cp, y, 4)
    finally:
        cp.cuda.set_allocator(before)


def test_an_empty_array_needs_no_memory(cp: ModuleType) -> None:
    assert cp.empty((0, 3)).sum() == 0


# -- faults --

SCALE = """
extern "C" __global__ void scale(float* x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= a;
}"""


def launch(cp: ModuleType, x: Any, n: int) -> None:
    cp.RawKernel(SCALE, "scale")((2,), (64,), (x, np.float32(2), np.int32(n)))


def test_a_fault_is_an_exception_with_the_report_and_the_next_launch_works(
    cp: ModuleType,
) -> None:
    x = cp.ones(100, np.float32)
    with pytest.raises(cp.cuda.driver.CUDADriverError) as caught:
        launch(cp, x, 101)
    lines = str(caught.value).splitlines()
    assert lines[0] == "hipErrorLaunchFailure: out-of-bounds global read"
    assert lines[1] == "  in kernel scale, workgroup (1, 0, 0), wave 0, lane 36"
    assert "global_load_dword" in lines[2]
    assert lines[3] == "  kernel.cu:4: if (i < n) x[i] *= a;"
    assert lines[4] == f"  address 0x{x.data.ptr + 400:x}"
    assert "0 bytes past the end of allocation" in lines[5]
    assert "(array): 400 bytes" in lines[5]
    fault = emulator.last_fault()
    assert isinstance(fault, KernelFault)
    assert (fault.kernel, fault.lane, fault.address) == ("scale", 36, x.data.ptr + 400)
    x.fill(1)
    launch(cp, x, 100)
    assert x.get().tolist() == [2.0] * 100
    assert emulator.last_launch().kernel == "scale"


def test_too_few_arguments_are_an_error(run_python: Callable[..., str]) -> None:
    """Any pointer may follow CuPy's array of argument pointers, so the test has its own process."""
    printed = run_python(
        """
import ctypes, cupygemm, cupy
kernel = cupy.RawKernel('extern "C" __global__ void f(float *x, float *y, int n) { *x = n; }', "f")
kernel.compile()
hip = ctypes.CDLL("libamdhip64.so.7")
hip.hipGetErrorString.restype = ctypes.c_char_p
function = ctypes.c_void_p(kernel.kernel.ptr)
value = ctypes.c_uint64(0)
pointers = (ctypes.c_void_p * 3)(ctypes.addressof(value), ctypes.addressof(value), 0x21)
status = hip.hipModuleLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, None, pointers, None)
print(hip.hipGetErrorString(status).decode())
""",
        target="gfx942",
    )
    assert "argument 2" in printed
    assert "is at 0x21, which is no host memory: f takes 3 arguments, were fewer given?" in printed


def test_a_freed_array_is_told(cp: ModuleType) -> None:
    kept = cp.ones(100, np.float32)
    freed = cp.ones(100, np.float32)
    address = freed.data.ptr
    del freed
    pointer = cp.ndarray(100, np.float32, _borrowed(cp, address))
    with pytest.raises(cp.cuda.driver.CUDADriverError, match=r"\(array\).*which was freed"):
        launch(cp, pointer, 10)
    assert kept.get().tolist() == [1.0] * 100


def _borrowed(cp: ModuleType, address: int) -> Any:
    return cp.cuda.MemoryPointer(cp.cuda.UnownedMemory(address, 400, None, 0), 0)


def test_a_process_with_libraries_of_kernels_ends_well(run_python: Callable[..., str]) -> None:
    printed = run_python(
        "import cupygemm, cupy, cupy.cuda.cub, cupy.cuda.thrust; a = cupy.zeros(3); print('end')",
        target="gfx942",
    )
    assert printed == "end\n"


@pytest.mark.parametrize("dtype", ["i4", "f2", "f4", "f8", "c8"])
def test_fortran_order(cp: ModuleType, dtype: str) -> None:
    """CuPy reorders float matrices by a BLAS function, and imports the BLAS for any type."""
    array = WHOLE.astype(dtype)
    ordered = cp.asfortranarray(cp.asarray(array))
    assert ordered.flags.f_contiguous
    np.testing.assert_array_equal(ordered.get(), array)
    np.testing.assert_array_equal(cp.asarray(array).get(order="F"), array)


def test_memory_of_an_array_is_not_given_to_the_next(cp: ModuleType) -> None:
    copy = cp.RawKernel(
        'extern "C" __global__ void copy(const float* x, float* y)'
        "{ y[threadIdx.x] = x[threadIdx.x]; }",
        "copy",
    )
    out = cp.zeros(64, np.float32)
    cp.cuda.Device().synchronize()
    address = np.uintp(cp.full(64, 3, np.float32).data.ptr)
    new = [cp.zeros(64, np.float32) for _ in range(3)]
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="points into what was freed"):
        copy((1,), (64,), (address, out))
    assert address not in [each.data.ptr for each in new]


def test_memory_is_given_to_the_next_array_while_another_stream_works(cp: ModuleType) -> None:
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        other = cp.ones(64, np.float32)
    address = cp.zeros(3000, np.float32).data.ptr
    assert cp.zeros(3000, np.float32).data.ptr == address
    stream.synchronize()
    assert other[0] == 1


def test_a_pool_with_a_limit_passes_over_no_memory(cp: ModuleType) -> None:
    pool = cp.get_default_memory_pool()
    cp.zeros(64, np.float32)
    before = pool.get_limit()
    try:
        pool.set_limit(size=pool.total_bytes() + (1 << 20))
        address = cp.zeros(3000, np.float32).data.ptr
        assert cp.zeros(3000, np.float32).data.ptr == address
    finally:
        pool.set_limit(size=before)
