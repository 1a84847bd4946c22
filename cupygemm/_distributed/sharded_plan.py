"""Decide which blocks of sharded operands each rank multiplies, and which blocks move.

Ranks form a cube of pm x pn x pk: rank (i, j, l) multiplies rows i of A by columns j of B over part
l of k. Blocks that it lacks are sent to it in panels along k, so that one panel moves while the
previous one is multiplied. If the ranks that own the result need sums of several ranks, or have
other blocks, the partial products are sent to them and added in the order of l. The usual
algorithms are cubes:

* 1-D: one extent is the number of ranks. A is gathered, or B is, or the result is reduced.
* SUMMA: pk = 1.
* 2.5-D: pk > 1, with more than one rank along m or n.

The model takes the largest number of bytes that a rank receives, and the largest product.
All functions here are pure, so all ranks make the same plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cupygemm._backends.interconnect import Interconnect
from cupygemm._distributed.layouts import Region
from cupygemm._distributed.steps import LAUNCH_SECONDS, balanced, bounds_of

PANELS = (1, 2, 4)
"""The numbers of panels that the model considers."""


class Piece(NamedTuple):
    """A region of a matrix that a rank has, and its index among that rank's arrays."""

    rank: int
    region: Region
    number: int = 0


class Move(NamedTuple):
    """A region that one rank has and another needs; the two ranks may be the same."""

    source: Piece
    target: int
    region: Region


class Cube(NamedTuple):
    """How ranks share a product: their numbers along m, n and k."""

    m: int
    n: int
    k: int

    @property
    def algorithm(self) -> str:
        """Return the usual name of the algorithm."""
        if sum(extent > 1 for extent in self) <= 1:
            return "1-D"
        return "SUMMA" if self.k == 1 else "2.5-D"


@dataclass(frozen=True, kw_only=True)
class Task:
    """The product of one rank.

    Attributes
    ----------
    result : Region
        Its rows and columns of C.
    part : int
        Its number along k.
    a, b : tuple of Region
        The regions that it multiplies, by panel.
    """

    result: Region
    part: int
    a: tuple[Region, ...]
    b: tuple[Region, ...]


@dataclass(frozen=True, kw_only=True)
class ShardedPlan:
    """A sharded product.

    Attributes
    ----------
    cube : Cube
    tasks : tuple of Task
        By rank.
    a_moves, b_moves : tuple of tuple of Move
        By panel.
    sums : tuple of Move
        Moves of partial products to the owners of the result; empty if each rank computes its own
        block in one part.
    owned : tuple of Region
        The block of the result of each rank.
    seconds : float
        Modelled.
    """

    cube: Cube
    tasks: tuple[Task, ...]
    a_moves: tuple[tuple[Move, ...], ...]
    b_moves: tuple[tuple[Move, ...], ...]
    sums: tuple[Move, ...]
    owned: tuple[Region, ...]
    seconds: float


def make_plan(
    a: Sequence[Piece],
    b: Sequence[Piece],
    owned: Sequence[Region] | None,
    *,
    size: int,
    itemsize: int,
    sum_itemsize: int,
    link: Interconnect,
    cube: Cube | None = None,
    panels: int | None = None,
) -> ShardedPlan:
    """Return the plan that takes the least time by the model.

    Parameters
    ----------
    a, b : sequence of Piece
        The pieces of the operands.
    owned : sequence of Region or None
        The block of the result for each rank; None leaves the result where it is computed, or
        spreads it in blocks of rows if k is split.
    size : int
        The number of ranks.
    itemsize, sum_itemsize : int
        Of the operands, and of partial products.
    link : Interconnect
    cube : Cube, optional
        Use this cube.
    panels : int, optional
        Use this number of panels.
    """
    cubes = [cube] if cube is not None else _cubes(size)
    counts = [panels] if panels is not None else PANELS
    plans = (
        _plan(a, b, owned, each, count, itemsize, sum_itemsize, link)
        for each, count in itertools.product(cubes, counts)
    )
    return min(plans, key=lambda plan: plan.seconds)


