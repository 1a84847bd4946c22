"""`Group`: the processes of a product, one for each device, and how they exchange arrays.

A group is connected once, on a communicator of NCCL or RCCL, which moves the data on a stream of
the group's own, and a `Rendezvous`, through which the ranks agree on calls. Every product of the
group asks for three things: `agree` before anything is enqueued, `exchange` for one step of sends
and receives, and `guarded` around what follows the agreement.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

from cupygemm._distributed.rendezvous import Facts, GroupError, Membership, Rendezvous

DEFAULT_TIMEOUT = 60.0
"""Seconds that a call waits for the other ranks."""
_ADDRESS_BYTES = 512
_REASON_SECONDS = 5.0  # for the reason of an error of NCCL to arrive from another rank


class Message(NamedTuple):
    """A contiguous array, and the rank that it goes to or comes from."""

    array: Any
    peer: int


class Group:
    """Processes that compute products together, one for each device; `connect` makes one.

    Parameters
    ----------
    communicator : cupy.cuda.nccl.NcclCommunicator
    membership : Membership
    rendezvous : Rendezvous or None
        On rank 0.
    size : int

    Attributes
    ----------
    rank, size : int
    device : int
        CuPy's number of this rank's device.
    timeout : float
        The seconds that a call waits for the other ranks.
    """

    def __init__(
        self,
        communicator: Any,
        membership: Membership,
        rendezvous: Rendezvous | None,
        *,
        size: int,
    ) -> None:
        from cupy.cuda import Device, Stream

        self.rank, self.size = membership.rank, size
        self.device = int(communicator.device_id())
        self.timeout = membership.timeout
        self._communicator = communicator
        self._membership = membership
        self._rendezvous = rendezvous
        with Device(self.device):
            self.stream = Stream(non_blocking=True)
        _OPEN.add(self)

    def __repr__(self) -> str:
        return (
            f"<cupygemm.distributed.Group: rank {self.rank} of {self.size}, device {self.device}>"
        )

    @property
    def broken(self) -> GroupError | None:
        """Return why the group is not usable any more; None if it is."""
        return self._membership.broken

    def close(self) -> None:
        """Leave the group, after which it is not usable on any rank.

        The communicator stays open. The end of the process leaves the group as well.
        """
        _OPEN.discard(self)
        self._membership.close()
        if self._rendezvous is not None:
            self._rendezvous.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def barrier(self) -> None:
        """Wait until all ranks have called this function.

        Raises
        ------
        GroupError
            A rank is gone, or has not come within the timeout.
        """
        self.agree("barrier", {})

    def agree(self, function: str, facts: Facts, *, own: Sequence[str] = ()) -> list[Facts]:
        """Wait for all ranks to come to a call, check that it is the same, and return their facts.

        Parameters
        ----------
        function : str
            The name of the function.
        facts : dict
            What the others must know.
        own : sequence of str
            The facts that may differ between ranks.

        Returns
        -------
        list of dict
            The facts of all ranks, by rank.

        Raises
        ------
        GroupError
            A rank is gone, or has not come within the timeout. The group cannot be used any more.
        ValueError
            A rank calls another function, or with other facts, or has refused its call. Nothing was
            enqueued, on any rank, and the group stays usable.
        """
        everybody = self._membership.agree({"function": function, **facts})
        for rank, theirs in enumerate(everybody):
            if "refused" in theirs and rank != self.rank:
                raise ValueError(
                    f"{function}: rank {rank} has refused its call: {theirs['refused']}"
                )
        if "refused" in facts:
            return everybody
        for name in ("function", *(name for name in facts if name not in own)):
            values = [json.dumps(theirs.get(name)) for theirs in everybody]
            usual = max(values, key=values.count)
            if values.count(usual) < self.size:
                odd = next(rank for rank, value in enumerate(values) if value != usual)
                like = values.index(usual)
                raise ValueError(
                    f"{function}: rank {odd} calls with {name} = {values[odd]}, and rank {like} "
                    f"with {usual}"
                )
        return everybody

    @contextlib.contextmanager
    def refusing(self, function: str) -> Iterator[None]:
        """Tell the other ranks if the arguments of this one are refused."""
        try:
            yield
        except (TypeError, ValueError) as err:
            with contextlib.suppress(ValueError):  # another rank has refused too
                self.agree(function, {"refused": f"{type(err).__name__}: {err}"})
            raise

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """End the group if an exception comes after the agreement, so that nobody waits for it."""
        try:
            yield
        except BaseException as err:
            from cupy.cuda.nccl import NcclError

            if not isinstance(err, NcclError):
                self._membership.fail(f"{type(err).__name__}: {err}")
                raise
            cause = self._membership.wait_until_broken(min(self.timeout, _REASON_SECONDS))
            if cause is not None:
                raise cause from err
            self._membership.fail(str(err))
            raise

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> None:
        """Enqueue a step of sends and receives on the stream of the group.

        They are in progress together, and none is done before all have been called. Empty arrays
        are left out.

        Parameters
        ----------
        sends, receives : sequence of Message
        """
        from cupy.cuda import nccl

        pointer = self.stream.ptr
        nccl.groupStart()
        try:
            for operation, messages in (
                (self._communicator.send, sends),
                (self._communicator.recv, receives),
            ):
                for array, peer in messages:
                    if array.nbytes:
                        operation(array.data.ptr, array.nbytes, nccl.NCCL_UINT8, peer, pointer)
        finally:
            nccl.groupEnd()


_OPEN: weakref.WeakSet[Group] = weakref.WeakSet()


@atexit.register
def _leave() -> None:
    for group in tuple(_OPEN):
        group.close()


def connect(
    communicator: Any, *, timeout: float = DEFAULT_TIMEOUT, host: str | None = None
) -> Group:
    """Connect the processes of a communicator to a group, on which products are computed.

    Every rank calls this function once. On each, the device of the communicator is the one that
    holds its arrays.

    Parameters
    ----------
    communicator : communicator
        A `cupy.cuda.nccl.NcclCommunicator`, a process group of `cupyx.distributed`, or a
        communicator of mpi4py. With mpi4py, the current device becomes the rank's, and an
        `~cupy.cuda.nccl.NcclCommunicator` is made on it.
    timeout : float
        The seconds that a call waits for the other ranks.
    host : str, optional
        The name or the address of the machine of rank 0, if it cannot be reached under the name
        that it has for itself.

    Returns
    -------
    Group
        With the attributes ``rank``, ``size`` and ``device``, and the methods ``barrier`` and
        ``close``.

    Raises
    ------
    TypeError
        The argument is not a communicator.
    GroupError
        Rank 0 does not answer, or a rank has not come within the timeout.

    Notes
    -----
    The ranks agree on each product over TCP before they enqueue it, so that a rank with another
    shape gives an error on all of them and nothing hangs. While a group has a product in progress,
    the communicator must not be used otherwise. After a `GroupError` the communicator is aborted,
    since NCCL knows no other end to operations that wait for a rank that is gone.

    Examples
    --------
    >>> import cupygemm.distributed
    >>> import cupy as cp, cupyx.distributed
    >>> comm = cupyx.distributed.init_process_group(4, rank)  # doctest: +SKIP
    >>> group = cupygemm.distributed.connect(comm)  # doctest: +SKIP
    """
    nccl, rank, size = _communicator(communicator)
    rendezvous = Rendezvous(size) if rank == 0 else None
    address = _broadcast(nccl, "" if rendezvous is None else rendezvous.address)

    def abort() -> None:
        with contextlib.suppress(Exception):  # it may have been destroyed
            nccl.abort()

    membership = Membership(address, rank, timeout, host=host, on_break=abort)
    group = Group(nccl, membership, rendezvous, size=size)
    group.barrier()
    return group


def _communicator(communicator: Any) -> tuple[Any, int, int]:
    """Return the communicator of NCCL for that of a caller, the rank and the number of ranks."""
    from cupy.cuda import nccl

    if hasattr(communicator, "Get_rank"):  # mpi4py's
        rank, size = communicator.Get_rank(), communicator.Get_size()
        unique_id = communicator.bcast(nccl.get_unique_id() if rank == 0 else None, root=0)
        communicator = nccl.NcclCommunicator(size, unique_id, rank)
    elif not isinstance(communicator, nccl.NcclCommunicator):
        communicator = getattr(communicator, "_comm", communicator)  # that of a process group
    if not isinstance(communicator, nccl.NcclCommunicator):
        kind = f"{type(communicator).__module__}.{type(communicator).__qualname__}"
        raise TypeError(
            f"connect: the communicator is a {kind}; pass a cupy.cuda.nccl.NcclCommunicator, a "
            "process group of cupyx.distributed, or a communicator of mpi4py"
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
        received: bytes = buffer.get().tobytes()
    return received.rstrip(b"\0").decode()


__all__ = ["DEFAULT_TIMEOUT", "Group", "GroupError", "Message", "connect"]
