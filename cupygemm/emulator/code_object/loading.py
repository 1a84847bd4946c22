"""Read a code object: ELF, kernel descriptors and metadata note, and place it in device memory.

Program counters are the ELF's virtual addresses; the image is loaded at `CodeObject.base`, so that
the device address of a symbol is ``base + its virtual address``. Layouts: LLVM's "User Guide for
AMDGPU Backend", sections "Kernel Descriptor" and "Code Object Metadata".
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from elftools.elf.elffile import ELFFile

from cupygemm.emulator.code_object.elf import (
    STT_AMDGPU_HSA_KERNEL,
    STT_FUNC,
    STT_OBJECT,
    InvalidCodeObject,
    Symbol,
    damage_reported,
    image_of,
    metadata_of,
    open_elf,
    relocate,
    size_in,
    symbols_of,
    target_of_elf,
    unbundle,
)
from cupygemm.emulator.code_object.kept_source import program_of

if TYPE_CHECKING:
    from cupygemm.emulator.memory.allocations import Memory

_MANAGED = ".managed"
_MAX_KERNARG = 1 << 16  # bytes of a kernel's arguments


@dataclass(frozen=True)
class Argument:
    """One entry of a kernel's argument list, hidden ones included."""

    name: str
    offset: int
    size: int
    value_kind: str
    access: str = ""  # "read_only" or "write_only", for a __restrict__ pointer used that way

    @property
    def source_name(self) -> str:
        """The name in the source; empty if it is not known."""
        return self.name.removesuffix(".coerce")  # clang's name for a HIP pointer

    def label(self, position: int) -> str:
        """Return the position and, as far as known, the name: ``argument 2 (out)``."""
        return f"argument {position}" + f" ({self.source_name})" * bool(self.source_name)


@dataclass(frozen=True)
class Descriptor:
    """The fields of the 64-byte kernel descriptor."""

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
    def num_registers(self) -> int:
        """Return the total number of VGPRs and AGPRs allocated."""
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

    @functools.cached_property
    def explicit_arguments(self) -> tuple[Argument, ...]:
        """The arguments that a launch passes, in order."""
        return tuple(each for each in self.arguments if not each.value_kind.startswith("hidden_"))

    @functools.cached_property
    def hidden_arguments(self) -> tuple[Argument, ...]:
        """The arguments that the runtime adds, in order."""
        return tuple(each for each in self.arguments if each.value_kind.startswith("hidden_"))


@dataclass(eq=False)
class CodeObject:
    """A code object in device memory.

    Attributes
    ----------
    target_name : str
    base : int
        Device address of the image; add a virtual address to it.
    image : bytes
        The image, by virtual address, up to the last byte that is in the file.
    kernels : dict of str to Kernel
    symbols : dict of str to (int, int)
        Device address and size of every global object.
    functions : list of (int, int, str)
        Virtual address, size and name of every function, sorted.
    elf : bytes
        The file as it was loaded, for debugging information, which the image lacks.
    printf : device_printf.Buffer or None
        The output buffer of its kernels, once one was launched.
    shown : set of str
        The variables whose addresses the host has requested.
    """

    target_name: str
    base: int
    image: bytes
    kernels: dict[str, Kernel] = field(default_factory=dict)
    symbols: dict[str, tuple[int, int]] = field(default_factory=dict)
    functions: list[tuple[int, int, str]] = field(default_factory=list)
    elf: bytes = field(default=b"", repr=False)
    printf: Any = field(default=None, repr=False)
    shown: set[str] = field(default_factory=set, repr=False)

    @functools.cached_property
    def program(self) -> tuple[str, str]:
        """The name and the text of the program in it; both "" if it has none."""
        return program_of(self.elf)

    def locate(self, pc: int) -> tuple[str, int]:
        """Return the function that contains `pc`, and the offset into it.

        A function without a size, from an assembly file, extends to the next one.
        """
        position = bisect.bisect_right(self.functions, pc, key=lambda function: function[0])
        for start, size, name in reversed(self.functions[:position]):
            if pc < start + size or (size == 0 and start == self.functions[position - 1][0]):
                return name, pc - start
        return "", pc


def target_of(data: bytes) -> str:
    """Return the processor that a code object was compiled for.

    Raises
    ------
    InvalidCodeObject
        The data are not an AMDGPU ELF file, or are for a processor that is not emulated.
    """
    with damage_reported():
        return target_of_elf(open_elf(data))


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
    with damage_reported():
        data = unbundle(bytes(data), target_name)
        elf = open_elf(data)
        own_target = target_of_elf(elf)
        if target_name is not None and own_target != target_name:
            raise InvalidCodeObject(
                f"the code object is for {own_target}, and the device is {target_name}: "
                f"compile it with --offload-arch={target_name}"
            )
        image, size = image_of(elf)
        base = memory.malloc(size, tag="code object", fresh=True)
        memory.define(base, size)
        try:
            return _place(elf, data, image, base)
        except BaseException:
            memory.free(base)
            raise


