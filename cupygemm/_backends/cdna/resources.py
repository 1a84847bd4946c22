"""The registers and the memory that a compiled kernel uses, read from its code object.

The figures are computed by the compiler and stored by it: a msgpack note of the ELF holds one
record per kernel, as LLVM's "User Guide for AMDGPU Backend", section "Code Object Metadata",
describes.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NT_AMDGPU_METADATA = 32


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Registers, memory and code of one kernel, computed from its code object.

    Attributes
    ----------
    vgprs, agprs, sgprs : int
        Registers of each lane (VGPR, AGPR) and of each wave (SGPR).
    vgpr_spills, sgpr_spills : int
        Registers that the compiler spilled to memory.
    lds_bytes : int
        The LDS of a workgroup.
    scratch_bytes : int
        The private memory of a lane.
    kernarg_bytes : int
        The size of the arguments.
    code_bytes : int
        The size of the entry's machine code.
    max_threads : int
        The largest number of work-items of a workgroup.
    """

    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    code_bytes: int
    max_threads: int

    @property
    def summary(self) -> str:
        """Return the figures as readable text."""
        return (
            f"{self.vgprs} VGPRs, {self.agprs} AGPRs, {self.sgprs} SGPRs, {self.lds_bytes} B LDS, "
            f"{self.scratch_bytes} B scratch, {self.code_bytes} B code"
        )


def read_resources(path: Path, name: str) -> Resources:
    """Return the resources of the kernel `name` in the code object at `path`.

    Raises
    ------
    ValueError
        The file is not a code object, or has no such kernel.
    """
    import msgpack
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        elf = ELFFile(io.BytesIO(path.read_bytes()))
        records = _kernel_records(elf, msgpack.unpackb)
        record = next((entry for entry in records if entry[".name"] == name), None)
        code = elf.get_section_by_name(".dynsym").get_symbol_by_name(name)
    except (ELFError, AttributeError, KeyError, TypeError, msgpack.UnpackException) as err:
        raise ValueError(f"{path} is not a code object of AMDGPU: {err}") from err
    if record is None or code is None:
        names = ", ".join(sorted(entry[".name"] for entry in records)) or "none"
        raise ValueError(f"{path} has no kernel {name!r}; its kernels: {names}")
    return Resources(
        vgprs=record[".vgpr_count"],
        agprs=record.get(".agpr_count", 0),
        sgprs=record[".sgpr_count"],
        vgpr_spills=record.get(".vgpr_spill_count", 0),
        sgpr_spills=record.get(".sgpr_spill_count", 0),
        lds_bytes=record[".group_segment_fixed_size"],
        scratch_bytes=record[".private_segment_fixed_size"],
        kernarg_bytes=record[".kernarg_segment_size"],
        code_bytes=code[0]["st_size"],
        max_threads=record[".max_flat_workgroup_size"],
    )


def _kernel_records(elf: Any, unpack: Any) -> list[dict[str, Any]]:
    for segment in elf.iter_segments("PT_NOTE"):
        for note in segment.iter_notes():
            if note["n_name"] == "AMDGPU" and note["n_type"] in (
                NT_AMDGPU_METADATA,
                "NT_AMDGPU_METADATA",
            ):
                records: list[dict[str, Any]] = unpack(note["n_descdata"])["amdhsa.kernels"]
                return records
    raise KeyError("no AMDGPU metadata note")
