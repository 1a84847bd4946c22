"""`Segment`: memory of a rank that its peers copy to.

Processes open each other's memory by the driver's handles (IPC), and threads of a process by peer
access.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cupygemm._distributed.rendezvous import Facts

GRANULE = 2 << 20
"""Bytes; cudaMalloc gives smaller segments a place within a larger allocation."""
_HANDLE_KIND = "handle"

Agree = Callable[[Facts], list[Facts]]


class Segment:
    """Memory of this rank, and the addresses of the segments of all ranks, by rank.

    Parameters
    ----------
    nbytes : int
        The size, the same on all ranks.
    rank : int
    agree : callable
        Returns the facts of all ranks.

    Raises
    ------
    PeerError
        A rank cannot open the memory of another one.
    """

    def __init__(self, nbytes: int, rank: int, agree: Agree) -> None:
        from cupy.cuda import Memory, runtime
        from cupy.cuda.memory import OutOfMemoryError

        self.nbytes = -(-nbytes // GRANULE) * GRANULE
        self._rank = rank
        self._opened: list[int] = []
        self.addresses: list[int] = []
        self._memory: Any = None
        self.device = runtime.getDevice()
        problem = ""
        try:
            self._memory = Memory(self.nbytes)
            runtime.memset(self._memory.ptr, 0, self.nbytes)
            runtime.deviceSynchronize()
        except OutOfMemoryError as err:
            problem = str(err)
        everybody = agree({} if problem else self._own_facts())
        try:
            if all(everybody):
                self.addresses = [self._open(r, facts) for r, facts in enumerate(everybody)]
        except (runtime.CUDARuntimeError, PeerError) as err:
            problem = str(err)
        problems = [facts["problem"] for facts in agree({"problem": problem})]
        if any(problems):
            self.close()
            raise PeerError(next(filter(None, problems)))

    def _own_facts(self) -> Facts:
        from cupy.cuda import runtime

        facts = {
            "host": host_name(),
            "process": os.getpid(),
            "device": self._memory.device_id,
            "address": self._memory.ptr,
            _HANDLE_KIND: "",
        }
        with contextlib.suppress(runtime.CUDARuntimeError):  # only processes need it
            facts[_HANDLE_KIND] = runtime.ipcGetMemHandle(self._memory.ptr).hex()
        return facts

    def _open(self, rank: int, facts: Facts) -> int:
        from cupy.cuda import runtime

        if rank == self._rank:
            return int(self._memory.ptr)
        if facts["host"] != host_name():
            raise PeerError("the ranks are on different hosts")
        own = self._memory.device_id
        if facts["process"] == os.getpid():
            if not runtime.deviceCanAccessPeer(own, facts["device"]):
                raise PeerError(f"device {own} cannot access device {facts['device']}")
            with contextlib.suppress(runtime.CUDARuntimeError):  # already enabled
                runtime.deviceEnablePeerAccess(facts["device"])
            return int(facts["address"])
        if not facts[_HANDLE_KIND]:
            raise PeerError("the driver cannot share memory with other processes")
        address = int(runtime.ipcOpenMemHandle(bytes.fromhex(facts[_HANDLE_KIND])))
        self._opened.append(address)
        return address

    def array(self, shape: Sequence[int], dtype: Any, offset: int) -> Any:
        """Return an array in this rank's own segment."""
        import cupy

        place = cupy.cuda.MemoryPointer(self._memory, offset)
        return cupy.ndarray(tuple(shape), dtype, place)

    def close(self) -> None:
        """Close the memory of the others; their copies to this rank's memory must have ended."""
        from cupy.cuda import runtime

        for address in self._opened:
            with contextlib.suppress(runtime.CUDARuntimeError):
                runtime.ipcCloseMemHandle(address)
        self._opened.clear()


class PeerError(RuntimeError):
    """Ranks cannot open each other's memory; the message says why."""


def host_name() -> str:
    """Return an identifier of the running system, the same in all containers on it."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return socket.gethostname()
