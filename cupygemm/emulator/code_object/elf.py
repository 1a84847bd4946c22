"""Read the ELF files and the bundles that hold code objects.

The files may be damaged: whatever the readers of ELF and msgpack raise becomes `InvalidCodeObject`.
Layouts: LLVM's "User Guide for AMDGPU Backend", sections "ELF Code Object", "Code Object Metadata"
and "Relocation Records".
"""

from __future__ import annotations

import contextlib
import io
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgpack
from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import NoteSection, SymbolTableSection

from cupygemm.emulator.errors import EmulatorError
from cupygemm.emulator.targets import TARGETS

_BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_NT_AMDGPU_METADATA = 32
_MAX_GAPS = 64 << 20  # between segments: linkers leave pages, at most some MiB
_MAX_IMAGE = 2 << 30  # the parts of a code object address one another by 32 bits
# The exceptions that the readers of ELF and msgpack raise for damaged or truncated bytes.
_DAMAGE = (
    ELFError, ConstructError, ValueError, LookupError, TypeError, AttributeError, AssertionError,
    ArithmeticError, UnicodeError, EOFError, struct.error,
)  # fmt: skip
_MACHINES = {target.elf_machine: target.name for target in TARGETS.values()}
STT_OBJECT, STT_FUNC, STT_AMDGPU_HSA_KERNEL = 1, 2, 10
_SYMBOL = struct.Struct("<IBBHQQ")  # name, type, visibility, section, value, size
_SHN_UNDEF = 0
_R_ABS32_LO, _R_ABS32_HI, _R_ABS64, _R_RELATIVE64 = 1, 2, 3, 13


class InvalidCodeObject(EmulatorError):
    """The bytes are not a code object that the emulated device can load."""


@contextlib.contextmanager
def damage_reported() -> Iterator[None]:
    """Raise `InvalidCodeObject` for the exceptions that the readers of ELF and msgpack raise."""
    try:
        yield
    except _DAMAGE as err:
        raise InvalidCodeObject(
            f"the code object is damaged ({type(err).__name__}: {err})"
        ) from err


def unbundle(data: bytes, target_name: str | None = None) -> bytes:
    """Return a target's code object from a clang offload bundle; return other data unchanged.

    Raises
    ------
    InvalidCodeObject
        The bundle has no code object for the target.
    """
    if not data.startswith(_BUNDLE_MAGIC):
        return data
    (count,) = struct.unpack_from("<Q", data, 24)
    position, found = 32, []
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", data, position)
        triple = data[position + 24 : position + 24 + length].decode()
        position += 24 + length
        found.append(triple)
        name = triple.rpartition("-")[2].partition(":")[0]
        if size and "amdgcn" in triple and target_name in (None, name):
            return data[offset : offset + size]
    raise InvalidCodeObject(
        f"the bundle has no code object for {target_name}; it holds {', '.join(found) or 'none'}"
    )


def open_elf(data: bytes) -> ELFFile:
    """Return the reader of an AMDGPU ELF file."""
    try:
        elf = ELFFile(io.BytesIO(data))
    except ELFError as err:
        raise InvalidCodeObject(f"not an ELF file ({err}); it starts with {data[:8]!r}") from err
    if elf["e_machine"] != "EM_AMDGPU":
        raise InvalidCodeObject(f"the ELF file is for {elf['e_machine']}, not for AMDGPU")
    return elf


def target_of_elf(elf: ELFFile) -> str:
    """Return the name of an ELF file's processor."""
    machine = elf["e_flags"] & 0xFF
    if machine not in _MACHINES:
        raise InvalidCodeObject(
            f"compiled for a processor that is not emulated (EF_AMDGPU_MACH 0x{machine:02x}); "
            f"emulated are {', '.join(_MACHINES.values())}"
        )
    return _MACHINES[machine]


def metadata_of(elf: ELFFile) -> dict[str, Any]:
    """Return the metadata note."""
    for section in elf.iter_sections():
        if isinstance(section, NoteSection):
            for note in section.iter_notes():
                if note["n_name"] == "AMDGPU" and int(note["n_type"]) == _NT_AMDGPU_METADATA:
                    desc = note["n_descdata"]
                    metadata: dict[str, Any] = msgpack.unpackb(desc, strict_map_key=False)
                    return metadata
    raise InvalidCodeObject("no AMDGPU metadata note: it was not compiled for the HSA runtime")


