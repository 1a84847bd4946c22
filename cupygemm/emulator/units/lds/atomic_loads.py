"""Reads of LDS that are atomic loads in the source.

    if (__hip_atomic_load(&count, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP) == 4)

compiles to a plain ``ds_read_b32``, so that only the source line tells the two apart. An atomic
load does not race with what other waves write there, and it orders what comes after it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cupygemm.emulator.code_object.control_flow import graph
from cupygemm.emulator.code_object.line_table import LineTable, line_table
from cupygemm.emulator.errors import UnsupportedInstruction

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Kernel

_BUILTIN = "__hip_atomic_load"
_MACRO = re.compile(rf"#\s*define\s+(\w+)[^\n]*(?:\\\n[^\n]*)*?\b{_BUILTIN}\b")
_READS = ("ds_read_b32", "ds_read_b64", "ds_read_u", "ds_read_i")


def atomic_loads(kernel: Kernel) -> set[int]:
    """Return the program counters of the reads of LDS whose source is an atomic load."""
    _, source = kernel.code_object.program
    if _BUILTIN not in source:
        return set()
    names = re.compile(rf"\b(?:{'|'.join([_BUILTIN, *_MACRO.findall(source)])})\b")
    try:
        nodes = graph(kernel)
    except UnsupportedInstruction:
        return set()
    reads = (pc for pc, node in nodes.items() if node.inst.mnemonic.startswith(_READS))
    table = line_table(kernel.code_object)
    return {pc for pc in reads if _is_atomic(table, pc, names)}


def _is_atomic(table: LineTable, pc: int, names: re.Pattern[str]) -> bool:
    around = table.text_around(pc)
    if around is None:  # inlined code has no column
        line = table.find(pc)
        return line is not None and names.search(table.quote(line)) is not None
    before, after = around
    return (names.match(after) if before else names.search(after)) is not None
