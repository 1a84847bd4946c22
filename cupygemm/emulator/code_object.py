"""Read a code object: ELF, kernel descriptors and metadata note, and place it in device memory.

Program counters are the ELF's virtual addresses; the image is loaded at `CodeObject.base`, so that
the device address of a symbol is ``base + its virtual address``. Layouts: LLVM's "User Guide for
AMDGPU Backend", sections "Kernel Descriptor", "Code Object Metadata" and "Relocation Records".
"""

from __future__ import annotations

import ctypes
import io
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgpack
from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import NoteSection, SymbolTableSection

from cupygemm.emulator.errors import EmulatorError
from cupygemm.emulator.targets import TARGETS

if TYPE_CHECKING:
    from cupygemm.emulator.allocations import Memory

_BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_NT_AMDGPU_METADATA = 32
_MAX_IMAGE = 4 << 30
# What the readers of ELF and msgpack raise over bytes that are something else, or cut short.
_DAMAGE = (
    ELFError, ConstructError, ValueError, LookupError, TypeError, AttributeError, AssertionError,
    OverflowError, UnicodeError, struct.error,
)  # fmt: skip
_MACHINES = {target.elf_machine: target.name for target in TARGETS.values()}
_R_ABS32_LO, _R_ABS32_HI, _R_ABS64, _R_RELATIVE64 = 1, 2, 3, 13


class InvalidCodeObject(EmulatorError):
    """The bytes are no code object that the emulated device can load."""


@dataclass(frozen=True)
class Argument:
    """One entry of a kernel's argument list, hidden ones included."""

    name: str
    offset: int
    size: int
    value_kind: str


@dataclass(frozen=True)
class Descriptor:
    """The 64-byte kernel descriptor, taken apart."""

    group_segment_size: int
    private_segment_size: int
    kernarg_size: int
    entry_offset: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    preload_length: int
    preload_offset: int

    @classmethod
    def parse(cls, data: bytes) -> Descriptor:
        """Read a descriptor from its 64 bytes."""
        group, private, kernarg = struct.unpack_from("<III", data, 0)
        (entry,) = struct.unpack_from("<q", data, 16)
        rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from("<IIIHH", data, 44)
        return cls(group, private, kernarg, entry, rsrc1, rsrc2, rsrc3, properties,
                   preload & 0x7F, preload >> 7)  # fmt: skip

    @property
    def mode(self) -> int:
        """Return the initial MODE register."""
        float_mode = self.rsrc1 >> 12 & 0xFF
        dx10_clamp, ieee = self.rsrc1 >> 21 & 1, self.rsrc1 >> 23 & 1
        fp16_overflow = self.rsrc1 >> 26 & 1
        return float_mode | dx10_clamp << 8 | ieee << 9 | fp16_overflow << 23

    @property
    def accum_offset(self) -> int:
        """Return the first AGPR's place in the unified register file."""
        return ((self.rsrc3 & 0x3F) + 1) * 4

    @property
    def num_registers(self) -> int:
        """Return the VGPRs and AGPRs allocated together."""
        return ((self.rsrc1 & 0x3F) + 1) * 8


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel that can be launched.

    Attributes
    ----------
    name : str
    entry : int
        Virtual address of its first instruction.
    arguments : tuple of Argument
    lds_bytes, scratch_bytes : int
        Static LDS of a workgroup and private memory of a work-item.
    num_vgpr, num_agpr, num_sgpr : int
        Registers it uses, from the metadata.
    code_bytes : int
        Size of its function symbol.
    max_threads : int
        Largest workgroup.
    """

    name: str
    entry: int
    arguments: tuple[Argument, ...]
    kernarg_size: int
    lds_bytes: int
    scratch_bytes: int
    dynamic_stack: bool
    num_vgpr: int
    num_agpr: int
    num_sgpr: int
    code_bytes: int
    max_threads: int
    descriptor: Descriptor
    code_object: CodeObject = field(repr=False)


@dataclass(eq=False)
class CodeObject:
    """A code object in device memory.

    Attributes
    ----------
    target_name : str
    base : int
        Device address of the image; add a virtual address to it.
    image : bytes
        The image, by virtual address.
    kernels : dict of str to Kernel
    symbols : dict of str to (int, int)
        Device address and size of every global object.
    functions : list of (int, int, str)
        Virtual address, size and name of every function, sorted.
    programs : dict
        Room for the run loop's decoded instructions, by target.
    elf : bytes
        The file as it was loaded, for what the image lacks: debugging information.
    """

    target_name: str
    base: int
    image: bytes
    kernels: dict[str, Kernel] = field(default_factory=dict)
    symbols: dict[str, tuple[int, int]] = field(default_factory=dict)
    functions: list[tuple[int, int, str]] = field(default_factory=list)
    programs: dict[str, Any] = field(default_factory=dict, repr=False)
    elf: bytes = field(default=b"", repr=False)

    def locate(self, pc: int) -> tuple[str, int]:
        """Return the function that holds `pc`, and the offset into it."""
        for start, size, name in self.functions:
            if start <= pc < start + max(size, 1):
                return name, pc - start
        return "", pc


def unbundle(data: bytes, target_name: str | None = None) -> bytes:
    """Return the code object for a target out of a clang offload bundle; other data as it is.

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


