"""Device memory that nothing has written: allowed uses, and reported ones."""

from __future__ import annotations

import functools
from types import ModuleType

import numpy as np
import pytest

import cupygemm
from cupygemm import emulator
from cupygemm.emulator.memory.allocations import Memory
from tests.tables import swept

REPORT = "uninitialised memory"


def test_computing_with_it_is_reported(cp: ModuleType) -> None:
    x = cp.empty(100, "f4")
    with pytest.raises(RuntimeError, match=REPORT):
        x + 1
    fault = emulator.last_fault()
    assert isinstance(fault, emulator.KernelFault)
    assert fault.instruction.startswith("global_store_dword")
    assert fault.lanes == tuple(range(64))
    assert "global_load_dword" in fault.detail
    assert "0 bytes into allocation" in fault.detail
    assert "argument 0" in fault.detail


def test_a_tail_that_the_grid_left_out_names_the_launch(cp: ModuleType) -> None:
    source = 'extern "C" __global__ void fill(float* x) { x[256 * blockIdx.x + threadIdx.x] = 1; }'
    fill, x = cp.RawKernel(source, "fill"), cp.empty(1000, "f4")
    start = x.data.ptr
    fill((1000 // 256,), (256,), (x,))
    with pytest.raises(RuntimeError, match=REPORT) as caught:
        x.sum()
    report = str(caught.value)
    assert "3,072 of its 4,000 bytes have a value; the last one before it was written by" in report
    assert "kernel fill, launched with 768 work-items: grid 3x1x1, block 256x1x1" in report
    del x, caught
    for _ in range(20):  # the memory of the last dropped arrays is skipped
        if (x := cp.empty(1000, "f4")).data.ptr == start:
            break
    assert x.data.ptr == start
    with pytest.raises(RuntimeError, match="none of its bytes has a value"):
        x.sum()
    x[:100].set(np.ones(100, "f4"))  # by a copy, which leaves no record
    with pytest.raises(RuntimeError, match=r"400 of its 4,000 bytes have a value\n") as caught:
        x.sum()
    assert "kernel fill" not in str(caught.value)


@pytest.mark.parametrize("dtype", ["u1", "i2", "f2", "i8", "f8", "c16"])
def test_every_width_is_seen(cp: ModuleType, dtype: str) -> None:
    x = cp.empty(10, dtype)
    with pytest.raises(RuntimeError, match=REPORT):
        x * 3


def test_one_element_is_enough(cp: ModuleType) -> None:
    x = cp.empty(1000, "i2")
    x[:999] = 1
    assert int((x[:999] + 1).sum()) == 1998
    with pytest.raises(RuntimeError, match=REPORT):
        x + 1


def test_copying_it_is_allowed(cp: ModuleType) -> None:
    x = cp.empty((7, 5), "f4")
    assert (x.T.copy().view("u4").get() == 0xA5A5A5A5).all()


def test_a_copy_stays_undefined(cp: ModuleType) -> None:
    copy = cp.empty((7, 5), "f4").T.copy()
    with pytest.raises(RuntimeError, match=REPORT):
        copy + 1


def test_a_copy_of_half_of_it(cp: ModuleType) -> None:
    x = cp.empty((8, 6), "i2")
    x[:, ::2] = 5
    copy = x.T.copy()
    assert int((copy[::2] + 1).sum()) == 8 * 3 * 6
    with pytest.raises(RuntimeError, match=REPORT):
        copy + 1


def test_atomics_on_it_are_reported(cp: ModuleType) -> None:
    """A histogram that was not zeroed."""
    kernel = cp.RawKernel(
        'extern "C" __global__ void count(int* n) { atomicAdd(n + threadIdx.x % 4, 1); }', "count"
    )
    n = cp.zeros(4, "i4")
    kernel((1,), (64,), (n,))
    assert (n.get() == 16).all()
    with pytest.raises(RuntimeError, match=REPORT):
        kernel((1,), (64,), (cp.empty(4, "i4"),))


def test_a_branch_on_it_is_reported(cp: ModuleType) -> None:
    kernel = cp.RawKernel(
        """extern "C" __global__ void find(const int* x, int* y) {
            if (x[blockIdx.x] > 3) y[threadIdx.x] = 1;
        }""",
        "find",
    )
    with pytest.raises(RuntimeError, match=REPORT):
        kernel((1,), (64,), (cp.empty(4, "i4"), cp.zeros(64, "i4")))
    assert "s_c" in emulator.last_fault().instruction  # type: ignore[union-attr]


def test_private_memory_is_watched(cp: ModuleType) -> None:
    """An array indexed at run time is in private memory."""
    kernel = cp.RawKernel(
        """extern "C" __global__ void pick(const int* n, int* y) {
            volatile int part[64];
            for (int i = 0; i < n[0]; ++i) part[i] = i;
            y[threadIdx.x] = part[threadIdx.x] + 1;
        }""",
        "pick",
    )
    y = cp.zeros(64, "i4")
    kernel((1,), (64,), (cp.full(1, 64, "i4"), y))
    assert (y.get() == np.arange(1, 65)).all()
    with pytest.raises(RuntimeError, match="uninitialised variable"):
        kernel((1,), (64,), (cp.full(1, 48, "i4"), y))
    assert emulator.last_fault().lanes == tuple(range(48, 64))  # type: ignore[union-attr]


def test_a_library_that_drops_the_error_does_not_hide_it(cp: ModuleType) -> None:
    """CuPy ignores the status of hipCUB's scan; the next launch, copy or wait raises the error."""
    from cupy.cuda import cub

    scan = functools.partial(cub.device_scan, op=cub.CUPY_CUB_CUMSUM)
    assert float(scan(cp.ones(3001, "f4"))[-1]) == 3001
    scan(cp.empty(3001, "f4"))
    with pytest.raises(RuntimeError, match=REPORT):
        cp.cuda.Device().synchronize()
    cp.cuda.Device().synchronize()
    with pytest.raises(RuntimeError, match=REPORT):
        cp.sort(cp.empty(3000, "i4"))  # Thrust raises the error itself, so none is left
    cp.cuda.Device().synchronize()


def test_a_refused_launch_of_a_library_is_not_kept(cp: ModuleType) -> None:
    """CuPy's generators launch an empty grid, and continue."""
    cp.random.default_rng(3)
    assert int(cp.arange(4).sum()) == 6


@pytest.mark.parametrize("axis", [1, 2, *swept(0)])
def test_scans_of_odd_extents_are_no_fault(cp: ModuleType, axis: int) -> None:
    """CuPy's scan sums LDS past the end of an axis, but stores only sums before the end."""
    x = np.arange(7 * 13 * 5).reshape(7, 13, 5)
    device = cp.asarray(x)
    np.testing.assert_array_equal(cp.cumsum(device, axis=axis).get(), x.cumsum(axis))
    sums = cp.add.accumulate(device, axis=axis)
    np.testing.assert_array_equal(sums.get(), np.add.accumulate(x, axis))
    first = [0, 2, 3]
    np.testing.assert_array_equal(
        cp.add.reduceat(device, cp.asarray(first), axis=axis).get(), np.add.reduceat(x, first, axis)
    )


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 3, 37])
def test_a_matrix_product_says_which_results_are_undefined(cp: ModuleType, k: int) -> None:
    """An undefined element of A makes its row of the result undefined, and no other row."""
    a, b = cp.ones((64, k), "f2"), cp.ones((k, 64), "f2")
    assert (cupygemm.matmul(a, b).get() == k).all()
    broken = cp.empty((64, k), "f2")
    broken[:40] = 1
    broken[41:] = 1
    product = cupygemm.matmul(broken, b, dtype="f4")
    assert ((product[:40] + 0).get() == k).all()
    assert ((product[41:] + 0).get() == k).all()
    with pytest.raises(RuntimeError, match=REPORT):
        product[40] + 0


