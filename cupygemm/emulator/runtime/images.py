"""Find code objects in the host's memory, where only their address is given.

hipModuleLoadData gets a pointer without a size, so the size is read from the headers; a host
library with kernels inside registers a wrapper that points at a bundle of code objects, one for
each processor.
"""

from __future__ import annotations

import ctypes
import struct

from cupygemm.emulator.runtime.status import HipError, Status

_ELF_MAGIC = b"\x7fELF"
_BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED_MAGIC = b"CCOB"
_WRAPPER_MAGIC = 0x48495046  # "HIPF"


def image_at(address: int, target_name: str) -> bytes:
    """Return the code object at an address, or the one for the target in the bundle there.

    Raises
    ------
    HipError
        There is neither, or the bundle has no code object for the target.
    """
    if not address:
        raise HipError(Status.INVALID_VALUE, "the image is a null pointer")
    start = ctypes.string_at(address, 4)
    if start == _ELF_MAGIC:
        return ctypes.string_at(address, _elf_size(address))
    if start == _BUNDLE_MAGIC[:4] and ctypes.string_at(address, 24) == _BUNDLE_MAGIC:
        return _from_bundle(address, target_name)
    if start == _COMPRESSED_MAGIC:
        raise HipError(
            Status.INVALID_IMAGE,
            "a compressed offload bundle: compile with --no-offload-compress",
        )
    raise HipError(
        Status.INVALID_IMAGE,
        f"neither a code object nor an offload bundle: it starts with {start!r}",
    )


def registered_code(wrapper: int, target_name: str) -> bytes:
    """Return the code object for the target from a fat binary that a host library registered."""
    magic, _, binary, _ = struct.unpack("<IIQQ", ctypes.string_at(wrapper, 24))
    if magic != _WRAPPER_MAGIC:
        raise HipError(Status.INVALID_IMAGE, f"no fat binary: its wrapper starts with 0x{magic:x}")
    return image_at(binary, target_name)


def _elf_size(address: int) -> int:
    """Return where the last section, segment or header table of an ELF64 image ends."""
    header = ctypes.string_at(address, 64)
    programs, sections = struct.unpack_from("<QQ", header, 32)
    program_size, num_programs, section_size, num_sections = struct.unpack_from("<4H", header, 54)
    end: int = max(programs + program_size * num_programs, sections + section_size * num_sections)
    for position in range(num_programs):
        entry = ctypes.string_at(address + programs + position * program_size, 56)
        offset, _, _, size = struct.unpack_from("<4Q", entry, 8)
        end = max(end, offset + size)
    for position in range(num_sections):
        entry = ctypes.string_at(address + sections + position * section_size, 64)
        kind = struct.unpack_from("<I", entry, 4)[0]
        offset, size = struct.unpack_from("<QQ", entry, 24)
        if kind != 8:  # SHT_NOBITS takes no room in the file
            end = max(end, offset + size)
    return end


def _from_bundle(address: int, target_name: str) -> bytes:
    (count,) = struct.unpack("<Q", ctypes.string_at(address + 24, 8))
    position, names = address + 32, []
    for _ in range(count):
        offset, size, length = struct.unpack("<3Q", ctypes.string_at(position, 24))
        triple = ctypes.string_at(position + 24, length).decode()
        position += 24 + length
        processor = triple.rpartition("-")[2].partition(":")[0]
        if size and "amdgcn" in triple:
            if processor == target_name:
                return ctypes.string_at(address + offset, size)
            names.append(processor)
    raise HipError(
        Status.NO_BINARY_FOR_GPU,
        f"no device code for {target_name} in the library; it has {', '.join(names) or 'none'}",
    )
