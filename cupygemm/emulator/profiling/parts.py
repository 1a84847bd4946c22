"""The caches and peak rates of each target's part.

Sources: AMD's CDNA2, CDNA3 and CDNA4 white papers and instruction-set guides; ROCm's table of GPU
specifications; AMD's matrix instruction calculator for the rates. The figures are those of one
device as the runtime presents it: one of the two dies of an MI250X, or a whole MI300X or MI355X.

vL1D of CDNA3 and CDNA4 has 4 sets of 64 ways (nod-ai's amd-shark-ai, "AMDGPU kernel optimization
guide"). Three properties are not published, and are assumptions: the replacement policy (least
recently used), the associativity of CDNA2's vL1D (4, as in AMD's GCN white paper for its
predecessor) and the hash that selects an L2 channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupygemm.emulator.targets import TargetRows


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


@dataclass(frozen=True, kw_only=True)
class Part:
    """One device.

    Attributes
    ----------
    l1 : CacheGeometry
        The vL1D cache of a CU.
    l2 : CacheGeometry
        The L2 cache of an XCD.
    last : CacheGeometry or None
        The memory-side cache (AMD Infinity Cache) below the L2s.
    hbm_bytes_per_second : float
        Peak bandwidth in the data sheet.
    matrix_flop_per_clock : dict of str to int
        Peak MFMA FLOP of a CU per clock, by type; integer operations count as FLOP.
    vector_flop_per_clock : dict of str to int
        Peak FLOP of a CU's vector ALUs per clock, by type, with packed instructions.
    lds_granule : int
        LDS is allocated to workgroups in multiples of this many bytes.
    """

    l1: CacheGeometry
    l2: CacheGeometry
    last: CacheGeometry | None
    hbm_bytes_per_second: float
    matrix_flop_per_clock: dict[str, int]
    vector_flop_per_clock: dict[str, int]
    lds_granule: int


_INFINITY_CACHE = CacheGeometry(size=256 << 20, line=128, ways=16)
_CDNA3_L1 = CacheGeometry(size=32 << 10, line=128, ways=64)
_CDNA3_L2 = CacheGeometry(size=4 << 20, line=128, ways=16)
_VECTOR = {"f16": 256, "f32": 256, "f64": 128}

_ROWS = {
    "gfx90a": Part(
        l1=CacheGeometry(size=16 << 10, line=64, ways=4),
        l2=CacheGeometry(size=8 << 20, line=128, ways=16),
        last=None,
        hbm_bytes_per_second=1.6384e12,
        matrix_flop_per_clock={"f16": 1024, "bf16": 1024, "i8": 1024, "f32": 256, "f64": 256},
        vector_flop_per_clock=_VECTOR,
        lds_granule=512,
    ),
    "gfx942": Part(
        l1=_CDNA3_L1,
        l2=_CDNA3_L2,
        last=_INFINITY_CACHE,
        hbm_bytes_per_second=5.3e12,
        matrix_flop_per_clock={
            "f16": 2048,
            "bf16": 2048,
            "fp8": 4096,
            "i8": 4096,
            "xf32": 1024,
            "f32": 256,
            "f64": 256,
        },
        vector_flop_per_clock=_VECTOR,
        lds_granule=512,
    ),
    "gfx950": Part(
        l1=_CDNA3_L1,
        l2=_CDNA3_L2,
        last=_INFINITY_CACHE,
        hbm_bytes_per_second=8.0e12,
        matrix_flop_per_clock={
            "f16": 4096,
            "bf16": 4096,
            "fp8": 8192,
            "fp6, fp4": 16384,
            "i8": 8192,
            "f32": 256,
            "f64": 128,
        },
        vector_flop_per_clock=_VECTOR,
        lds_granule=1280,
    ),
}
PARTS = TargetRows("cupygemm/emulator/profiling/parts.py", _ROWS)
