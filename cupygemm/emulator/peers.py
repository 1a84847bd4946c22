"""Several emulated devices in one process: their memory, and access among peers.

All devices share one address space, as under HIP. A kernel may access the memory of its own device,
of the peers to which its device has enabled access, and of the host. Copies reach every device.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.concurrency.stream_order import StreamOrder
from cupygemm.emulator.device import Device, FaultLog
from cupygemm.emulator.memory.allocations import Memory
from cupygemm.emulator.targets import Target

MAX_DEVICES = 16


class _Ranges(NamedTuple):
    """The ranges that the kernels of a device may touch, and their origins."""

    of_all: NDArray[np.uint64]
    peers: frozenset[int]
    starts: NDArray[np.uint64]
    ends: NDArray[np.uint64]


class DeviceMemory:
    """The memory of the process as the kernels of one device see it.

    Other attributes and methods are delegated to the whole memory.

    Parameters
    ----------
    whole : Memory
    device : int
    """

    def __init__(self, whole: Memory, device: int) -> None:
        self.whole = whole
        self.device = device
        self.peers: frozenset[int] = frozenset()
        self._latest: _Ranges | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    @property
    def used_bytes(self) -> int:
        """Return the number of bytes allocated on this device."""
        return self.whole.used_by(self.device)

    def malloc(self, size: int, tag: str = "", **options: Any) -> int:
        """Allocate memory of this device; see `Memory.malloc`."""
        return self.whole.malloc(size, tag, **{"device": self.device, **options})

    def ranges(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return the ranges that a kernel of this device may access; see `Memory.ranges`."""
        starts, ends, devices = self.whole.ranges_and_devices()
        latest, peers = self._latest, self.peers
        if latest is None or latest.of_all is not starts or latest.peers != peers:
            allowed = np.isin(devices, [-1, self.device, *peers])
            latest = self._latest = _Ranges(starts, peers, starts[allowed], ends[allowed])
        return latest.starts, latest.ends

    def is_peers(self, address: int) -> bool:
        """Tell whether an address is in the memory of a device that this one cannot access."""
        block = self.whole.block(address)
        return block is not None and block.device not in (None, self.device, *self.peers)

    def describe(self, address: int, size: int) -> str:
        """Describe ``[address, address + size)``, and whether this device may access it."""
        found = self.whole.describe(address, size)
        block = self.whole.block(address)
        if block is None or not self.is_peers(address):
            return found
        return (
            f"{found};\ndevice {self.device} has no access to the memory of device {block.device}: "
            f"call hipDeviceEnablePeerAccess({block.device}) while device {self.device} is the "
            "current one, or copy the data"
        )


class Devices:
    """The emulated devices of a process, and the current one of each thread.

    Parameters
    ----------
    target : Target
    count : int
        At least 1.
    """

    def __init__(self, target: Target, count: int = 1) -> None:
        memory, faults, launching = Memory(), FaultLog(), threading.RLock()
        self.order = StreamOrder()
        views: list[Any] = (
            [memory] if count == 1 else [DeviceMemory(memory, i) for i in range(count)]
        )
        self.memory = memory
        self.faults = faults
        self._devices = tuple(
            Device(target, view, index=index, faults=faults, launching=launching, order=self.order)
            for index, view in enumerate(views)
        )
        self._current = threading.local()
        self.captured: set[int] = set()  # streams whose work is kept for a graph

    def __len__(self) -> int:
        return len(self._devices)

    def __getitem__(self, index: int) -> Device:
        return self._devices[index]

    @property
    def target(self) -> Target:
        """Return the target of all devices."""
        return self._devices[0].target

    @property
    def current(self) -> Device:
        """Return this thread's current device, initially device 0."""
        return self._devices[getattr(self._current, "index", 0)]

    def select(self, index: int) -> None:
        """Make a device this thread's current one."""
        self._current.index = index

    def enable_peer(self, device: int, peer: int) -> None:
        """Allow kernels of a device to access another device's memory."""
        memory: Any = self._devices[device].memory
        memory.peers |= {peer}

    def disable_peer(self, device: int, peer: int) -> None:
        """Undo `enable_peer`."""
        memory: Any = self._devices[device].memory
        memory.peers -= {peer}

    def has_peer(self, device: int, peer: int) -> bool:
        """Tell whether kernels of a device may access another device's memory."""
        return len(self) > 1 and peer in self._devices[device].memory.peers  # type: ignore[attr-defined]
