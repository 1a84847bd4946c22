"""Damaged code objects: refused with a reason, at little cost, and without a crash."""

from __future__ import annotations

import contextlib
import ctypes
import struct
import time
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from cupygemm.emulator.code_object import InvalidCodeObject, load
from cupygemm.emulator.memory.allocations import Memory
from cupygemm.emulator.memory.host_memory import OutOfMemory
from cupygemm.emulator.runtime.compile import compile_program
from cupygemm.emulator.runtime.host_bytes import _from_proc, host_bytes
from cupygemm.emulator.runtime.images import image_at, registered_code
from cupygemm.emulator.runtime.status import HipError
from tests.emulator.runtime.test_images import bundle

KERNEL = """
__device__ int table[100];
extern "C" __global__ void k(int* x, int n) { x[threadIdx.x] = n + table[n]; }
"""


@pytest.fixture(scope="module")
def data() -> bytes:
    return compile_program(KERNEL, "k", target_name="gfx942").code


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Change a few bytes, most of them in the headers, or cut the end off."""
    result = bytearray(data)
    sections = int.from_bytes(data[40:48], "little")
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        first, end = [(4, 0x400), (sections, len(data)), (4, len(data))][rng.integers(3)]
        place, width = rng.integers(first, end), rng.choice([1, 1, 2, 4, 8])
        value = bytes([rng.choice([0, 255, 127, 128, rng.integers(256)])]) * width
        result[place : place + width] = value[: len(data) - place]
    return bytes(result[: rng.integers(4, len(data))] if rng.random() < 0.1 else result)


def in_memory(data: bytes) -> bytes:
    """Find a code object as hipModuleLoadData does, from its address alone."""
    buffer = ctypes.create_string_buffer(data, len(data))
    return image_at(ctypes.addressof(buffer), "gfx942")


@pytest.mark.slow
@pytest.mark.parametrize("find", [bytes, in_memory], ids=["file", "memory"])
def test_damage_is_refused_or_harmless(
    data: bytes, memory: Memory, find: Callable[[bytes], bytes]
) -> None:
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(300):
        try:
            code = load(find(damaged(data, rng)), memory, "gfx942")
        except (InvalidCodeObject, HipError, OutOfMemory):
            refused += 1
        else:
            memory.free(code.base)
    assert 100 < refused < 300
    assert memory.used_bytes == 0


def test_damaged_bundles_are_refused_or_harmless(data: bytes) -> None:
    rng = np.random.default_rng(2)
    whole = bundle({"gfx90a": b"none", "gfx942": data})
    refused = 0
    for _ in range(200):
        result = bytearray(whole)
        place = rng.integers(24, 200)
        result[place : place + 8] = bytes([rng.choice([0, 255, 127, rng.integers(256)])]) * 8
        try:
            in_memory(bytes(result))
        except HipError:
            refused += 1
    assert refused > 50


def test_a_module_of_header_and_rubbish_is_an_error_in_cupy(cp: ModuleType) -> None:
    for image in (
        b"\x7fELF\x02\x01\x01" + b"\xff" * 57,
        b"__CLANG_OFFLOAD_BUNDLE__" + b"\xff" * 99,
    ):
        with pytest.raises(cp.cuda.driver.CUDADriverError, match="damaged"):
            cp.cuda.function.Module().load(image)


def test_a_fat_binary_at_no_address_is_refused() -> None:
    with pytest.raises(HipError, match="not all in memory"):
        registered_code(0x10, "gfx942")
    wrapper = ctypes.create_string_buffer(struct.pack("<IIQQ", 0x48495046, 1, 0x10, 0), 24)
    with pytest.raises(HipError, match="4 bytes at 0x10, which are not all in memory"):
        registered_code(ctypes.addressof(wrapper), "gfx942")


def with_segments(data: bytes, field: int, value: int) -> bytes:
    """Set a field of every program header."""
    result = bytearray(data)
    segments = int.from_bytes(data[32:40], "little")
    for header in range(segments, segments + 56 * data[56], 56):
        result[header + field : header + field + 8] = value.to_bytes(8, "little")
    return bytes(result)


@pytest.mark.parametrize("field", [16, 32, 40], ids=["p_vaddr", "p_filesz", "p_memsz"])
@pytest.mark.parametrize("value", [1 << 30, (2 << 30) - 4096, 1 << 33, (1 << 64) - 1])
def test_an_image_of_impossible_size_costs_no_time(
    data: bytes, memory: Memory, field: int, value: int
) -> None:
    started = time.thread_time()
    with contextlib.suppress(InvalidCodeObject, OutOfMemory):
        load(with_segments(data, field, value), memory, "gfx942")
    assert time.thread_time() - started < 5  # an earlier version filled 17.7 GB


def test_variables_without_contents_are_zero_and_cost_what_is_touched(memory: Memory) -> None:
    source = '__device__ char big[1 << 28]; extern "C" __global__ void k(char* x) { *x = big[9]; }'
    code = load(compile_program(source, "k", target_name="gfx942").code, memory, "gfx942")
    address, size = code.symbols["big"]
    assert size == 1 << 28
    assert len(code.image) < 1 << 20
    assert memory.contains(address, size)
    assert memory.read(address + size - 100, 100) == bytes(100)


def test_bytes_at_any_address() -> None:
    buffer = ctypes.create_string_buffer(b"contents", 9)
    address = ctypes.addressof(buffer)
    for read in (host_bytes, _from_proc):
        assert read(address, 8) == b"contents"
        assert read(8, 8) is None
    assert host_bytes(address, 1 << 62) is None
    assert host_bytes((1 << 64) - 4, 8) is None
    assert host_bytes(0, 8) is None
    assert host_bytes(8, 0) == b""


@pytest.mark.parametrize("value", [-1, 1 << 40, "many", None])
@pytest.mark.parametrize("key", [".group_segment_fixed_size", ".kernarg_segment_size"])
def test_sizes_in_the_metadata_are_checked(
    data: bytes, memory: Memory, monkeypatch: pytest.MonkeyPatch, key: str, value: object
) -> None:
    from cupygemm.emulator.code_object import loading

    real = loading.metadata_of

    def altered(elf: object) -> dict[str, object]:
        metadata = real(elf)
        metadata["amdhsa.kernels"][0][key] = value
        return metadata

    monkeypatch.setattr(loading, "metadata_of", altered)
    with pytest.raises(InvalidCodeObject, match=f"{key} is {value!r}"):
        load(data, memory, "gfx942")
