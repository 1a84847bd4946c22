"""Fields of ctypes structures, declared as text in the manner of C, and that of a fault."""

from __future__ import annotations

from ctypes import Structure, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any

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
