"""`Group`: the processes of a product, one for each device, and how they exchange arrays.

A group is connected once (`connect`). It has a communicator of NCCL or RCCL, which moves data on
the group's stream, and a `Rendezvous`, through which the ranks agree on calls. Every product of the
group uses three members: `agree` before anything is enqueued, `exchange` for one step of sends and
receives, or `peers` for copies, and `guarded` around everything after the agreement.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Self

from cupygemm._distributed.board import Board, LateError
from cupygemm._distributed.messages import Message
from cupygemm._distributed.peers import Peers
from cupygemm._distributed.recordings import Recordings
from cupygemm._distributed.rendezvous import Facts, GroupError, Membership, Rendezvous
from cupygemm._distributed.repeated import Checked, Details, Key, digest_of_call
from cupygemm._distributed.shortcuts import Met
from cupygemm._plan.table import PlanTable

Exchange = Literal["auto", "nccl", "copies", "stores"]
DEFAULT_TIMEOUT = 60.0
"""Seconds that a call waits for the other ranks."""
_TABLE_SIZE = 1024
_REASON_SECONDS = 5.0  # until the reason of an NCCL error arrives from another rank


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
    stream, second_stream : cupy.cuda.Stream
        For the exchange, and for every second product of a call; see `ProductStreams`.
    board : Board or None
        Memory in which ranks of one host agree on repeated calls; None if they share no memory.
    peers : Peers or None
        Copies to the memory of the other ranks; None if all data moves by NCCL or RCCL.
    recordings : Recordings or None
        Recordings of repeated calls that use such copies; None without peers.
    shares_process : bool
        Whether ranks are threads of one process; see `meet_threads`.
    met : Met or None
        The digests of the last call on which the ranks agreed; None without a board.
    exchange_asked : {"auto", "nccl", "copies", "stores"}
    transports : PlanTable
        How rows are sent, by the work of a product; see `choose_transport`.
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
            self.second_stream = Stream(non_blocking=True)
        self.board: Board | None = None
        # All ranks agree on the same calls in the same order, and so drop the same ones. Which
        # calls and transports are kept may differ between ranks, so these have separate tables.
        self._agreed = PlanTable(_TABLE_SIZE)
        self._calls = PlanTable(_TABLE_SIZE)
        self.transports = PlanTable(_TABLE_SIZE)
        self.peers: Peers | None = None
        self.recordings: Recordings | None = None
        self.exchange_asked: Exchange = "auto"
        self.shares_process = False
        self.met: Met | None = None
        self._met_already: tuple[int, ...] | None = None
        _OPEN.add(self)

    def __repr__(self) -> str:
        return (
            f"<cupygemm.distributed.Group: rank {self.rank} of {self.size}, device {self.device}>"
        )

    @property
    def broken(self) -> GroupError | None:
        """Return why the group is no longer usable; None if it is usable."""
        return self._membership.broken

    def close(self) -> None:
        """Leave the group, which is then unusable on all ranks.

        The communicator stays open. A process that ends leaves the group as well.
        """
        from cupy.cuda import Device

        if self not in _OPEN:
            return
        _OPEN.discard(self)
        if self.peers is not None and self.broken is None:
            with Device(self.device):
                self.peers.close()
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
            A rank is gone, or does not make the call within the timeout.
        """
        self.agree("barrier", {})

    def checked(
        self,
        function: str,
        key: Key | None,
        own: Sequence[str],
        check: Callable[[], tuple[Facts, Details]],
    ) -> Checked[Details]:
        """Return a call whose arguments have been checked, now or in an earlier call.

        Parameters
        ----------
        function : str
            The name of the function.
        key : tuple or None
            From `key_of`; with None, the call is checked again.
        own : sequence of str
            The facts that may differ between ranks.
        check : callable
            Checks the arguments; returns the facts for the other ranks, and values that the
            function needs later. If it raises TypeError or ValueError, other ranks are notified.
        """
        found: Checked[Details] | None = None if key is None else self._calls.get(key)
        if found is None:
            with self.refusing(function):
                facts, details = check()
            digest = None if key is None else digest_of_call(function, facts, own)
            found = Checked(facts=facts, digest=digest, details=details)
            if key is not None:
                self._calls.keep(key, found)
        return found

    def agree(
        self, function: str, facts: Facts, *, own: Sequence[str] = (), digest: int | None = None
    ) -> list[Facts]:
        """Wait until all ranks have made the same call, and return the facts of all.

        Parameters
        ----------
        function : str
            The name of the function.
        facts : dict
            The facts of the call that the other ranks must know.
        own : sequence of str
            The facts that may differ between ranks.
        digest : int, optional
            The digest of the call, if it is known.

        Returns
        -------
        list of dict
            The facts of all ranks, by rank.

        Raises
        ------
        GroupError
            A rank has ended, or does not make the call within the timeout. The group is no longer
            usable.
        ValueError
            A rank calls another function, or with other facts, or has refused its call. Nothing has
            been enqueued on any rank, and the group stays usable.
        """
        known: tuple[int, ...] | None = None
        if self.board is not None:
            if digest is None:
                digest = digest_of_call(function, facts, own)
            known = self._met_already or self._meet(function, digest)
            self._met_already = None
            self.met = digest, known
            agreed: list[Facts] | None = self._agreed.get(known)
            if agreed is not None:
                return agreed
        everybody = self._membership.agree({"function": function, **facts})
        for rank, theirs in enumerate(everybody):
            if "refused" in theirs and rank != self.rank:
                raise ValueError(
                    f"{function}: rank {rank} has refused its call: {theirs['refused']}"
                )
        if "refused" in facts:
            return everybody
        for name in ("function", *(name for name in facts if name not in own)):
            _check_alike(function, name, [json.dumps(theirs.get(name)) for theirs in everybody])
        if known is not None:
            self._agreed.keep(known, everybody)
        return everybody

    def meets_again(self, function: str, met: Met) -> bool:
        """Wait until all ranks have made a call, and return whether they are the same as before.

        If they differ, call `agree` with the same digest; it does not wait again.
        """
        digest, before = met
        known = self._meet(function, digest)
        if known == before:
            return True
        self._met_already = known
        return False

    def _meet(self, function: str, digest: int) -> tuple[int, ...]:
        """Wait for all ranks on the board, and return their digests."""
        assert self.board is not None
        membership = self._membership
        membership.raise_if_broken()
        try:
            return self.board.meet(digest, self.timeout, membership.raise_if_broken)
        except LateError as err:
            membership.report_late(err.ranks, function)
            membership.raise_if_broken()
            raise

    def meet_threads(self) -> None:
        """Wait for the other ranks, if some are threads of one process.

        Some functions of a driver (allocating, freeing, loading a kernel) block until all devices
        of the process are idle, and meanwhile no other thread can call the driver. If a device then
        waits for work that another rank has not enqueued yet, the ranks deadlock. So these ranks
        meet twice: before they enqueue work that waits for another rank, and after each has
        enqueued the work that others wait for. They do nothing else between the two.
        """
        if self.shares_process:
            self._membership.agree({})

    @contextlib.contextmanager
    def refusing(self, function: str) -> Iterator[None]:
        """Notify the other ranks if the arguments of this one are refused."""
        try:
            yield
        except (TypeError, ValueError) as err:
            with contextlib.suppress(ValueError):  # another rank has refused too
                self.agree(function, {"refused": f"{type(err).__name__}: {err}"})
            raise

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """End the group if an exception is raised after the agreement, so that no rank hangs.

        Raises
        ------
        GroupError
            A fault of another rank has ended the group in the meantime.
        """
        try:
            yield
            self.raise_if_faulty()
        except GroupError:
            raise
        except BaseException as err:
            from cupy.cuda.nccl import NcclError

            cause = None
            if isinstance(err, NcclError):
                cause = self._membership.wait_until_broken(min(self.timeout, _REASON_SECONDS))
            elif isinstance(err, Exception) and self._membership.faulty:
                cause = self.broken  # the flags of all streams have been released
            if cause is not None:
                raise cause from err
            self._membership.fail(f"{type(err).__name__}: {err}")
            raise

    def raise_if_faulty(self) -> None:
        """Raise GroupError if a fault has ended the group."""
        if self._membership.faulty:
            self._membership.raise_if_broken()

    def release(self) -> None:
        """Release the streams of this rank that wait for other ranks."""
        if self.peers is not None:
            self.peers.release()

    def all_gather(self, own: Any, full: Any, bounds: Sequence[tuple[int, int]]) -> None:
        """Enqueue the exchange of all rows on the current stream.

        Parameters
        ----------
        own : cupy.ndarray
            The rows of this rank, C-contiguous.
        full : cupy.ndarray
            Array for the rows of all ranks, C-contiguous.
        bounds : sequence of (int, int)
            The rows of each rank.
        """
        from cupy.cuda import get_current_stream, nccl

        stream = get_current_stream()
        if len({last - first for first, last in bounds}) == 1:
            places = own.data.ptr, full.data.ptr
            self.meet_threads()
            self._communicator.allGather(*places, own.nbytes, nccl.NCCL_UINT8, stream.ptr)
            self.meet_threads()
            return
        peers = [peer for peer in range(self.size) if peer != self.rank]
        self.exchange(
            [Message.of(own, peer) for peer in peers],
            [Message.of_rows(full, bounds[peer], peer) for peer in peers],
            stream,
        )
        full[slice(*bounds[self.rank])] = own

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message], stream: Any) -> None:
        """Enqueue a step of sends and receives on a stream.

        They progress together: none completes before all have been called. Empty ones are omitted.

        Parameters
        ----------
        sends, receives : sequence of Message
        stream : cupy.cuda.Stream
        """
        from cupy.cuda import nccl

        pointer = stream.ptr
        self.meet_threads()
        nccl.groupStart()
        try:
            for operation, messages in (
                (self._communicator.send, sends),
                (self._communicator.recv, receives),
            ):
                for address, nbytes, peer in messages:
                    if nbytes:
                        operation(address, nbytes, nccl.NCCL_UINT8, peer, pointer)
        finally:
            nccl.groupEnd()
        self.meet_threads()


def _check_alike(function: str, name: str, values: list[str]) -> None:
    """Raise ValueError if a fact differs between ranks; name a rank that differs from most."""
    usual = max(values, key=values.count)
    if values.count(usual) < len(values):
        odd = next(rank for rank, value in enumerate(values) if value != usual)
        raise ValueError(
            f"{function}: rank {odd} calls with {name} = {values[odd]}, and rank "
            f"{values.index(usual)} with {usual}"
        )


_OPEN: weakref.WeakSet[Group] = weakref.WeakSet()


@atexit.register
def _leave() -> None:
    for group in tuple(_OPEN):
        group.close()
