"""Device memory, and the stand-in libamdhip64 as C code uses it."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from cupygemm.emulator.memory.allocations import Memory


@pytest.fixture
def memory() -> Iterator[Memory]:
    """The memory of a device."""
    memory = Memory()
    yield memory
    memory.close()


@pytest.fixture(autouse=True)
def no_error_is_left() -> Iterator[None]:
    """Clear the last error after each test: libraries query it after their next launch."""
    yield
    with contextlib.suppress(OSError):  # not loaded: a GPU runs the tests, or no test needed it
        library = ctypes.CDLL("libamdhip64.so.7", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        library.hipGetLastError()


@pytest.fixture
def hip(cp: ModuleType) -> ctypes.CDLL:
    """The library that CuPy's modules are bound to."""
    library = ctypes.CDLL("libamdhip64.so.7")
    library.hipGetErrorString.restype = ctypes.c_char_p
    library.hipGetErrorName.restype = ctypes.c_char_p
    return library


@pytest.fixture
def pointer(hip: ctypes.CDLL) -> Iterator[ctypes.c_void_p]:
    """An allocation of 1000 bytes."""
    pointer = ctypes.c_void_p()
    assert hip.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(1000)) == 0
    yield pointer
    assert hip.hipFree(pointer) == 0


@pytest.fixture
def scale(cp: ModuleType) -> Any:
    """A kernel x[i] *= factor."""
    source = 'extern "C" __global__ void scale(int* x, int factor) { x[threadIdx.x] *= factor; }'
    return cp.RawModule(code=source).get_function("scale")
