"""The widths, formats and atomics that FLAT, GLOBAL, SCRATCH and MUBUF instructions share."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from ctypes import c_int64, c_void_p
from typing import Any

from cupygemm.emulator.isa.instruction import Instruction
from cupygemm.emulator.units.memory.machine import NativeStep, c_function, machine_of, wave_list
from cupygemm.emulator.units.memory.operation import FORMAT_BYTES, Operation
from cupygemm.emulator.waves.state import Group

_FORMATS = {  # of accesses of 1 or 2 bytes, by the mnemonic's suffix
    "ubyte": "u8",
    "sbyte": "s8",
    "byte": "u8",
    "ushort": "u16",
    "sshort": "s16",
    "short": "u16",
    "ubyte_d16": "u8_low",
    "ubyte_d16_hi": "u8_high",
    "sbyte_d16": "s8_low",
    "sbyte_d16_hi": "s8_high",
    "short_d16": "u16_low",
    "short_d16_hi": "u16_high",
    "byte_d16_hi": "u8_high",
}
_DWORDS = {"dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4}
_MNEMONIC = re.compile(r"[a-z]+_(load_lds|load|store|atomic)_(\w+)")
_TYPED = re.compile(r"t?buffer_(load|store)_format(_d16|_d16_hi)?_(x|xy|xyz|xyzw)")
_IN_ORDER = 4 | 5 << 3 | 6 << 6 | 7 << 9  # DST_SEL of red, green, blue and alpha
_INTEGER_ATOMICS = frozenset("swap cmpswap add sub smin umin smax umax and or xor inc dec".split())
_FLOAT_ATOMICS = {
    "add_f32": "fadd",
    "pk_add_f16": "pk_add_f16",
    "pk_add_bf16": "pk_add_bf16",
    "add_f64": "fadd",
    "min_f64": "fmin",
    "max_f64": "fmax",
}


def memory_operation(
    inst: Instruction, space: str, *, to_lds: bool, **address: Any
) -> Operation | None:
    """Return the operation of a vector memory instruction, or None if it is not emulated.

    Parameters
    ----------
    inst : Instruction
    space : {"global", "flat", "scratch", "buffer"}
    to_lds : bool
        Whether the load's LDS bit is set.
    **address : int
        The fields of ``struct operation`` that form the address.
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
        name = suffix.removesuffix("_x2")
        atomic = name if name in _INTEGER_ATOMICS else _FLOAT_ATOMICS.get(name)
        if atomic is None:
            return None
        size = 8 if suffix.endswith(("_x2", "_f64")) else 4
        return Operation(
            space,
            "atomic",
            atomic=atomic,
            dwords=size // 4,
            bytes=size,
            data=data,
            data2=data + size // 4 if atomic == "cmpswap" else -1,
            result=returned,
            **address,
        )
    form = _FORMATS.get(suffix, "dwords")
    size = 4 * _DWORDS.get(suffix, 0) if form == "dwords" else FORMAT_BYTES[form]
    if not size:
        return None
    return Operation(
        space,
        "load_to_lds" if to_lds or verb == "load_lds" else verb,
        form=form,
        dwords=max(1, size // 4),
        bytes=size,
        data=data,
        result=returned,
        **address,
    )


def typed_operation(
    inst: Instruction, space: str, *, to_lds: bool, **address: Any
) -> Operation | None:
    """Return the operation of an instruction that converts formats, like `memory_operation`."""
    match = _TYPED.fullmatch(inst.mnemonic)
    if match is None or to_lds:
        return None
    verb, d16, channels = match.groups()
    count, fields = len(channels), inst.fields
    operand = inst.operand("vdata")
    number = fields.get("nfmt", -1)
    return Operation(
        space,
        verb,
        form="typed",
        dwords=(count + 1) // 2 if d16 else count,
        bytes=0,  # of the format, see native/typed_lanes.h
        data=-1 if operand is None else operand.index,
        result=inst.dst[0].index if inst.dst else -1,
        channels=count,
        d16={None: 0, "_d16": 1, "_d16_hi": 2}[d16],
        data_format=fields.get("dfmt", -1),
        number=number,
        selects=_IN_ORDER,
        coherent=int(any(fields.get(bit) for bit in ("sc0", "sc1", "glc"))),
        **address,
    )


def vector_memory_step(op: Operation | None) -> NativeStep | None:
    """Return the step that executes an operation."""
    return None if op is None else NativeStep("vector_memory", op, line_counter(op))


def line_counter(op: Operation) -> Callable[[Group], None]:
    """Return a function that counts the lanes, bytes and lines that an operation accesses."""
    function = c_function("count_lines", c_void_p)

    def count(group: Group) -> None:
        state = group.state
        ids, first, step = wave_list(group)
        totals = (c_int64 * 5)()
        function(
            machine_of(state).address,
            op.address,
            None if ids is None else ids.ctypes.data,
            first,
            step,
            group.count,
            ctypes.addressof(totals),
        )
        counters = state.units.setdefault("global_lines", {})
        old = counters.get(state.current_pc, (0,) * 5)
        counters[state.current_pc] = tuple(a + b for a, b in zip(old, totals, strict=True))

    return count
