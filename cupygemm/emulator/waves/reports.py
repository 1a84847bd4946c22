"""Describe places in reports: instructions, source lines, and the arguments that addresses use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cupygemm.emulator.code_object.line_table import line_table
from cupygemm.emulator.code_object.module_variables import variable_at
from cupygemm.emulator.errors import UnsupportedInstruction, spans
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.memory.array_elements import element_at

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Argument, Kernel
    from cupygemm.emulator.memory.extents import Extent
    from cupygemm.emulator.waves.state import State

_MOST_COUNTED = 1 << 26  # bytes of an allocation whose written part is counted
_POINTER_BYTES = 8
_NULL_PAGE = 4096
_RETURN_ADDRESS = (30, 31)  # SGPRs of the ABI of functions
_CALL_BYTES = 4
_OVERFLOW = """\
{} elements of {} further, the address is inside what {} points into:
an index of 32 bits has overflowed. Compute it, from its first product on, in 64 bits (long long)"""
_ELEMENT_SIZES = (16, 8, 4, 2, 1)
# Hidden arguments that are null here: the HIP runtime would serve them from the host.
_HOST_CALLS = {
    "hidden_hostcall_buffer": "calls of the host (printf, assert)",
    "hidden_printf_buffer": "printf",
    "hidden_heap_v1": "malloc and new",
}


def source_line(kernel: Kernel, pc: int) -> tuple[str, int] | None:
    """Return the file and line of an instruction; None where the code object does not tell."""
    code_object = getattr(kernel, "code_object", None)  # a test's kernel has none
    return None if code_object is None else line_table(code_object).find(pc)


def call_sites(kernel: Kernel, pc: int) -> tuple[tuple[str, int], ...]:
    """Return where an instruction's code was inlined, the innermost call first."""
    code_object = getattr(kernel, "code_object", None)
    return () if code_object is None else line_table(code_object).call_sites(pc)


def quotes(kernel: Kernel, pc: int) -> tuple[str, ...]:
    """Return the texts of an instruction's source line and of its call sites, "" if not known."""
    line = source_line(kernel, pc)
    table = line_table(kernel.code_object) if line else None
    places = [line] if line else []
    return tuple(table.quote(place) for place in [*places, *call_sites(kernel, pc)] if table)


def source_text(kernel: Kernel, pc: int) -> str:
    """Return the source line of an instruction and the calls that inlined it, as text."""
    line = source_line(kernel, pc)
    places = [f"{file}:{number}" for file, number in ([line] if line else [])]
    places += [f"inlined at {file}:{number}" for file, number in call_sites(kernel, pc)]
    return ", ".join(places)


def quoted_line(state: State, pc: int) -> str:
    """Return the source line of an instruction with its place, as far as known."""
    where, told = source_text(state.kernel, pc), quotes(state.kernel, pc)
    return f"{where}: {told[-1]}" if told and told[-1] else where or f"{pc:#x}"


def waves_text(state: State, waves: list[int]) -> str:
    """Return the numbers of waves in their workgroups: ``waves 0-2``."""
    numbers = tuple(sorted(int(state.wave_in_group[wave]) for wave in waves))
    return f"wave{'s' * (len(numbers) > 1)} {spans(numbers)}"


def instruction_at(state: State, pc: int) -> str:
    """Return the offset, the text and the source line of an instruction, as far as known."""
    return instruction_of(state.kernel, state.target.name, pc)


def instruction_of(kernel: Kernel, target: str, pc: int) -> str:
    """Return the same description for an instruction of any kernel.

    Parameters
    ----------
    kernel : Kernel
    target : str
        The name of its target.
    pc : int
    """
    if pc < 0:
        return "(an instruction that is no longer on record)"
    if not hasattr(kernel, "code_object"):  # a single instruction, outside a kernel
        return f"{pc:+#x}"
    _, offset = kernel.code_object.locate(pc)
    try:
        text = decode(kernel.code_object.image, pc, target).text
    except UnsupportedInstruction:
        text = "(no instruction)"
    where, told = source_text(kernel, pc), quotes(kernel, pc)
    if told and told[-1]:
        where += f": {told[-1]}"
    return f"{offset:+#x}: {text}" + f"\n  {where}" * bool(where)


def call_of(state: State, wave: int) -> str:
    """Return the line that called the function in which a wave executes; "" if not known.

    The return address is in s[30:31] until the function itself makes a call.

    Parameters
    ----------
    state : State
    wave : int
        Index in the batch.
    """
    code = state.kernel.code_object
    low, high = (int(state.sgpr[register, wave]) for register in _RETURN_ADDRESS)
    call = (low | high << 32) - code.base - _CALL_BYTES
    here, _ = code.locate(state.current_pc)
    try:
        inst = decode(code.image, call, state.target.name) if call >= 0 else None
    except (IndexError, UnsupportedInstruction):
        return ""
    if inst is None or inst.mnemonic != "s_swappc_b64" or code.locate(call)[0] == here:
        return ""
    return quoted_line(state, call)


