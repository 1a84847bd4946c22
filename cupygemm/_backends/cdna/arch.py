"""The GPU architectures: one row for each, with the facts that kernels and the cost model need.

Sources: AMD's CDNA2, CDNA3 and CDNA4 white papers and instruction-set guides, AMD's matrix
instruction calculator (MFMA passes), LLVM's AMDGPU backend (register granule and occupancy).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cupygemm._backends.cdna.config import WAVE_SIZE, MmaShape
from cupygemm._records.dtypes import ITEMSIZE, DType

MfmaCycles = Mapping[MmaShape, int]
_Literal = Mapping[tuple[int, int, int], int]
SCALED_TYPES: tuple[DType, ...] = ("e2m1x2",)
"""Types that only instructions with block scales multiply."""


def _table(
    half: _Literal, f64: _Literal, i8: _Literal, others: Mapping[DType, _Literal] | None = None
) -> Mapping[DType, MfmaCycles]:
    """Return the instructions by input type; those of fp32 are the same on every CDNA.

    A complex instruction is four real ones.
    """
    f32: _Literal = {(16, 16, 4): 32, (32, 32, 2): 64}
    c64, c128 = ({shape: 4 * cycles for shape, cycles in real.items()} for real in (f32, f64))
    table = {"bf16": half, "f16": half, "f32": f32, "f64": f64, "i8": i8, "c64": c64, "c128": c128}
    return MappingProxyType(
        {
            dtype: MappingProxyType({MmaShape(*shape): cycles for shape, cycles in row.items()})
            for dtype, row in (table | dict(others or {})).items()
        }
    )


# The cycles of one MFMA on its SIMD (4 per pass), by input type and by the instruction's m, n, k.
# This is the library's one statement of the instructions that exist. A pair of 4-bit floats counts
# as one element of k.
_CDNA2_MFMA = _table(
    half={(16, 16, 16): 32, (32, 32, 8): 64},
    f64={(16, 16, 4): 32},
    i8={(16, 16, 16): 32, (32, 32, 8): 64},
)
_FLOAT8 = {(16, 16, 32): 16, (32, 32, 16): 32}  # for either format, or one of each
_CDNA4_FLOAT8 = _FLOAT8 | {(16, 16, 128): 32}
_CDNA3_MFMA = _table(
    half={(16, 16, 16): 16, (32, 32, 8): 32},
    f64={(16, 16, 4): 32},
    i8={(16, 16, 32): 16, (32, 32, 16): 32},
    others={
        "e4m3fnuz": _FLOAT8,
        "e5m2fnuz": _FLOAT8,
        "tf32": {(16, 16, 8): 16, (32, 32, 4): 32},
    },
)
_CDNA4_MFMA = _table(
    half={(16, 16, 16): 16, (32, 32, 8): 32, (16, 16, 32): 16, (32, 32, 16): 32},
    f64={(16, 16, 4): 64},
    i8={(16, 16, 32): 16, (32, 32, 16): 32, (16, 16, 64): 16, (32, 32, 32): 32},
    others={"e4m3fn": _CDNA4_FLOAT8, "e5m2": _CDNA4_FLOAT8, "e2m1x2": {(16, 16, 64): 16}},
)


@dataclass(frozen=True)
class Arch:
    """One GPU architecture, with the figures of one GPU of it.

    Attributes
    ----------
    name : str
        The compiler's target, ``"gfx942"``.
    part : str
        The GPU that the figures describe.
    num_cus, num_xcds : int
        Compute units (CUs), and dies (XCDs). Each die has an L2 of its own; workgroups are assigned
        to the dies in turn.
    simds_per_cu, registers_per_simd, max_waves_per_simd : int
        The waves of a SIMD share the `registers_per_simd` 32-bit registers that it has for each
        lane, VGPRs and AGPRs together.
    lds_bytes, lds_banks : int
        The LDS of a CU, all of which one workgroup may use, and its banks of 4 bytes.
    lds_bytes_per_clock : int
        The read bandwidth of a CU's LDS.
    direct_load_bytes : int
        Bytes per lane of the widest load that writes to LDS directly.
    transposing_reads : bool
        Reads of LDS can transpose elements of 16 and 8 bits.
    block_scales : bool
        There are matrix instructions that multiply blocks of k by scales.
    clock_mhz : int
        Boost clock.
    hbm_gbytes_per_s : int
        Memory bandwidth, 10**9 bytes per second.
    l2_bytes, l2_bytes_per_clock : int
        L2 of one XCD and its read bandwidth.
    mfma_cycles : mapping of str to mapping of (m, n, k) to int
        By input type and shape, the matrix instructions that exist and the cycles for which each
        occupies its SIMD.
    """

    name: str
    part: str
    num_cus: int
    num_xcds: int
    lds_bytes: int
    lds_banks: int
    lds_bytes_per_clock: int
    direct_load_bytes: int
    clock_mhz: int
    hbm_gbytes_per_s: int
    l2_bytes: int
    l2_bytes_per_clock: int
    mfma_cycles: Mapping[DType, MfmaCycles] = field(hash=False)
    simds_per_cu: int = 4
    registers_per_simd: int = 512
    max_waves_per_simd: int = 8
    transposing_reads: bool = False
    block_scales: bool = False

    def deepest_mma(
        self, dtype: DType, extent: int, *, operand_bytes: int | None = None
    ) -> MmaShape | None:
        """Return the instruction with the largest k, or None if there is none.

        Parameters
        ----------
        dtype : str
            The type of the inputs.
        extent : {16, 32}
            The instruction's m and n.
        operand_bytes : int, optional
            The maximum number of bytes of one operand that a lane holds.
        """
        found = [
            shape
            for shape in self.mfma_cycles.get(dtype, ())
            if shape.m == shape.n == extent
            and (operand_bytes is None or _lane_bytes(shape, dtype) <= operand_bytes)
        ]
        return max(found, key=lambda shape: shape.k, default=None)


def _lane_bytes(shape: MmaShape, dtype: DType) -> int:
    """Return the bytes of an operand that each lane holds."""
    return shape.m * shape.k * ITEMSIZE[dtype] // WAVE_SIZE


ARCHS: dict[str, Arch] = {
    arch.name: arch
    for arch in (
        Arch(
            name="gfx90a",
            part="MI250X (one die)",
            num_cus=110,
            num_xcds=1,
            lds_bytes=64 << 10,
            lds_banks=32,
            lds_bytes_per_clock=128,
            direct_load_bytes=4,
            clock_mhz=1700,
            hbm_gbytes_per_s=1638,
            l2_bytes=8 << 20,
            l2_bytes_per_clock=32 * 128,
            mfma_cycles=_CDNA2_MFMA,
        ),
        Arch(
            name="gfx942",
            part="MI300X",
            num_cus=304,
            num_xcds=8,
            lds_bytes=64 << 10,
            lds_banks=32,
            lds_bytes_per_clock=128,
            direct_load_bytes=4,
            clock_mhz=2100,
            hbm_gbytes_per_s=5300,
            l2_bytes=4 << 20,
            l2_bytes_per_clock=16 * 128,
            mfma_cycles=_CDNA3_MFMA,
        ),
        Arch(
            name="gfx950",
            part="MI355X",
            num_cus=256,
            num_xcds=8,
            lds_bytes=160 << 10,
            lds_banks=64,
            lds_bytes_per_clock=256,
            direct_load_bytes=16,
            clock_mhz=2400,
            hbm_gbytes_per_s=8000,
            l2_bytes=4 << 20,
            l2_bytes_per_clock=16 * 128,
            mfma_cycles=_CDNA4_MFMA,
            transposing_reads=True,
            block_scales=True,
        ),
    )
}