def target_of(data: bytes) -> str:
    """Return the processor that a code object was compiled for.

    Raises
    ------
    InvalidCodeObject
        It is no AMDGPU ELF file, or for a processor that is not emulated.
    """
    return _target_of(_open(data))


def load(data: bytes, memory: Memory, target_name: str | None = None) -> CodeObject:
    """Place a code object in device memory and read its kernels.

    Parameters
    ----------
    data : bytes
        An ELF code object, or a clang offload bundle.
    memory : Memory
    target_name : str, optional
        The device's target; a code object for another one is refused.

    Returns
    -------
    CodeObject

    Raises
    ------
    InvalidCodeObject
        Not an AMDGPU code object, damaged, of another target, or with relocations that are not
        supported.
    """
    data = unbundle(bytes(data), target_name)
    elf = _open(data)
    own_target = _target_of(elf)
    if target_name is not None and own_target != target_name:
        raise InvalidCodeObject(
            f"the code object is for {own_target}, and the device is {target_name}: "
            f"compile it with --offload-arch={target_name}"
        )
    try:
        image = _image(elf)
        base = memory.malloc(len(image), tag="code object")
        memory.define(base, len(image))
        try:
            return _place(elf, data, image, base)
        except BaseException:
            memory.free(base)
            raise
    except _DAMAGE as err:
        raise InvalidCodeObject(
            f"the code object is damaged ({type(err).__name__}: {err})"
        ) from err


def _image(elf: ELFFile) -> bytearray:
    """Return the loaded segments in their places."""
    segments = [seg for seg in elf.iter_segments() if seg["p_type"] == "PT_LOAD"]
    size = max((seg["p_vaddr"] + seg["p_memsz"] for seg in segments), default=0)
    if size > _MAX_IMAGE:
        raise InvalidCodeObject(f"the code object is damaged: it asks for {size} bytes of memory")
    image = bytearray(size)
    for seg in segments:
        image[seg["p_vaddr"] : seg["p_vaddr"] + seg["p_filesz"]] = seg.data()
    if len(image) != size:
        raise InvalidCodeObject("the code object is damaged: it ends within a segment")
    return image


def _place(elf: ELFFile, data: bytes, image: bytearray, base: int) -> CodeObject:
    """Move a code object to its address and read its kernels."""
    _relocate(elf, image, base)
    ctypes.memmove(base, bytes(image), len(image))
    code_object = CodeObject(_target_of(elf), base, bytes(image), elf=data)
    symbols = _symbols(elf)
    _collect_symbols(code_object, symbols)
    for entry in _metadata(elf).get("amdhsa.kernels", []):
        kernel = _kernel(code_object, entry, symbols)
        code_object.kernels[kernel.name] = kernel
    return code_object


