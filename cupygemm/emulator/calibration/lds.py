"""Cycles of 64 LDS reads by one wave, back to back, with and without bank conflicts.

The published kernel has 32 KiB of LDS and workgroups of one wave, so that two workgroups share a CU
on MI300X, and four on MI355X. In the model they run in lockstep; real ones may drift apart.
"""

from __future__ import annotations

from collections.abc import Iterator

from cupygemm.emulator.calibration.figures import MI300X, MI355X, SH, Figure
from cupygemm.emulator.calibration.kernels import build, profile_workgroup
from cupygemm.emulator.profiling.timing.operations import Unit
from cupygemm.emulator.targets import TARGETS

# Bytes of a read, then bytes between lanes: cycles measured by clock64 (nod-ai's tables).
PUBLISHED: dict[str, dict[int, dict[int, float]]] = {
    MI300X: {
        4: {4: 500.756, 8: 570.156, 16: 956.776, 32: 1833.150, 64: 3511.675, 128: 6810.440},
        8: {8: 852.258, 16: 991.498, 32: 1855.603, 64: 3625.288, 128: 7157.675},
        16: {16: 1384.460, 32: 1941.316, 64: 3803.940, 128: 7614.521},
    },
    MI355X: {
        8: {8: 583.353, 16: 819.207, 32: 1490.275, 64: 2758.733, 128: 5089.500, 256: 10024.566},
    },
}


def read_cycles(target: str, width: int, stride: int) -> float:
    """Return the modelled cycles from the first read's issue to the last one's data."""
    path = build("lds_reads.s", target, WIDTH=width, STRIDE=stride)
    profile = profile_workgroup(path, "lds_reads", 64)
    if profile.timing is None:
        raise RuntimeError(f"{path}: no modelled time")
    resident = profile.occupancy.workgroups
    workload = profile.timing.workload.repeated(resident)
    clock = TARGETS[target].clock_mhz
    schedule = workload.schedule(clock, resident, TARGETS[target].num_cus)
    reads = [
        n
        for n, op in enumerate(workload.ops)
        if op.unit == Unit.LDS and profile.instructions[n].text.startswith("ds_read")
    ]
    cycles = []
    for wave in schedule.waves:
        part = slice(int(wave["first"]), int(wave["first"] + wave["count"]))
        chosen = (schedule.places[part] >= min(reads)) & (schedule.places[part] <= max(reads))
        cycles.append(schedule.end[part][chosen].max() - schedule.issue[part][chosen].min())
    return float(sum(cycles)) / len(cycles)


def figures() -> Iterator[Figure]:
    """Yield the calibration's figures of LDS."""
    for target, widths in PUBLISHED.items():
        for width, strides in widths.items():
            for stride, published in strides.items():
                modelled = read_cycles(target, width, stride)
                name = f"b{8 * width}, lanes {stride} bytes apart"
                yield Figure(
                    group=f"64 LDS reads, {target}",
                    name=name,
                    unit="cycles",
                    published=published,
                    source=SH,
                    modelled=modelled,
                )