def test_zero_ends_an_undefined_integer(cp: ModuleType) -> None:
    """0 times anything is 0, in integers."""
    a, b = cp.zeros((64, 40), "i1"), cp.empty((40, 64), "i1")
    a[:, :30], b[:30] = 2, 3
    product = cupygemm.matmul(a, b, dtype="i4")
    assert ((product + 0).get() == 180).all()


def test_the_byte_of_fresh_memory_may_be_a_value(cp: ModuleType) -> None:
    host = np.full(100, 0xA5, np.uint8)
    x = cp.asarray(host)
    assert int((x + 0).sum()) == 100 * 0xA5
    x[:] = cp.asarray(host)
    assert int((x + 0).sum()) == 100 * 0xA5
    filled = cp.full(100, -1515870811, "i4")
    assert int((filled + 1)[0]) == -1515870810


def test_memory_is_forgotten_when_it_is_freed(cp: ModuleType) -> None:
    x = cp.ones(1 << 19, "f4")  # large enough for the pool to give its memory to the next
    place = x.data.ptr
    del x
    y = cp.empty(1 << 19, "f4")
    assert y.data.ptr == place
    with pytest.raises(RuntimeError, match=REPORT):
        y + 1


def test_a_view_may_have_undefined_neighbours(cp: ModuleType) -> None:
    """The kernel loads whole vectors, but stores nothing that depends on the neighbours."""
    a, b = cp.empty((64, 64), "f2"), cp.empty((64, 64), "f2")
    a[:37, :41], b[:41, :21] = 1, 1
    product = cupygemm.matmul(a[:37, :41], b[:41, :21], dtype="f4")
    assert (product.get() == 41).all()


def test_unchecked_launches_compute_with_it(cp: ModuleType) -> None:
    with emulator.checks(False):
        cp.empty(10, "f4") + 1


@pytest.mark.parametrize(("first", "end"), [(0, 8), (3, 5), (3, 8), (0, 5), (5, 21), (7, 9)])
def test_the_bits_of_a_range(first: int, end: int) -> None:
    memory = Memory(1 << 26)
    base = memory.malloc(64)
    shadow = memory.shadow
    assert shadow is not None

    def bits() -> np.ndarray:
        import ctypes

        place = shadow.defined + (base - shadow.base) // 8
        cells = np.ctypeslib.as_array((ctypes.c_uint8 * 8).from_address(place))
        return np.unpackbits(cells, bitorder="little").astype(bool)

    expected = np.zeros(64, bool)
    assert (bits() == expected).all()
    shadow.define(base + first, end - first)
    expected[first:end] = True
    assert (bits() == expected).all()
    shadow.define(base, 64)
    shadow.undefine(base + first, end - first)
    assert (bits() == ~expected).all()
    memory.close()