class Symbol(NamedTuple):
    """A symbol that a file defines.

    Attributes
    ----------
    name : str
    value, size : int
    kind : int
        ``STT_OBJECT`` and the like.
    section : int
        The number of its section, or a reserved number.
    """

    name: str
    value: int
    size: int
    kind: int
    section: int


def symbols_of(elf: ELFFile) -> list[Symbol]:
    """Return the symbols that the file defines."""
    # Reading them with pyelftools would take half the time of loading a code object.
    symbols = []
    for section in elf.iter_sections():
        if not isinstance(section, SymbolTableSection):
            continue
        table, names = section.data(), section.stringtable.data()
        whole = len(table) - len(table) % _SYMBOL.size
        for start, info, _, number, value, size in _SYMBOL.iter_unpack(table[:whole]):
            if number != _SHN_UNDEF:
                name = names[start : names.index(b"\0", start)].decode(errors="replace")
                symbols.append(Symbol(name, value, size, info & 15, number))
    return symbols


def pointed_to(elf: ELFFile) -> dict[str, str]:
    """Return the symbols whose addresses the pointer variables of an object file hold, by name."""
    at = {(sym.section, sym.value): sym.name for sym in symbols_of(elf) if sym.name}
    found = {}
    for section in elf.iter_sections():
        if not isinstance(section, RelocationSection):
            continue
        table = elf.get_section(section["sh_link"])
        for relocation in section.iter_relocations():
            variable = at.get((section["sh_info"], relocation["r_offset"]))
            if variable is not None:
                sym = table.get_symbol(relocation["r_info_sym"])
                where = sym["st_shndx"], sym["st_value"] + relocation["r_addend"]
                found[variable] = sym.name or at[where]  # a local symbol is an offset in a section
    return found


def size_in(entry: dict[str, Any], key: str, default: int | None = None) -> int:
    """Return a size or an offset of a metadata entry."""
    value = entry[key] if default is None else entry.get(key, default)
    if not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise InvalidCodeObject(f"the code object is damaged: {key} is {value!r}")
    return value


def image_of(elf: ELFFile) -> tuple[bytearray, int]:
    """Return the bytes of the loaded segments at their addresses, and the size of the whole."""
    segments = [seg for seg in elf.iter_segments() if seg["p_type"] == "PT_LOAD"]
    size = max((seg["p_vaddr"] + seg["p_memsz"] for seg in segments), default=0)
    held = max((seg["p_vaddr"] + seg["p_filesz"] for seg in segments), default=0)
    if size > _MAX_IMAGE:
        raise InvalidCodeObject(
            f"the code object is damaged: it asks for {size} bytes of memory, and "
            f"{_MAX_IMAGE} is the most that its parts can address"
        )
    length = elf.stream.seek(0, io.SEEK_END)
    if held > min(size, length + _MAX_GAPS):
        raise InvalidCodeObject(
            f"the code object is damaged: {length} bytes of file would fill {held} of {size} bytes "
            "of memory"
        )
    image = bytearray(held)
    for seg in segments:
        image[seg["p_vaddr"] : seg["p_vaddr"] + seg["p_filesz"]] = seg.data()
    if len(image) != held:
        raise InvalidCodeObject("the code object is damaged: it ends within a segment")
    return image, size


def relocate(elf: ELFFile, image: bytearray, base: int) -> None:
    """Apply the dynamic relocations for an image loaded at `base`."""
    for section in elf.iter_sections():
        if not isinstance(section, RelocationSection) or not section["sh_flags"] & 2:
            continue
        table = elf.get_section(section["sh_link"])
        for relocation in section.iter_relocations():
            kind, where = relocation["r_info_type"], relocation["r_offset"]
            value = base + relocation["r_addend"]
            if kind != _R_RELATIVE64:
                sym = table.get_symbol(relocation["r_info_sym"])
                if sym["st_shndx"] == "SHN_UNDEF":
                    raise InvalidCodeObject(f"undefined symbol {sym.name}: link it in")
                value += sym["st_value"]
            if kind in (_R_RELATIVE64, _R_ABS64):
                struct.pack_into("<Q", image, where, value & (1 << 64) - 1)
            elif kind == _R_ABS32_LO:
                struct.pack_into("<I", image, where, value & 0xFFFFFFFF)
            elif kind == _R_ABS32_HI:
                struct.pack_into("<I", image, where, value >> 32 & 0xFFFFFFFF)
            else:
                raise InvalidCodeObject(f"relocation type {kind} at 0x{where:x} is not supported")
