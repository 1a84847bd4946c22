"""The targets that can be emulated, and what differs between them.

Sources: AMD's CDNA2, CDNA3 and CDNA4 instruction-set guides and white papers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """One CDNA instruction set, as a part that users know.

    Attributes
    ----------
    name : str
        LLVM's processor name.
    part : str
        The product whose properties `hipGetDeviceProperties` reports.
    lds_bytes : int
        LDS that one workgroup may use, bytes.
    lds_banks : int
        Banks of 4 bytes.
    num_cus, num_xcds : int
    clock_mhz : int
        Boost clock.
    memory_bytes : int
        Device memory reported to the user.
    memory_clock_mhz, memory_bus_bits : int
    l2_bytes : int
        L2 per XCD (per die on gfx90a).
    fp8_fnuz : bool
        8-bit floats are FNUZ (gfx942) rather than OCP (gfx950).
    mfma_flushes_subnormals : bool
        16-bit MFMA flushes subnormal inputs and outputs (CDNA2).
    architected_flat_scratch : bool
        FLAT_SCRATCH is set up by the hardware and SCRATCH needs no prologue (gfx940 and later).
    """

    name: str
    part: str
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
    architected_flat_scratch: bool


TARGETS = {
    target.name: target
    for target in (
        Target("gfx90a", "AMD Instinct MI250X", 64 << 10, 32, 110, 1, 1700, 64 << 30, 1600, 4096,
               8 << 20, True, True, False),
        Target("gfx942", "AMD Instinct MI300X", 64 << 10, 32, 304, 8, 2100, 192 << 30, 1300, 8192,
               4 << 20, True, False, True),
        Target("gfx950", "AMD Instinct MI355X", 160 << 10, 64, 256, 8, 2400, 288 << 30, 1000, 8192,
               4 << 20, False, False, True),
    )
}  # fmt: skip
