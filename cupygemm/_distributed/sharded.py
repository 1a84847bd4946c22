"""`matmul` of matrices that are sharded over a group by stated layouts.

The ranks exchange the shapes of their blocks, make the same plan, and agree once more after all
have checked their arguments. Blocks move on the stream of the group, panel by panel, while the
caller's stream multiplies the previous panel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Unpack

from numpy.typing import DTypeLike

from cupygemm._backends.device import device
from cupygemm._distributed.arguments import checked_call, checked_group, matrix
from cupygemm._distributed.group import Group
from cupygemm._distributed.layouts import Layout, extents_of, parse_layout
from cupygemm._distributed.messages import Message
from cupygemm._distributed.sharded_plan import Cube, Move, Piece, ShardedPlan, make_plan
from cupygemm._distributed.sharded_work import Work
from cupygemm._distributed.sums import type_of_sums
from cupygemm._records.formats import container
from cupygemm._request.keywords import common_keywords
from cupygemm._request.options import MatmulOptions


@common_keywords
def matmul(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    group: Group,
    layouts: tuple[Layout, Layout] = ("rows", "rows"),
    out_layout: Layout = "rows",
    cube: tuple[int, int, int] | None = None,
    dtype: DTypeLike | None = None,
    casting: str = "same_kind",
    **options: Unpack[MatmulOptions],
) -> Any:
    """Multiply matrices that are sharded over a group.

    Parameters
    ----------
    a : cupy.ndarray
        The block of the first matrix, (m, k), that this rank has.
    b : cupy.ndarray
        The block of the second matrix, (k, n), that this rank has.
    out : cupy.ndarray, optional
        Array for the block of the result that this rank gets.
    group : Group
        From `connect`.
    layouts : tuple of layout
        The layouts of ``a`` and ``b``. A layout is the extents (p, q) of a grid of ranks over the
        rows and columns of the matrix, in which rank r has block (r // q, r % q); ``"rows"`` is
        (size, 1), and ``"columns"`` is (1, size). The extents of blocks differ by at most one,
        larger ones first, as with `numpy.array_split`.
    out_layout : layout
        The layout of the result.
    cube : tuple of int, optional
        The numbers of ranks along m, n and k that share the product; by default, a model chooses
        them. If only one exceeds 1, blocks of one matrix are gathered, or the result is reduced
        (1-D). If those along m and n do, both matrices are gathered in panels (SUMMA). If the one
        along k does as well, fewer blocks move and partial products are added (2.5-D).
    dtype : dtype, optional
        As for `cupygemm.matmul`.
    casting : str
        As for `cupygemm.matmul`.
    **options
        The other options of `cupygemm.matmul` for matrices, and ``stream``. Arrays of the epilogue
        fit this rank's block of the result.

    Returns
    -------
    cupy.ndarray
        The block of the result that this rank gets.

    Raises
    ------
    ValueError, TypeError
        As for `cupygemm.matmul`, or if a layout does not match, or a rank passes another dtype or
        layout. Nothing is enqueued on any rank, and the group stays usable.
    GroupError
        A rank has ended, or does not make the call within the timeout.

    See Also
    --------
    all_gather_matmul : The same, by a fixed algorithm, with the bits of one GPU's product.
    matmul_reduce_scatter : The sum of products whose k is spread over a group.

    Notes
    -----
    Parts of k are added in order, in the type of the sums, so results are bitwise reproducible;
    another `cube` or number of ranks may give other bits. The epilogue is applied once, after the
    sum.
    """
    import cupy

    name = "matmul"
    checked_group(name, group)
    with group.refusing(name):
        a, b = matrix(name, "a", a, group), matrix(name, "b", b, group)
        grids = [
            parse_layout(what, layout, group.size)
            for what, layout in zip(("layouts[0]", "layouts[1]"), layouts, strict=True)
        ]
        target = parse_layout("out_layout", out_layout, group.size)
        wanted = None if cube is None else _cube(cube, group.size)
    facts = {
        "dtypes": [str(a.dtype), str(b.dtype)],
        "layouts": [[each.rows, each.columns] for each in (*grids, target)],
        "cube": wanted,
        "a": a.shape,
        "b": b.shape,
    }
    everybody = group.agree(name, facts, own=("a", "b"))
    (m, k), a_regions = extents_of("a", grids[0], [each["a"] for each in everybody])
    (inner, n), b_regions = extents_of("b", grids[1], [each["b"] for each in everybody])
    if k != inner:
        raise ValueError(
            f"matmul: the inner extents differ: a has shape {(m, k)} and b has shape {(inner, n)}"
        )
    owned = target.regions((m, n))
    with group.refusing(name):
        shape = owned[group.rank].shape
        stand_ins = cupy.empty((shape[0], 1), a.dtype), cupy.empty((1, shape[1]), b.dtype)
        call = checked_call(*stand_ins, out, dtype=dtype, casting=casting, options=options)
        types = call.request.types
        sums = type_of_sums(types, epilogue=call.arguments is not None)
        plan = make_plan(
            [Piece(rank, region) for rank, region in enumerate(a_regions)],
            [Piece(rank, region) for rank, region in enumerate(b_regions)],
            owned,
            size=group.size,
            itemsize=a.itemsize,
            sum_itemsize=sums.itemsize,
            link=device(group.device).kernels.interconnect,
            cube=wanted,
        )
    group.agree(name, {"plan": [*plan.cube, len(plan.a_moves)], "sums": str(sums)})
    with group.guarded():
        result = cupy.empty(shape, container(types.result)) if out is None else out
        work = Work(
            plan,
            group.rank,
            (a.dtype, b.dtype, sums),
            result,
            dtype=dtype,
            casting=casting,
            options=options,
        )
        _run(group, plan, work, a, b)
    return result


def _cube(cube: Sequence[int], size: int) -> Cube:
    extents = tuple(int(extent) for extent in cube)
    if len(extents) != 3 or min(extents) < 1 or extents[0] * extents[1] * extents[2] != size:
        raise ValueError(
            f"matmul: cube is {cube!r}; it must be three numbers whose product is {size}, the size "
            "of the group"
        )
    return Cube(*extents)


class _Block(NamedTuple):
    """A move of this rank, with its source if it sends, and its target if it receives."""

    move: Move
    source: Callable[[Move], Any]
    target: Callable[[Move], Any]


def _run(group: Group, plan: ShardedPlan, work: Work, a: Any, b: Any) -> None:
    """Enqueue the moves and the products."""
    from cupy.cuda import get_current_stream

    stream = get_current_stream()
    group.stream.wait_event(stream.record())  # the blocks are complete, and panels may be written
    arrived: list[Any] = []
    for panel, (a_moves, b_moves) in enumerate(zip(plan.a_moves, plan.b_moves, strict=True)):
        blocks = [
            _Block(move, partial(_piece, array), partial(work.target, name, panel))
            for name, array, moves in (("a", a, a_moves), ("b", b, b_moves))
            for move in moves
        ]
        arrived.append(_move(group, blocks))
        if panel:  # the previous panel arrived while this one was enqueued
            stream.wait_event(arrived[panel - 1])
            work.multiply(panel - 1)
    stream.wait_event(arrived[-1])
    work.multiply(len(arrived) - 1)
    if plan.sums:
        group.stream.wait_event(stream.record())
        blocks = [_Block(move, work.part_source, work.part_target) for move in plan.sums]
        stream.wait_event(_move(group, blocks))
    work.finish()


def _piece(array: Any, move: Move) -> Any:
    return array[move.region.within(move.source.region)]


def _move(group: Group, blocks: Sequence[_Block]) -> Any:
    """Enqueue moves on the stream of the group, and return an event at their end."""
    import cupy

    sends, receives, copies = [], [], []
    sent = []  # their memory must not be reused before the exchange is enqueued
    with group.stream:
        for move, source, target in blocks:
            here, there = move.source.rank == group.rank, move.target == group.rank
            if here and there:
                copies.append((target(move), source(move)))
            elif here:
                sent.append(cupy.ascontiguousarray(source(move)))
                sends.append(Message.of(sent[-1], move.target))
            elif there:
                place = target(move)
                arriving = place
                if not place.flags.c_contiguous:
                    arriving = cupy.empty(place.shape, place.dtype)
                    copies.append((place, arriving))
                receives.append(Message.of(arriving, move.source.rank))
        group.exchange(sends, receives, group.stream)
        for place, array in copies:
            place[...] = array
        return group.stream.record()
