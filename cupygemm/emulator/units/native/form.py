"""The record of an ALU instruction's native form, and how C functions are found by name."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

from cupygemm.emulator.waves.state import GPR_INDEX, VSKIP


class NativeAlu(NamedTuple):
    """An ALU instruction as C executes it.

    Attributes
    ----------
    function, operation : int
        Addresses of the C function, an ``alu_function`` of native/alu.h, and of its operands.
    mode_mask, mode_value : int
        The function may be called if ``MODE & mode_mask == mode_value``.
    record : ctypes.Structure
        The operands, which this keeps alive.
    """

    function: int
    operation: int
    mode_mask: int
    mode_value: int
    record: ctypes.Structure


def native_alu(
    function: str, record: ctypes.Structure, mode_mask: int = 0, mode_value: int = 0
) -> NativeAlu:
    """Return the native form with the exported C function and the operands."""
    address = address_of(function)
    if address is None:
        raise ValueError(f"the native library has no function {function}")
    mask = mode_mask | GPR_INDEX | VSKIP
    return NativeAlu(address, ctypes.addressof(record), mask, mode_value, record)


@functools.cache
def address_of(function: str) -> int | None:
    """Return the address of an exported C function, or None if the library has none."""
    from cupygemm.emulator.native import library

    found: Any = getattr(library(), function, None)
    return None if found is None else ctypes.cast(found, ctypes.c_void_p).value
