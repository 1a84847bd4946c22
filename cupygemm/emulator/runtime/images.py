"""Find code objects in the host's memory from their address alone.

hipModuleLoadData receives a pointer without a size, so the size is read from the headers. A host
library with kernels registers a wrapper that points to a bundle of code objects, one for each
processor. Damaged headers may contain any address, so every read is checked.
"""

from __future__ import annotations

import struct

from cupygemm.emulator.runtime.host_bytes import host_bytes
from cupygemm.emulator.runtime.status import HipError, Status

_ELF_MAGIC = b"\x7fELF"
_BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED_MAGIC = b"CCOB"
_WRAPPER_MAGIC = 0x48495046  # "HIPF"
_MAX_BYTES = 2 << 30  # of a code object, whose parts address one another by 32 bits
_MAX_NAME = 4096  # of an entry in a bundle
_SHT_NOBITS = 8


def image_at(address: int, target_name: str) -> bytes:
    """Return the code object at an address, or the target's from the bundle there.

    Raises
    ------
    HipError
        There is neither, the image is damaged, or the bundle has no code object for the target.
    """
    if not address:
        raise HipError(Status.INVALID_VALUE, "the image is a null pointer")
    start = _read(address, 4, "magic number")
    if start == _ELF_MAGIC:
        return _read(address, _elf_size(address), "contents")
    if start == _BUNDLE_MAGIC[:4] and host_bytes(address, 24) == _BUNDLE_MAGIC:
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
    """Return the target's code object from a fat binary that a host library registered."""
    magic, _, binary, _ = struct.unpack("<IIQQ", _read(wrapper, 24, "wrapper"))
    if magic != _WRAPPER_MAGIC:
        raise HipError(Status.INVALID_IMAGE, f"no fat binary: its wrapper starts with 0x{magic:x}")
    return image_at(binary, target_name)


def _read(address: int, size: int, what: str) -> bytes:
    """Return bytes of the host; raise `HipError` if they are not mapped or too many."""
    data = host_bytes(address, size) if size <= _MAX_BYTES else None
    if data is None:
        raise HipError(
            Status.INVALID_IMAGE,
            f"the code object is damaged: its {what} would be {size} bytes at 0x{address:x}, "
            "which are not all in memory",
        )
    return data


def _elf_size(address: int) -> int:
    """Return the end of the last section, segment or header table of an ELF64 image."""
    header = _read(address, 64, "header")
    programs, sections = struct.unpack_from("<QQ", header, 32)
    program_size, num_programs, section_size, num_sections = struct.unpack_from("<4H", header, 54)
    if (num_programs and program_size < 56) or (num_sections and section_size < 64):
        raise HipError(
            Status.INVALID_IMAGE,
            f"the code object is damaged: its headers have {program_size} and {section_size} bytes,"
            " not 56 and 64",
        )
    end: int = max(programs + program_size * num_programs, sections + section_size * num_sections)
    table = _read(address + programs, program_size * num_programs, "program headers")
    for position in range(num_programs):
        offset, _, _, size = struct.unpack_from("<4Q", table, position * program_size + 8)
        end = max(end, offset + size)
    table = _read(address + sections, section_size * num_sections, "section headers")
    for position in range(num_sections):
        kind = struct.unpack_from("<I", table, position * section_size + 4)[0]
        offset, size = struct.unpack_from("<QQ", table, position * section_size + 24)
        if kind != _SHT_NOBITS:  # it takes no space in the file
            end = max(end, offset + size)
    return end


def _from_bundle(address: int, target_name: str) -> bytes:
    (count,) = struct.unpack("<Q", _read(address + 24, 8, "bundle"))
    position, names = address + 32, []
    for _ in range(count):
        offset, size, length = struct.unpack("<3Q", _read(position, 24, "bundle entry"))
        if length > _MAX_NAME:
            raise HipError(
                Status.INVALID_IMAGE,
                f"the bundle is damaged: the name of an entry would have {length} bytes",
            )
        triple = _read(position + 24, length, "bundle entry").decode(errors="replace")
        position += 24 + length
        processor = triple.rpartition("-")[2].partition(":")[0]
        if size and "amdgcn" in triple:
            if processor == target_name:
                return _read(address + offset, size, "contents")
            names.append(processor)
    raise HipError(
        Status.NO_BINARY_FOR_GPU,
        f"no device code for {target_name} in the library; it has {', '.join(names) or 'none'}",
    )
