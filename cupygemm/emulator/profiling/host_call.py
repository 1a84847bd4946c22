"""A call of a mathematical library that the host computed, without counts or a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class HostCall:
    """A library call that the host computed in place of a kernel.

    Attributes
    ----------
    function : str
        For example ``"rocsolver_dpotrf"``.
    read_bytes, written_bytes : int
        Device memory of its operands; *computed* from the call's arguments.
    """

    function: str
    read_bytes: int
    written_bytes: int


def host_calls_table(calls: Iterable[HostCall]) -> str:
    """Return a table of host-computed calls, one line for each function; empty without calls."""
    totals: dict[str, list[int]] = {}
    for call in calls:
        total = totals.setdefault(call.function, [0, 0, 0])
        for place, value in enumerate((1, call.read_bytes, call.written_bytes)):
            total[place] += value
    if not totals:
        return ""
    width = max(map(len, totals))
    lines = ["computed on the host, without a kernel (calls, bytes read, bytes written)"]
    lines += [
        f"  {name:{width}}  {calls:>7}  {read:>13,}  {written:>13,}"
        for name, (calls, read, written) in totals.items()
    ]
    return "\n".join(lines)
