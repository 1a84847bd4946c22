"""How many waves of a kernel a SIMD can hold at once, and what limits it. *Computed*.

A SIMD has 512 registers for each lane, VGPRs and AGPRs together, and room for 8 waves; a wave of
more than 100 SGPRs leaves room for 7 (LLVM's AMDGPU backend, AMDGPUBaseInfo). A CU has 4 SIMDs and
one LDS, and takes whole workgroups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cupygemm.emulator.profiling.parts import PARTS

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Kernel
    from cupygemm.emulator.targets import Target

SIMDS = 4
_REGISTERS, _MAX_WAVES, _SGPRS_FOR_ALL_WAVES = 512, 8, 100


@dataclass(frozen=True)
class Occupancy:
    """Room for a kernel's workgroups on a CU.

    Attributes
    ----------
    workgroups : int
        That a CU holds at once.
    waves_per_simd : float
        Waves of them on each SIMD, of at most 8.
    limits : dict of str to int
        Workgroups that each resource alone would allow: ``registers``, ``SGPRs``, ``LDS``,
        ``wave slots``.
    limited_by : str
        The scarcest resources. A compiler that sees one limit may allocate more of another resource
        than it uses, up to the same limit.
    fills : float
        Workgroups of the launch over what the device holds at once; below 1 some CUs have room.
    """

    workgroups: int
    waves_per_simd: float
    limits: dict[str, int]
    limited_by: str
    fills: float


def occupancy(
    kernel: Kernel, waves_per_workgroup: int, lds_bytes: int, workgroups: int, target: Target
) -> Occupancy:
    """Return the room for a kernel's workgroups.

    Parameters
    ----------
    kernel : Kernel
    waves_per_workgroup : int
    lds_bytes : int
        Static and dynamic LDS of a workgroup.
    workgroups : int
        Of the launch.
    target : Target
    """
    granule = PARTS[target.name].lds_granule
    by_registers = _REGISTERS // max(kernel.descriptor.num_registers, 1)
    waves = {
        "wave slots": _MAX_WAVES,
        "registers": by_registers,
        "SGPRs": _MAX_WAVES if kernel.num_sgpr <= _SGPRS_FOR_ALL_WAVES else _MAX_WAVES - 1,
    }
    limits = {name: SIMDS * count // waves_per_workgroup for name, count in waves.items()}
    if lds_bytes:
        limits["LDS"] = target.lds_bytes // (-(-lds_bytes // granule) * granule)
    fitting = min(limits.values())
    scarcest = [name for name, count in limits.items() if count == fitting]
    if "wave slots" in scarcest:
        scarcest = ["wave slots"]  # nothing that the kernel uses is scarce
    return Occupancy(
        workgroups=fitting,
        waves_per_simd=fitting * waves_per_workgroup / SIMDS,
        limits=limits,
        limited_by=" and ".join(scarcest),
        fills=workgroups / max(fitting * target.num_cus, 1),
    )
