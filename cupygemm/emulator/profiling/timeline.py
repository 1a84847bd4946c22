"""The timeline picture: the activity of each wave of a compute unit, by cycle. *Modelled*.

Each row is a wave, the rows of a SIMD are adjacent, and the colour shows what the wave issues or
waits for. A wait for a busy unit has the unit's colour. Each pixel column shows the state at its
centre, so narrower bars may be missing; zoom in with `cycles`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.profiling.kernel_counts import KernelCounts
from cupygemm.emulator.profiling.timing.machine import SIMDS
from cupygemm.emulator.profiling.timing.pipeline import Reason, Schedule
from cupygemm.emulator.profiling.timing.workload import Workload
from cupygemm.emulator.targets import TARGETS

COLUMNS = 2400
_NOT_RUNNING = "not running"
COLOURS = {
    "MFMA": "#1b6ca8",
    "VALU": "#6fb1de",
    "LDS": "#f0a202",
    "VMEM": "#7a3e9d",
    "scalar": "#3a9d5d",
    "wait": "#e8e2d0",
    "barrier": "#c8102e",
    "other stall": "#8c8c8c",
    _NOT_RUNNING: "#ffffff",
}
_NAMES = list(COLOURS)
_OF_CATEGORY = {
    "MFMA": "MFMA",
    "VALU": "VALU",
    "LDS": "LDS",
    "VMEM": "VMEM",
    "barrier": "barrier",
    "waitcnt": "wait",
}
_OF_REASON = {
    Reason.MFMA_BUSY: "MFMA",
    Reason.VALU_BUSY: "VALU",
    Reason.LDS_BUSY: "LDS",
    Reason.VMEM_BUSY: "VMEM",
    Reason.VMCNT: "wait",
    Reason.LGKMCNT: "wait",
    Reason.COUNTER_FULL: "wait",
    Reason.BARRIER: "barrier",
}


def states(
    schedule: Schedule, workload: Workload, categories: dict[int, str], edges: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the activity of each wave at some cycles: index into `COLOURS`, (waves, cycles).

    Parameters
    ----------
    schedule : Schedule
    workload : Workload
    categories : dict of int to str
        Category of each instruction, by byte offset.
    edges : float array
        The cycles.
    """
    of_place = np.array(
        [
            _NAMES.index(_OF_CATEGORY.get(categories[offset], "scalar"))
            for offset in workload.offsets
        ]
    )
    of_reason = np.array([_NAMES.index(_OF_REASON.get(r, "other stall")) for r in Reason])
    hold = np.array([op.hold for op in workload.ops])
    result = np.full((len(schedule.waves), len(edges)), _NAMES.index(_NOT_RUNNING))
    for row, wave in enumerate(schedule.waves):
        part = slice(int(wave["first"]), int(wave["first"] + wave["count"]))
        issue, places = schedule.issue[part], schedule.places[part]
        place = np.searchsorted(issue, edges, side="right") - 1  # the latest issued instruction
        issued = np.maximum(place, 0)
        after = issue[issued] + hold[places[issued]]
        following = np.minimum(issued + 1, len(issue) - 1)
        waiting = edges >= after
        state = np.where(
            waiting, of_reason[schedule.reason[part][following]], of_place[places[issued]]
        )
        before = place < 0
        state[before] = of_reason[schedule.reason[part][0]]
        state[waiting & (issued == len(issue) - 1)] = _NAMES.index(_NOT_RUNNING)
        result[row] = state
    return result


def _labels(waves: NDArray[np.void]) -> list[str]:
    """Return the name of each wave: its SIMD, its workgroup, and its number within that."""
    per_group = np.bincount(waves["workgroup"])
    first = np.concatenate([[0], np.cumsum(per_group)])[waves["workgroup"]]
    return [
        f"SIMD {wave['simd']}  wg {wave['workgroup']} wave {within}"
        for wave, within in zip(waves, np.arange(len(waves)) - first, strict=True)
    ]


def draw(kernel: KernelCounts, path: Path, cycles: tuple[int, int] | None) -> None:
    """Draw the timeline of a kernel; see `Profile.timeline`."""
    if kernel.timing is None:
        raise ValueError(f"{kernel.kernel} has no modelled time to draw")
    timing, workload = kernel.timing, kernel.timing.workload
    schedule = timing.schedule()
    first, last = cycles or (0, schedule.cycles)
    if not 0 <= first < last:
        raise ValueError(
            f"cycles {first} to {last}: the first must be 0 or more, and before the last"
        )
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.colors import ListedColormap
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ModuleNotFoundError as err:
        raise ModuleNotFoundError(
            f'a timeline needs {err.name}: pip install "cupygemm[plot]"', name=err.name
        ) from err
    categories = {inst.offset: inst.category for inst in kernel.instructions}
    edges = np.linspace(first, last, COLUMNS, endpoint=False) + (last - first) / COLUMNS / 2
    image = states(schedule, workload, categories, edges)
    waves = schedule.waves
    order = np.lexsort((np.arange(len(waves)), waves["simd"]))
    figure = Figure(figsize=(12, 1.8 + 0.28 * len(waves)), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.imshow(
        image[order],
        aspect="auto",
        interpolation="nearest",
        vmin=0,
        vmax=len(_NAMES) - 1,
        cmap=ListedColormap(list(COLOURS.values())),
        extent=(first, last, len(waves) - 0.5, -0.5),
    )
    labels = _labels(waves)
    axes.set_yticks(
        range(len(waves)), [labels[n] for n in order], fontsize="x-small", family="monospace"
    )
    for place in range(1, len(waves)):
        thick = waves["simd"][order[place]] != waves["simd"][order[place - 1]]
        axes.axhline(place - 0.5, color="black" if thick else "white", lw=1.2 if thick else 0.6)
    part = TARGETS[kernel.target].part
    axes.set_xlabel(f"modelled cycles at {timing.clock_mhz:.0f} MHz")
    axes.set_title(
        f"Modelled timeline of {kernel.kernel:.60} on {kernel.target} ({part}): a CU with "
        f"{timing.resident} workgroup(s), {SIMDS} SIMDs",
        fontsize="medium",
    )
    handles = [Patch(color=COLOURS[name], label=name) for name in _NAMES if name != _NOT_RUNNING]
    figure.legend(handles=handles, ncols=len(handles), loc="outside lower center", fontsize="small")
    figure.savefig(path)
