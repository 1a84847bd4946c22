"""An LU panel, block by block.

Each block is one launch, which first applies the block before to its own columns. So it need not
wait for what the block before does to the other columns, which is computed beside it::

    side stream      | factor 0 | apply 0, factor 1        | apply 1, factor 2        | ...
    current stream              | 0: swap, solve, update 2 | 1: swap, solve, update 3 | ...
                                  and the later blocks       and the later blocks

A panel may have two parts, of which others read the first while the second is factored. The blocks
of the second then leave the first alone, whose rows the caller swaps later.

A block takes the GPU some 40 microseconds. So that the host takes less, the launches of a panel are
prepared once for matrices of one shape, and an addition puts in the addresses (launch_rows.py).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from cupygemm._backends.device import current_device
from cupygemm._backends.kernel_kind import Call, Launch
from cupygemm._backends.launch_rows import LaunchRows, region
from cupygemm._request.arrays import Array
from cupygemm._solvers.common import blocks
from cupygemm._solvers.common.ahead import OneStream, Streams, forked, in_order, reached
from cupygemm._solvers.common.blocks import Blocks, Limits, current_limits, lu_panel_blocks
from cupygemm._solvers.common.kernels import LU_PANEL, load
from cupygemm._solvers.common.matrices import Layout, Matrices
from cupygemm._solvers.common.teams import RECORD_BYTES, num_teams
from cupygemm._solvers.common.updates import panel_update
from cupygemm._solvers.common.words import WORD_BYTES
from cupygemm._solvers.lu.held_units import has_room, held_units
from cupygemm._solvers.lu.swaps import MOVES_BYTES, block_move

_MATRIX, _PIVOTS, _INFO, _WORKSPACE = map(region, (1, 2, 3, 4))
ALONE_BYTES = 168 << 10
"""With a panel's own shared memory, nearly all of an SM's, except for what holds units."""
_LEAST_ALONE = 16
_ALIGNMENT = 256
"""Parts of the workspace begin at multiples of this, and the matrix is as far from one as it is."""


def factor_panel(
    a: Matrices,
    pivots: Array,
    info: Array,
    panel: range,
    *,
    columns: range | None = None,
    second: int | None = None,
    holds_units: bool = False,
) -> Any:
    """Factor a panel.

    Parameters
    ----------
    a : Matrices
    pivots, info : cupy.ndarray
        As of `LuFactors`.
    panel : range
        Its columns.
    columns : range, optional
        The columns that change, by default those of the panel. In other columns, rows are swapped;
        columns to the right of the panel are also solved with and updated.
    second : int, optional
        The first column of the panel's second part. Its blocks do not swap rows of columns before
        it.
    holds_units : bool
        Whether the panel's compute units are held for it, if they can be.

    Returns
    -------
    cupy.cuda.Event or None
        What comes after the factorisation of the first part (`ahead.reached`), if there are two.
    """
    from cupy.cuda import alloc

    start = a.address(0, 0)
    beyond = start % _ALIGNMENT
    prepared = _prepared(
        a.layout(_MATRIX + beyond),
        pivots.shape[1],
        panel,
        panel if columns is None else columns,
        second,
        current_device(),
        blocks.LIMITS,
    )
    workspace = alloc(prepared.workspace_bytes)
    if prepared.zeroed_bytes:
        workspace.memset_async(0, prepared.zeroed_bytes)
    launches = prepared.launches.at(start - beyond, pivots.data.ptr, info.data.ptr, workspace.ptr)
    after_first: Any = None
    with contextlib.ExitStack() as stack:
        streams: Streams | OneStream
        if len(prepared.steps) > 2 and a.batches == 1:
            streams = stack.enter_context(forked())
        else:
            streams = stack.enter_context(in_order())
        if holds_units and prepared.held_team and isinstance(streams, Streams):
            word = workspace.ptr + prepared.workspace_bytes - WORD_BYTES
            stack.enter_context(held_units(streams, word, prepared.held_team))
        mark: Any = None
        for factor, others, ends_first in prepared.steps:
            mark_of_last = mark
            if factor is not None:
                streams.fork()
                launches.enqueue(factor, streams.side)
                mark = streams.mark()
            if mark_of_last is not None:
                streams.join(mark_of_last)
            for other in others:
                launches.enqueue(other, streams.current)
            if ends_first and second is not None:
                after_first = reached()
    return after_first


class _Step(NamedTuple):
    """The launch that factors a block, and those that apply the block before; numbers of rows.

    The block before may be the last of the panel's first part.
    """

    factor: int | None
    others: Sequence[int]
    ends_first: bool


class _Prepared(NamedTuple):
    """The launches of a panel, and the workspace that they need.

    The start of the workspace is zeroed, and its last word is for `held_units`. `held_team` is the
    size of the panel's clusters if there is room beside them, or zero.
    """

    launches: LaunchRows
    steps: list[_Step]
    zeroed_bytes: int
    workspace_bytes: int
    held_team: int


@functools.lru_cache(maxsize=512)
def _prepared(
    a: Layout,
    k: int,
    panel: range,
    changed: range,
    second: int | None,
    index: int,
    limits: Limits,
) -> _Prepared:
    """Return the launches of a panel of matrices with `k` pivots, for the current device."""
    second = panel.stop if second is None else second
    blocks = _blocks(a, panel, second)
    workspace = _workspace(a, blocks)
    calls: list[Call] = []
    steps: list[_Step] = []
    for before, own in zip([None, *blocks], [*blocks, None], strict=True):
        factor = None if own is None else len(calls)
        if own is not None:
            calls.append(_factor(a, k, own, before, workspace))
        first = len(calls)
        if before is not None:
            start = changed.start if before.columns.start < second else second
            calls += _apply(a, before, own, range(start, changed.stop), workspace)
        ends_first = own is not None and own.columns.start == second
        steps.append(_Step(factor, range(first, len(calls)), ends_first))
    num_bytes = workspace.num_bytes + WORD_BYTES
    held_team = _held_team(
        a, blocks, [calls[x.factor].launch for x in steps if x.factor is not None]
    )
    return _Prepared(LaunchRows(calls), steps, workspace.zeroed_bytes, num_bytes, held_team)


class _Block(NamedTuple):
    """A block of columns, and the shape and the teams of the launch that factors it."""

    number: int
    columns: range
    shape: Blocks
    teams: int

    @property
    def workgroups(self) -> int:
        """Return the workgroups of the launch."""
        return self.teams * self.shape.team


def _blocks(a: Layout, panel: range, second: int) -> list[_Block]:
    """Return the blocks of a panel, none of which crosses the start of the second part."""
    _, units = current_limits()
    found: list[_Block] = []
    first = panel.start
    while first < panel.stop:
        shape = lu_panel_blocks(a, a.m - first)
        end = second if first < second else panel.stop
        columns = range(first, min(first + shape.width, end))
        found.append(_Block(len(found), columns, shape, num_teams(shape, units, a.batches)))
        first = columns.stop
    return found


class _Workspace(NamedTuple):
    """The workspace of a panel.

    Attributes
    ----------
    flags : list of int
        For each block, the address of the flags of its teams, which have to be zero.
    records, scratch : int
        Addresses of what all launches use, one after the other.
    moves : tuple of int
        Those of an even block and of an odd one, which are read while the next one is factored.
    zeroed_bytes, num_bytes : int
        The bytes of all flags, which come first, and of the workspace.
    """

    flags: list[int]
    records: int
    scratch: int
    moves: tuple[int, int]
    zeroed_bytes: int
    num_bytes: int


def _workspace(a: Layout, blocks: Sequence[_Block]) -> _Workspace:
    max_cluster, _ = current_limits()
    # Clusters exchange records in shared memory.
    num_flags = [0 if x.shape.team <= max_cluster else x.workgroups for x in blocks]
    held = [x.workgroups * x.shape.threads * x.shape.rows * x.shape.width for x in blocks]
    zeroed_bytes, moves = 4 * sum(num_flags), MOVES_BYTES * a.batches
    parts = (
        zeroed_bytes,
        2 * RECORD_BYTES * max(num_flags),
        a.dtype.itemsize * max(held),
        moves,
        moves,
    )
    *starts, end = accumulate((-(-size // _ALIGNMENT) * _ALIGNMENT for size in parts), initial=0)
    first, records, scratch, even, odd = (_WORKSPACE + start for start in starts)
    flags = [first + 4 * before for before in accumulate(num_flags[:-1], initial=0)]
    return _Workspace(flags, records, scratch, (even, odd), zeroed_bytes, end)


def _factor(a: Layout, k: int, block: _Block, before: _Block | None, workspace: _Workspace) -> Call:
    """Return the launch that factors a block, to which the block before is applied first."""
    columns, shape, first = block.columns, block.shape, block.columns.start
    launch = load(
        LU_PANEL,
        a.dtype,
        shape.threads,
        width=shape.width,
        rows=shape.rows,
        team=shape.team,
        **_alone(a, shape),
    )
    arguments = (
        a.address(first, first),
        a.pitch,
        a.stride,
        _PIVOTS + 4 * first,
        k,
        _INFO,
        workspace.flags[block.number],
        workspace.records,
        workspace.moves[block.number % 2],
        0 if before is None else workspace.moves[before.number % 2],
        0 if before is None else workspace.scratch,
        a.m - first,
        len(columns),
        first,
        a.batches,
        block.teams,
        0 if before is None else len(before.columns),
    )
    return Call(launch, (shape.team, block.teams), arguments)


def _alone(a: Layout, shape: Blocks) -> dict[str, int]:
    """Return the dynamic shared memory of the workgroups of a cluster, if they are to be alone.

    They do not use it. But in float64, no workgroup of an update fits beside one on its SM then.
    There, both would take longer, and the panel is what all else waits for. Beside small clusters,
    updates are short.
    """
    max_cluster, _ = current_limits()
    alone = a.batches == 1 and _LEAST_ALONE <= shape.team <= max_cluster
    return {"shared_bytes": ALONE_BYTES} if alone else {}


def _held_team(a: Layout, blocks: Sequence[_Block], launches: Sequence[Launch]) -> int:
    """Return the size of the clusters of a panel if units can be held for them, or zero."""
    (team, *others) = {block.shape.team for block in blocks}
    is_held = not others and bool(_alone(a, blocks[0].shape)) and has_room(launches)
    return team if is_held else 0


def _apply(
    a: Layout, own: _Block, following: _Block | None, changed: range, workspace: _Workspace
) -> list[Call]:
    """Return the launches that apply a block to the columns that change, but for the next block."""
    left, top = own.columns.start, own.columns.stop
    end = top if following is None else following.columns.stop
    swap = block_move(a, workspace.moves[own.number % 2], own.columns, changed, range(left, end))
    calls = [] if swap is None else [swap]
    if end < changed.stop and top < a.m:
        calls.append(
            panel_update(
                a,
                left=(top, left),
                right=(left, end),
                target=(top, end),
                extents=(a.m - top, changed.stop - end, top - left),
            )
        )
    return calls
