"""The steps in which ranks exchange their rows, and a model of the time.

Each rank owns a range of rows that every other one needs. ``shifted`` takes a step for each peer:
in step s, rank r sends its rows to rank r - s and receives those of rank r + s. If one link is as
fast as all together, this fills it, and a peer's rows arrive whole. ``sliced`` exchanges a slice of
the rows with all peers in each step, which fills links that lead to different peers.

The model simulates the last rank to finish: steps run one after another, and the product of a
step's rows starts when the step and the previous product have ended. A rank multiplies its own rows
first. `matmul_reduce_scatter` takes the same steps in reverse.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from cupygemm._backends.interconnect import Interconnect

Rows = tuple[int, int]
"""A range of rows: the first one, and the one after the last."""
SLICES = (2, 4, 8)
"""The numbers of slices that `choose_steps` considers."""
LAUNCH_SECONDS = 5e-6
"""What a product takes beyond its operations, modelled."""


class Transfer(NamedTuple):
    """Rows, and the rank that they go to or come from."""

    peer: int
    rows: Rows


class Step(NamedTuple):
    """The sends and the receives of a rank that are in progress together."""

    sends: tuple[Transfer, ...]
    receives: tuple[Transfer, ...]


def bounds_of(rows: Sequence[int]) -> list[Rows]:
    """Return the range of rows of each rank, from their numbers."""
    ends = list(itertools.accumulate(rows))
    return list(zip([0, *ends], ends, strict=False))


def balanced(extent: int, parts: int) -> list[int]:
    """Return the sizes of parts that differ by at most one, larger ones first."""
    return [extent // parts + (i < extent % parts) for i in range(parts)]


def shifted(rank: int, bounds: Sequence[Rows]) -> list[Step]:
    """Return the steps of a rank in which it receives the rows of one peer after another."""
    size = len(bounds)
    steps = []
    for shift in range(1, size):
        target, source = (rank - shift) % size, (rank + shift) % size
        sends = (Transfer(target, bounds[rank]),)
        steps.append(Step(sends, (Transfer(source, bounds[source]),)))
    return steps


def sliced(rank: int, bounds: Sequence[Rows], slices: int) -> list[Step]:
    """Return the steps of a rank in which it receives a slice of the rows of each peer."""
    steps = []
    for number in range(slices):
        parts = [_slice(rows, number, slices) for rows in bounds]
        peers = [peer for peer in range(len(bounds)) if peer != rank]
        sends = tuple(Transfer(peer, parts[rank]) for peer in peers)
        steps.append(Step(sends, tuple(Transfer(peer, parts[peer]) for peer in peers)))
    return steps


def _slice(rows: Rows, number: int, slices: int) -> Rows:
    first, count = rows[0], rows[1] - rows[0]
    return first + count * number // slices, first + count * (number + 1) // slices


class RowWork(NamedTuple):
    """The cost of each row of a product, from which the model computes that of a step.

    Attributes
    ----------
    nbytes : int
        The number of bytes of the row that are sent.
    flops : float
        The operations of the row's product.
    itemsize : int
        The size of an element of the operands in bytes, which determines the rate of operations.
    """

    nbytes: int
    flops: float
    itemsize: int


class Chosen(NamedTuple):
    """The steps of a rank, their name, and the modelled time of the product with them.

    Attributes
    ----------
    name : str
    steps : list of Step
    seconds : float
    """

    name: str
    steps: list[Step]
    seconds: float


def choose_steps(
    rank: int,
    bounds: Sequence[Rows],
    work: RowWork,
    *,
    link: Interconnect,
    share: float = 1.0,
) -> Chosen:
    """Return the steps that take the least time by the model, the same on all ranks.

    Parameters
    ----------
    rank : int
    bounds : sequence of Rows
        The rows of each rank.
    work : RowWork
    link : Interconnect
        The links between the devices.
    share : float
        The share of the compute units that products can use.
    """
    # With several peers, a device can receive more than one link can carry: slices use all links.
    slices = SLICES if len(bounds) > 2 and link.pair_gbs < link.total_gbs else ()

    def product_seconds(rows: int) -> float:
        return LAUNCH_SECONDS + link.product_seconds(rows * work.flops, work.itemsize) / share

    def seconds(steps: Sequence[Step], own: int) -> float:
        arrives = 0.0
        done = product_seconds(own)
        for step in steps:
            counts = [rows[1] - rows[0] for _, rows in step.receives]
            arrives += link.step_seconds(count * work.nbytes for count in counts)
            for count in counts:
                done = max(done, arrives) + product_seconds(count)
        return done

    size = len(bounds)
    makers: dict[str, Callable[[int, Sequence[Rows]], list[Step]]] = {"shifted": shifted}
    for number in slices:
        makers[f"sliced in {number}"] = partial(sliced, slices=number)
    costs = {
        name: max(seconds(make(r, bounds), bounds[r][1] - bounds[r][0]) for r in range(size))
        for name, make in makers.items()
    }
    name = min(costs, key=lambda each: costs[each])
    return Chosen(name, makers[name](rank, bounds), costs[name])
