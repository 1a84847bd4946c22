"""What reports say of values that a program does not set: those of markers, and of other lanes."""

from __future__ import annotations

INACTIVE_LANE = """\
the value of another lane, which
is switched off where it is read by
  {}
{}"""
GIVES_0 = """\
The hardware gives 0 there, and HIP leaves it undefined: let the lane take part (exchange in front
of the condition or the return), or do not use what comes from it"""
GIVES_WHAT_IS_THERE = """\
The hardware reads what the register happens to hold there, and the compiler may compute the value
behind the condition: read the lane in front of the condition or the return, or another lane"""
_UNWRITTEN_VARIABLE = """\
an element of a local variable, which
nothing has written since its declaration:
  {}
The optimiser takes any value for it, so that the result may look right, or change with the
compiler: initialise it"""
_BEYOND_VARIABLE = """\
what an index outside an array of the module
(__constant__ or __device__) gives, or what such an index has overwritten:
  {}
Another variable of the module may lie there, or nothing"""
_BEYOND_ARRAY = """\
what an index outside a local array gives,
or what such an index has overwritten:
  {}
The optimiser keeps the array in registers, so that the result may look right, or change with the
compiler"""
UNINITIALISED = "uninitialised variable"
MARKED = (  # by the pattern of the marker, see runtime/local_bounds.py and runtime/unwritten.py
    ("quad_perm:[3,2,1,0]", "index outside a local array", _BEYOND_ARRAY),
    ("quad_perm:[2,3,0,1]", "index outside an array of the module", _BEYOND_VARIABLE),
    ("", UNINITIALISED, _UNWRITTEN_VARIABLE),
)