def read_resources(data: bytes) -> dict[str, dict[str, Any]]:
    """Return the metadata of each kernel of a code object, by name, without loading it."""
    elf = _open(unbundle(bytes(data)))
    return {entry[".name"]: entry for entry in _metadata(elf).get("amdhsa.kernels", [])}


def _open(data: bytes) -> ELFFile:
    try:
        elf = ELFFile(io.BytesIO(data))
    except ELFError as err:
        raise InvalidCodeObject(f"not an ELF file ({err}); it starts with {data[:8]!r}") from err
    if elf["e_machine"] != "EM_AMDGPU":
        raise InvalidCodeObject(f"an ELF file for {elf['e_machine']}, not for AMDGPU")
    return elf


def _target_of(elf: ELFFile) -> str:
    machine = elf["e_flags"] & 0xFF
    if machine not in _MACHINES:
        raise InvalidCodeObject(
            f"compiled for a processor that is not emulated (EF_AMDGPU_MACH 0x{machine:02x}); "
            f"emulated are {', '.join(_MACHINES.values())}"
        )
    return _MACHINES[machine]


def _metadata(elf: ELFFile) -> dict[str, Any]:
    for section in elf.iter_sections():
        if isinstance(section, NoteSection):
            for note in section.iter_notes():
                if note["n_name"] == "AMDGPU" and int(note["n_type"]) == _NT_AMDGPU_METADATA:
                    desc = note["n_descdata"]
                    metadata: dict[str, Any] = msgpack.unpackb(desc, strict_map_key=False)
                    return metadata
    raise InvalidCodeObject("no AMDGPU metadata note: it was not compiled for the HSA runtime")


def _symbols(elf: ELFFile) -> list[Any]:
    symbols = []
    for section in elf.iter_sections():
        if isinstance(section, SymbolTableSection):
            symbols += [s for s in section.iter_symbols() if s["st_shndx"] != "SHN_UNDEF"]
    return symbols


def _collect_symbols(code_object: CodeObject, symbols: list[Any]) -> None:
    functions = set()
    for sym in symbols:
        kind, address, size = sym["st_info"]["type"], sym["st_value"], sym["st_size"]
        if kind == "STT_OBJECT":
            code_object.symbols[sym.name] = (code_object.base + address, size)
        elif kind in ("STT_FUNC", "STT_AMDGPU_HSA_KERNEL"):
            functions.add((address, size, sym.name))
    code_object.functions = sorted(functions)


def _kernel(code_object: CodeObject, entry: dict[str, Any], symbols: list[Any]) -> Kernel:
    name, symbol = entry[".name"], entry[".symbol"]
    address = next((sym["st_value"] for sym in symbols if sym.name == symbol), None)
    if address is None:
        raise InvalidCodeObject(f"kernel {name} has no descriptor symbol {symbol}")
    descriptor = Descriptor.parse(code_object.image[address : address + 64])
    if descriptor.properties & 1 << 10:
        raise InvalidCodeObject(f"kernel {name} is compiled for wave32; CDNA runs wave64")
    pc = address + descriptor.entry_offset
    size = next((s for start, s, _ in code_object.functions if start == pc), 0)
    arguments = tuple(
        Argument(arg.get(".name", ""), arg[".offset"], arg[".size"], arg[".value_kind"])
        for arg in entry.get(".args", [])
    )
    return Kernel(
        name=name,
        entry=pc,
        arguments=arguments,
        kernarg_size=max(entry[".kernarg_segment_size"], descriptor.kernarg_size),
        lds_bytes=entry[".group_segment_fixed_size"],
        scratch_bytes=entry[".private_segment_fixed_size"],
        dynamic_stack=bool(entry.get(".uses_dynamic_stack", False)),
        num_vgpr=entry[".vgpr_count"] - entry.get(".agpr_count", 0),
        num_agpr=entry.get(".agpr_count", 0),
        num_sgpr=entry[".sgpr_count"],
        code_bytes=size,
        max_threads=entry.get(".max_flat_workgroup_size", 1024),
        descriptor=descriptor,
        code_object=code_object,
    )


def _relocate(elf: ELFFile, image: bytearray, base: int) -> None:
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
