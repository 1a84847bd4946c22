"""What reports say of values that a program does not set: of markers, other lanes and x / 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cupygemm.emulator.code_object.module_variables import indexed_at
from cupygemm.emulator.errors import Fault
from cupygemm.emulator.waves.reports import instruction_at, quoted_line

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Kernel
    from cupygemm.emulator.waves.state import State

_INACTIVE_LANE = """\
the value of another lane, which
is switched off where it is read by
  {}
{}"""
_GIVES_0 = """\
The hardware gives 0 there, and HIP leaves it undefined: let the lane take part (exchange before
the condition or the return), or do not use what comes from it"""
_GIVES_WHAT_IS_THERE = """\
The hardware reads what the register happens to hold there, and the compiler may compute the value
after the condition: read the lane before the condition or the return, or another lane"""
_DIVIDED_BY_ZERO = """\
the result of an integer division
by zero at
  {}
HIP leaves it undefined, and the instructions that LLVM makes of a division give some number: test
the divisor before"""
_UNWRITTEN_VARIABLE = """\
an element of a local variable, which
nothing has written since its declaration:
{}
The optimiser takes any value for it, so that the result may look right, or change with the
compiler: initialise it"""
_NEXT_VARIABLE = "Another variable of the module may be there, or nothing"
_IN_REGISTERS = """\
The optimiser keeps the array in registers, so that the result may look right, or change with the
compiler"""
_BEYOND_VARIABLE = f"""\
what an index outside an array of the module
(__constant__ or __device__) gives:
{{}}
{_NEXT_VARIABLE}"""
_BEYOND_ARRAY = f"""\
what an index outside a local array gives:
{{}}
{_IN_REGISTERS}"""
_UNINITIALISED = "uninitialised variable"
_STORED_BEYOND_VARIABLE = f"""\
what a store has left that was
meant for a place outside an array of the module (__constant__ or __device__):
{{}}
{_NEXT_VARIABLE}"""
_STORED_BEYOND_ARRAY = f"""\
what a store has left that was
meant for a place outside a local array:
{{}}
{_IN_REGISTERS}"""
_STORES_BEYOND = f"""\
the store is meant for a place outside an array of the module (__constant__ or __device__):
{{}}
{_NEXT_VARIABLE}"""
_STORES_VARIABLE = "quad_perm:[1,0,2,3]"
_MARKED = (  # by the pattern of the marker, see runtime/local_bounds.py and runtime/unwritten.py
    ("quad_perm:[3,2,1,0]", "index outside a local array", _BEYOND_ARRAY),
    ("quad_perm:[2,3,0,1]", "index outside an array of the module", _BEYOND_VARIABLE),
    ("quad_perm:[1,0,3,2]", "index outside a local array", _STORED_BEYOND_ARRAY),
    (_STORES_VARIABLE, "index outside an array of the module", _STORED_BEYOND_VARIABLE),
    ("", _UNINITIALISED, _UNWRITTEN_VARIABLE),
)


def value_of_lane(state: State, used: str, pc: int, *, wave: int, lanes: tuple[int, ...]) -> Fault:
    """Return the fault for a value that was read in a lane that is switched off.

    Parameters
    ----------
    state : State
    used : str
        What uses the value, and how: ``"v1 is stored to global memory; it is "``.
    pc : int
        Program counter of the instruction that read the lane.
    wave : int
        Position of the wave within the group.
    lanes : tuple of int
        The lanes that use the value.
    """
    place = instruction_at(state, pc)
    gives = _GIVES_WHAT_IS_THERE if "v_readlane" in place else _GIVES_0
    return Fault(
        "value of a lane that is switched off",
        used + _INACTIVE_LANE.format(place, gives),
        wave=wave,
        lane=lanes[0] if lanes else -1,
        lanes=lanes,
        check="inactive_lanes",
    )


def divided_by_zero(
    state: State, used: str, pc: int, *, wave: int, lanes: tuple[int, ...]
) -> Fault:
    """Return the fault for the result of an integer division by zero.

    Parameters
    ----------
    state : State
    used : str
        What uses the value, and how.
    pc : int
        Of the instruction that finds the zero.
    wave : int
        Position of the wave within the group.
    lanes : tuple of int
        The lanes that use the value.
    """
    return Fault(
        "integer division by zero",
        used + _DIVIDED_BY_ZERO.format(instruction_at(state, pc)),
        wave=wave,
        lane=lanes[0] if lanes else -1,
        lanes=lanes,
        check="integer_divisions",
    )


def marked_value(
    state: State,
    used: str,
    pc: int,
    index: tuple[int, int] | None,
    *,
    is_copied: bool,
    wave: int,
    lanes: tuple[int, ...],
) -> Fault:
    """Return the fault for a value that a marker stands for.

    Parameters
    ----------
    state : State
    used : str
        How the value is used.
    pc : int
        Program counter of the marker.
    index : tuple of int or None
        The least and the greatest index that the first of the lanes has had there.
    is_copied : bool
        Whether the value is used as it is, as in a copy of a structure.
    wave : int
        Position of the wave within the group.
    lanes : tuple of int
        The lanes that use the value.
    """
    marker, line = instruction_at(state, pc), quoted_line(state, pc)
    kind, what = next(found for pattern, *found in _MARKED if pattern in marker)
    if _STORES_VARIABLE in marker and line == quoted_line(state, state.current_pc):
        used, what = "", _STORES_BEYOND
    beyond = kind != _UNINITIALISED
    where = f"  {line}" + (_element(state.kernel, pc, index) if beyond and index else "")
    return Fault(
        kind,
        used + what.format(where),
        wave=wave,
        lane=lanes[0] if lanes else -1,
        lanes=lanes,
        check="bounds" if beyond else "uninitialised",
        may_be_meant=not beyond and is_copied,
    )


def _element(kernel: Kernel, pc: int, index: tuple[int, int]) -> str:
    """Return the element that a marker stands for, and its array; "" if it is not known."""
    if not hasattr(kernel, "code_object"):  # a single instruction, outside a kernel
        return ""
    array = indexed_at(kernel, pc)
    outside = [each for each in reversed(index) if array and not 0 <= each < array.count]
    return f"\n  there is no {array.element(outside[0])} in {array}" if array and outside else ""
