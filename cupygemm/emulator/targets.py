"""The targets that can be emulated, one row each, with all their differences.

No other module of the emulator's units compares the name of a target: they read a property of the
record, or the CDNA generation. A new target is a new row of `TARGETS`.

Sources: AMD's CDNA2, CDNA3 and CDNA4 instruction-set guides and white papers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

Row = TypeVar("Row")


class TargetRows(dict[str, Row]):
    """Further figures of some targets, by the target's name.

    Parameters
    ----------
    module : str
        Path of the module that holds the rows, for the message if a row is missing.
    rows : mapping of str to row
        By the name of the target.
    """

    def __init__(self, module: str, rows: Mapping[str, Row]) -> None:
        super().__init__(rows)
        self._module = module

    def __missing__(self, target: str) -> Row:
        raise ValueError(
            f"{target} has no row in {self._module}; add one, see "
            "docs/developer/add_an_architecture.rst"
        )


@dataclass(frozen=True, kw_only=True)
class Target:
    """A CDNA instruction set, together with one product that implements it.

    Attributes
    ----------
    name : str
        LLVM's name of the processor.
    part : str
        The product whose properties `hipGetDeviceProperties` reports.
    generation : int
        The CDNA generation: 2, 3 or 4. It decides which instructions exist and which hazards the
        hardware leaves to the program.
    elf_machine : int
        EF_AMDGPU_MACH in the flags of a code object's ELF header.
    compute_capability : tuple of int
        Major and minor number that HIP reports.
    lds_bytes : int
        LDS that one workgroup may use, in bytes.
    lds_banks : int
        Number of LDS banks, each 4 bytes wide.
    num_cus, num_xcds : int
        Compute units of the device, and the accelerator dies that share them.
    clock_mhz : int
        Boost clock.
    memory_bytes : int
        Device memory reported to the user.
    memory_clock_mhz, memory_bus_bits : int
    l2_bytes : int
        L2 cache of one XCD, or of one die on CDNA2.
    fp8_fnuz : bool
        8-bit floats are FNUZ (CDNA3) rather than OCP (CDNA4). CDNA2 has no 8-bit floats.
    mfma_flushes_subnormals : bool
        16-bit MFMA flush subnormal inputs and outputs.
    mfma_permutes_b : tuple of str
        Types of A for which single-block MFMA permute the lanes of B by BLGP. Multi-block MFMA do
        so on every target. (AMD's matrix instruction calculator.)
    f64_mfma_negates : bool
        BLGP negates the operands of f64 MFMA instead of permuting the lanes of B.
    f64_mfma_passes : int
        Passes of 4 cycles that a 16x16x4 f64 MFMA takes.
    architected_flat_scratch : bool
        The hardware sets up FLAT_SCRATCH, so a kernel needs no prologue for private memory, and
        SCRATCH instructions have the SVE bit.
    """

    name: str
    part: str
    generation: int
    elf_machine: int
    compute_capability: tuple[int, int]
    lds_bytes: int
    lds_banks: int
    num_cus: int
    num_xcds: int
    clock_mhz: int
    memory_bytes: int
    memory_clock_mhz: int
    memory_bus_bits: int
    l2_bytes: int
    fp8_fnuz: bool
    mfma_flushes_subnormals: bool
    mfma_permutes_b: tuple[str, ...]
    f64_mfma_negates: bool
    f64_mfma_passes: int
    architected_flat_scratch: bool


TARGETS = {
    target.name: target
    for target in (
        Target(
            name="gfx90a",
            part="AMD Instinct MI250X",
            generation=2,
            elf_machine=0x3F,
            compute_capability=(9, 0),
            lds_bytes=64 << 10,
            lds_banks=32,
            num_cus=110,
            num_xcds=1,
            clock_mhz=1700,
            memory_bytes=64 << 30,
            memory_clock_mhz=1600,
            memory_bus_bits=4096,
            l2_bytes=8 << 20,
            fp8_fnuz=True,
            mfma_flushes_subnormals=True,
            mfma_permutes_b=("f32", "f16", "bf16", "i8"),
            f64_mfma_negates=False,
            f64_mfma_passes=8,
            architected_flat_scratch=False,
        ),
        Target(
            name="gfx942",
            part="AMD Instinct MI300X",
            generation=3,
            elf_machine=0x4C,
            compute_capability=(9, 4),
            lds_bytes=64 << 10,
            lds_banks=32,
            num_cus=304,
            num_xcds=8,
            clock_mhz=2100,
            memory_bytes=192 << 30,
            memory_clock_mhz=1300,
            memory_bus_bits=8192,
            l2_bytes=4 << 20,
            fp8_fnuz=True,
            mfma_flushes_subnormals=False,
            mfma_permutes_b=("f32",),
            f64_mfma_negates=True,
            f64_mfma_passes=8,
            architected_flat_scratch=True,
        ),
        Target(
            name="gfx950",
            part="AMD Instinct MI355X",
            generation=4,
            elf_machine=0x4F,
            compute_capability=(9, 5),
            lds_bytes=160 << 10,
            lds_banks=64,
            num_cus=256,
            num_xcds=8,
            clock_mhz=2400,
            memory_bytes=288 << 30,
            memory_clock_mhz=1000,
            memory_bus_bits=8192,
            l2_bytes=4 << 20,
            fp8_fnuz=False,
            mfma_flushes_subnormals=False,
            mfma_permutes_b=(),
            f64_mfma_negates=True,
            f64_mfma_passes=16,
            architected_flat_scratch=True,
        ),
    )
}
