"""Operands of library calls: bounds, memory that was never written, and defined results."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator import _session
from cupygemm.emulator.host_libraries.memory import HostCallFault, Operands
from tests.emulator.host_libraries.calls import Library, padded, unpadded


def operands() -> Operands:
    assert _session._devices is not None
    return Operands("a test", _session._devices.memory)


def test_a_read_of_memory_that_was_never_written_names_the_element(cp: ModuleType) -> None:
    array = cp.empty((4, 6), np.float32)
    array[:, :5] = 1
    with pytest.raises(
        HostCallFault, match=r"never written\n.*argument a\n(.|\n)*element \(0, 5\)"
    ):
        operands().read("a", array.data.ptr, (4, 6), "f4")
    view = operands().read("a", array.data.ptr, (4, 5), "f4", (6, 1))
    assert (view == 1).all()
    with emulator.checks(False):
        operands().read("a", array.data.ptr, (4, 6), "f4")


@pytest.mark.parametrize("strides", [(6, 1), (1, 4), (-6, 1), (12, 3)])
def test_what_is_written_is_defined_and_no_more(cp: ModuleType, strides: tuple[int, int]) -> None:
    array = cp.empty(64, np.int16)
    start = array.data.ptr + 2 * (20 if min(strides) < 0 else 1)
    shape = (3, 3)
    operands().write("c", start, shape, "i2", strides)[...] = 7
    memory = _session._devices.memory  # type: ignore[union-attr]
    first = 20 if min(strides) < 0 else 1
    expected = {first + i * strides[0] + j * strides[1] for i in range(3) for j in range(3)}
    for place in range(64):
        one = Operands("a test", memory)
        if place in expected:
            assert one.read("c", array.data.ptr + 2 * place, (), "i2")[()] == 7
        else:
            with pytest.raises(HostCallFault, match="never written"):
                one.read("c", array.data.ptr + 2 * place, (), "i2")


def test_a_mask_limits_what_is_read_and_written(cp: ModuleType) -> None:
    array = cp.empty((3, 3), np.float64)
    lower = np.tril(np.ones((3, 3), bool))
    operands().write("a", array.data.ptr, (3, 3), "f8", used=lower)[lower] = 2
    operands().read("a", array.data.ptr, (3, 3), "f8", used=lower)
    with pytest.raises(HostCallFault, match=r"element \(0, 1\)"):
        operands().read("a", array.data.ptr, (3, 3), "f8")


@pytest.mark.parametrize("access", ["read", "write"])
def test_an_operand_that_leaves_its_array_is_refused(cp: ModuleType, access: str) -> None:
    array = cp.zeros((4, 4), np.float32)
    with pytest.raises(HostCallFault, match=f"out-of-bounds {access}(.|\n)*runs 16 bytes past"):
        getattr(operands(), access)("a", array.data.ptr, (4, 5), "f4")
    host = np.zeros(4)
    with pytest.raises(HostCallFault, match="not device memory"):
        getattr(operands(), access)("a", host.ctypes.data, (4,), "f8")


def test_a_fault_ends_a_product_and_is_the_last_fault(cp: ModuleType) -> None:
    unwritten = cp.empty((3, 3), np.float32)
    with pytest.raises(Exception, match=r"never written\n.*hipblasSgemm, argument [ab]"):
        unwritten @ cp.ones((3, 3), np.float32)
    assert isinstance(emulator.last_fault(), HostCallFault)


def test_the_gaps_of_a_leading_dimension_are_left_alone(cp: ModuleType) -> None:
    blas = Library("libhipblas.so.3")
    handle = blas.handle("hipblasCreate")
    matrix = np.arange(6.0, dtype="f4").reshape(2, 3)
    a, c = padded(cp, matrix, 5), padded(cp, np.zeros((2, 3), "f4"), 7)
    one, zero = np.ones(1, "f4"), np.zeros(1, "f4")
    arguments = (handle, 111, 111, 2, 3, one, a, 5, zero, a, 5, c, 7)
    assert blas.hipblasSgeam(*arguments) == 0
    np.testing.assert_array_equal(unpadded(c, 2), matrix)


def test_a_profile_lists_what_the_host_computed(cp: ModuleType) -> None:
    matrix = cp.asarray(np.eye(4, dtype="f4"))
    with emulator.profile() as p:
        cp.linalg.cholesky(matrix)
        matrix @ matrix
    names = [call.function for call in p.host_calls]
    assert "rocsolver_spotrf" in names
    assert not any("gemm" in name for name in names), "a product runs in a kernel"
    assert any(launch.flop for launch in p.launches)
    assert "computed on the host" in str(p)
    assert {call["function"] for call in p.to_dict()["host_calls"]} == set(names)


def test_what_was_never_written_can_be_a_warning(cp: ModuleType) -> None:
    a = cp.empty((8, 8), "f4")
    with (
        pytest.warns(emulator.KernelWarning, match="1 finding in a call"),
        emulator.checks(uninitialised="warn"),
    ):
        cp.linalg.cholesky(a)
    with emulator.checks(uninitialised="off"):
        cp.linalg.cholesky(a)
