"""An LU panel, block by block.

Each block is one launch, which first applies the block before to its own columns. So it need not
wait for what the block before does to the other columns, which is computed beside it::

    side stream      | factor 0 | apply 0, factor 1        | apply 1, factor 2        | ...
    current stream              | 0: swap, solve, update 2 | 1: swap, solve, update 3 | ...
                                  and the blocks behind      and the blocks behind
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from cupygemm._backends.kernel_kind import Launch
from cupygemm._request.arrays import Array
from cupygemm._solvers.ahead import in_order, pieces
from cupygemm._solvers.blocks import Blocks, lu_panel_blocks
from cupygemm._solvers.kernels import LU_PANEL, load
from cupygemm._solvers.matrices import Matrices
from cupygemm._solvers.swaps import MOST_OF_BLOCK, Moves, move, planned
from cupygemm._solvers.teams import Workspace
from cupygemm._solvers.updates import update_panel


class _Block(NamedTuple):
    """A block of columns, its kernel and the shape of its launch, and the moves of its rows."""

    columns: range
    shape: Blocks
    launch: Launch
    moves: Moves


def factor_panel(
    a: Matrices,
    pivots: Array,
    info: Array,
    panel: range,
    workspace: Workspace,
    *,
    columns: range | None = None,
) -> None:
    """Factor a panel.

    Parameters
    ----------
    a : Matrices
    pivots, info : cupy.ndarray
        As of `LuFactors`.
    panel : range
        Its columns.
    workspace : Workspace
    columns : range, optional
        The columns that change: those of the panel, if nothing else is said. The rows of the others
        are swapped, and those behind the panel are solved with and updated, too.
    """
    changed = panel if columns is None else columns
    blocks = _blocks(a, panel)
    factor = functools.partial(_factor, a, pivots, info, workspace)
    beside = len(blocks) > 1 and a.batches == 1
    with pieces() if beside else in_order() as enqueue:
        wait = enqueue(functools.partial(factor, blocks[0], None))
        for own, following in zip(blocks, [*blocks[1:], None], strict=True):
            wait_for_own = wait
            if following is not None:
                wait = enqueue(functools.partial(factor, following, own))
            wait_for_own()
            end = own.columns.stop if following is None else following.columns.stop
            _apply(a, own, range(own.columns.start, end), changed)


def _blocks(a: Matrices, panel: range) -> list[_Block]:
    rooms = planned(a), planned(a)  # the moves of a block are read while the next one is factored
    blocks: list[_Block] = []
    first = panel.start
    while first < panel.stop:
        shape = lu_panel_blocks(a, a.m - first)
        columns = range(first, min(first + shape.width, panel.stop))
        launch = (
            blocks[-1].launch
            if blocks and blocks[-1].shape == shape
            else load(
                LU_PANEL,
                a.dtype,
                shape.threads,
                width=shape.width,
                rows=shape.rows,
                team=shape.team,
            )
        )
        moves = Moves(rooms[len(blocks) % 2], first, columns.stop, MOST_OF_BLOCK)
        blocks.append(_Block(columns, shape, launch, moves))
        first = columns.stop
    return blocks


def _apply(a: Matrices, own: _Block, done: range, changed: range) -> None:
    """Apply a block to the columns that change, but for those that are done."""
    move(a, own.moves, changed, done, solve=True)
    left, top, end = own.columns.start, own.columns.stop, done.stop
    if end < changed.stop and top < a.m:
        update_panel(
            a,
            left=(top, left),
            right=(left, end),
            target=(top, end),
            extents=(a.m - top, changed.stop - end, top - left),
        )


def _factor(
    a: Matrices,
    pivots: Array,
    info: Array,
    workspace: Workspace,
    block: _Block,
    before: _Block | None,
) -> None:
    """Factor a block, to which the block before is applied first."""
    columns, shape, launch, moves = block
    first = columns.start
    workspace.reshape(shape)
    flags, records = workspace.next_block()
    launch(
        (shape.team, workspace.teams),
        a.address(first, first),
        a.pitch,
        a.stride,
        pivots.data.ptr + 4 * first,
        pivots.shape[1],
        info.data.ptr,
        flags,
        records,
        moves.array.data.ptr,
        0 if before is None else before.moves.array.data.ptr,
        0 if before is None else workspace.scratch(),
        a.m - first,
        len(columns),
        first,
        a.batches,
        workspace.teams,
        0 if before is None else len(before.columns),
    )