def place_of(state: State, address: int, size: int) -> str:
    """Describe the variable of the module or the array at an address of device memory."""
    code = getattr(state.kernel, "code_object", None)  # a test's kernel has none
    variable = variable_at(code, address) if code is not None else ""
    return variable or state.memory.describe(address, size)


def argument_near(state: State, address: int) -> str | None:
    """Describe the argument that an address may come from.

    The argument points to the allocation that was freed at the address or is nearest, or is null.
    """
    if 0 <= address < _NULL_PAGE:
        return _null_argument(state)
    overflowed = _overflowed(state, address)
    if overflowed is not None or not state.memory.owns(address):
        return overflowed
    freed, near = state.memory.dangling(address), state.memory.nearest(address)
    if freed is not None and (argument := _argument_into(state, freed)):
        return f"{argument[0]} points into what was freed{argument[1]}"
    if near is not None and (argument := _argument_into(state, near)):
        element = element_at(address, near, _pointers(state))
        return f"{argument[0]} points into it{argument[1]}" + f": {element}" * bool(element)
    return None


def written_around(state: State, address: int) -> str:
    """Describe how much of an allocation was written, and which launch last wrote below an address.

    Returns
    -------
    str
        "" if nothing is known.
    """
    shadow, extent = state.memory.shadow, state.memory.range_of(address)
    if shadow is None or extent is None:
        return ""
    start, size = extent[0], min(extent[1] - extent[0], _MOST_COUNTED)
    written = np.flatnonzero(shadow.written(start, size))
    if not written.size:
        return "none of its bytes has a value" if size == extent[1] - extent[0] else ""
    text = f"{written.size:,} of its {size:,} bytes have a value"
    before = written[: np.searchsorted(written, address - start)]
    launch = shadow.writer_of(start + int(before[-1]), start) if before.size else None
    return text + (f"; the last one before it was written by\n{launch.words}" if launch else "")


def host_call_near(state: State, address: int) -> str | None:
    """Return a hint if an access through a null pointer may be a call to the host."""
    kinds = {argument.value_kind for argument in state.kernel.arguments}
    asked = [what for kind, what in _HOST_CALLS.items() if kind in kinds]
    if address >= _NULL_PAGE or not asked:
        return None
    return f"is it a call of the host? {' and '.join(asked)} in a kernel are not emulated"


def _overflowed(state: State, address: int) -> str | None:
    """Return a hint if the address plus 2^32 elements is in an allocation of an argument.

    Only addresses beyond the reach of a 32-bit index count, except those just before the start.
    """
    for position, argument in enumerate(state.kernel.explicit_arguments):
        for pointer in _words(state, argument):
            extent = state.memory.nearest(pointer)
            if extent is None or not extent.start <= pointer < extent.end:
                continue
            for size in _ELEMENT_SIZES:
                reach = size << 32
                held, before = extent.end - extent.start, extent.start - address
                times = -(-before // reach)
                if held <= reach // 2 or before < size << 24 or times > -(-held // reach):
                    continue
                if address + times * reach < extent.end:
                    return _OVERFLOW.format(
                        f"{times} x " * (times > 1) + "2^32",
                        f"{size} byte{'s' * (size > 1)}",
                        argument.label(position),
                    )
    return None


def _null_argument(state: State) -> str | None:
    """List the pointers among the arguments that are null."""
    null = [
        f"{argument.label(position)} is null"
        for position, argument in enumerate(state.kernel.explicit_arguments)
        if argument.value_kind == "global_buffer"
        and not any(state.arguments[argument.offset : argument.offset + argument.size])
    ]
    return "\n".join(null) or None


def _pointers(state: State) -> frozenset[int]:
    """Return the arguments of a pointer's size."""
    held = (
        state.arguments[each.offset : each.offset + each.size]
        for each in state.kernel.explicit_arguments
    )
    return frozenset(int.from_bytes(each, "little") for each in held if len(each) == _POINTER_BYTES)


def _words(state: State, argument: Argument) -> list[int]:
    """Return the whole words of 64 bits in an argument."""
    held = state.arguments[argument.offset : argument.offset + argument.size]
    whole = held[: len(held) // _POINTER_BYTES * _POINTER_BYTES]
    return [int(word) for word in np.frombuffer(whole, np.uint64)]


def _argument_into(state: State, extent: Extent) -> tuple[str, str] | None:
    """Return the argument that points into an extent, and the pointer's place in the argument.

    An argument that is passed by value may hold the pointer at any offset.
    """
    for position, argument in enumerate(state.kernel.explicit_arguments):
        words = np.array(_words(state, argument), np.uint64)
        end = max(extent.end, extent.start + 1)  # an empty one has an address too
        for index in np.flatnonzero((words >= extent.start) & (words < end)):
            by_value = argument.size != _POINTER_BYTES
            return argument.label(position), f", at its byte {_POINTER_BYTES * index}" * by_value
    return None
