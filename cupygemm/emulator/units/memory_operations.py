"""What FLAT, GLOBAL, SCRATCH and MUBUF instructions have in common: widths, formats, atomics."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from ctypes import c_int64, c_void_p
from typing import Any

from cupygemm.emulator.isa import Instruction
from cupygemm.emulator.state import Group
from cupygemm.emulator.units.machine import (
    NativeStep,
    Operation,
    c_function,
    machine_of,
    wave_list,
)

_NARROW = {
    "ubyte": ("u8", 1), "sbyte": ("s8", 1), "byte": ("u8", 1), "ushort": ("u16", 2),
    "sshort": ("s16", 2), "short": ("u16", 2), "ubyte_d16": ("u8_low", 1),
    "ubyte_d16_hi": ("u8_high", 1), "sbyte_d16": ("s8_low", 1), "sbyte_d16_hi": ("s8_high", 1),
    "short_d16": ("u16_low", 2), "short_d16_hi": ("u16_high", 2), "byte_d16_hi": ("u8_high", 1),
}  # fmt: skip
_WIDE = {"dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4}
_MNEMONIC = re.compile(r"[a-z]+_(load_lds|load|store|atomic)_(\w+)")
_ATOMICS = {
    "swap": ("swap", 4), "cmpswap": ("cmpswap", 4), "add": ("add", 4), "sub": ("sub", 4),
    "smin": ("smin", 4), "umin": ("umin", 4), "smax": ("smax", 4), "umax": ("umax", 4),
    "and": ("and", 4), "or": ("or", 4), "xor": ("xor", 4), "inc": ("inc", 4), "dec": ("dec", 4),
    "add_f32": ("fadd", 4), "pk_add_f16": ("pk_add_f16", 4), "pk_add_bf16": ("pk_add_bf16", 4),
    "add_f64": ("fadd", 8), "min_f64": ("fmin", 8), "max_f64": ("fmax", 8),
}  # fmt: skip


def operation(inst: Instruction, space: str, *, to_lds: bool, **address: Any) -> Operation | None:
    """Return the operation of a vector memory instruction, or None for one that is not emulated.

    Parameters
    ----------
    inst : Instruction
    space : {"global", "flat", "scratch", "buffer"}
    to_lds : bool
        The load's LDS bit is set.
    **address : int
        The fields that say where; see ``struct operation``.
    """
    match = _MNEMONIC.fullmatch(inst.mnemonic)
    if match is None:
        return None
    verb, suffix = match.groups()
    operand = inst.operand("vdata") or inst.operand("data")
    data = -1 if operand is None else operand.index
    returned = inst.dst[0].index if inst.dst else -1
    past_caches = any(inst.fields.get(bit) for bit in ("sc0", "sc1", "glc"))
    address["coherent"] = int(past_caches)
    if verb == "atomic":
        wide = suffix.endswith("_x2")
        atomic, size = _ATOMICS.get(suffix.removesuffix("_x2"), ("", 0))
        if not atomic:
            return None
        size = 8 if wide else size
        return Operation(
            space, "atomic", atomic=atomic, dwords=size // 4, bytes=size, data=data,
            data2=data + size // 4 if atomic == "cmpswap" else -1, result=returned, **address,
        )  # fmt: skip
    form, size = _NARROW.get(suffix, ("dwords", 4 * _WIDE.get(suffix, 0)))
    if not size:
        return None
    kind = "load_to_lds" if to_lds or verb == "load_lds" else verb
    return Operation(
        space, kind, form=form, dwords=max(1, size // 4), bytes=size, data=data,
        result=returned, **address,
    )  # fmt: skip


def vector_memory_step(op: Operation | None) -> NativeStep | None:
    """Return the step that executes an operation."""
    return None if op is None else NativeStep("vector_memory", op, line_counter(op))


def line_counter(op: Operation) -> Callable[[Group], None]:
    """Return a function that counts what an operation asks of global memory in a group."""
    function = c_function("count_lines", c_void_p)

    def count(group: Group) -> None:
        state = group.state
        ids, first, step = wave_list(group)
        totals = (c_int64 * 5)()
        function(
            machine_of(state).address, op.address, None if ids is None else ids.ctypes.data,
            first, step, group.count, ctypes.addressof(totals),
        )  # fmt: skip
        counters = state.units.setdefault("global_lines", {})
        old = counters.get(state.current_pc, (0,) * 5)
        counters[state.current_pc] = tuple(a + b for a, b in zip(old, totals, strict=True))

    return count
