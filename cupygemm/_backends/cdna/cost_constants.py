"""The meaning of the fitted constants of CDNA's cost model.

The values are in `cupygemm._backends.cdna.constants`, which ``python -m benchmarks.fit cdna``
writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class KernelConstants:
    """The constants of `cupygemm._backends.cdna.select.estimate`.

    The barriers of a step, and how many loads overlap, belong to the mainloops.

    Attributes
    ----------
    start_cycles : mapping of str to float
        Cycles of the start and the end of a workgroup, by the name of its mainloop. They are not
        hidden if the workgroup is alone on its compute unit.
    load_ns : float
        Nanoseconds of the load of a tile from memory, which are not hidden in that case either.
    add_cycles, add_round_cycles : float
        Cycles of the kernel that adds parts of k: of its start and its end, and of each round of
        loads, of ``ROUND_PARTS`` parts each.
    next_kernel_cycles : float
        Cycles from the end of a kernel to the work of the next, which waits for it; about 3 us.
    cu_bytes_per_clock : float
        Bytes per clock from memory to one compute unit: 16 correspond to 200 lines of 128 bytes in
        flight for 1600 cycles.
    sharing : float
        Factor if workgroups are at different k, and so reuse less of each other's operands in L2.
    """

    start_cycles: Mapping[str, float]
    load_ns: float
    add_cycles: float
    add_round_cycles: float
    next_kernel_cycles: float
    cu_bytes_per_clock: float
    sharing: float


ASSUMED = (
    "next_kernel_cycles",
    "cu_bytes_per_clock",
    "sharing",
    "start_cycles[direct_to_register]",
)
"""Constants that neither the timing model of the emulated device nor published figures determine.
Without measurements on a GPU they are assumptions. This includes ``direct_to_register``, because
memory bounds its products, at a rate that the timing model also assumes."""