def _cubes(size: int) -> list[Cube]:
    divisors = [d for d in range(1, size + 1) if size % d == 0]
    return [Cube(m, n, size // (m * n)) for m in divisors for n in divisors if size % (m * n) == 0]


def _plan(
    a: Sequence[Piece],
    b: Sequence[Piece],
    owned: Sequence[Region] | None,
    cube: Cube,
    panels: int,
    itemsize: int,
    sum_itemsize: int,
    link: Interconnect,
) -> ShardedPlan:
    m, k = (max(piece.region[axis][1] for piece in a) for axis in (0, 1))
    n = max(piece.region.columns[1] for piece in b)
    tasks = _tasks(cube, m, n, k, panels)
    a_cells, b_cells = _cells(a), _cells(b)
    a_moves = tuple(_moves(a_cells, [task.a[t] for task in tasks]) for t in range(panels))
    b_moves = tuple(_moves(b_cells, [task.b[t] for task in tasks]) for t in range(panels))
    if owned is None:
        pieces = cube.m * cube.k if cube.k > 1 else 1
        owned = [task.result for task in tasks]
        if pieces > 1:
            rows, columns = bounds_of(balanced(m, pieces)), bounds_of(balanced(n, cube.n))
            owned = [Region(r, c) for r in rows for c in columns]
    sums: tuple[Move, ...] = ()
    if cube.k > 1 or any(task.result != own for task, own in zip(tasks, owned, strict=True)):
        sums = tuple(
            Move(Piece(rank, task.result), target, shared)
            for target, own in enumerate(owned)
            for rank, task in enumerate(tasks)
            if (shared := task.result.intersection(own)).size
        )
    both = [(*a_moves[t], *b_moves[t]) for t in range(panels)]
    flops = max(2.0 * t.result.size * t.a[0].shape[1] for t in tasks)
    product = LAUNCH_SECONDS + link.product_seconds(flops, itemsize)
    arrives = done = 0.0
    for moves in both:
        arrives += _seconds(moves, itemsize, link)
        done = max(done, arrives) + product
    done += _seconds(sums, sum_itemsize, link)
    return ShardedPlan(
        cube=cube,
        tasks=tasks,
        a_moves=a_moves,
        b_moves=b_moves,
        sums=sums,
        owned=tuple(owned),
        seconds=done,
    )


def _tasks(cube: Cube, m: int, n: int, k: int, panels: int) -> tuple[Task, ...]:
    """Return the products of the ranks; ranks of one part of k are adjacent."""
    rows, columns = bounds_of(balanced(m, cube.m)), bounds_of(balanced(n, cube.n))
    tasks = []
    for part, (first, last) in enumerate(bounds_of(balanced(k, cube.k))):
        ranges = bounds_of(balanced(last - first, panels))
        ks = [(first + start, first + stop) for start, stop in ranges]
        for i, j in itertools.product(rows, columns):
            tasks.append(
                Task(
                    result=Region(i, j),
                    part=part,
                    a=tuple(Region(i, each) for each in ks),
                    b=tuple(Region(each, j) for each in ks),
                )
            )
    return tuple(tasks)


def _cells(pieces: Sequence[Piece]) -> list[tuple[Region, list[Piece]]]:
    """Return the regions into which the borders of all pieces cut a matrix, with their owners."""
    cuts = [
        sorted({border for piece in pieces for border in piece.region[axis]}) for axis in (0, 1)
    ]
    found = []
    for rows, columns in itertools.product(*(itertools.pairwise(each) for each in cuts)):
        cell = Region(rows, columns)
        owners = [piece for piece in pieces if piece.region.intersection(cell) == cell]
        found.append((cell, owners))
    return found


def _moves(cells: list[tuple[Region, list[Piece]]], needs: Sequence[Region]) -> tuple[Move, ...]:
    """Return the moves to each rank of the regions that it needs, from itself if it has them."""
    moves = []
    for target, need in enumerate(needs):
        for cell, owners in cells:
            shared = cell.intersection(need)
            if shared.size:
                own = [piece for piece in owners if piece.rank == target]
                moves.append(Move((own or owners)[0], target, shared))
    return tuple(moves)


def _seconds(moves: Sequence[Move], itemsize: int, link: Interconnect) -> float:
    """Return the time until all ranks have received their moves."""
    received: dict[int, dict[int, int]] = {}
    for move in moves:
        if move.source.rank != move.target:
            counts = received.setdefault(move.target, {})
            source = move.source.rank
            counts[source] = counts.get(source, 0) + move.region.size * itemsize
    return max((link.step_seconds(counts.values()) for counts in received.values()), default=0.0)