def _place(elf: ELFFile, data: bytes, image: bytearray, base: int) -> CodeObject:
    """Relocate a code object to its address and read its kernels."""
    relocate(elf, image, base)
    ctypes.memmove(base, bytes(image), len(image))
    code_object = CodeObject(target_of_elf(elf), base, bytes(image), elf=data)
    symbols = symbols_of(elf)
    _collect_symbols(code_object, symbols)
    _point_to_managed(code_object)
    for entry in metadata_of(elf).get("amdhsa.kernels", []):
        kernel = _kernel(code_object, entry, symbols)
        code_object.kernels[kernel.name] = kernel
    known = {start for start, _, _ in code_object.functions}
    unnamed = [(k.entry, 0, k.name) for k in code_object.kernels.values() if k.entry not in known]
    code_object.functions = sorted([*code_object.functions, *unnamed])
    return code_object


def read_resources(data: bytes) -> dict[str, dict[str, Any]]:
    """Return the metadata of each kernel of a code object, by name, without loading it."""
    with damage_reported():
        elf = open_elf(unbundle(bytes(data)))
        return {entry[".name"]: entry for entry in metadata_of(elf).get("amdhsa.kernels", [])}


def _collect_symbols(code_object: CodeObject, symbols: list[Symbol]) -> None:
    functions = set()
    for sym in symbols:
        if sym.kind == STT_OBJECT:
            code_object.symbols[sym.name] = (code_object.base + sym.value, sym.size)
        elif sym.kind in (STT_FUNC, STT_AMDGPU_HSA_KERNEL):
            functions.add((sym.value, sym.size, sym.name))
    code_object.functions = sorted(functions)


def _point_to_managed(code_object: CodeObject) -> None:
    """Set the pointer by which kernels reach a ``__managed__`` variable x: to x.managed."""
    variables = code_object.symbols
    for name in [name for name in variables if name.endswith(_MANAGED)]:
        pointer = name.removesuffix(_MANAGED)
        if pointer in variables:
            place, _ = variables[pointer]
            ctypes.memmove(place, variables[name][0].to_bytes(8, "little"), 8)
            variables[pointer] = variables[name]


def _kernel(code_object: CodeObject, entry: dict[str, Any], symbols: list[Symbol]) -> Kernel:
    name, symbol = entry[".name"], entry[".symbol"]
    address = next((sym.value for sym in symbols if sym.name == symbol), None)
    if address is None:
        raise InvalidCodeObject(f"kernel {name} has no descriptor symbol {symbol}")
    descriptor = Descriptor.parse(code_object.image[address : address + 64])
    if descriptor.properties & 1 << 10:
        raise InvalidCodeObject(f"kernel {name} is compiled for wave32; CDNA runs wave64")
    kernarg_size = max(size_in(entry, ".kernarg_segment_size"), descriptor.kernarg_size)
    if kernarg_size > _MAX_KERNARG:
        raise InvalidCodeObject(
            f"the code object is damaged: kernel {name} claims {kernarg_size} bytes of arguments"
        )
    pc = address + descriptor.entry_offset
    size = next((s for start, s, _ in code_object.functions if start == pc), 0)
    arguments = tuple(
        Argument(
            str(arg.get(".name", "")),
            size_in(arg, ".offset"),
            size_in(arg, ".size"),
            str(arg[".value_kind"]),
            str(arg.get(".actual_access", "")),
        )
        for arg in entry.get(".args", [])
    )
    return Kernel(
        name=name,
        entry=pc,
        arguments=arguments,
        kernarg_size=kernarg_size,
        lds_bytes=size_in(entry, ".group_segment_fixed_size"),
        scratch_bytes=size_in(entry, ".private_segment_fixed_size"),
        dynamic_stack=bool(entry.get(".uses_dynamic_stack", False)),
        num_vgpr=size_in(entry, ".vgpr_count") - size_in(entry, ".agpr_count", 0),
        num_agpr=size_in(entry, ".agpr_count", 0),
        num_sgpr=size_in(entry, ".sgpr_count"),
        code_bytes=size,
        max_threads=size_in(entry, ".max_flat_workgroup_size", 1024),
        descriptor=descriptor,
        code_object=code_object,
    )
