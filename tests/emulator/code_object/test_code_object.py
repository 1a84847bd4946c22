"""Code objects that are damaged or for another target are refused, and leave nothing allocated."""

from __future__ import annotations

import numpy as np
import pytest

from cupygemm.emulator.code_object import InvalidCodeObject, load
from cupygemm.emulator.device import Memory
from tests.emulator.assembly import load_kernel


@pytest.fixture
def data() -> bytes:
    """A valid code object for gfx942."""
    elf = load_kernel("s_endpgm", Memory(), arguments=[8]).code_object.elf
    assert isinstance(elf, bytes)
    return elf


def test_every_truncation_is_refused(data: bytes) -> None:
    memory = Memory()
    for length in range(0, len(data), 37):
        with pytest.raises(InvalidCodeObject):
            load(data[:length], memory, "gfx942")
    assert memory.used_bytes == 0


def test_changed_bytes_are_refused_or_harmless(data: bytes) -> None:
    memory = Memory()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(150):
        damaged = bytearray(data)
        # The headers come first, the names and the section table last.
        place = rng.choice([rng.integers(0, 0x300), len(data) - rng.integers(1, 0x600)])
        damaged[place] = rng.integers(256)
        try:
            code = load(bytes(damaged), memory, "gfx942")
        except InvalidCodeObject:
            refused += 1
        else:
            memory.free(code.base)
    assert refused > 10
    assert memory.used_bytes == 0


def test_an_image_of_impossible_size(data: bytes) -> None:
    damaged = bytearray(data)
    segments = int.from_bytes(data[32:40], "little")
    for header in range(segments, segments + 56 * data[56], 56):
        damaged[header + 40 : header + 48] = (1 << 40).to_bytes(8, "little")  # p_memsz
    with pytest.raises(InvalidCodeObject, match=r"damaged: it asks for \d+ bytes"):
        load(bytes(damaged), Memory(), "gfx942")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an ELF file"),
        (b"int main() {}", "not an ELF file .* starts with b'int main'"),
        (b"\x7fELF" + bytes(200), "ELF"),
    ],
)
def test_what_is_no_code_object(data: bytes, message: str) -> None:
    with pytest.raises(InvalidCodeObject, match=message):
        load(data, Memory(), "gfx942")


def test_another_target(data: bytes) -> None:
    with pytest.raises(InvalidCodeObject, match="is for gfx942, and the device is gfx950"):
        load(data, Memory(), "gfx950")
