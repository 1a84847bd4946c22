"""Launches through the C entry points: how the arguments of a kernel arrive."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from cupygemm.emulator import _session
from cupygemm.emulator.runtime.compile import compile_program
from cupygemm.emulator.runtime.status import Status


def text(hip: ctypes.CDLL, status: int) -> str:
    return bytes(hip.hipGetErrorString(status)).decode()


ADD = """
extern "C" __global__ void add(int* out, short a, long long b) { *out = a + (int)b; }
extern "C" __global__ void nothing() {}
"""


@pytest.fixture
def add(hip: ctypes.CDLL) -> Iterator[dict[str, ctypes.c_void_p]]:
    """Kernels of a module, loaded through the C functions."""
    code = compile_program(ADD, "add", target_name=_session.target() or "").code
    module, found = ctypes.c_void_p(), {}
    assert hip.hipModuleLoadData(ctypes.byref(module), ctypes.c_char_p(code)) == 0
    for name in ("add", "nothing"):
        found[name] = ctypes.c_void_p()
        arguments = ctypes.byref(found[name]), module, name.encode()
        assert hip.hipModuleGetFunction(*arguments) == 0
    yield found
    assert hip.hipModuleUnload(module) == 0
    assert hip.hipModuleUnload(module) == Status.INVALID_HANDLE


def launch(
    hip: ctypes.CDLL, function: ctypes.c_void_p, parameters: Any = None, extra: Any = None
) -> int:
    status: int = hip.hipModuleLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, parameters, extra)
    return status


def test_parameters_by_pointers(
    hip: ctypes.CDLL, add: dict[str, ctypes.c_void_p], pointer: ctypes.c_void_p
) -> None:
    values = pointer, ctypes.c_short(-5), ctypes.c_longlong(47)
    pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))
    assert launch(hip, add["add"], pointers) == 0
    assert ctypes.c_int.from_address(pointer.value or 0).value == 42


def test_parameters_in_one_buffer(
    hip: ctypes.CDLL, add: dict[str, ctypes.c_void_p], pointer: ctypes.c_void_p
) -> None:
    buffer = ctypes.create_string_buffer(struct.pack("<Qhxxxxxxq", pointer.value, -5, 48), 24)
    size = ctypes.c_size_t(24)
    keys = (ctypes.c_size_t * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 3)
    assert launch(hip, add["add"], extra=keys) == 0
    assert ctypes.c_int.from_address(pointer.value or 0).value == 43
    size.value = 16
    status = launch(hip, add["add"], extra=keys)
    assert (status, text(hip, status)) == (
        Status.INVALID_VALUE,
        "the argument buffer of add holds 16 bytes, not 24",
    )


def test_missing_parameters_are_told(
    hip: ctypes.CDLL, add: dict[str, ctypes.c_void_p], pointer: ctypes.c_void_p
) -> None:
    assert launch(hip, add["nothing"]) == 0
    status = launch(hip, add["add"])
    assert status == Status.INVALID_VALUE
    assert text(hip, status) == "add takes 3 arguments, and none are given"
    status = launch(hip, add["add"], (ctypes.c_void_p * 3)(ctypes.addressof(pointer), None, None))
    assert "argument 1 (a) of add is missing" in text(hip, status)


def test_an_unloaded_kernel_is_told(hip: ctypes.CDLL, cp: ModuleType) -> None:
    status = launch(hip, ctypes.c_void_p(0x1234))
    assert (status, text(hip, status)) == (
        Status.INVALID_HANDLE,
        "kernel function 0x1234 does not exist: was its module unloaded?",
    )
