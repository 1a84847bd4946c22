"""`choose_way`: whether rows travel by NCCL or by copies to peers' memory, and in which steps.

A model computes the time of both from the figures of the device's links. All ranks make the same
choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from cupygemm._backends.device import device
from cupygemm._distributed.group import Group
from cupygemm._distributed.peers import Peers
from cupygemm._distributed.steps import SLICES, Rows, RowWork, Step, choose_steps


@dataclass(frozen=True)
class Way:
    """How the rows of a product travel.

    Attributes
    ----------
    steps : list of Step
    peers : Peers or None
        Copies the rows; None for NCCL or RCCL.
    """

    steps: list[Step]
    peers: Peers | None


def choose_way(group: Group, bounds: Sequence[Rows], work: RowWork, *, segment_bytes: int) -> Way:
    """Return the way that takes the least time by the model; all ranks call this function.

    Parameters
    ----------
    group : Group
    bounds : sequence of Rows
        The rows of each rank.
    work : RowWork
    segment_bytes : int
        The bytes that the segment of each rank must hold if peers copy.
    """
    key = (tuple(bounds), work)
    found: Way | None = group.ways.get(key)
    if found is None:
        found = _chosen(group, bounds, work)
        group.ways.keep(key, found)
    if found.peers is not None and not found.peers.reserve(segment_bytes):
        return _chosen(group, bounds, work, copies=False)
    return found


def _chosen(group: Group, bounds: Sequence[Rows], work: RowWork, *, copies: bool = True) -> Way:
    link = device(group.device).kernels.interconnect
    choose = partial(choose_steps, group.rank, bounds, work)
    by_nccl = choose(link=link)
    if group.peers is None or not copies:
        return Way(by_nccl.steps, None)
    by_copies = choose(link=link.copies or link, slices=SLICES)
    if group.exchange_asked == "copies" or by_copies.seconds <= by_nccl.seconds:
        return Way(by_copies.steps, group.peers)
    return Way(by_nccl.steps, None)
