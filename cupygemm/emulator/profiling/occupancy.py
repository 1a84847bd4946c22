"""The number of a kernel's waves that a SIMD can hold, and its limits. *Computed*.

A SIMD has 512 registers per lane, VGPRs and AGPRs together, and slots for 8 waves. With more than
100 SGPRs per wave, only 7 waves fit (LLVM's AMDGPU backend, AMDGPUBaseInfo). A CU has 4 SIMDs and
one LDS, and holds whole workgroups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cupygemm.emulator.profiling.parts import PARTS

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Kernel
    from cupygemm.emulator.targets import Target

SIMDS = 4
_REGISTERS, MAX_WAVES, _SGPRS_FOR_ALL_WAVES = 512, 8, 100


@dataclass(frozen=True)
class Occupancy:
    """The number of a kernel's workgroups that fit on a CU.

    Attributes
    ----------
    workgroups : int
        Workgroups that a CU holds at a time.
    waves_per_simd : float
        Their waves on each SIMD, at most 8.
    limits : dict of str to int
        Workgroups that would fit if one resource were the only limit: ``registers``, ``SGPRs``,
        ``LDS`` or ``wave slots``.
    limited_by : str
        The scarcest resources. A compiler that hits one limit may allocate more of another resource
        than the kernel uses, up to the same limit.
    fills : float
        Workgroups of the launch over those that the device holds at a time. Below 1, some CUs have
        room for more.
    """

    workgroups: int
    waves_per_simd: float
    limits: dict[str, int]
    limited_by: str
    fills: float


def occupancy(
    kernel: Kernel, target: Target, *, waves_per_workgroup: int, lds_bytes: int, workgroups: int
) -> Occupancy:
    """Return how many of a kernel's workgroups fit on a CU.

    Parameters
    ----------
    kernel : Kernel
    target : Target
    waves_per_workgroup : int
    lds_bytes : int
        Static and dynamic LDS of a workgroup.
    workgroups : int
        Workgroups of the launch.
    """
    granule = PARTS[target.name].lds_granule
    by_registers = _REGISTERS // max(kernel.descriptor.num_registers, 1)
    waves = {
        "wave slots": MAX_WAVES,
        "registers": by_registers,
        "SGPRs": MAX_WAVES if kernel.num_sgpr <= _SGPRS_FOR_ALL_WAVES else MAX_WAVES - 1,
    }
    limits = {name: SIMDS * count // waves_per_workgroup for name, count in waves.items()}
    if lds_bytes:
        limits["LDS"] = target.lds_bytes // (-(-lds_bytes // granule) * granule)
    fitting = min(limits.values())
    scarcest = [name for name, count in limits.items() if count == fitting]
    if "wave slots" in scarcest:
        scarcest = ["wave slots"]  # none of the kernel's resources is scarce
    return Occupancy(
        workgroups=fitting,
        waves_per_simd=fitting * waves_per_workgroup / SIMDS,
        limits=limits,
        limited_by=" and ".join(scarcest),
        fills=workgroups / max(fitting * target.num_cus, 1),
    )
