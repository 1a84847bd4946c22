"""A memory instruction with its operands resolved, as C reads it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_uint8

from cupygemm.emulator.units.structures import members
from cupygemm.emulator.waves.state import LANES


def _enumeration(names: str) -> dict[str, int]:
    """Return the values of an enumeration of native/operation.h, whose order `names` repeats."""
    return {name: value for value, name in enumerate(names.split())}


_SPACES = _enumeration("global flat scratch buffer lds")
_KINDS = _enumeration("load store atomic load_to_lds transpose permute bpermute swizzle append")
_FORMATS = _enumeration("dwords u8 s8 u16 s16 u8_low s8_low u16_low u8_high s8_high u16_high typed")
FORMAT_BYTES = {
    name: 2 if "16" in name else 1 for name in _FORMATS if name not in ("dwords", "typed")
}
_ATOMICS = _enumeration(
    """
    swap cmpswap add sub rsub smin umin smax umax and or xor inc dec mskor wrap
    fadd fmin fmax fcmpswap pk_add_f16 pk_add_bf16 condxchg
    """
)


class OperationStruct(ctypes.Structure):
    """``struct operation``."""

    _fields_ = [
        *members(
            """
            int32  space kind format atomic dwords bytes address wide data data2 result
            int32  scalar resource offen idxen pair element_bits add_lane coherent updates
            int32  channels d16 data_format number selects
            int64  offset offset2
            uint32 m0_mask constant
            """
        ),
        ("lanes", c_uint8 * LANES),
    ]


_NO_REGISTERS = dict.fromkeys(("address", "data", "data2", "result", "scalar", "resource"), -1)


class Operation:
    """A memory instruction with its operands resolved, as C reads it.

    Parameters
    ----------
    space : {"global", "flat", "scratch", "buffer", "lds"}
    kind : str
        A name of ``enum kind``: ``"load"``, ``"store"``, ``"atomic"``, ``"load_to_lds"``, ...
    form : str
        A name of ``enum format``.
    atomic : str
        A name of ``enum atomic``.
    lanes : sequence of int
        Source lanes of a swizzle.
    **fields : int
        Further fields of ``struct operation``. A register that is not given is -1; any other field
        is 0.
    """

    __slots__ = ("address", "name", "struct")

    def __init__(
        self,
        space: str,
        kind: str,
        *,
        form: str = "dwords",
        atomic: str = "swap",
        lanes: Sequence[int] = (),
        **fields: int,
    ) -> None:
        self.name = kind
        self.struct = OperationStruct(
            space=_SPACES[space],
            kind=_KINDS[kind],
            format=_FORMATS[form],
            atomic=_ATOMICS[atomic],
            **{**_NO_REGISTERS, **fields},
        )
        if lanes:
            self.struct.lanes[:] = lanes
        self.address = ctypes.addressof(self.struct)
