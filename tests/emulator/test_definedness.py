"""Device memory that nothing has written: what may be done with it, and what is reported."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

import cupygemm
from cupygemm import emulator
from cupygemm.emulator.allocations import Memory

REPORT = "uninitialised memory"


def test_computing_with_it_is_reported(cp: ModuleType) -> None:
    x = cp.empty(100, "f4")
    with pytest.raises(RuntimeError, match=REPORT):
        x + 1
    fault = emulator.last_fault()
    assert isinstance(fault, emulator.KernelFault)
    assert fault.instruction.startswith("v_add_f32")
    assert "global_load_dword" in fault.detail
    assert "0 bytes into allocation" in fault.detail
    assert "argument 0" in fault.detail


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


def test_the_byte_of_fresh_memory_may_be_a_value(cp: ModuleType) -> None:
    host = np.full(100, 0xA5, np.uint8)
    x = cp.asarray(host)
    assert int((x + 0).sum()) == 100 * 0xA5
    x[:] = cp.asarray(host)
    assert int((x + 0).sum()) == 100 * 0xA5
    filled = cp.full(100, -1515870811, "i4")
    assert int((filled + 1)[0]) == -1515870810


def test_memory_is_forgotten_when_it_is_freed(cp: ModuleType) -> None:
    x = cp.ones(4096, "f4")
    place = x.data.ptr
    del x
    y = cp.empty(4096, "f4")
    assert y.data.ptr == place
    with pytest.raises(RuntimeError, match=REPORT):
        y + 1


def test_a_view_may_have_undefined_neighbours(cp: ModuleType) -> None:
    """The kernel loads whole vectors: what lies beside the matrix is not stored."""
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
