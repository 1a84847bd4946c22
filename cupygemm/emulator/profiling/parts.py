"""What the profiler knows of each target's part: caches, registers, peak rates.

Sources: AMD's CDNA2, CDNA3 and CDNA4 white papers and instruction-set guides; ROCm's table of GPU
specifications; AMD's matrix instruction calculator for the rates. A part's figures are those of one
device as the runtime shows it: one of an MI250X's two dies, all of an MI300X or MI355X.

vL1D of CDNA3 and CDNA4 has 4 sets of 64 ways (nod-ai's amd-shark-ai, "AMDGPU kernel optimization
guide"). Not published, and assumed here: the replacement policy (least recently used), the ways of
CDNA2's vL1D (4, which AMD's GCN white paper gives for its predecessor) and the hash that picks an
L2 channel.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CacheGeometry:
    """A set-associative cache.

    Attributes
    ----------
    size, line : int
        Bytes.
    ways : int
    """

    size: int
    line: int
    ways: int

    @property
    def sets(self) -> int:
        """Return the number of sets."""
        return self.size // (self.line * self.ways)


@dataclass(frozen=True)
class Part:
    """One device.

    Attributes
    ----------
    l1 : CacheGeometry
        vL1D of a CU.
    l2 : CacheGeometry
        Of an XCD.
    last : CacheGeometry or None
        The memory-side cache (AMD Infinity Cache) behind the L2s.
    hbm_bytes_per_second : float
        Peak, of the data sheet.
    matrix_flop_per_clock : dict of str to int
        Peak MFMA FLOP of a CU in a clock by type; integer operations count alike.
    vector_flop_per_clock : dict of str to int
        Peak FLOP of a CU's vector ALUs in a clock by type, packed instructions included.
    lds_granule : int
        Bytes in which LDS is allocated to workgroups.
    """

    l1: CacheGeometry
    l2: CacheGeometry
    last: CacheGeometry | None
    hbm_bytes_per_second: float
    matrix_flop_per_clock: dict[str, int]
    vector_flop_per_clock: dict[str, int]
    lds_granule: int


_INFINITY_CACHE = CacheGeometry(256 << 20, 128, 16)
_VECTOR = {"f16": 256, "f32": 256, "f64": 128}

PARTS = {
    "gfx90a": Part(
        CacheGeometry(16 << 10, 64, 4), CacheGeometry(8 << 20, 128, 16), None, 1.6384e12,
        {"f16": 1024, "bf16": 1024, "i8": 1024, "f32": 256, "f64": 256},
        {"f16": 256, "f32": 256, "f64": 128}, 512,
    ),
    "gfx942": Part(
        CacheGeometry(32 << 10, 128, 64), CacheGeometry(4 << 20, 128, 16), _INFINITY_CACHE, 5.3e12,
        {"f16": 2048, "bf16": 2048, "fp8": 4096, "i8": 4096, "xf32": 1024, "f32": 256, "f64": 256},
        _VECTOR, 512,
    ),
    "gfx950": Part(
        CacheGeometry(32 << 10, 128, 64), CacheGeometry(4 << 20, 128, 16), _INFINITY_CACHE, 8.0e12,
        {"f16": 4096, "bf16": 4096, "fp8": 8192, "fp6, fp4": 16384, "i8": 8192, "f32": 256,
         "f64": 128},
        _VECTOR, 1280,
    ),
}  # fmt: skip
