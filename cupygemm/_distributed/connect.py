"""`connect`: make a `Group` from a communicator, on all ranks together.

The ranks connect to the rendezvous of rank 0. If they are on one host, they open a board; if copies
are wanted, they also open each other's memory.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, get_args

from cupygemm._backends.device import device
from cupygemm._distributed.board import Board
from cupygemm._distributed.group import DEFAULT_TIMEOUT, Exchange, Group
from cupygemm._distributed.peers import open_peers
from cupygemm._distributed.recordings import Recordings
from cupygemm._distributed.rendezvous import Membership, Rendezvous
from cupygemm._distributed.segment import host_name
from cupygemm._request.arrays import type_of

_ADDRESS_BYTES = 512


def connect(
    communicator: Any,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    host: str | None = None,
    exchange: Exchange = "auto",
) -> Group:
    """Connect the processes of a communicator to a group that computes products.

    Every rank calls this function once. The arrays of a rank must be on the device of its
    communicator.

    Parameters
    ----------
    communicator : communicator
        A `cupy.cuda.nccl.NcclCommunicator`, a process group of `cupyx.distributed`, or a
        communicator of mpi4py. With mpi4py, the current device becomes the rank's, and an
        `~cupy.cuda.nccl.NcclCommunicator` is made on it.
    timeout : float
        The seconds that a call waits for the other ranks.
    host : str, optional
        The name or the address of the machine of rank 0, if the others cannot reach it under its
        own host name.
    exchange : {"auto", "nccl", "copies", "stores"}
        How operands and sums are sent: by NCCL or RCCL, or directly to the memory of the other
        ranks, which must be on one host. ``"copies"`` are made by copy engines while products run;
        ``"stores"`` are made by a kernel before or after one product. By default, a model chooses
        for each product, by times measured on the device. It chooses NCCL or RCCL on devices for
        which the times of copies are unknown.

    Returns
    -------
    Group
        With the attributes ``rank``, ``size`` and ``device``, and the methods ``barrier`` and
        ``close``.

    Raises
    ------
    TypeError
        The argument is not a communicator.
    ValueError
        `timeout` is not positive, the ranks pass different values of `exchange`, or the one they
        pass is unknown or not possible.
    GroupError
        Rank 0 does not respond, or a rank does not call `connect` within the timeout.

    Notes
    -----
    The ranks agree on each product over TCP before they enqueue it, so that a rank with another
    shape causes an error on all of them instead of a hang. While a group has a product in progress,
    the communicator must not be used otherwise. After a `GroupError` the communicator is aborted,
    because NCCL has no other way to end operations that wait for a rank that has ended.

    Examples
    --------
    >>> import cupygemm.distributed
    >>> import cupy as cp, cupyx.distributed
    >>> comm = cupyx.distributed.init_process_group(4, rank)  # doctest: +SKIP
    >>> group = cupygemm.distributed.connect(comm)  # doctest: +SKIP
    """
    if exchange not in get_args(Exchange):
        known = ", ".join(map(repr, get_args(Exchange)))
        raise ValueError(f"connect: exchange must be one of {known} (got {exchange!r})")
    if not timeout > 0:
        raise ValueError(f"connect: timeout is {timeout}; it must be a positive number of seconds")
    nccl, rank, size = _communicator(communicator)
    rendezvous = Rendezvous(size) if rank == 0 else None
    address = _broadcast(nccl, "" if rendezvous is None else rendezvous.address)

    def abort() -> None:
        for group in groups:
            group.release()
        with contextlib.suppress(Exception):  # it may have been destroyed
            nccl.abort()

    groups: list[Group] = []
    membership = Membership(address, rank, timeout, host=host, on_break=abort)
    group = Group(nccl, membership, rendezvous, size=size)
    groups.append(group)
    group.barrier()
    group.shares_process = _share_a_process(membership)
    group.board = _share_board(group, membership)
    _open_peers(group, membership, exchange)
    return group


def _communicator(communicator: Any) -> tuple[Any, int, int]:
    """Return the NCCL communicator for a caller's communicator, the rank, and the group's size."""
    from cupy.cuda import nccl

    if hasattr(communicator, "Get_rank"):  # of mpi4py
        rank, size = communicator.Get_rank(), communicator.Get_size()
        unique_id = communicator.bcast(nccl.get_unique_id() if rank == 0 else None, root=0)
        communicator = nccl.NcclCommunicator(size, unique_id, rank)
    elif not isinstance(communicator, nccl.NcclCommunicator):
        communicator = getattr(communicator, "_comm", communicator)  # of a process group
    if not isinstance(communicator, nccl.NcclCommunicator):
        raise TypeError(
            f"connect: the communicator is {type_of(communicator)}; pass a "
            "cupy.cuda.nccl.NcclCommunicator, a process group of cupyx.distributed, or a "
            "communicator of mpi4py"
        )
    return communicator, int(communicator.rank_id()), int(communicator.size())


def _broadcast(nccl: Any, text: str) -> str:
    """Return rank 0's text on all ranks."""
    import cupy
    import numpy as np

    with cupy.cuda.Device(nccl.device_id()):
        padded = np.frombuffer(text.encode().ljust(_ADDRESS_BYTES, b"\0"), np.uint8)
        buffer = cupy.asarray(padded)
        stream = cupy.cuda.get_current_stream()
        place, kind = buffer.data.ptr, cupy.cuda.nccl.NCCL_UINT8
        nccl.broadcast(place, place, _ADDRESS_BYTES, kind, 0, stream.ptr)
        stream.synchronize()
        received: bytes = buffer.get().tobytes()
    return received.rstrip(b"\0").decode()


def _share_a_process(membership: Membership) -> bool:
    """Whether some ranks are threads of one process."""
    everybody = membership.agree({"host": host_name(), "process": os.getpid()})
    return len({(each["host"], each["process"]) for each in everybody}) < len(everybody)


def _share_board(group: Group, membership: Membership) -> Board | None:
    """Return the board on which the ranks agree; None if they are on several hosts."""
    path = Board.create(group.size) if group.rank == 0 else ""
    try:
        everywhere = membership.agree({"board": path})[0]["board"]
        board = None
        with contextlib.suppress(OSError):
            board = Board(everywhere, group.rank, group.size)
        answers = membership.agree({"board": board is not None})
        return board if all(each["board"] for each in answers) else None
    finally:
        if path:
            Path(path).unlink()


def _open_peers(group: Group, membership: Membership, exchange: Exchange) -> None:
    """Open the memory of the other ranks, if copies are wanted and possible."""
    from cupy.cuda import Device

    link = device(group.device).kernels.interconnect
    needed = exchange in ("copies", "stores")
    wanted = needed or (exchange == "auto" and link.copies is not None)
    asked = membership.agree({"exchange": exchange, "wanted": wanted})
    values = [each["exchange"] for each in asked]
    if any(value != exchange for value in values):
        raise ValueError(f"connect: all ranks must pass the same exchange (got {values})")
    group.exchange_asked = exchange
    if group.size > 1 and all(each["wanted"] for each in asked):
        with Device(group.device):
            meet = group.meet_threads if group.shares_process else None
            place = group.rank, group.size, group.stream, membership.agree
            group.peers = open_peers(*place, meet=meet)
            if group.peers is not None:
                group.recordings = Recordings(group.peers, group.second_stream)
    if needed and group.peers is None:
        raise ValueError(
            f"connect: exchange is {exchange!r}, but the ranks cannot open each other's memory"
        )
