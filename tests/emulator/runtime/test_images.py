"""Code objects in host memory: their size from their headers, bundles, and other data."""

from __future__ import annotations

import ctypes
import struct

import pytest

from cupygemm.emulator.runtime.compile import compile_program
from cupygemm.emulator.runtime.images import image_at, registered_code
from cupygemm.emulator.runtime.status import HipError, Status

KERNEL = 'extern "C" __global__ void k(int* x) { *x = 1; }'


@pytest.fixture(scope="module")
def codes() -> dict[str, bytes]:
    return {
        target: compile_program(KERNEL, "k", target_name=target).code
        for target in ("gfx90a", "gfx942")
    }


def bundle(codes: dict[str, bytes]) -> bytes:
    """Lay out a clang offload bundle: magic, count, entries, then the parts on 4 KiB."""
    names = ["host-x86_64-unknown-linux-gnu-", *(f"hipv4-amdgcn-amd-amdhsa--{t}" for t in codes)]
    parts = [b"", *codes.values()]
    header, body, offset = b"", b"", 4096
    for name, part in zip(names, parts, strict=True):
        header += struct.pack("<3Q", offset, len(part), len(name)) + name.encode()
        body += part.ljust(-(-len(part) // 4096) * 4096, b"\0")
        offset = 4096 + len(body)
    start = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(names)) + header
    return start.ljust(4096, b"\0") + body


def in_memory(data: bytes) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(data + b"\xee" * 64, len(data) + 64)


def test_the_size_of_a_code_object_is_read_off_it(codes: dict[str, bytes]) -> None:
    held = in_memory(codes["gfx942"])
    assert image_at(ctypes.addressof(held), "gfx942") == codes["gfx942"]


def test_a_bundle_gives_the_part_for_the_target(codes: dict[str, bytes]) -> None:
    held = in_memory(bundle(codes))
    for target, code in codes.items():
        assert image_at(ctypes.addressof(held), target) == code
    with pytest.raises(
        HipError, match=r"no device code for gfx950.*it has gfx90a, gfx942"
    ) as caught:
        image_at(ctypes.addressof(held), "gfx950")
    assert caught.value.status == Status.NO_BINARY_FOR_GPU


def test_a_fat_binary_points_at_its_bundle(codes: dict[str, bytes]) -> None:
    held = in_memory(bundle(codes))
    wrapper = in_memory(struct.pack("<IIQQ", 0x48495046, 1, ctypes.addressof(held), 0))
    assert registered_code(ctypes.addressof(wrapper), "gfx942") == codes["gfx942"]
    wrapper[0] = b"X"
    with pytest.raises(HipError, match="no fat binary"):
        registered_code(ctypes.addressof(wrapper), "gfx942")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"CCOB\x03\x00\x00\x00", "compressed offload bundle: compile with --no-offload-compress"),
        (b"; assembly text", "neither a code object nor an offload bundle: it starts with b'; as'"),
    ],
)
def test_what_is_no_image_is_told(data: bytes, expected: str) -> None:
    held = in_memory(data)
    with pytest.raises(HipError, match=expected):
        image_at(ctypes.addressof(held), "gfx942")
    with pytest.raises(HipError, match="null pointer"):
        image_at(0, "gfx942")
