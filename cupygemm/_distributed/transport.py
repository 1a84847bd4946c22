"""`choose_transport`: whether rows are sent by NCCL or directly to peers' memory, and the steps.

There are four transports:

* copies by copy engines, which overlap with products of ranges of rows;
* stores to all peers by one kernel, before or after a product of all rows, for small matrices;
* NCCL or RCCL in steps, which overlap too, but whose kernels occupy compute units;
* one exchange of all rows by NCCL or RCCL, before or after a product of all rows.

A model computes the time of each from the parameters of the device's links. All ranks make the same
choice.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cupygemm._backends.device import device
from cupygemm._backends.interconnect import Interconnect
from cupygemm._distributed.group import Group
from cupygemm._distributed.peers import Peers
from cupygemm._distributed.steps import (
    LAUNCH_SECONDS,
    Rows,
    RowWork,
    Step,
    choose_steps,
    sliced,
)

_HOST_SECONDS, _HOST_SECONDS_OF_STEP = 75e-6, 60e-6
"""What the host needs for a call, and beyond that for each range of rows that arrives apart;
measured, H200 and H100, 2026-11-27: 70 to 80 us without ranges, 250 with three."""
_HOST_SECONDS_OF_GRAPHS, _HOST_SECONDS_OF_ONE_GRAPH = 50e-6, 20e-6
"""For a call that is recorded in several graphs, or in one; measured on the fastest and the slowest
host: 35 to 80 and 14 to 28 us, H200, 2026-11-27."""
_SHORT_COPIES = 0.75
"""Copies that take at most this share of a product's time wait for none of two products at once."""


@dataclass(frozen=True, eq=False)
class Transport:
    """How the rows of a product are sent; compared by identity, so that it can be part of a key.

    Attributes
    ----------
    steps : list of Step
    peers : Peers or None
        Moves the rows; None for NCCL or RCCL.
    overlaps : bool
        Whether ranges of rows are multiplied while others are sent; if not, there is one step.
    spared : int
        The number of compute units that products leave to the exchange.
    two_products : bool
        Whether two products run concurrently, on two streams, unless the call is recorded.
    records : bool
        Whether to record the call when it is repeated, because the host takes longer to enqueue it
        than the device to execute it.
    """

    steps: list[Step]
    peers: Peers | None
    overlaps: bool
    spared: int = 0
    two_products: bool = True
    records: bool = False

    def placed(self, key: Hashable, *arrays: Any) -> Hashable:
        """Return the key of a call with these arrays; None if it should not be recorded.

        Parameters
        ----------
        key : hashable
            From `key_of`, which ignores addresses.
        *arrays : cupy.ndarray
        """
        if key is None or not self.records:
            return None
        return (key, self, *(array.data.ptr for array in arrays))


def choose_transport(
    group: Group,
    bounds: Sequence[Rows],
    work: RowWork,
    *,
    segment_bytes: int,
    scatters: bool = False,
) -> Transport:
    """Return the transport with the shortest modelled time; all ranks call this function.

    Parameters
    ----------
    group : Group
    bounds : sequence of Rows
        The rows of each rank.
    work : RowWork
    segment_bytes : int
        The number of bytes that the segment of each rank must hold if peers copy.
    scatters : bool
        Whether rows are sent after they have been computed, and then summed; otherwise they are
        multiplied after they have arrived.
    """
    key = (tuple(bounds), work, scatters)
    found: Transport | None = group.transports.get(key)
    if found is None:
        found = _fastest(group, bounds, work, scatters=scatters)
        group.transports.keep(key, found)
    if found.peers is not None and not found.peers.reserve(segment_bytes):
        return _fastest(group, bounds, work, copies=False)
    return found


def _fastest(
    group: Group,
    bounds: Sequence[Rows],
    work: RowWork,
    *,
    scatters: bool = False,
    copies: bool = True,
) -> Transport:
    """Return the transport with the shortest modelled time among those that may be used."""
    link = device(group.device).kernels.interconnect
    found = []
    asked = group.exchange_asked
    if copies and group.peers is not None:
        if asked != "stores":
            found.append(_by_copies(group, bounds, work, link, scatters))
        if asked == "stores" or (asked == "auto" and link.stores is not None):
            found.append(_by_stores(group, bounds, work, link))
        if asked != "auto":
            return found[0][1]
    seconds, transport = _at_once(group, bounds, work, link)
    found.append((max(_HOST_SECONDS, seconds), transport))
    several_hosts = group.board is None
    if group.size > 1 and (several_hosts or link.nccl_overlaps):
        found.append(_by_nccl(group, bounds, work, link))
    return min(found, key=lambda each: each[0])[1]


def _at_once(
    group: Group, bounds: Sequence[Rows], work: RowWork, link: Interconnect
) -> tuple[float, Transport]:
    """Return the time of an exchange and then a product of all rows, and the exchange by NCCL."""
    m = bounds[-1][1]
    most = m - min(last - first for first, last in bounds)
    each = -(-most // max(1, group.size - 1)) * work.nbytes
    travels = link.step_seconds([each] * (group.size - 1))
    product = LAUNCH_SECONDS + link.product_seconds(m * work.flops, work.itemsize)
    steps = sliced(group.rank, bounds, 1) if group.size > 1 else []
    return travels + product, Transport(steps, None, overlaps=False)


def _by_nccl(
    group: Group, bounds: Sequence[Rows], work: RowWork, link: Interconnect
) -> tuple[float, Transport]:
    share = 1 - link.nccl_units / link.units
    chosen = choose_steps(group.rank, bounds, work, link=link, share=share)
    transport = Transport(chosen.steps, None, overlaps=True, spared=link.nccl_units)
    return max(_host_seconds(chosen.steps), chosen.seconds), transport


def _by_copies(
    group: Group, bounds: Sequence[Rows], work: RowWork, link: Interconnect, scatters: bool
) -> tuple[float, Transport]:
    link = link.copies or link
    chosen = choose_steps(group.rank, bounds, work, link=link)
    host = _host_seconds(chosen.steps)
    records = chosen.seconds < host
    seconds = max(_HOST_SECONDS_OF_GRAPHS if records else host, chosen.seconds)
    # Two concurrent products both end later than one alone, so copies of their sums start later.
    rows = max(last - first for first, last in bounds)
    copying = link.step_seconds([rows * work.nbytes])
    multiplying = link.product_seconds(rows * work.flops, work.itemsize)
    two_products = not scatters or copying < _SHORT_COPIES * multiplying
    transport = Transport(
        chosen.steps, group.peers, overlaps=True, records=records, two_products=two_products
    )
    return seconds, transport


def _by_stores(
    group: Group, bounds: Sequence[Rows], work: RowWork, link: Interconnect
) -> tuple[float, Transport]:
    seconds, transport = _at_once(group, bounds, work, link.stores or link)
    return max(_HOST_SECONDS_OF_ONE_GRAPH, seconds), replace(
        transport, peers=group.peers, records=True
    )


def _host_seconds(steps: Sequence[Step]) -> float:
    pieces = sum(len(step.receives) for step in steps)
    return _HOST_SECONDS + _HOST_SECONDS_OF_STEP * pieces
