"""Tell a launch that can never end from one that is long, and show that a long one is alive.

    Scheduler.next_group ─► Watch.look ─► compares states ─► Standstill ─► describe: the report
                                       └► Progress: a line on a terminal

`watch` proves that the waves of a batch can never end, `report` describes them, and `progress`
writes the line.
"""

from __future__ import annotations

from cupygemm.emulator.liveness.progress import Progress
from cupygemm.emulator.liveness.report import Finding
from cupygemm.emulator.liveness.watch import Watch

__all__ = ["Finding", "Progress", "Watch"]
