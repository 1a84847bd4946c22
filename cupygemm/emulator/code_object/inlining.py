"""The call sites of inlined code, from DWARF's inlined subroutines (``-g``).

The source line of an inlined instruction is in the helper. The call site in the kernel is what
its author knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Line = tuple[str, int]


@dataclass(frozen=True)
class InlinedCode:
    """A range of code that was inlined.

    Attributes
    ----------
    low, high : int
        Addresses, `high` exclusive.
    depth : int
        Depth of the call in the tree of calls; callees are deeper.
    call_site : (str, int)
        File and line of the call.
    """

    low: int
    high: int
    depth: int
    call_site: Line


def inlined_code(dwarf: Any, unit: Any, names: dict[int, str]) -> list[InlinedCode]:
    """Return the inlined code of a compilation unit.

    Parameters
    ----------
    dwarf : elftools.dwarf.dwarfinfo.DWARFInfo
    unit : elftools.dwarf.compileunit.CompileUnit
    names : dict of int to str
        Path of each file number of the unit's line program.
    """
    found: list[InlinedCode] = []
    left = [(unit.get_top_DIE(), 0)]
    base = _value(left[0][0], "DW_AT_low_pc", 0)
    while left:
        entry, depth = left.pop()
        if entry.tag == "DW_TAG_inlined_subroutine":
            line = _value(entry, "DW_AT_call_line", 0)
            site = names.get(_value(entry, "DW_AT_call_file", -1), "?"), line
            if line:
                found += [
                    InlinedCode(low, high, depth, site)
                    for low, high in _ranges(dwarf, unit, entry, base)
                ]
        left += [(child, depth + 1) for child in entry.iter_children()]
    return found


def call_sites(found: list[InlinedCode], pc: int) -> tuple[Line, ...]:
    """Return the call sites of the instruction at an address, the innermost first."""
    around = sorted((each for each in found if each.low <= pc < each.high), key=lambda e: -e.depth)
    return tuple(each.call_site for each in around)


def _value(entry: Any, name: str, default: Any) -> Any:
    attribute = entry.attributes.get(name)
    return default if attribute is None else attribute.value


def _ranges(dwarf: Any, unit: Any, entry: Any, base: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of addresses of an entry."""
    low, high = entry.attributes.get("DW_AT_low_pc"), entry.attributes.get("DW_AT_high_pc")
    if low is not None and high is not None:
        relative = high.form != "DW_FORM_addr"
        yield low.value, high.value + (low.value if relative else 0)
        return
    ranges, lists = _value(entry, "DW_AT_ranges", None), dwarf.range_lists()
    if ranges is None or lists is None:
        return
    for item in lists.get_range_list_at_offset(ranges, cu=unit):
        if hasattr(item, "base_address"):
            base = item.base_address
        elif getattr(item, "is_absolute", False):
            yield item.begin_offset, item.end_offset
        else:
            yield base + item.begin_offset, base + item.end_offset
