"""Compile a Hopper kernel to a cubin in the cache, and read its use of registers and memory."""

from __future__ import annotations

import functools
import io
import struct
from pathlib import Path
from typing import Any, NamedTuple

from cupygemm._backends.hopper.cuda.nvrtc import find_nvrtc
from cupygemm._build.cache import get_or_build

OPTIONS = ("-arch=sm_90a", "-std=c++17")
# Attributes of `.nv.info`, each with a symbol's index and a value.
_FRAME_SIZE, _REGISTERS = 0x11, 0x2F
_PAIR = 0x04  # the format of an attribute that has a size and a payload
_PLAIN = (0x01, 0x02, 0x03)  # formats of two bytes of payload


class CubinResources(NamedTuple):
    """The registers and the memory that one kernel uses, read from its cubin.

    Attributes
    ----------
    registers : int
        The registers of a thread at the kernel's start.
    local_bytes : int
        The stack of a thread, for values that did not fit in registers.
    shared_bytes : int
        The dynamic shared memory of a block.
    code_bytes : int
        The size of the machine code.
    """

    registers: int
    local_bytes: int
    shared_bytes: int
    code_bytes: int

    @property
    def summary(self) -> str:
        """Return the figures as readable text."""
        return (
            f"{self.registers} registers, {self.shared_bytes} B shared memory, "
            f"{self.local_bytes} B local memory, {self.code_bytes} B code"
        )


class Cubin(NamedTuple):
    """A cubin in the cache.

    Attributes
    ----------
    name : str
        The name of its entry.
    path : pathlib.Path
    compiler : str
    """

    name: str
    path: Path
    compiler: str

    def resources(self, shared_bytes: int = 0) -> CubinResources:
        """Return the resources of the entry, given the dynamic shared memory of its launch."""
        registers, local, code = read_cubin(self.path.read_bytes(), self.name)
        return CubinResources(registers, local, shared_bytes, code)


@functools.lru_cache(maxsize=1024)
def compile_cubin(text: str, name: str) -> Cubin:
    """Return the cubin of a translation unit, compiled at most once.

    Raises
    ------
    cupygemm._build.toolchain.CompileError
        The text does not compile; the error has the compiler's log.
    cupygemm._build.toolchain.ToolchainError
        No compiler was found.
    """
    nvrtc = find_nvrtc()
    compiler = f"NVRTC {nvrtc.version}"

    def build(output: Path) -> None:
        cubin, _ = nvrtc.compile(text, OPTIONS)
        output.write_bytes(cubin)

    path = get_or_build("cubin", (text, *OPTIONS, compiler), ".cubin", build)
    return Cubin(name, path, compiler)


def load(cubin: Cubin) -> Any:
    """Return the kernel of a cubin, loaded on the current device."""
    from cupy import RawModule

    return RawModule(path=str(cubin.path)).get_function(cubin.name)


def read_cubin(data: bytes, name: str) -> tuple[int, int, int]:
    """Return registers, bytes of stack and bytes of code of the kernel `name`.

    Raises
    ------
    ValueError
        The data are not a cubin, or have no such kernel.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        elf = ELFFile(io.BytesIO(data))
        code = elf.get_section_by_name(f".text.{name}")
        symbols = elf.get_section_by_name(".symtab")
        info = elf.get_section_by_name(".nv.info")
    except ELFError as err:
        raise ValueError(f"the cubin cannot be read: {err}") from err
    if code is None or symbols is None or info is None:
        raise ValueError(f"the cubin has no kernel {name!r}")
    indices = {i for i, symbol in enumerate(symbols.iter_symbols()) if symbol.name == name}
    found = {kind: value for kind, symbol, value in _attributes(info.data()) if symbol in indices}
    try:
        return found[_REGISTERS], found[_FRAME_SIZE], code.data_size
    except KeyError as err:
        raise ValueError(f"the cubin does not describe the parameters of kernel {name!r}") from err


def _attributes(info: bytes) -> list[tuple[int, int, int]]:
    """Return the kind, symbol and value of each attribute that names a symbol."""
    found, at = [], 0
    while at + 4 <= len(info):
        layout, kind, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if layout == _PAIR:
            if size == 8:
                found.append((kind, *struct.unpack_from("<II", info, at)))
            at += size
        elif layout not in _PLAIN:
            raise ValueError(f"a cubin has an attribute of unknown format {layout:#x}")
    return found
