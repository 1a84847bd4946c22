"""Model a whole grid from a sample of its workgroups.

    grid, n ─► choose: the workgroups that run ─► counts of the sample ─► scaled: counts of the grid

The sample starts with the workgroups resident on the first compute unit, whose waves the timing
model simulates. Next come those that run with them on the same XCD and share its L2, then the rest
of the first round, and of the grid. Counts are scaled by the number of workgroups. Data shared with
workgroups outside the sample is not counted as shared, so misses in L2 and bytes of HBM are upper
bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from cupygemm.emulator.profiling.build import LaunchCounts
    from cupygemm.emulator.waves.dispatch import Dispatch

_FIXED = ("stride", "stride_votes")  # fields of counts that are not sums over workgroups


def choose(dispatch: Dispatch, resident: int, count: int) -> NDArray[np.int64] | None:
    """Return the workgroups of a sample in the order of launch; None for the whole grid.

    Parameters
    ----------
    dispatch : Dispatch
    resident : int
        Workgroups that a compute unit holds at a time.
    count : int
        Workgroups of the sample, at least 1.
    """
    every, target = dispatch.num_workgroups, dispatch.target
    if count >= every:
        return None
    at_once = min(every, resident * target.num_cus)
    wanted = chain(
        range(0, at_once, target.num_cus), range(0, at_once, target.num_xcds), range(every)
    )
    return np.array(sorted(islice(dict.fromkeys(wanted), count)), np.int64)


def scaled(found: LaunchCounts) -> LaunchCounts:
    """Return the counts of the whole grid from those of its sample."""
    dispatch = found.dispatch
    if dispatch.sample is None:
        return found
    factor = dispatch.num_workgroups / len(dispatch.sample)
    return replace(
        found,
        executions=_times(found.executions, factor),
        lanes=_times(found.lanes, factor),
        conflicts=_times(found.conflicts, factor),
        lines=_times(found.lines, factor),
        traffic=_times(found.traffic, factor),
        memory=_times(found.memory, factor),
        waits=_times(found.waits, factor),
    )


def _times(counts: Any, factor: float) -> Any:
    """Multiply counts, nested in any way, by a factor."""
    result = counts
    if isinstance(counts, int | np.integer):
        result = round(counts * factor)
    elif isinstance(counts, Mapping):
        result = {key: _times(value, factor) for key, value in counts.items()}
    elif isinstance(counts, tuple):
        result = tuple(_times(value, factor) for value in counts)
    elif is_dataclass(counts) and not isinstance(counts, type):
        values = {item.name: getattr(counts, item.name) for item in fields(counts)}
        result = replace(
            counts,
            **{n: v if n in _FIXED else _times(v, factor) for n, v in values.items()},
        )
    return result
