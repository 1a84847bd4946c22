"""Fields of ctypes structures, declared as text in the manner of C, and those of a machine."""

from __future__ import annotations

from ctypes import Structure, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any

from numpy.typing import NDArray

_TYPES: dict[str, Any] = {
    "int32": c_int32,
    "int64": c_int64,
    "uint32": c_uint32,
    "uint64": c_uint64,
    "float": c_float,
    "pointer": c_void_p,
}


def members(declarations: str) -> list[tuple[str, Any]]:
    """Return the fields of a structure, in order.

    Parameters
    ----------
    declarations : str
        One declaration per line: a type (``int32``, ``int64``, ``uint32``, ``uint64``,
        ``float`` or ``pointer``), then the names of the members of that type.
    """
    fields = []
    for line in declarations.strip().splitlines():
        type_name, *names = line.split()
        fields += [(name, _TYPES[type_name]) for name in names]
    return fields


class PointedArrays:
    """A structure and the arrays to which its members point, which it keeps alive.

    Attributes
    ----------
    struct : ctypes.Structure
    arrays : dict of str to array
        By the name of the member.
    """

    struct: Any

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}

    def _point(self, name: str, array: NDArray[Any]) -> None:
        """Let a member of the structure point to an array."""
        self.arrays[name] = array
        setattr(self.struct, name, array.ctypes.data)


class FaultStruct(Structure):
    """``struct fault``."""

    _fields_ = members(
        """
        int32  position lane
        uint64 address
        int32  bytes other_wave
        int64  other_pc
        int32  other_seq other_by_load writes is_atomic reg
        uint64 lanes
        int64  other
        """
    )


class MachineStruct(Structure):
    """``struct machine``."""

    _fields_ = [
        *members(
            """
            pointer vgpr sgpr lds scratch shadow blocks pending loads settled
            pointer workgroup wave_in_group wave_ids
            pointer lds_issued lds_released lds_waited vm_issued vm_released vm_waited barrier_epoch
            pointer starts ends lds_history vm_history flags reads polls named variables
            pointer global_shadow global_lines
            pointer vm_passed without_write_back pcs written_back
            pointer clock acquired invalidated releases rivals stretches defined
            pointer undefined undefined_scalar origin origin_scalar lds_undefined lds_origin
            pointer scratch_defined scratch_origin
            pointer undefined_address scc launched skipped skipped_at
            int64   row_dwords num_waves num_ranges lds_bytes scratch_bytes
            int64   shadow_stride shadow_shift
            uint64  scratch_base shared_aperture private_aperture
            int64   bank_shift needed_shift
            uint64  global_base global_end arguments arguments_bytes
            int64   num_groups waves_per_group first_wave launch_start num_rivals num_stretches
            int64   num_polls num_named num_variables num_without_write_back
            int64   communicates lds_orders num_xcds num_undefined
            int64   strict_alignment tainted mode num_skipped defers
            uint64  code_base ignored
            """
        ),
        ("fault", FaultStruct),
    ]
